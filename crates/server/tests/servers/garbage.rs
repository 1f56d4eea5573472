//! What nobody refers to any more leaves the store.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use forebay_cluster::Moment;
use forebay_format::row::{Extent, ObjectRef};
use forebay_meta::WriteAttr;
use forebay_object::{Backend, ObjectStore, StoreOptions};
use forebay_owner::{SystemTicks, Ticks};
use forebay_protocol::{Answer, Commit, FileCommit, Kind, Message, ObjectCommit, Operation, SegmentCommit};
use forebay_server::{MetaServer, ServerOptions, Ticking};
use forebay_types::{Ino, ObjectId, Timespec};

use crate::bed::{Asks, Bed, Session, until};

/// A clock that goes on faster when it is told to.
#[derive(Default)]
struct Ahead(AtomicU64);

impl Ticks for Ahead {
    fn now(&self) -> Moment {
        Moment(SystemTicks.now().0 + self.0.load(Ordering::SeqCst))
    }
}

/// Puts two objects, and makes a file of the first.
fn write(session: &Session<'_>, store: &ObjectStore) -> [ObjectRef; 2] {
    let Answer::Numbers(numbers) = session.answer(Operation::Numbers(1, 2)) else { panic!("no numbers") };
    let first = numbers.first_object;
    let second = ObjectRef { id: ObjectId(first.id.0 + 1), ..first };
    for object in [first, second] {
        store.put_new(&object.key(), Bytes::from(vec![7; 4096])).unwrap();
    }
    let Answer::Inode(file) = session.make("file") else { panic!("no file") };
    let segment = numbers.first_segment;
    let extent = Extent {
        len: 2000,
        segment,
        run_offset: 0,
        stored_len: 2008,
        run_len: 2000,
        skip: 0,
        form: 0,
        check: 1,
    };
    let segments = vec![SegmentCommit { id: segment, offset: 0, len: 4096, raw: 2000 }];
    let commit = Commit {
        objects: vec![ObjectCommit { object: first, segments }],
        files: vec![FileCommit {
            ino: file.ino,
            inline: None,
            extents: vec![(0, extent)],
            size: 2000,
            attr: WriteAttr::default(),
            mtime: Timespec { secs: 77, nanos: 0 },
        }],
    };
    assert_eq!(session.answer(Operation::Commit(Box::new(commit))), Answer::Committed(Vec::new()));
    [first, second]
}

#[test]
fn objects_that_a_session_left_and_those_of_a_removed_file_are_deleted() {
    // Owners beat by this clock there; where one server has the place alone, it says by the machine's that it lives.
    let bed = Bed::postgres();
    let clock = Arc::new(Ahead::default());
    let options = ServerOptions { ticks: Ticking(Arc::clone(&clock) as _), ..bed.options() };
    let server = MetaServer::start(&options, &|| false).unwrap().unwrap();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let store = ObjectStore::open(&bed.store("v").parse().unwrap(), &StoreOptions::default()).unwrap();
    let session = asks.join("v", 1);
    let [kept, left] = write(&session, &store);
    asks.raw(Kind::End as u16, session.id.encode()).unwrap();
    // Time goes four times as fast: a minute passes until garbage is deleted.
    let goes = |object: ObjectRef| {
        until("an object to go", || {
            clock.0.fetch_add(60_000_000, Ordering::SeqCst);
            store.head(&object.key()).is_err().then_some(())
        });
    };
    goes(left);
    assert!(store.head(&kept.key()).is_ok(), "a file has it");
    let other = asks.join("v", 2);
    let unlinked = other.answer(Operation::Unlink(Ino::ROOT, b"file".to_vec(), Vec::new()));
    assert!(matches!(unlinked, Answer::Inode(_)), "{unlinked:?}");
    asks.raw(Kind::End as u16, other.id.encode()).unwrap();
    goes(kept);
}
