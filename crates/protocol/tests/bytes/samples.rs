//! Parts of messages, with something in each field.

use forebay_format::row::{DirectoryRow, Extent, InodeRow, Layout, ObjectRef};
use forebay_group::{
    Candidate, Fenced, GroupId, Incarnation, Member, MemberId, MemberState, NotTaken, Offer, Verdict, View,
    ViewEpoch,
};
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{NewInode, Piece, PieceSource, RenameMode, SetAttr, SetTime, SetXattr, WriteAttr};
use forebay_protocol::{
    Answer, ClientStatus, Commit, Contents, DirectoryEntry, Failure, FencedCopies, FencedCopy, FileCommit,
    InodeAnswer, Judged, Mapped, MemberStatus, Numbers, ObjectCommit, OfferCopies, OpenSegments,
    OpenedSegment, Operation, Overview, OwnerDetail, Placing, PolicyChange, PolicyEdit, PolicyKept,
    PolicySaid, PolicySums, Reseat, SealedSegment, SegmentCommit, SegmentPlace, SetPlace, Settle,
    SpaceAnswer, Step, StoreSegments, StoredSegment, VolumeInfo, VolumeStatus,
};
use forebay_types::{
    Compression, Epoch, FileKind, Ino, ObjectId, PolicyId, SegmentId, SyncClass, Timespec, VolumeId,
};

pub const TIME: Timespec = Timespec { secs: 1_700_000_000, nanos: 5 };
pub const OBJECT: ObjectRef = ObjectRef { epoch: Epoch(3), id: ObjectId(77) };
pub const EXTENT: Extent = Extent {
    len: 4096,
    segment: SegmentId(9),
    run_offset: 64,
    stored_len: 300,
    run_len: 8192,
    skip: 100,
    form: 1,
    check: 0xdead_beef,
};

pub fn row(kind: FileKind) -> InodeRow {
    InodeRow {
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 4096,
        allocated: 300,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        btime: TIME,
        parent: Ino::ROOT,
        has_xattrs: true,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: if kind == FileKind::Regular { Layout::Single(0, 0, EXTENT) } else { Layout::Empty },
    }
}

pub fn inode() -> InodeAnswer {
    let place = SegmentPlace { object: OBJECT, offset: 128, len: 1 << 20 };
    let contents = Some(Contents::Place(SegmentId(9), place));
    InodeAnswer { ino: Ino(4097), row: row(FileKind::Regular), directory: None, contents }
}

pub fn directory() -> InodeAnswer {
    let directory = DirectoryRow { entries: 3, directories: 1, mtime: TIME, ctime: TIME };
    InodeAnswer { ino: Ino(2), row: row(FileKind::Directory), directory: Some(directory), contents: None }
}

pub fn lock() -> LockRequest {
    let range = LockRange { start: 1, end: u64::MAX, kind: LockKind::Exclusive, pid: 12 };
    LockRequest { space: LockSpace::Flock, owner: u64::MAX, fh: 4, range }
}

pub fn operations() -> Vec<Operation> {
    use Operation as Op;
    let (a, b, name) = (Ino(2), Ino(3), || b"name".to_vec());
    let set = SetAttr {
        mode: Some(0o4755),
        size: Some(0),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(TIME)),
        ctime: Some(TIME),
        xattrs: vec![(b"user.a".to_vec(), Some(Vec::new())), (b"user.b".to_vec(), None)],
        ..SetAttr::default()
    };
    let new = NewInode {
        kind: FileKind::Symlink,
        mode: 0o777,
        uid: 1,
        gid: 2,
        rdev: 3,
        target: b"to".to_vec(),
        xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())],
    };
    let attr = WriteAttr { mode: Some(0o755) };
    let segment = SegmentCommit { id: SegmentId(9), offset: 128, len: 1 << 20, raw: 2 << 20 };
    let tiny = FileCommit { ino: b, inline: Some(vec![0; 1024]), size: 1024, ..FileCommit::default() };
    let large = FileCommit {
        ino: a,
        extents: vec![(4 << 20, EXTENT)],
        size: 5 << 20,
        attr,
        mtime: TIME,
        ..tiny.clone()
    };
    let commit = Commit {
        objects: vec![ObjectCommit { object: OBJECT, segments: vec![segment] }],
        files: vec![FileCommit { inline: None, ..large }, tiny],
    };
    vec![
        Op::Lookup(a, name()),
        Op::Inode(a),
        Op::Entries { directory: a, after: Some(name()), limit: 4096, inodes: true },
        Op::ReadLink(a),
        Op::Xattr(a, name()),
        Op::Xattrs(a),
        Op::Map(a, 5, u64::MAX),
        Op::Space,
        Op::TestLock(a, lock()),
        Op::Reserve { needs: 300, spare: 1 << 26 },
        Op::Make(a, name(), new.clone()),
        Op::MakeNameless(a, new),
        Op::Link(a, b, name()),
        Op::Unlink(a, name(), vec![b]),
        Op::Rmdir(a, name(), Vec::new()),
        Op::Rename {
            from: a,
            name: name(),
            to: b,
            new_name: name(),
            mode: RenameMode::Exchange,
            open: vec![a, b],
        },
        Op::SetAttr(a, set),
        Op::SetAtime(a, TIME),
        Op::SetXattr(a, name(), vec![1; 300], SetXattr::Replace),
        Op::RemoveXattr(a, name()),
        Op::Numbers(5, 6),
        Op::Commit(Box::new(commit)),
        Op::Punch { ino: a, from: 1, to: 2, size: Some(3), attr },
        Op::Share { source: a, from: 1, target: b, to: 2, len: 3, attr },
        Op::Release(vec![a, b]),
        Op::Lock(a, lock(), true),
        Op::Unlock(a, LockSpace::Record, 5, (1, 2)),
        Op::UnlockHandle(a, 5),
        Op::Runs(7),
        Op::Ahead(vec![
            Step { time: TIME, made: None, operation: Op::RemoveXattr(a, name()) },
            Step { time: TIME, made: Some(b), operation: Op::Unlink(a, name(), vec![b]) },
        ]),
        Op::Hold(vec![a, b]),
        Op::Seal(vec![Ino(4097), Ino(9)]),
    ]
}

pub const MEMBER: MemberId = MemberId([7; 16]);
pub const GROUP: GroupId = GroupId([9; 16]);

pub fn on_policies() -> Vec<Operation> {
    use Operation as Op;
    let class = Some(SyncClass::Replica(3));
    let none = PolicyEdit::default();
    let (group, gone) = (Some(Some(GROUP)), Some(None));
    let all =
        PolicyEdit { durability: Some(None), pin: Some(true), confine: group, place: gone, exclude: group };
    vec![
        Op::Classes(vec![PolicyId(1), PolicyId(300)]),
        Op::GroupRules(vec![PolicyId(1), PolicyId(300)]),
        Op::ChangePolicy(PolicyChange::Set(Ino(4097), PolicyEdit { durability: Some(class), ..none })),
        Op::ChangePolicy(PolicyChange::Set(Ino(4097), all)),
        Op::ChangePolicy(PolicyChange::Give(PolicyId(300), vec![Ino(4097), Ino(9)])),
        Op::ChangePolicy(PolicyChange::Spread(PolicyId(1))),
    ]
}

/// Those on segments over the logs of a group's members: first those that look.
pub fn on_sets() -> Vec<Operation> {
    use Operation as Op;
    let (segment, epoch) = (SegmentId(300), Epoch(2));
    let offer = Offer { segment, epoch, end: 4096, check: 5, sealed: Some((4000, 6)), damaged: false };
    let fenced = FencedCopy { segment, epoch, fenced: Fenced { end: 300, check: 9, damaged: true } };
    let members = vec![
        Candidate { id: MEMBER, weight: 300, zone: "rack 1".to_owned() },
        Candidate { id: MemberId([8; 16]), weight: 1, zone: String::new() },
    ];
    let placing = Placing::Best { members, copies: 2, near: Some(MEMBER) };
    let directory = Ino(4097);
    let open = OpenSegments { directory, apart: true, count: 256, group: GROUP, placing };
    let set = Placing::Set(vec![MEMBER]);
    let near = OpenSegments { apart: false, placing: set, ..open.clone() };
    let stored = StoredSegment { segment, epoch, len: 4000, check: 6, offset: 128, raw: 9000 };
    let sealed = SealedSegment { segment, epoch, len: 4000, check: 6 };
    vec![
        Op::Offer(OfferCopies { member: MEMBER, group: GROUP, offers: vec![offer] }),
        Op::Fenced(FencedCopies { member: MEMBER, copies: vec![fenced] }),
        Op::OpenSegments(open),
        Op::OpenSegments(near),
        Op::Store(StoreSegments { object: OBJECT, segments: vec![stored] }),
        Op::Reseat(Reseat { segment, epoch, member: MEMBER }),
        Op::Settle(Settle { sealed: vec![sealed], settled: vec![segment] }),
    ]
}

pub fn answers_on_sets() -> Vec<Answer> {
    let (segment, epoch) = (SegmentId(300), Epoch(2));
    let directory = Ino(4097);
    let verdicts = [
        Verdict::Wanted,
        Verdict::SealedAt { epoch, len: 300, check: 5 },
        Verdict::Clean,
        Verdict::Unwanted(epoch),
        Verdict::Gone,
    ];
    let judged = verdicts.map(|verdict| Judged {
        segment,
        verdict,
        directory,
        place: Some(SegmentPlace { object: OBJECT, offset: 64, len: 300 }),
        puts: true,
        copy_to: Some((MEMBER, epoch)),
    });
    let not_taken = [NotTaken::Over, NotTaken::Late(epoch), NotTaken::OtherLength(5), NotTaken::OtherBytes];
    vec![
        Answer::Opened(vec![OpenedSegment { segment, epoch, set: vec![MEMBER] }]),
        Answer::Stored(not_taken.map(|why| (segment, why)).to_vec()),
        Answer::Judged(judged.to_vec()),
        Answer::MappedSets(Mapped::default(), vec![SetPlace { segment, group: GROUP, set: vec![MEMBER] }]),
    ]
}

pub fn answers() -> Vec<Answer> {
    let extent = Piece { offset: 1, len: 2, source: PieceSource::Extent(EXTENT) };
    let pieces = vec![
        extent,
        Piece { offset: 3, len: 4, source: PieceSource::Hole },
        Piece { offset: 7, len: 1, source: PieceSource::Inline(vec![9]) },
    ];
    let places = vec![(SegmentId(9), SegmentPlace { object: OBJECT, offset: 0, len: 5 })];
    let entry = DirectoryEntry { name: b"a".to_vec(), ino: Ino(5), kind: FileKind::Socket, inode: None };
    let with_inode = DirectoryEntry { inode: Some(Box::new(inode())), ..entry.clone() };
    let tiny = InodeAnswer { contents: Some(Contents::Inline(vec![7; 9])), ..inode() };
    vec![
        Answer::Done,
        Answer::Inode(Box::new(inode())),
        Answer::Inode(Box::new(tiny)),
        Answer::Entries(vec![entry, with_inode]),
        Answer::Bytes(vec![1, 2]),
        Answer::Names(vec![b"user.a".to_vec()]),
        Answer::Failed(Failure::Deadlock),
        Answer::Mapped(Mapped { pieces, places, to: 8 }),
        Answer::Space(SpaceAnswer { used: 1, limit: Some(2), inodes: 3 }),
        Answer::Numbers(Numbers {
            first_segment: SegmentId(1),
            segments: 2,
            first_object: OBJECT,
            objects: 3,
        }),
        Answer::Committed(vec![Ino(5)]),
        Answer::Renamed(Box::new(inode()), Some(Box::new(directory()))),
        Answer::Conflict(Some(lock().range)),
        Answer::Waits,
        Answer::Runs(300, 2),
        Answer::Ahead(vec![(1, Failure::NotEmpty), (300, Failure::Stale)]),
        Answer::Orphaned(Box::new(inode())),
        Answer::RenamedOver(Box::new(inode()), Box::new(inode())),
        Answer::Reserved(None),
        Answer::Reserved(Some(300)),
    ]
}

pub fn volume() -> VolumeInfo {
    VolumeInfo {
        name: "scratch".to_owned(),
        id: VolumeId([7; 16]),
        store: "s3://bucket/prefix".to_owned(),
        endpoint: Some("http://127.0.0.1:7070".to_owned()),
        region: None,
        block_size: 4 << 20,
        compression: Compression::Zstd,
        created: TIME,
        limit: Some(1 << 40),
        generation: 2,
    }
}

pub fn group_view() -> View {
    let mut view = View::new(3);
    view.epoch = ViewEpoch(300);
    for byte in [1, 2] {
        view.members.insert(MemberId([byte; 16]), group_member(MemberState::Draining));
    }
    view.before = vec![Candidate { id: MemberId([1; 16]), weight: 200, zone: "z".to_owned() }];
    view
}

pub fn group_member(state: MemberState) -> Member {
    let (address, node, zone) = ("10.0.0.1:7301".to_owned(), "n1".to_owned(), "rack1".to_owned());
    Member { incarnation: Incarnation([9; 16]), address, node, zone, weight: 2048, state }
}

pub fn said() -> PolicySaid {
    let group = |name: &str| Some(name.to_owned());
    PolicySaid {
        durability: Some(SyncClass::Replica(2)),
        pin: true,
        confine: group("a"),
        place: group("b"),
        exclude: group("c"),
    }
}

pub fn kept() -> PolicyKept {
    let why = "the store is away".to_owned();
    let sums = PolicySums { wanted: 1 << 40, kept: 300, no_room: 4, failed: 5, dropped: 6, why };
    PolicyKept { sums, members: 3, heard: 2, whole: true }
}

pub fn overview(member: &MemberStatus) -> Overview {
    let client = ClientStatus {
        name: "host:/mnt".to_owned(),
        address: Some("10.0.0.4:5".to_owned()),
        heard_ms: 300,
        leases: 7,
    };
    let detail =
        OwnerDetail { clients: vec![client], commit_us: 900, limit: Some(1), ..OwnerDetail::default() };
    let volume = VolumeStatus { name: "v".to_owned(), detail: Some(detail), ..VolumeStatus::default() };
    Overview { members: vec![member.clone()], volumes: vec![volume], ..Overview::default() }
}
