//! Every message of every kind.

use std::fmt::Debug;

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, Incarnation, MemberId, MemberRow, MemberState, ViewEpoch};
use forebay_protocol::{
    Answer, Bounds, Disks, Failure, GroupRule, Hello, KeptOf, MemberStatus, Message, MigratePhase,
    MigrateRequest, MigrateStatus, OwnedStatus, PolicyInfo, PolicyParts, PolicyReport, PolicyRequest,
    PolicyRule, PolicySaid, PolicyStep, PolicyVersion, PolicyWhat, Push, Recall, Reclaim, Reclaimed, Refusal,
    Request, Response, Return, Rights, SegmentPlace, ServerStatus, TokenInfo, TokenRequest, VolumeKept,
    VolumeRequest, VolumeSet, Wanted, WantedOf, WantedPlace, Welcome, Wish,
    group::{
        Distrust, Fetch, Fetched, GroupInfo, GroupMember, GroupRequest, GroupView, GroupVolume, Join, Joined,
        Leave, LostMember, MemberNumbers, MissingSegment, Peek, RenewMember, Renewed, SetsOf, Tally, ViewOf,
        ViewsOf, VolumeSets, Walk, WriteClass,
    },
};
use forebay_types::{Compression, Epoch, Ino, ObjectId, PolicyId, SegmentId, SyncClass, VolumeId};

use crate::samples::{
    MEMBER, OBJECT, TIME, answers, answers_on_sets, group_member, group_view, kept, on_policies, on_sets,
    operations, overview, said, volume,
};

pub type Case = (String, Vec<u8>, fn(&[u8]) -> Option<Vec<u8>>);

fn case<M: Message + Debug>(message: M) -> Case {
    let read = |bytes: &[u8]| M::decode(bytes).ok().map(|message| message.encode());
    (format!("{message:?}"), message.encode(), read)
}

/// Every message of every kind, as its bytes, with what reads those again.
#[allow(clippy::too_many_lines, reason = "a list")]
pub fn all() -> Vec<Case> {
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
            .chain([Answer::GroupRules(vec![
                GroupRule { policy: PolicyId(300), class: None, bounds: None },
                GroupRule {
                    policy: PolicyId(1),
                    class: Some(SyncClass::Replica(2)),
                    bounds: Some(Bounds { here: false, groups: vec![GroupId([7; 16]), GroupId([8; 16])] }),
                },
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
        Push::Lost,
        Push::Limited(true),
        Push::Limited(false),
        Push::Recalls(vec![
            Recall { ino: Ino(1), keep: Some(Lease::Read), stamp },
            Recall { ino: Ino(300), keep: None, stamp },
        ]),
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
    all.push(case(Reclaim { session, epoch: Epoch(4), leases: vec![(Ino(1), Lease::Write)] }));
    all.push(case(Reclaimed { epoch: Epoch(2), grants: vec![grant] }));
    let returned = Return { session, ino: Ino(1), stamp, kept: None, open: true };
    all.push(case(returned));
    all.push(case(vec![returned, Return { kept: Some(Lease::Read), ..returned }]));
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
        PolicyWhat::ShowIn("g".to_owned()),
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

/// What members are asked to have, and say that they have.
fn wanted(all: &mut Vec<Case>) {
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
    let (volume, token) = ("v".to_owned(), None);
    all.push(case(ViewsOf {
        volume,
        token,
        known: vec![(group, ViewEpoch(3)), (GroupId([8; 16]), ViewEpoch(0))],
    }));
    let told = GroupView { name: "g".to_owned(), id: group, view, writes };
    all.push(case(Some(told.clone())));
    all.push(case(vec![told.clone(), GroupView { view: None, writes: None, ..told }]));
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
        GroupRequest::AssignAll("v".to_owned(), vec![name(), "h".to_owned()]),
        GroupRequest::OfVolume("v".to_owned()),
        GroupRequest::SetClass("v".to_owned(), WriteClass::Replica(Some(3))),
        GroupRequest::SetClass("v".to_owned(), WriteClass::Object),
        GroupRequest::SetClass("v".to_owned(), WriteClass::Local),
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
