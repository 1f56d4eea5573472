//! Segments over the members of a group, as servers tell of them, and members' sessions with volumes.

use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_protocol::{
    Answer, Failure, FileCommit, Kind, OpenSegments, Operation, Placing, VolumeRequest,
    group::{GroupRequest, Leave, SetsOf, Tally, VolumeSets, Vouch, WriteClass},
};
use forebay_types::Ino;

use crate::{
    bed::{Asks, Bed, Not, Session, until},
    groups::{ask, create, join_of},
};

fn sets_of(asks: &Asks, files: bool) -> VolumeSets {
    let of = SetsOf { group: Some("g".to_owned()), list: true, files };
    let mut all: Vec<VolumeSets> = asks.call(Kind::Sets, &of).unwrap();
    assert!(all.len() < 2, "{all:?}");
    all.pop().unwrap_or_else(|| panic!("no volume has any"))
}

/// A file of 100 bytes in an open segment of these.
fn written(session: &Session<'_>, group: GroupId, name: &str, set: [MemberId; 2]) {
    let placing = Placing::Set(set.to_vec());
    let open = OpenSegments { directory: Ino::ROOT, apart: false, count: 1, group, placing };
    let Answer::Opened(opened) = session.answer(Operation::OpenSegments(open)) else { panic!("not opened") };
    let Answer::Inode(inode) = session.make(name) else { panic!("not made") };
    let part = forebay_format::row::Extent {
        len: 100,
        segment: opened[0].segment,
        run_offset: 0,
        stored_len: 100,
        run_len: 100,
        skip: 0,
        form: 1,
        check: 7,
    };
    let file = FileCommit {
        ino: inode.ino,
        inline: None,
        extents: vec![(0, part)],
        size: 100,
        attr: forebay_meta::WriteAttr::default(),
        mtime: forebay_types::Timespec::default(),
    };
    let commit = forebay_protocol::Commit { objects: vec![], files: vec![file] };
    assert_eq!(session.answer(Operation::Commit(Box::new(commit))), Answer::Committed(vec![]));
}

/// The volume `v`, read through the group `g`, which has two members.
fn over_two(asks: &Asks, bed: &Bed) -> (GroupId, [MemberId; 2]) {
    asks.create(bed, "v");
    let group = create(asks, "g");
    let ids = [1, 2].map(|id| {
        let join = join_of(group, id, 1, 100);
        asks.raw(Kind::Join as u16, forebay_protocol::Message::encode(&join)).unwrap();
        join.id
    });
    ask(asks, &GroupRequest::Assign("v".to_owned(), Some("g".to_owned()))).unwrap();
    (group, ids)
}

#[test]
fn what_no_member_has_that_is_there_is_told_and_given_up_by_the_operators_word() {
    let bed = Bed::directory();
    let server = bed.still_server();
    let asks = Asks::of(&server);
    let (group, ids) = over_two(&asks, &bed);
    ask(&asks, &GroupRequest::SetClass("v".to_owned(), WriteClass::Replica(None))).unwrap();
    let session = asks.join("v", 1);
    written(&session, group, "file", ids);
    let one = Tally { segments: 1, bytes: 100 };
    let there = |found: &VolumeSets| found.under == Tally::default() && found.missing == Tally::default();
    let found = until("the owner to know its members", || Some(sets_of(&asks, false)).filter(there));
    assert_eq!((found.volume.as_str(), found.group.as_str(), found.open), ("v", "g", one));
    assert_eq!(found.list, []);
    for (id, state) in ids.into_iter().zip(["under", "missing"]) {
        let leave = Leave { group, id, incarnation: Incarnation([1; 16]) };
        asks.raw(Kind::Leave as u16, forebay_protocol::Message::encode(&leave)).unwrap();
        until("the owner to hear of it", || {
            let found = sets_of(&asks, false);
            (found.under == one && state == "under" || found.missing == one && state == "missing")
                .then_some(())
        });
        let text = (server.metrics())();
        let line = format!("forebay_meta_sets{{volume=\"v\",group=\"g\",state=\"{state}\"}} 1");
        assert!(text.contains(&line), "{text}");
        let line = format!("forebay_meta_set_bytes{{volume=\"v\",group=\"g\",state=\"{state}\"}} 100");
        assert!(text.contains(&line), "{text}");
    }
    let found = sets_of(&asks, true);
    assert_eq!((found.list[0].bytes, found.list[0].lost), (100, false));
    assert_eq!(
        (found.list[0].members.as_slice(), found.files.as_slice()),
        (&ids[..], &["/file".to_owned()][..])
    );
    for node in ["node1", "node2"] {
        assert_eq!(sets_of(&asks, false).lost, Tally::default());
        ask(&asks, &GroupRequest::GiveUp("g".to_owned(), node.to_owned())).unwrap();
    }
    let found = until("it is given up", || Some(sets_of(&asks, true)).filter(|found| found.lost == one));
    assert!(found.missing == Tally::default() && found.list[0].lost && found.files == ["/file"]);
    // The volume goes on.
    assert!(matches!(session.make("other"), Answer::Inode(_)));
    server.stop();
}

#[test]
fn once_what_is_written_goes_to_the_store_members_are_given_no_more() {
    let bed = Bed::directory();
    let server = bed.still_server();
    let asks = Asks::of(&server);
    let (group, ids) = over_two(&asks, &bed);
    let class = |class| ask(&asks, &GroupRequest::SetClass("v".to_owned(), class)).unwrap();
    class(WriteClass::Replica(None));
    let session = asks.join("v", 1);
    let none = sets_of(&asks, false);
    assert_eq!((none.group.as_str(), none.open, none.sealed), ("g", Tally::default(), Tally::default()));
    written(&session, group, "file", ids);
    class(WriteClass::Object);
    let open = OpenSegments {
        directory: Ino::ROOT,
        apart: false,
        count: 1,
        group,
        placing: Placing::Set(ids.to_vec()),
    };
    assert_eq!(session.answer(Operation::OpenSegments(open)), Answer::Failed(Failure::BelowClass));
    assert_eq!(sets_of(&asks, false).open, Tally { segments: 1, bytes: 100 });
    class(WriteClass::Replica(None));
    written(&session, group, "another", ids);
    server.stop();
}

#[test]
fn a_session_of_a_member_is_no_mount() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    let made = asks.create(&bed, "v");
    let group = create(&asks, "g");
    let join = join_of(group, 1, 1, 100);
    asks.raw(Kind::Join as u16, forebay_protocol::Message::encode(&join)).unwrap();
    let member = Asks::of(&server);
    let name = Vouch::member(group, join.id, join.member.incarnation);
    until("an owner", || member.hello("v", 7, Some(&name)).ok());
    let mount = Asks::of(&server);
    let session = mount.join("v", 1);
    let delete = VolumeRequest::Delete("v".to_owned(), false);
    let refused = asks.volumes(&delete).unwrap_err();
    let Not::Refused(forebay_protocol::Refusal::Invalid(why)) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("is mounted 1 times (client 1)"), "{why}");
    mount.raw(Kind::End as u16, forebay_protocol::Message::encode(&session.id)).unwrap();
    asks.volumes(&delete).unwrap();
    assert_eq!(asks.volumes(&VolumeRequest::Deleted(made.id)).unwrap()[0].id, made.id);
    server.stop();
}
