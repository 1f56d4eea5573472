//! The bytes of messages: what was encoded is decoded, their layout stays, and bytes that are no message are an error.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::fmt::Debug;

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_format::row::{DirectoryRow, Extent, InodeRow, Layout, ObjectRef};
use forebay_group::{
    Candidate, Fenced, GroupId, Incarnation, Lane, Member, MemberId, MemberRow, MemberState, NotTaken, Offer,
    Verdict, View, ViewEpoch,
};
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{NewInode, Piece, PieceSource, RenameMode, SetAttr, SetTime, SetXattr, WriteAttr};
use forebay_protocol::{
    Answer, BytesBack, ClientStatus, Commit, Contents, DirectoryEntry, Disks, Failure, FencedCopies,
    FencedCopy, FileCommit, Hello, InodeAnswer, Judged, KeptOf, Mapped, MemberStatus, Message, MigratePhase,
    MigrateRequest, MigrateStatus, Numbers, ObjectCommit, OfferCopies, OpenSegments, OpenedSegment,
    Operation, Overview, OwnedStatus, OwnerDetail, Placing, PolicyChange, PolicyEdit, PolicyInfo, PolicyKept,
    PolicyParts, PolicyReport, PolicyRequest, PolicyRule, PolicySaid, PolicyStep, PolicySums, PolicyVersion,
    PolicyWhat, Push, Reclaim, Reclaimed, Refusal, Request, Reseat, Response, Return, Rights, SealedSegment,
    SegmentCommit, SegmentPlace, ServerStatus, SetPlace, Settle, SpaceAnswer, Step, StoreSegments,
    StoredSegment, TokenInfo, TokenRequest, VolumeInfo, VolumeKept, VolumeRequest, VolumeSet, VolumeStatus,
    Wanted, WantedOf, WantedPlace, Welcome, Wish,
    group::{
        Distrust, Fetch, Fetched, GroupInfo, GroupMember, GroupRequest, GroupView, GroupVolume, Join, Joined,
        Leave, LostMember, MemberNumbers, MissingSegment, Peek, RenewMember, Renewed, SetsOf, Tally, ViewOf,
        VolumeSets, Walk, WriteClass,
    },
};
use forebay_types::{
    Compression, Epoch, FileKind, Ino, ObjectId, PolicyId, SegmentId, SyncClass, Timespec, VolumeId,
};
use proptest::prelude::*;

const TIME: Timespec = Timespec { secs: 1_700_000_000, nanos: 5 };
const OBJECT: ObjectRef = ObjectRef { epoch: Epoch(3), id: ObjectId(77) };
const EXTENT: Extent = Extent {
    len: 4096,
    segment: SegmentId(9),
    run_offset: 64,
    stored_len: 300,
    run_len: 8192,
    skip: 100,
    form: 1,
    check: 0xdead_beef,
};

fn row(kind: FileKind) -> InodeRow {
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

fn inode() -> InodeAnswer {
    let place = SegmentPlace { object: OBJECT, offset: 128, len: 1 << 20 };
    let contents = Some(Contents::Place(SegmentId(9), place));
    InodeAnswer { ino: Ino(4097), row: row(FileKind::Regular), directory: None, contents }
}

fn directory() -> InodeAnswer {
    let directory = DirectoryRow { entries: 3, directories: 1, mtime: TIME, ctime: TIME };
    InodeAnswer { ino: Ino(2), row: row(FileKind::Directory), directory: Some(directory), contents: None }
}

fn lock() -> LockRequest {
    let range = LockRange { start: 1, end: u64::MAX, kind: LockKind::Exclusive, pid: 12 };
    LockRequest { space: LockSpace::Flock, owner: u64::MAX, fh: 4, range }
}

fn operations() -> Vec<Operation> {
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

const MEMBER: MemberId = MemberId([7; 16]);
const GROUP: GroupId = GroupId([9; 16]);

fn on_policies() -> Vec<Operation> {
    use Operation as Op;
    let class = Some(SyncClass::Replica(3));
    let none = PolicyEdit::default();
    let (group, gone) = (Some(Some(GROUP)), Some(None));
    let all =
        PolicyEdit { durability: Some(None), pin: Some(true), confine: group, place: gone, exclude: group };
    vec![
        Op::Classes(vec![PolicyId(1), PolicyId(300)]),
        Op::ChangePolicy(PolicyChange::Set(Ino(4097), PolicyEdit { durability: Some(class), ..none })),
        Op::ChangePolicy(PolicyChange::Set(Ino(4097), all)),
        Op::ChangePolicy(PolicyChange::Give(PolicyId(300), vec![Ino(4097), Ino(9)])),
        Op::ChangePolicy(PolicyChange::Spread(PolicyId(1))),
    ]
}

/// Those on segments over the logs of a group's members: first those that look.
fn on_sets() -> Vec<Operation> {
    use Operation as Op;
    let (segment, epoch) = (SegmentId(300), Epoch(2));
    let offer = Offer { segment, epoch, end: 4096, check: 5, sealed: Some((4000, 6)), damaged: false };
    let fenced = FencedCopy { segment, epoch, fenced: Fenced { end: 300, check: 9, damaged: true } };
    let members = vec![
        Candidate { id: MEMBER, weight: 300, zone: "rack 1".to_owned() },
        Candidate { id: MemberId([8; 16]), weight: 1, zone: String::new() },
    ];
    let placing = Placing::Best { members, copies: 2, near: Some(MEMBER) };
    let (lane, directory) = (Lane::Data, Ino(4097));
    let open = OpenSegments { lane, directory, apart: true, count: 256, group: GROUP, placing };
    let set = Placing::Set(vec![MEMBER]);
    let journal = OpenSegments { lane: Lane::Journal, apart: false, placing: set, ..open.clone() };
    let stored = StoredSegment { segment, epoch, len: 4000, check: 6, offset: 128, raw: 9000 };
    let sealed = SealedSegment { segment, epoch, len: 4000, check: 6 };
    vec![
        Op::Offer(OfferCopies { member: MEMBER, group: GROUP, offers: vec![offer] }),
        Op::Fenced(FencedCopies { member: MEMBER, copies: vec![fenced] }),
        Op::BytesBack(BytesBack { segment, from: 300, bytes: vec![1, 2, 3] }),
        Op::OpenSegments(open),
        Op::OpenSegments(journal),
        Op::Store(StoreSegments { object: OBJECT, segments: vec![stored] }),
        Op::Reseat(Reseat { segment, epoch, member: MEMBER }),
        Op::Settle(Settle { sealed: vec![sealed], settled: vec![segment] }),
    ]
}

fn answers_on_sets() -> Vec<Answer> {
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

fn answers() -> Vec<Answer> {
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
    ]
}

fn volume() -> VolumeInfo {
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

type Case = (String, Vec<u8>, fn(&[u8]) -> Option<Vec<u8>>);

/// Every message of every kind, as its bytes, with what reads those again.
#[allow(clippy::too_many_lines, reason = "a list")]
fn all() -> Vec<Case> {
    fn read<M: Message>(bytes: &[u8]) -> Option<Vec<u8>> {
        M::decode(bytes).ok().map(|message| message.encode())
    }
    fn case<M: Message + Debug>(message: M) -> Case {
        (format!("{message:?}"), message.encode(), read::<M>)
    }
    let (session, stamp) = (SessionId(1 << 100), Stamp { epoch: Epoch(3), number: 8 });
    let grant = Grant { ino: Ino(5), lease: Lease::Write, stamp };
    let token = TokenInfo {
        id: "t1".to_owned(),
        volume: "scratch".to_owned(),
        root: "/home".to_owned(),
        read_only: true,
        no_exec: false,
        root_squash: true,
        created: TIME,
        expires: Some(TIME),
    };
    let rights = Rights { root: Ino(9), read_only: true, no_exec: false, root_squash: true };
    let client = "host:/mnt".to_owned();
    let member = MemberStatus {
        id: "1".to_owned(),
        address: "a:1".to_owned(),
        alive: true,
        release: "0.1".to_owned(),
    };
    let owned = OwnedStatus {
        name: "scratch".to_owned(),
        sessions: Some(2),
        clients: vec![client.clone()],
        ..OwnedStatus::default()
    };
    let set = VolumeSet { compression: Some(Compression::None), limit: Some(None), endpoint: None };
    let slot = Some((SlotNumber(63), 1 << 40));
    let mut all = Vec::new();
    for operation in operations().into_iter().chain(on_sets()).chain(on_policies()) {
        all.push(case(Request { session, slot, operation, wish: Some(Lease::Read) }));
    }
    all.extend(
        answers()
            .into_iter()
            .chain(answers_on_sets())
            .chain([
                Answer::Classes(vec![
                    (PolicyId(300), SyncClass::Object),
                    (PolicyId(1), SyncClass::Replica(8)),
                ]),
                Answer::AheadGone(vec![(3, Failure::NoSpace)], vec![Ino(4097)]),
            ])
            .chain([Answer::Rules(vec![
                PolicyRule { policy: PolicyId(300), class: None, disks: Disks::Members },
                PolicyRule { policy: PolicyId(1), class: Some(SyncClass::Object), disks: Disks::None },
                PolicyRule { policy: PolicyId(2), class: Some(SyncClass::Replica(2)), disks: Disks::Any },
            ])])
            .map(|answer| case(Response { answer, grants: vec![grant, grant] })),
    );
    for refusal in [
        Refusal::NotOwner { address: Some("10.0.0.1:1".to_owned()) },
        Refusal::SessionEnded,
        Refusal::MustReclaim { epoch: Epoch(4) },
        Refusal::WrongSlot,
        Refusal::NoVolume("x".to_owned()),
        Refusal::Denied("no".to_owned()),
        Refusal::Invalid("no".to_owned()),
        Refusal::Unavailable("no".to_owned()),
    ] {
        all.push(case(refusal));
    }
    for push in [
        Push::Recall { ino: Ino(1), keep: Some(Lease::Read), stamp },
        Push::LockFree { ino: Ino(1) },
        Push::Ended { session },
        Push::Fence { member: MEMBER, segment: SegmentId(300), epoch: Epoch(2) },
        Push::ReadBack { member: MEMBER, segment: SegmentId(300), from: 1 << 20, len: 4096 },
        Push::Lost,
    ] {
        all.push(case(push));
    }
    all.push(case(Hello {
        volume: "v".to_owned(),
        token: Some("s".to_owned()),
        session,
        client,
        resumes: true,
    }));
    all.push(case(Welcome { epoch: Epoch(1), term_ms: 10_000, begun: true, volume: volume(), rights }));
    all.push(case(Reclaim { session, leases: vec![(Ino(1), Lease::Write)] }));
    all.push(case(Reclaimed { epoch: Epoch(2), grants: vec![grant] }));
    all.push(case(Return { session, ino: Ino(1), stamp, kept: None, open: true }));
    all.push(case(VolumeRequest::Create(volume())));
    all.push(case(VolumeRequest::List));
    all.push(case(VolumeRequest::Show("v".to_owned())));
    all.push(case(VolumeRequest::Set("v".to_owned(), set)));
    all.push(case(VolumeRequest::Delete("v".to_owned(), true)));
    all.push(case(VolumeRequest::Deleted(VolumeId([7; 16]))));
    all.push(case(vec![volume(), volume()]));
    all.push(case(TokenRequest::Create(token.clone())));
    all.push(case(TokenRequest::List(None)));
    all.push(case(TokenRequest::Revoke("t1".to_owned())));
    all.push(case((vec![token], Some("secret".to_owned()))));
    for what in [
        PolicyWhat::Show,
        PolicyWhat::Set(said()),
        PolicyWhat::Unset(PolicyParts { pin: true, ..PolicyParts::default() }),
        PolicyWhat::Unset(PolicyParts::ALL),
        PolicyWhat::Give(PolicyId(300), Some(b"name".to_vec())),
        PolicyWhat::Spread(PolicyId(1)),
    ] {
        all.push(case(PolicyRequest { volume: "v".to_owned(), ino: Ino(4097), what }));
    }
    all.push(case(PolicyInfo {
        policy: PolicyId(300),
        made_for: Some(Ino(4097)),
        said: said(),
        own: PolicySaid { durability: Some(SyncClass::Object), ..PolicySaid::default() },
        group: "g".to_owned(),
        disks: Disks::Members,
        kept: Some(kept()),
        volume: SyncClass::Replica(3),
        spread: true,
        directory: true,
        step: PolicyStep { seen: 1024, kept: 3, directories: vec![Ino(5)], next: Some(b"z".to_vec()) },
    }));
    wanted(&mut all);
    all.push(case(MigrateRequest { volume: "v".to_owned(), to: Some("dir:/a".to_owned()) }));
    all.push(case(MigrateStatus {
        place: "dir:/a".to_owned(),
        to: "dir:/b".to_owned(),
        phase: MigratePhase::Switching,
        rows: 300,
        bytes: 70_000,
        compared: 299,
        pause_us: 5000,
        failed: Some("why".to_owned()),
    }));
    all.push(case(ServerStatus {
        server: "s".to_owned(),
        engine: "postgres".to_owned(),
        members: vec![member.clone()],
        volumes: vec![owned],
    }));
    all.push(case(overview(&member)));
    groups(&mut all);
    all
}

fn group_view() -> View {
    let mut view = View::new(3);
    view.epoch = ViewEpoch(300);
    for byte in [1, 2] {
        view.members.insert(MemberId([byte; 16]), group_member(MemberState::Draining));
    }
    view.before = vec![Candidate { id: MemberId([1; 16]), weight: 200, zone: "z".to_owned() }];
    view
}

fn group_member(state: MemberState) -> Member {
    let (address, node, zone) = ("10.0.0.1:7301".to_owned(), "n1".to_owned(), "rack1".to_owned());
    Member { incarnation: Incarnation([9; 16]), address, node, zone, weight: 2048, state }
}

fn said() -> PolicySaid {
    let group = |name: &str| Some(name.to_owned());
    PolicySaid {
        durability: Some(SyncClass::Replica(2)),
        pin: true,
        confine: group("a"),
        place: group("b"),
        exclude: group("c"),
    }
}

fn kept() -> PolicyKept {
    let why = "the store is away".to_owned();
    let sums = PolicySums { wanted: 1 << 40, kept: 300, no_room: 4, failed: 5, dropped: 6, why };
    PolicyKept { sums, members: 3, heard: 2, whole: true }
}

/// What members are asked to have, and say that they have.
fn wanted(all: &mut Vec<Case>) {
    fn case<M: Message + Debug>(message: M) -> Case {
        let read = |bytes: &[u8]| M::decode(bytes).ok().map(|message| message.encode());
        (format!("{message:?}"), message.encode(), read)
    }
    let report = PolicyReport { whole: true, sums: vec![(PolicyId(300), kept().sums)] };
    for (from, report) in [(None, None), (Some((Ino(4097), 1 << 33)), Some(report))] {
        let volume = "v".to_owned();
        let (group, member, incarnation) = (GroupId([7; 16]), MemberId([1; 16]), Incarnation([9; 16]));
        all.push(case(WantedOf { volume, group, member, incarnation, from, report }));
    }
    let object = ObjectRef { epoch: Epoch(3), id: ObjectId(300) };
    let place = SegmentPlace { object, offset: 128, len: 1 << 22 };
    let one = |wish| WantedPlace {
        policy: PolicyId(2),
        wish,
        segment: SegmentId(0x1234),
        place,
        from: 64,
        len: 70_000,
    };
    all.push(case(Wanted {
        volume: volume(),
        version: PolicyVersion { epoch: Epoch(4), batch: 300 },
        places: [Wish::Stay, Wish::Near, Wish::Nowhere].map(one).to_vec(),
        next: Some((Ino(4097), 5)),
    }));
    all.push(case(KeptOf { group: Some("g".to_owned()) }));
    all.push(case(vec![VolumeKept {
        volume: "v".to_owned(),
        group: "g".to_owned(),
        epoch: 4,
        kept: kept(),
    }]));
}

fn groups(all: &mut Vec<Case>) {
    fn case<M: Message + Debug>(message: M) -> Case {
        let read = |bytes: &[u8]| M::decode(bytes).ok().map(|message| message.encode());
        (format!("{message:?}"), message.encode(), read)
    }
    let (group, id, incarnation) = (GroupId([7; 16]), MemberId([1; 16]), Incarnation([9; 16]));
    let numbers = MemberNumbers { dirty_bytes: 1, used: 300, capacity: 1 << 40, load: 4 };
    let member = group_member(MemberState::Active);
    all.push(case(Join { group, id, member: member.clone(), log_end: 1 << 33, dirty: 5, numbers }));
    all.push(case(Joined::In(group_view())));
    all.push(case(Joined::Acts("a:1".to_owned())));
    all.push(case(Joined::Never("why".to_owned())));
    let row = MemberRow { incarnation, beat: 300, acknowledged: ViewEpoch(5), log_end: 6, dirty: 7 };
    all.push(case(RenewMember { group, id, row, numbers }));
    all.push(case(Renewed::Stays(ViewEpoch(300), Some(group_view()))));
    all.push(case(Renewed::Out));
    all.push(case(Leave { group, id, incarnation }));
    let (volume_name, token) = ("v".to_owned(), Some("s".to_owned()));
    all.push(case(ViewOf { volume: volume_name, token, known: ViewEpoch(3) }));
    let (view, writes) = (Some(group_view()), Some(2));
    all.push(case(Some(GroupView { name: "g".to_owned(), id: group, view, writes })));
    proxies(all);
    let (name, of) = (|| "g".to_owned(), || "node1".to_owned());
    for request in [
        GroupRequest::Create(name(), 2),
        GroupRequest::List,
        GroupRequest::Show(name()),
        GroupRequest::SetCopies(name(), 3),
        GroupRequest::SetMember(name(), of(), Some(300), Some("z".to_owned())),
        GroupRequest::Drain(name(), of()),
        GroupRequest::Remove(name(), of()),
        GroupRequest::GiveUp(name(), of()),
        GroupRequest::Delete(name()),
        GroupRequest::Assign("v".to_owned(), Some(name())),
        GroupRequest::OfVolume("v".to_owned()),
        GroupRequest::SetClass("v".to_owned(), WriteClass::Replica(Some(3))),
        GroupRequest::SetClass("v".to_owned(), WriteClass::Object),
    ] {
        all.push(case(request));
    }
    let (acknowledged, drained) = (ViewEpoch(4), true);
    let shown = GroupMember { id, member, drained, acknowledged, dirty: 1, numbers };
    all.push(case(vec![GroupInfo {
        name: name(),
        id: group,
        epoch: ViewEpoch(5),
        copies: 2,
        members: vec![shown],
        lost: vec![LostMember { id, node: name() }],
        given_up: vec![MEMBER],
        volumes: vec![GroupVolume { name: "v".to_owned(), class: WriteClass::Replica(None) }],
    }]));
    all.push(case(SetsOf { group: Some(name()), list: true, files: true }));
    let tally = |segments| Tally { segments, bytes: segments << 22 };
    let missing = MissingSegment {
        segment: SegmentId(9),
        bytes: 1 << 20,
        lost: true,
        directory: Ino(7),
        members: vec![id, MEMBER],
    };
    all.push(case(vec![VolumeSets {
        volume: "v".to_owned(),
        group: name(),
        epoch: 3,
        open: tally(1),
        sealed: tally(2),
        under: tally(3),
        missing: tally(4),
        lost: tally(5),
        known: true,
        oldest_s: 70,
        list: vec![missing],
        files: vec![name()],
    }]));
}

fn proxies(all: &mut Vec<Case>) {
    fn case<M: Message + Debug>(message: M) -> Case {
        let read = |bytes: &[u8]| M::decode(bytes).ok().map(|message| message.encode());
        (format!("{message:?}"), message.encode(), read)
    }
    let (object, offset, len) = (OBJECT, 1 << 22, 70_000);
    for (walk, waits) in [(Walk::Sequential, true), (Walk::Nearby, false), (Walk::Random, true)] {
        all.push(case(Fetch { object, offset, len, segment: SegmentId(9), at: 300, walk, waits }));
    }
    all.push(case(Fetched::Here { width: 16, epoch: ViewEpoch(3) }));
    all.push(case(Fetched::Length(1 << 26)));
    all.push(case(Fetched::Coming));
    all.push(case(Peek { object, offset, len }));
    all.push(case(Distrust { object, offset, len }));
}

#[test]
fn members_of_a_view_have_one_order() {
    let view = group_view();
    let bytes = view.encode();
    assert_eq!(View::decode(&bytes).unwrap(), view);
    let one = [&[1; 16][..], &group_member(MemberState::Draining).encode()].concat();
    let two = [&[2; 16][..], &one[16..]].concat();
    let (head, rest) = (&bytes[..4], &bytes[4 + 2 * one.len()..]);
    assert_eq!([head, &one, &two, rest].concat(), bytes);
    View::decode(&[head, &two, &one, rest].concat()).unwrap_err();
    View::decode(&[head, &one, &one, rest].concat()).unwrap_err();
}

fn overview(member: &MemberStatus) -> Overview {
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

#[test]
fn what_was_encoded_is_decoded() {
    for (text, bytes, read) in all() {
        assert_eq!(read(&bytes).as_ref(), Some(&bytes), "{text}");
    }
    for answer in answers() {
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
    }
}

#[test]
fn a_message_that_is_cut_or_goes_on_is_refused() {
    for (text, bytes, read) in all() {
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), None, "{text} cut to {len}");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), None, "{text} with a byte more");
    }
}

/// Old and new releases talk to each other: bytes that were given out do not change.
#[test]
fn the_bytes_stay() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let request = |operation| Request {
        session: SessionId(2),
        slot: Some((SlotNumber(1), 300)),
        operation,
        wish: None,
    };
    let session = "02000000000000000000000000000000";
    let lookup = request(Operation::Lookup(Ino(1), b"ab".to_vec())).encode();
    assert_eq!(hex(&lookup), format!("{session}0101ac02{}00", "0101026162"));
    let release = request(Operation::Release(vec![Ino(1), Ino(300)])).encode();
    assert_eq!(hex(&release), format!("{session}0101ac02{}00", "2e0201ac02"));
    let unlink = request(Operation::Unlink(Ino(1), b"a".to_vec(), vec![Ino(7)])).encode();
    assert_eq!(hex(&unlink), format!("{session}0101ac02{}00", "230101610107"));
    let time = Timespec { secs: 1, nanos: 5 };
    let step = Step { time, made: Some(Ino(3)), operation: Operation::RemoveXattr(Ino(2), b"a".to_vec()) };
    assert_eq!(hex(&Operation::Ahead(vec![step]).encode()), "33010205010329020161");
    assert_eq!(hex(&Operation::Hold(vec![Ino(1), Ino(300)]).encode()), "340201ac02");
    assert_eq!(hex(&Operation::Seal(vec![Ino(5), Ino(300)]).encode()), "350205ac02");
    assert_eq!(hex(&Answer::Failed(Failure::Sealed).encode()), "0516");
    assert_eq!(hex(&Answer::Failed(Failure::BelowClass).encode()), "0518");
    let classes =
        Answer::Classes(vec![(PolicyId(300), SyncClass::Object), (PolicyId(1), SyncClass::Replica(8))]);
    assert_eq!(hex(&classes.encode()), "1502ac02000108");
    let edit = PolicyEdit { durability: Some(Some(SyncClass::Replica(3))), ..PolicyEdit::default() };
    let set = PolicyChange::Set(Ino(5), edit);
    assert_eq!(hex(&Operation::ChangePolicy(set).encode()), "3a010501010300000000");
    assert_eq!(hex(&Operation::Classes(vec![PolicyId(300)]).encode()), "0d01ac02");
    assert_eq!(hex(&Answer::Ahead(vec![(1, Failure::NotEmpty)]).encode()), "0e010106");
    assert_eq!(hex(&Answer::AheadGone(vec![(1, Failure::NotEmpty)], vec![Ino(5)]).encode()), "160101060105");
    let step = Step { time, made: None, operation: Operation::Commit(Box::default()) };
    assert_eq!(hex(&Operation::Ahead(vec![step]).encode()), "33010205002b0000");
    assert_eq!(hex(&Answer::Failed(Failure::NotEmpty).encode()), "0506");
    assert_eq!(hex(&Answer::Committed(vec![Ino(5)]).encode()), "090105");
    let recall = Push::Recall { ino: Ino(5), keep: None, stamp: Stamp { epoch: Epoch(3), number: 8 } };
    assert_eq!(hex(&recall.encode()), "0105000308");
    assert_eq!(hex(&Refusal::MustReclaim { epoch: Epoch(4) }.encode()), "0304");
    // Every tag in use, so that none comes to mean something else unnoticed.
    let tag_of = |operation: &Operation| operation.encode()[0];
    let tags: Vec<u8> = operations().iter().map(tag_of).collect();
    assert_eq!(tags, (1..=9).chain(32..=53).collect::<Vec<u8>>());
    let tags: Vec<u8> = on_sets().iter().map(tag_of).collect();
    assert_eq!(tags, [10, 11, 12, 54, 54, 55, 56, 57]);
    let tags: Vec<u8> = on_policies().iter().map(tag_of).collect();
    assert_eq!(tags, [13, 58, 58, 58, 58]);
    let tags: Vec<u8> = answers_on_sets().iter().map(|answer| answer.encode()[0]).collect();
    assert_eq!(tags, [15, 16, 17, 18]);
    let tags: Vec<u8> = answers().iter().map(|answer| answer.encode()[0]).collect();
    assert_eq!(tags, [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 19, 20]);
}

#[test]
fn a_list_that_promises_more_than_there_is_takes_no_memory() {
    let mut bytes = vec![46];
    bytes.extend([0xff; 9]);
    bytes.push(1);
    assert!(Operation::decode(&bytes).is_err());
}

/// What the owner takes of a request is bounded before anything is done with it.
#[test]
fn sets_that_cannot_be_are_refused() {
    let open = on_sets().into_iter().find_map(|operation| match operation {
        Operation::OpenSegments(open) => Some(open),
        _ => None,
    });
    let open = open.unwrap();
    let taken = |open: OpenSegments| Operation::decode(&Operation::OpenSegments(open).encode()).is_ok();
    assert!(taken(open.clone()));
    for count in [0, 257, u32::MAX] {
        assert!(!taken(OpenSegments { count, ..open.clone() }), "{count} segments");
    }
    let member = |at: u8| MemberId([at; 16]);
    for set in [vec![], vec![member(1), member(1)], (0..17).map(member).collect()] {
        assert!(!taken(OpenSegments { placing: Placing::Set(set.clone()), ..open.clone() }), "{set:?}");
    }
    let candidate = |at, weight| Candidate { id: member(at), weight, zone: String::new() };
    let best = |members: Vec<Candidate>, copies| Placing::Best { members, copies, near: None };
    for placing in [
        best(vec![candidate(1, 1)], 2),
        best(vec![candidate(1, 1)], 0),
        best(vec![candidate(1, 1), candidate(1, 2)], 1),
        best(vec![candidate(1, 0)], 1),
        best(vec![candidate(1, (1 << 20) + 1)], 1),
        best(vec![Candidate { zone: "z".repeat(256), ..candidate(1, 1) }], 1),
    ] {
        assert!(!taken(OpenSegments { placing: placing.clone(), ..open.clone() }), "{placing:?}");
    }
    let stored = |segment| StoredSegment {
        segment: SegmentId(segment),
        epoch: Epoch(1),
        len: 9,
        check: 0,
        offset: 0,
        raw: 9,
    };
    let store = |segments| {
        Operation::decode(&Operation::Store(StoreSegments { object: OBJECT, segments }).encode()).is_ok()
    };
    assert!(store(vec![stored(1), stored(2)]));
    assert!(!store(vec![]) && !store(vec![stored(1), stored(1)]));
    assert!(!store(vec![StoredSegment { offset: u64::MAX, ..stored(1) }]));
    assert!(!store((0..4097).map(stored).collect()));
    let settle = |many| Settle { sealed: vec![], settled: (0..many).map(SegmentId).collect() };
    assert!(
        Settle::decode(&settle(4096).encode()).is_ok() && Settle::decode(&settle(4097).encode()).is_err()
    );
}

#[test]
fn what_is_told_afterwards_contains_no_more_of_its_kind() {
    let told = |operation| Operation::Ahead(vec![Step { time: TIME, made: None, operation }]);
    for operation in operations() {
        let may_be = Step::may_be(&operation);
        assert_eq!(Operation::decode(&told(operation.clone()).encode()).is_ok(), may_be, "{operation:?}");
    }
    // Each level that a decoder went down would take some of its stack.
    let level = [51, 1, 0, 0, 0];
    assert!(Operation::decode(&level.repeat(1 << 20)).is_err());
}

#[test]
fn what_changes_something_has_a_slot() {
    for operation in operations().into_iter().chain(on_sets()).chain(on_policies()) {
        assert_eq!(operation.changes(), operation.encode()[0] >= 32, "{operation:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Any bytes are a message or an error, and whatever is a message is read again as itself.
    #[test]
    fn hostile_bytes_are_an_error(which in 0_usize..1000, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let all = all();
        let (_, mut bytes, read) = all[which % all.len()].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(again) = read(&bytes) {
            prop_assert_eq!(read(&again), Some(again));
        }
    }
}
