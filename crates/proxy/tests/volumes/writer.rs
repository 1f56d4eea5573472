//! A client that writes over the logs of members.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};

use bytes::Bytes;
use forebay_cluster::{SessionId, SlotNumber};
use forebay_format::{footer::RunEntry, row::Extent, stream};
use forebay_meta::{NewInode, WriteAttr};
use forebay_object::Backend;
use forebay_owner::VolumeOwner;
use forebay_protocol::{
    Answer, Commit, FileCommit, Mapped, OpenSegments, Operation, Placing, Request, SealedSegment,
    SegmentPlace, Settle,
};
use forebay_types::{Epoch, FileKind, Generation, Ino, SegmentId, SubvolumeId, Timespec};

use crate::bed::{GROUP, Member, NEVER, World};

/// A run with its head, as writers append them at `at` of a segment.
pub fn run(segment: SegmentId, at: u64, ino: Ino, body: &[u8]) -> Bytes {
    let entry = RunEntry {
        subvolume: SubvolumeId::FIRST,
        generation: Generation::FIRST,
        ino,
        block: 0,
        offset: 0,
        run_len: body.len() as u32,
        run_offset: at + 64,
        stored_len: body.len() as u32,
        form: 0,
        check: 1,
    };
    [&stream::encode(segment, &entry)[..], body].concat().into()
}

/// A client that writes.
pub struct Writer {
    owner: Arc<VolumeOwner>,
    pub session: SessionId,
    next: AtomicU64,
}

impl Writer {
    pub fn new(owner: Arc<VolumeOwner>, session: SessionId) -> Writer {
        Writer { owner, session, next: AtomicU64::new(1) }
    }

    pub fn ask(&self, operation: Operation) -> Answer {
        let slot = operation.changes().then(|| (SlotNumber(0), self.next.fetch_add(1, SeqCst)));
        let request = Request { session: self.session, slot, operation, wish: None };
        let (to, from) = mpsc::channel();
        self.owner.submit(request, Box::new(move |said| drop(to.send(said))));
        from.recv_timeout(NEVER).unwrap().unwrap().answer
    }

    pub fn make(&self, name: &str) -> Ino {
        let new = NewInode {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 1,
            gid: 1,
            rdev: 0,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        let made = self.ask(Operation::Make(Ino::ROOT, name.as_bytes().to_vec(), new));
        made.inode().unwrap().ino
    }

    /// A segment on these members.
    pub fn open(&self, set: &[&Member]) -> SegmentId {
        let placing = Placing::Set(set.iter().map(|member| member.id).collect());
        let (directory, group) = (Ino::ROOT, GROUP);
        let open = OpenSegments { directory, apart: false, count: 1, group, placing };
        match self.ask(Operation::OpenSegments(open)) {
            Answer::Opened(opened) => opened[0].segment,
            other => panic!("{other:?}"),
        }
    }

    /// A file consists of what is at this place of a segment.
    pub fn commits(&self, ino: Ino, segment: SegmentId, run_offset: u64, len: u32) {
        let extent =
            Extent { len, segment, run_offset, stored_len: len, run_len: len, skip: 0, form: 0, check: 1 };
        let (attr, mtime) = (WriteAttr::default(), Timespec::default());
        let file = FileCommit { ino, inline: None, extents: vec![(0, extent)], size: 0, attr, mtime };
        let commit = Commit { objects: Vec::new(), files: vec![file] };
        assert_eq!(self.ask(Operation::Commit(Box::new(commit))), Answer::Committed(Vec::new()));
    }

    pub fn settles(&self, segment: SegmentId, bytes: &Bytes) {
        let (len, check) = (bytes.len() as u64, crc32c::crc32c(bytes));
        let sealed = vec![SealedSegment { segment, epoch: Epoch(1), len, check }];
        let settle = Settle { sealed, settled: vec![segment] };
        assert_eq!(self.ask(Operation::Settle(settle)), Answer::Done);
    }

    /// Writes a file of two runs into a segment of its own on these members, and seals it. Returns the segment, its bytes, and the file.
    pub fn writes(&self, name: &str, set: &[&Member], len: usize) -> (SegmentId, Bytes, Ino) {
        let (ino, segment) = (self.make(name), self.open(set));
        let first = run(segment, 0, ino, &vec![name.as_bytes()[0]; len]);
        let second = run(segment, first.len() as u64, ino, &[name.as_bytes()[0] + 1; 10]);
        let whole = Bytes::from([&first[..], &second[..]].concat());
        for member in set {
            member.append(segment, 1, &first);
            member.append(segment, 1, &second);
            member.seal(segment, &whole);
        }
        self.commits(ino, segment, 64, len as u32);
        self.settles(segment, &whole);
        (segment, whole, ino)
    }

    /// Where the store has a file's segment.
    pub fn place(&self, ino: Ino) -> Option<SegmentPlace> {
        match self.ask(Operation::Map(ino, 0, 1 << 20)) {
            Answer::Mapped(Mapped { places, .. }) => places.first().map(|(_, place)| *place),
            Answer::MappedSets(..) => None,
            other => panic!("{other:?}"),
        }
    }

    /// The store has a file's segment, whole.
    pub fn is_stored(&self, world: &World, ino: Ino, whole: &Bytes) {
        let place = self.place(ino).unwrap();
        let range = place.offset..place.offset + place.len;
        assert!(world.store.get_range(&place.object.key(), range).unwrap() == *whole);
    }
}
