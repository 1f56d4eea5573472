//! One server and its clients.

use std::sync::mpsc;

use forebay_cluster::{Lease, SessionId};
use forebay_protocol::{
    Answer, Failure, Kind, Operation, Push, RETURNS_MAX, Recall, Reclaim, Refusal, Return, VolumeRequest,
    VolumeSet,
};
use forebay_rpc::{connection::CallError, wire::Code};
use forebay_types::{Compression, Epoch, Ino};

use crate::bed::{Asks, Bed, Not, make, until};

#[test]
fn volumes_are_made_shown_changed_and_deleted() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    assert_eq!(asks.volumes(&VolumeRequest::List).unwrap(), []);
    let made = asks.create(&bed, "a");
    assert_eq!((made.name.as_str(), made.generation), ("a", 1));
    assert!(made.id.0 != [0; 16] && made.created.secs > 1_600_000_000);
    let other = asks.create(&bed, "b");
    assert_eq!(asks.volumes(&VolumeRequest::List).unwrap(), [made.clone(), other]);
    let set = VolumeSet {
        compression: Some(Compression::Zstd),
        limit: Some(Some(1 << 30)),
        ..VolumeSet::default()
    };
    let changed = asks.volumes(&VolumeRequest::Set("a".to_owned(), set)).unwrap();
    assert_eq!(changed, asks.volumes(&VolumeRequest::Show("a".to_owned())).unwrap());
    assert_eq!((changed[0].compression, changed[0].limit), (Compression::Zstd, Some(1 << 30)));
    assert_eq!((changed[0].generation, changed[0].id), (2, made.id));
    let session = asks.join("a", 1);
    session.make("file");
    let delete = VolumeRequest::Delete("a".to_owned(), true);
    let refused = asks.volumes(&delete).unwrap_err();
    assert!(
        matches!(&refused, Not::Refused(Refusal::Invalid(why)) if why.contains("client 1") && why.contains("unmount")),
        "{refused:?}"
    );
    asks.raw(Kind::End as u16, forebay_protocol::Message::encode(&session.id)).unwrap();
    asks.volumes(&delete).unwrap();
    assert_eq!(asks.volumes(&VolumeRequest::List).unwrap().len(), 1);
    let gone = asks.volumes(&VolumeRequest::Show("a".to_owned())).unwrap_err();
    assert!(matches!(&gone, Not::Refused(Refusal::NoVolume(name)) if name == "a"), "{gone:?}");
    let again = asks.create(&bed, "a");
    assert_ne!(again.id, made.id);
    // It is on record for ever, also by the next process; that nobody knows a volume is no record.
    let deleted = |asks: &Asks, id| asks.volumes(&VolumeRequest::Deleted(id)).unwrap();
    let found = deleted(&asks, made.id);
    assert_eq!((found[0].id, found[0].name.as_str()), (made.id, "a"));
    for id in [again.id, forebay_types::VolumeId([9; 16])] {
        assert_eq!(deleted(&asks, id), []);
    }
    assert!(!asks.join("a", 2).sees("file"), "a new volume is empty");
}

#[test]
fn what_cannot_be_a_volume_is_refused_and_leaves_nothing() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "a");
    let wanted = bed.wanted("b");
    for (wrong, what) in [
        (forebay_protocol::VolumeInfo { name: "a".into(), ..wanted.clone() }, "already"),
        (forebay_protocol::VolumeInfo { name: "A/b".into(), ..wanted.clone() }, "cannot be the name"),
        (forebay_protocol::VolumeInfo { block_size: 5, ..wanted.clone() }, "power of two"),
        (forebay_protocol::VolumeInfo { store: "here".into(), ..wanted.clone() }, "file:///DIR"),
        (forebay_protocol::VolumeInfo { store: bed.store("a"), ..wanted.clone() }, "another volume"),
        (
            forebay_protocol::VolumeInfo { store: "file:///dev/null/x".into(), ..wanted.clone() },
            "/dev/null/x",
        ),
    ] {
        let refused = asks.volumes(&VolumeRequest::Create(wrong)).unwrap_err();
        assert!(
            matches!(&refused, Not::Refused(Refusal::Invalid(why)) if why.contains(what)),
            "{what}: {refused:?}"
        );
    }
    asks.create(&bed, "b");
    assert_eq!(asks.volumes(&VolumeRequest::List).unwrap().len(), 2);
}

#[test]
fn requests_are_answered_and_recalls_reach_the_session() {
    let bed = Bed::directory();
    let server = bed.server();
    let (one, two) = (Asks::of(&server), Asks::of(&server));
    one.create(&bed, "v");
    let (first, second) = (one.join("v", 1), two.join("v", 2));
    assert!(matches!(first.make("a"), Answer::Inode(_)));
    assert!(second.sees("a"));
    assert_eq!(second.make("a"), Answer::Failed(Failure::Exists));
    let held = first.ask(Operation::Inode(Ino::ROOT), Some(Lease::Write)).unwrap();
    assert_eq!(held.grants[0].lease, Lease::Write);
    let (done, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(second.make("b")));
        let (ino, stamp) = until("a recall", || match one.told().first() {
            Some(Push::Recall { ino, keep: None, stamp }) => Some((*ino, *stamp)),
            Some(other) => panic!("{other:?}"),
            None => None,
        });
        assert_eq!((ino, stamp), (Ino::ROOT, held.grants[0].stamp));
        assert!(ends.try_recv().is_err(), "it waits for the lease");
        let returned = Return { session: first.id, ino, stamp, kept: None, open: false };
        let returns = |leases: &[Return]| {
            one.raw(Kind::Returns as u16, forebay_protocol::Message::encode(&leases.to_vec()))
        };
        // All or none: another's session may not be spoken for among one's own.
        returns(&[returned, Return { session: SessionId(77), ..returned }]).unwrap_err();
        returns(&vec![returned; RETURNS_MAX + 1]).unwrap_err();
        assert!(ends.try_recv().is_err(), "nothing was returned");
        returns(&[Return { ino: Ino(4097), ..returned }, returned]).unwrap();
        assert!(matches!(ends.recv().unwrap(), Answer::Inode(_)));
    });
    assert!(two.told().is_empty());
}

/// Whoever lists needs the leases of all that it names; a client of an older release is told of each.
#[test]
fn recalls_of_a_page_come_in_one_message_and_one_by_one_to_who_knows_no_such() {
    let bed = Bed::directory();
    let server = bed.server();
    for (volume, writer) in [("new", Asks::of(&server)), ("old", Asks::of_an_older_release(&server))] {
        let lister = Asks::of(&server);
        lister.create(&bed, volume);
        let (lister, session) = (lister.join(volume, 1), writer.join(volume, 2));
        let made: Vec<Ino> = (0..5)
            .map(|at| match session.make(&format!("{at}")) {
                Answer::Inode(inode) => inode.ino,
                other => panic!("{other:?}"),
            })
            .collect();
        for ino in &made {
            session.ask(Operation::Inode(*ino), Some(Lease::Write)).unwrap();
        }
        let listing = Operation::Entries { directory: Ino::ROOT, after: None, limit: 100, inodes: true };
        std::thread::scope(|scope| {
            let listed = scope.spawn(|| lister.ask(listing, Some(Lease::Read)).unwrap().answer);
            let recalls: Vec<Recall> = until("the recalls", || {
                let told = writer.told();
                let recalls: Vec<Recall> = told.iter().flat_map(recalls_of).collect();
                (recalls.len() == made.len()).then_some(recalls)
            });
            assert_eq!(writer.told().len(), if volume == "new" { 1 } else { made.len() });
            let returned = |lease: &Recall| Return {
                session: session.id,
                ino: lease.ino,
                stamp: lease.stamp,
                kept: lease.keep,
                open: false,
            };
            let returned: Vec<Return> = recalls.iter().map(returned).collect();
            writer.raw(Kind::Returns as u16, forebay_protocol::Message::encode(&returned)).unwrap();
            let Answer::Entries(entries) = listed.join().unwrap() else { panic!("no entries") };
            assert!(entries.iter().all(|entry| entry.inode.is_some()));
        });
    }
}

fn recalls_of(push: &Push) -> Vec<Recall> {
    match push {
        Push::Recalls(leases) => leases.clone(),
        Push::Recall { ino, keep, stamp } => vec![Recall { ino: *ino, keep: *keep, stamp: *stamp }],
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recall_is_told_again_on_the_next_connection_and_answers_too() {
    let bed = Bed::directory();
    let server = bed.server();
    let (one, two) = (Asks::of(&server), Asks::of(&server));
    one.create(&bed, "v");
    let (first, second) = (one.join("v", 1), two.join("v", 2));
    first.ask(Operation::Inode(Ino::ROOT), Some(Lease::Write)).unwrap();
    let made = first.request(make("mine"), None);
    let answer = first.send(&made).unwrap();
    drop(one);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.make("b"));
        until("the request to wait", || (two.status().volumes[0].waiting > 0).then_some(()));
        let again = Asks::of(&server);
        let welcome = again.resume("v", 1).unwrap();
        assert!(!welcome.begun);
        let Push::Recall { ino, stamp, .. } = until("the recall", || again.told().first().cloned()) else {
            panic!("no recall");
        };
        // The request whose answer it had is answered as before, and done once.
        let session = crate::bed::Session::on(&first_of(&second, 1), &again);
        let repeated = forebay_protocol::Request { session: session.id, ..made.clone() };
        assert_eq!(session.send(&repeated).unwrap().answer, answer.answer);
        let returned = Return { session: session.id, ino, stamp, kept: None, open: false };
        again.raw(Kind::Return as u16, forebay_protocol::Message::encode(&returned)).unwrap();
        assert!(matches!(waiting.join().unwrap(), Answer::Inode(_)));
    });
}

/// A session of this number on the connection of another.
fn first_of<'a>(other: &crate::bed::Session<'a>, number: u128) -> crate::bed::Session<'a> {
    let mut session = other.on(other.asks);
    session.id = forebay_cluster::SessionId(number);
    session
}

#[test]
fn a_session_that_is_over_is_not_resumed() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let session = asks.join("v", 1);
    session.make("a");
    asks.raw(Kind::End as u16, forebay_protocol::Message::encode(&session.id)).unwrap();
    let again = Asks::of(&server);
    let refused = until("its end to be committed", || again.resume("v", 1).err());
    assert!(matches!(refused, Not::Refused(Refusal::SessionEnded)), "{refused:?}");
    let welcome = again.hello("v", 2, None).unwrap();
    assert!(welcome.begun && welcome.term_ms == 10_000 && welcome.volume.name == "v");
}

#[test]
fn messages_out_of_place_are_refused_and_the_connection_goes_on() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let code = |kind: u16, body: &[u8]| match asks.raw(kind, body.to_vec()) {
        Err(CallError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(999, b""), Code::UNSUPPORTED);
    assert_eq!(code(Kind::Push as u16, b""), Code::UNSUPPORTED);
    for kind in [Kind::Hello, Kind::Ask, Kind::Renew, Kind::Reclaim, Kind::Return, Kind::End, Kind::Volumes] {
        assert_eq!(code(kind as u16, &[255; 3]), Code::MALFORMED, "{kind:?}");
    }
    let reclaim = |session, epoch| -> Result<forebay_protocol::Reclaimed, Not> {
        asks.call(Kind::Reclaim, &Reclaim { session, epoch: Epoch(epoch), leases: Vec::new() })
    };
    let early = reclaim(forebay_cluster::SessionId(1), 1);
    assert!(matches!(early, Err(Not::Refused(Refusal::Denied(why))) if why.contains("Hello")));
    let session = asks.join("v", 1);
    let foreign = forebay_protocol::Request {
        session: forebay_cluster::SessionId(2),
        ..session.request(make("x"), None)
    };
    assert!(matches!(session.send(&foreign), Err(Not::Refused(Refusal::Denied(_)))));
    assert_eq!(reclaim(session.id, 1).unwrap().epoch, Epoch(1));
    let other = reclaim(session.id, 2);
    assert!(matches!(other, Err(Not::Refused(Refusal::MustReclaim { epoch: Epoch(1) }))), "{other:?}");
    assert!(!asks.join("v", 1).sees("x"));
}

#[test]
fn metrics_count_what_happens() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.join("v", 1).make("a");
    let text = server.metrics()();
    for line in [
        "forebay_meta_requests_total{kind=\"ask\"} 1",
        "forebay_meta_volume_owned{volume=\"v\"} 1",
        "forebay_meta_sessions{volume=\"v\"} 1",
        "forebay_meta_servers 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let batches =
        text.lines().find_map(|line| line.strip_prefix("forebay_meta_batches_total{volume=\"v\"} "));
    assert!(batches.unwrap().parse::<f64>().unwrap() >= 2.0, "{text}");
}

#[test]
fn a_request_may_be_some_mebibytes_long() {
    let bed = Bed::directory();
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let session = asks.join("v", 1);
    // Gone files are no error; what matters is that it arrives.
    let file = |number: u64| forebay_protocol::FileCommit {
        ino: Ino(1 << 40 | number),
        inline: Some(vec![7; 1000]),
        size: 1000,
        ..forebay_protocol::FileCommit::default()
    };
    let files: Vec<_> = (0..5000).map(file).collect();
    let gone: Vec<Ino> = files.iter().map(|file| file.ino).collect();
    let commit = forebay_protocol::Commit { objects: Vec::new(), files };
    assert_eq!(session.answer(Operation::Commit(Box::new(commit))), Answer::Committed(gone));
}
