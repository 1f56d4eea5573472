//! What writers that ended left open, and copies in the place of those that are gone.

use super::*;

/// Ends a session, and waits until that is committed.
fn end(server: &Server, session: SessionId, other: &Client<'_>) {
    server.owner.end_session(session);
    assert_eq!(other.ask(Operation::Release(Vec::new())).answer(), Answer::Done);
}

/// A segment on A and B of which a file has three bytes.
pub fn used(writer: &Client<'_>) -> SegmentId {
    let (ino, segment) = (writer.inode(make("used")).ino, open(writer));
    assert_eq!(committed(writer, ino, segment, 0, 3), Answer::Committed(vec![]));
    segment
}

#[test]
fn what_a_writer_left_open_ends_where_the_least_of_the_survivors_does() {
    for world in World::both() {
        let server = world.owner();
        let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
        let (mut a, mut b) = (Member::new(A), Member::new(B));
        let ino = writer.inode(make("a")).ino;
        let segment = open(&writer);
        a.append(segment, 1, b"abc").unwrap();
        b.append(segment, 1, b"abc").unwrap();
        assert_eq!(committed(&writer, ino, segment, 0, 3), Answer::Committed(vec![]));
        b.append(segment, 1, b"more").unwrap();
        a.offers(&one);
        b.offers(&two);
        end(&server, writer.session, &one);
        let fenced = row(&world, segment).unwrap();
        assert!(fenced.epoch == Epoch(2) && fenced.settled, "in the batch that ends the session");
        server.owner.tidy().unwrap();
        assert_eq!(b.fences(&server, &two), [(segment, Epoch(2))]);
        assert!(b.append(segment, 1, b"late").is_err());
        tidied(&server, &one);
        assert!(matches!(row(&world, segment).unwrap().state, forebay_format::set_row::SetRowState::Open));
        // The other one, which it was told again.
        assert_eq!(a.fences(&server, &one).last(), Some(&(segment, Epoch(2))));
        tidied(&server, &one);
        let check = crc32c::crc32c(b"abc");
        let state = forebay_format::set_row::SetRowState::Sealed { len: 3, check };
        assert_eq!(row(&world, segment).unwrap().state, state);
        assert_eq!(sets(&one, ino)[0].set, [A, B]);
        assert_eq!(b.offers(&two)[&segment].verdict, Verdict::SealedAt { epoch: Epoch(2), len: 3, check });
        a.offers(&one);
        let given = numbers(&one, 2);
        let late = one.ask(store(&given, 0, vec![stored(segment, 1, b"abcmore")])).answer();
        assert_eq!(late, Answer::Stored(vec![(segment, NotTaken::Late(Epoch(2)))]));
        let put = one.ask(store(&given, 1, vec![stored(segment, 2, b"abc")])).answer();
        assert_eq!(put, Answer::Stored(vec![]));
        tidied(&server, &one);
        assert!(row(&world, segment).is_none(), "stored, and nobody is left who could name it");
        assert!(sets(&one, ino).is_empty());
        server.stop().unwrap();
    }
}

#[test]
fn one_survivor_is_enough_after_two_seconds() {
    let world = World::new();
    let server = world.owner();
    let (writer, two) = (server.begin(1), server.begin(3));
    let mut b = Member::new(B);
    let segment = used(&writer);
    b.append(segment, 1, b"abc").unwrap();
    b.offers(&two);
    end(&server, writer.session, &two);
    server.owner.tidy().unwrap();
    b.fences(&server, &two);
    tidied(&server, &two);
    assert_eq!(b.offers(&two)[&segment].verdict, Verdict::Wanted, "another one may answer");
    world.pass(&server, &[&two], Duration::from_secs(3));
    tidied(&server, &two);
    let row = row(&world, segment).unwrap();
    assert_eq!(row.set, [B.0, A.0], "who has it for sure puts it");
    assert!(matches!(row.state, forebay_format::set_row::SetRowState::Sealed { len: 3, .. }));
    server.stop().unwrap();
}

/// No member has a session with the volume: none has got anything of it.
#[test]
fn what_no_file_has_a_part_of_goes_with_its_writer() {
    for world in World::both() {
        let server = world.owner();
        let (writer, other) = (server.begin(1), server.begin(2));
        let (untouched, unnamed, emptied) = (open(&writer), open(&writer), open(&writer));
        let ino = writer.inode(make("a")).ino;
        assert_eq!(committed(&writer, ino, emptied, 0, 3), Answer::Committed(vec![]));
        tidied(&server, &other);
        assert!(row(&world, untouched).is_some(), "its writer lives");
        end(&server, writer.session, &other);
        tidied(&server, &other);
        tidied(&server, &other);
        assert!(row(&world, untouched).is_none() && row(&world, unnamed).is_none());
        assert_eq!(server.owner.missing_segments(), [(emptied, vec![A, B])], "a file has a part of it");
        // Who got something of one of them that was never acknowledged is told that nobody needs it.
        let (mut b, two) = (Member::new(B), server.begin(3));
        b.append(unnamed, 1, b"abc").unwrap();
        assert_eq!(b.offers(&two)[&unnamed].verdict, Verdict::Gone);
        let tiny = FileCommit { inline: Some(b"tiny".to_vec()), ..file(ino, Vec::new()) };
        assert_eq!(other.ask(commit(vec![], vec![tiny])).answer(), Answer::Committed(vec![]));
        tidied(&server, &other);
        tidied(&server, &other);
        // Nobody can name what was in it.
        server.owner.tidy().unwrap();
        tidied(&server, &other);
        assert_eq!(server.owner.missing_segments(), []);
        server.stop().unwrap();
    }
}

#[test]
fn a_takeover_in_the_middle_of_a_recovery_begins_anew() {
    for world in World::both() {
        let server = world.owner();
        let (writer, one) = (server.begin(1), server.begin(2));
        let mut a = Member::new(A);
        let segment = used(&writer);
        a.append(segment, 1, b"abc").unwrap();
        a.offers(&one);
        end(&server, writer.session, &one);
        server.owner.tidy().unwrap();
        until("the fence", || !server.pushes.lock().is_empty());
        let later = world.owner();
        later.owner.reclaim(one.session, &[]).unwrap();
        let again = later.client(one.session, one.next());
        a.offers(&again);
        tidied(&later, &again);
        let told = a.fences(&later, &again);
        assert_eq!(told, [(segment, Epoch(3))], "in an epoch of its own");
        world.pass(&later, &[&again], Duration::from_secs(3));
        tidied(&later, &again);
        let row = row(&world, segment).unwrap();
        assert!(matches!(row.state, forebay_format::set_row::SetRowState::Sealed { len: 3, .. }));
        assert_eq!(row.epoch, Epoch(3));
        later.stop().unwrap();
    }
}

#[test]
fn an_answer_to_an_older_fence_or_of_another_session_does_not_count() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
    let (a, b) = (Member::new(A), Member::new(B));
    let segment = used(&writer);
    assert_eq!(one.ask(a.offer()).answer(), Answer::Judged(vec![]));
    assert_eq!(two.ask(b.offer()).answer(), Answer::Judged(vec![]));
    end(&server, writer.session, &one);
    server.owner.tidy().unwrap();
    let says = |member, epoch| {
        let fenced = forebay_group::Fenced { end: 0, check: 0, damaged: false };
        let copies = vec![FencedCopy { segment, epoch: Epoch(epoch), fenced }];
        Operation::Fenced(FencedCopies { member, copies })
    };
    assert_eq!(one.ask(says(A, 1)).answer(), Answer::Done);
    assert_eq!(one.ask(says(B, 2)).answer(), Answer::Failed(Failure::NotPermitted));
    world.pass(&server, &[&one, &two], Duration::from_secs(30));
    tidied(&server, &one);
    let open =
        |segment| matches!(row(&world, segment).unwrap().state, forebay_format::set_row::SetRowState::Open);
    assert!(open(segment));
    let missing = server.owner.missing_segments();
    assert_eq!(missing, [(segment, vec![A, B])]);
    server.stop().unwrap();
}

#[test]
fn a_member_that_was_drained_and_removed_had_nothing() {
    let world = World::new();
    let server = world.owner();
    let (writer, one) = (server.begin(1), server.begin(2));
    let segment = used(&writer);
    let mut group = group_of(&[B], 5);
    group.removed.insert(A);
    server.owner.group_is(GROUP, &group);
    // What an older view says comes too late.
    server.owner.group_is(GROUP, &group_of(&[A, B], 4));
    end(&server, writer.session, &one);
    tidied(&server, &one);
    world.pass(&server, &[&one], Duration::from_secs(3));
    tidied(&server, &one);
    let state = row(&world, segment).unwrap().state;
    assert_eq!(state, forebay_format::set_row::SetRowState::Sealed { len: 0, check: 0 });
    server.stop().unwrap();
}

#[test]
fn a_sealed_segment_gets_another_copy_and_its_set_names_who_has_all_of_it() {
    for world in World::both() {
        let server = world.owner();
        let (writer, one, three) = (server.begin(1), server.begin(2), server.begin(4));
        let (mut a, mut c) = (Member::new(A), Member::new(C));
        let ino = writer.inode(make("a")).ino;
        let segment = open(&writer);
        assert_eq!(committed(&writer, ino, segment, 0, 3), Answer::Committed(vec![]));
        a.append(segment, 1, b"abc").unwrap();
        a.seal(segment, b"abc");
        assert_eq!(writer.ask(settle(vec![sealed(segment, b"abc")], vec![])).answer(), Answer::Done);
        server.owner.group_is(GROUP, &group_of(&[A, C], 7));
        a.offers(&one);
        tidied(&server, &one);
        assert_eq!(row(&world, segment).unwrap().joining, None, "it may be stored soon");
        world.pass(&server, &[&writer, &one, &three], Duration::from_secs(30));
        tidied(&server, &one);
        let seating = row(&world, segment).unwrap();
        assert_eq!((seating.joining, seating.epoch, &seating.set), (Some(C.0), Epoch(2), &vec![A.0, B.0]));
        a.offers(&one);
        let told = a.offers(&one)[&segment];
        assert_eq!(told.copy_to, Some((C, Epoch(2))));
        c.append(segment, 2, b"abc").unwrap();
        assert_eq!(c.offers(&three)[&segment].verdict, Verdict::Wanted, "and it is not given up");
        let seated = |epoch| Operation::Reseat(Reseat { segment, epoch: Epoch(epoch), member: C });
        assert_eq!(one.ask(seated(1)).answer(), Answer::Failed(Failure::Invalid), "of an older copy");
        assert_eq!(one.ask(seated(2)).answer(), Answer::Done);
        let row = row(&world, segment).unwrap();
        assert_eq!((row.joining, row.set), (None, vec![A.0, C.0]));
        server.stop().unwrap();
    }
}
