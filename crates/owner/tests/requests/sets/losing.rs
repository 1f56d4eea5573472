//! Members whose disks are lost for good, as the operator has said: what is given up then, and what is not.

use forebay_format::set_row::SetRowState;
use forebay_meta::WriteAttr;

use super::*;

/// A view of a group with these members, and those that were given up.
fn without(members: &[MemberId], given_up: &[MemberId], epoch: u64) -> GroupRow {
    let mut group = group_of(members, epoch);
    group.given_up.extend(given_up);
    group
}

fn is_lost(world: &World, segment: SegmentId) -> bool {
    row(world, segment).is_some_and(|row| row.state == SetRowState::Lost)
}

/// A file of three bytes in a segment of A and B that is sealed.
fn sealed_file(writer: &Client<'_>, name: &str) -> (Ino, SegmentId) {
    let ino = writer.inode(make(name)).ino;
    let segment = open(writer);
    assert_eq!(committed(writer, ino, segment, 0, 3), Answer::Committed(vec![]));
    assert_eq!(writer.ask(settle(vec![sealed(segment, b"abc")], vec![segment])).answer(), Answer::Done);
    (ino, segment)
}

#[test]
fn what_all_members_had_that_were_given_up_is_lost_and_the_volume_goes_on() {
    for world in World::both() {
        let server = world.owner();
        let (writer, two) = (server.begin(1), server.begin(3));
        let mut b = Member::new(B);
        let (ino, segment) = sealed_file(&writer, "a");
        b.append(segment, 1, b"abc").unwrap();
        b.seal(segment, b"abc");
        b.offers(&two);
        let given = numbers(&two, 1);
        server.owner.group_is(GROUP, &without(&[], &[], 5));
        tidied(&server, &writer);
        let all = server.owner.sets(true);
        let found = &all[&GROUP].list[0];
        assert_eq!(
            (found.segment, found.bytes, found.lost, &found.members),
            (segment, 3, false, &vec![A, B])
        );
        server.owner.group_is(GROUP, &without(&[], &[A], 6));
        world.pass(&server, &[&writer, &two], Duration::from_secs(60));
        tidied(&server, &writer);
        assert!(!is_lost(&world, segment), "B may come back, for however long");
        assert_eq!(sets(&writer, ino)[0].set, [A, B]);
        // What an older view says comes too late.
        server.owner.group_is(GROUP, &without(&[], &[A, B], 5));
        tidied(&server, &writer);
        assert!(!is_lost(&world, segment));
        server.owner.group_is(GROUP, &without(&[], &[A, B], 7));
        tidied(&server, &writer);
        assert!(is_lost(&world, segment));
        assert_eq!(sets(&writer, ino)[0].set, [], "it is read as nothing else");
        let all_told = [&writer, &two].iter().all(|one| server.told(one.session).contains(&Push::Lost));
        assert!(all_told, "whoever has written to it is to look");
        tidied(&server, &writer);
        assert!(!server.told(writer.session).contains(&Push::Lost), "once");
        let status = &server.owner.sets(true)[&GROUP];
        assert_eq!((status.lost.segments, status.lost.bytes, status.missing.segments), (1, 3, 0));
        assert!(status.list[0].lost);
        // It comes back after all: it is told nothing, throws nothing away, and changes nothing.
        assert_eq!(two.ask(b.offer()).answer(), Answer::Failed(Failure::NotPermitted));
        assert!(b.log.has(segment));
        let late = two.ask(store(&given, 0, vec![stored(segment, 1, b"abc")])).answer();
        assert_eq!(late, Answer::Stored(vec![(segment, NotTaken::Over)]));
        // Other files go on, and this one once it is written anew.
        assert_eq!(writer.ask(make("b")).answer().inode().map(|inode| inode.row.size), Some(0));
        let tiny = FileCommit { inline: Some(b"tiny".to_vec()), ..file(ino, Vec::new()) };
        assert_eq!(writer.ask(commit(vec![], vec![tiny])).answer(), Answer::Committed(vec![]));
        tidied(&server, &writer);
        tidied(&server, &writer);
        assert!(row(&world, segment).is_none(), "nothing of it is in use");
        server.stop().unwrap();
    }
}

#[test]
fn a_writer_that_lives_is_told_and_writes_elsewhere() {
    let world = World::new();
    let server = world.owner();
    let writer = server.begin(1);
    let ino = writer.inode(make("a")).ino;
    let (gone, next) = (open(&writer), open(&writer));
    assert_eq!(committed(&writer, ino, gone, 0, 3), Answer::Committed(vec![]));
    server.owner.group_is(GROUP, &without(&[C], &[A, B], 5));
    let stays = opened(&writer, open_of(Ino::ROOT, 1, Placing::Set(vec![B, C])))[0].segment;
    tidied(&server, &writer);
    assert!(is_lost(&world, gone) && is_lost(&world, next) && !is_lost(&world, stays));
    let other = writer.inode(make("b")).ino;
    // It had appended that, and all had synced it, before their disks went.
    let told = committed(&writer, other, gone, 0, 3);
    assert_eq!(told, Answer::Failed(Failure::Io), "never as if it were safe");
    assert_eq!(committed(&writer, other, stays, 0, 3), Answer::Committed(vec![]));
    // It says where they end as ever, and that it names them no more.
    let ends = vec![sealed(gone, b"abc"), sealed(next, b"")];
    assert_eq!(writer.ask(settle(ends, vec![gone, next])).answer(), Answer::Done);
    assert!(is_lost(&world, gone), "that changes nothing");
    tidied(&server, &writer);
    tidied(&server, &writer);
    assert!(row(&world, next).is_none() && row(&world, gone).is_some(), "files have a part of one");
    server.stop().unwrap();
}

#[test]
fn what_a_writer_left_open_waits_until_nobody_is_hoped_for() {
    for world in World::both() {
        let server = world.owner();
        let (writer, two) = (server.begin(1), server.begin(3));
        let mut b = Member::new(B);
        let ino = writer.inode(make("a")).ino;
        let (waits, goes) = (open(&writer), open(&writer));
        for segment in [waits, goes] {
            assert_eq!(committed(&writer, ino, segment, 0, 3), Answer::Committed(vec![]));
            b.append(segment, 1, b"abc").unwrap();
        }
        let other = writer.inode(make("b")).ino;
        assert_eq!(committed(&writer, other, waits, 0, 3), Answer::Committed(vec![]));
        server.owner.end_session(writer.session);
        server.owner.group_is(GROUP, &without(&[B], &[A], 5));
        tidied(&server, &two);
        world.pass(&server, &[&two], Duration::from_secs(60));
        tidied(&server, &two);
        assert!(!is_lost(&world, waits), "the other one was not heard of yet");
        // It comes back.
        b.offers(&two);
        tidied(&server, &two);
        b.fences(&server, &two);
        world.pass(&server, &[&two], Duration::from_secs(3));
        tidied(&server, &two);
        let state = row(&world, waits).unwrap().state;
        assert!(matches!(state, SetRowState::Sealed { len: 3, .. }), "{state:?}");
        assert_eq!(row(&world, waits).unwrap().set, [B.0, A.0]);
        // And is lost after all, before it has put anything. Another server has the volume by then.
        let later = world.owner();
        later.owner.reclaim(two.session, &[]).unwrap();
        let again = later.client(two.session, two.next());
        tidied(&later, &again);
        assert!(!is_lost(&world, waits), "it was told nothing yet");
        later.owner.group_is(GROUP, &without(&[C], &[A, B], 6));
        tidied(&later, &again);
        assert!(is_lost(&world, waits));
        // A third one, which has not been told: who was given up keeps what it has.
        let third = world.owner();
        third.owner.reclaim(two.session, &[]).unwrap();
        let again = third.client(two.session, again.next());
        assert_eq!(b.offers(&again)[&waits].verdict, Verdict::Wanted);
        assert!(!b.offers(&again)[&waits].puts && b.log.has(waits));
        third.stop().unwrap();
    }
}

/// A segment of A and B whose copy at C is being made when both are given up.
fn given_up_while_c_joins(
    world: &World,
    server: &Server,
    (writer, one, three): (&Client<'_>, &Client<'_>, &Client<'_>),
) -> SegmentId {
    let (_, segment) = sealed_file(writer, "a");
    let mut a = Member::new(A);
    a.append(segment, 1, b"abc").unwrap();
    a.seal(segment, b"abc");
    server.owner.group_is(GROUP, &without(&[A, C], &[], 5));
    a.offers(one);
    tidied(server, writer);
    world.pass(server, &[writer, one, three], Duration::from_secs(30));
    tidied(server, writer);
    assert_eq!(row(world, segment).unwrap().joining, Some(C.0));
    server.owner.group_is(GROUP, &without(&[C], &[A, B], 6));
    tidied(server, writer);
    segment
}

#[test]
fn a_copy_that_was_being_made_counts_if_it_is_whole() {
    for whole in [true, false] {
        let world = World::new();
        let server = world.owner();
        let (writer, one, three) = (server.begin(1), server.begin(2), server.begin(4));
        let mut c = Member::new(C);
        let segment = given_up_while_c_joins(&world, &server, (&writer, &one, &three));
        world.pass(&server, &[&writer, &one, &three], Duration::from_secs(60));
        tidied(&server, &writer);
        assert!(!is_lost(&world, segment), "C has not been heard of");
        c.append(segment, 2, if whole { b"abc" } else { b"ab" }).unwrap();
        assert_eq!(c.offers(&three)[&segment].verdict, Verdict::Wanted);
        tidied(&server, &writer);
        assert_eq!(c.fences(&server, &three), [(segment, Epoch(3))], "in an epoch of its own");
        assert!(c.append(segment, 2, b"c").is_err(), "no more comes there");
        tidied(&server, &writer);
        assert_eq!(is_lost(&world, segment), !whole);
        let now = row(&world, segment).unwrap();
        if whole {
            assert_eq!((now.set, now.joining), (vec![C.0], None));
            c.offers(&three);
            assert!(c.offers(&three)[&segment].puts, "it puts what it has");
        } else {
            assert!(matches!(c.offers(&three)[&segment].verdict, Verdict::Unwanted(_)));
        }
        server.stop().unwrap();
    }
}

#[test]
fn who_was_being_given_a_copy_can_be_given_up_too() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, three) = (server.begin(1), server.begin(2), server.begin(4));
    let segment = given_up_while_c_joins(&world, &server, (&writer, &one, &three));
    let members = server.owner.sets(true)[&GROUP].list[0].members.clone();
    assert_eq!(members, [A, B, C], "the operator is told who may have it");
    server.owner.group_is(GROUP, &without(&[], &[A, B, C], 7));
    tidied(&server, &writer);
    assert!(is_lost(&world, segment));
    server.stop().unwrap();
}

/// What a client left open of which B has six bytes, and A three: recovery has heard of B alone, and ended it there.
fn recovered_at_b(
    world: &World,
    server: &Server,
    (writer, two): (&Client<'_>, &Client<'_>),
) -> (Ino, SegmentId, Member, Member) {
    let (mut a, mut b) = (Member::new(A), Member::new(B));
    let ino = writer.inode(make("a")).ino;
    let segment = open(writer);
    a.append(segment, 1, b"abc").unwrap();
    b.append(segment, 1, b"abc").unwrap();
    b.append(segment, 1, b"def").unwrap();
    assert_eq!(committed(writer, ino, segment, 0, 3), Answer::Committed(vec![]));
    b.offers(two);
    server.owner.end_session(writer.session);
    tidied(server, two);
    tidied(server, two);
    assert_eq!(b.fences(server, two), [(segment, Epoch(2))]);
    world.pass(server, &[two], Duration::from_secs(3));
    tidied(server, two);
    let found = row(world, segment).unwrap();
    assert!(matches!(found.state, SetRowState::Sealed { len: 6, .. }), "{found:?}");
    assert!(found.recovered && found.set == [B.0, A.0]);
    (ino, segment, a, b)
}

#[test]
fn what_recovery_ended_at_who_is_lost_ends_where_it_does_at_who_is_left() {
    for world in World::both() {
        let server = world.owner();
        let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
        let (ino, segment, mut a, _) = recovered_at_b(&world, &server, (&writer, &two));
        let told = a.offers(&one)[&segment];
        assert!(matches!(told.verdict, Verdict::SealedAt { len: 6, .. }), "it has not so much");
        tidied(&server, &one);
        world.pass(&server, &[&one, &two], Duration::from_secs(60));
        tidied(&server, &one);
        assert_eq!(row(&world, segment).unwrap().epoch, Epoch(2), "B may come back");
        let late = numbers(&two, 2);
        server.owner.group_is(GROUP, &without(&[A], &[B], 5));
        tidied(&server, &one);
        tidied(&server, &one);
        // Until A has fenced it, it is as it was; then it is as long as A has it.
        assert!(matches!(row(&world, segment).unwrap().state, SetRowState::Sealed { len: 6, .. }));
        assert_eq!(a.fences(&server, &one), [(segment, Epoch(3))]);
        assert!(a.append(segment, 1, b"def").is_err(), "what is late is refused");
        tidied(&server, &one);
        let found = row(&world, segment).unwrap();
        let check = crc32c::crc32c(b"abc");
        assert_eq!((found.state, found.epoch), (SetRowState::Sealed { len: 3, check }, Epoch(3)));
        assert_eq!((found.set, sets(&one, ino)[0].set.clone()), (vec![A.0], vec![A]));
        assert_eq!(server.owner.sets(false)[&GROUP].lost.segments, 0);
        // What B had put of it comes too late; A cuts nothing, seals it, and puts it.
        assert_eq!(
            two.ask(store(&late, 0, vec![stored(segment, 2, b"abcdef")])).answer(),
            Answer::Stored(vec![(segment, NotTaken::Over)])
        );
        a.offers(&one);
        assert!(a.offers(&one)[&segment].puts);
        let given = numbers(&one, 1);
        let put = store(&given, 0, vec![stored(segment, 3, b"abc")]);
        assert_eq!(one.ask(put).answer(), Answer::Stored(vec![]));
        assert!(sets(&one, ino).is_empty(), "the store has it");
        assert_eq!(a.offers(&one)[&segment].verdict, Verdict::Clean);
        server.stop().unwrap();
    }
}

#[test]
fn an_owner_that_takes_over_in_between_asks_anew() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
    let (_, segment, mut a, _) = recovered_at_b(&world, &server, (&writer, &two));
    a.offers(&one);
    server.owner.group_is(GROUP, &without(&[A], &[B], 5));
    tidied(&server, &one);
    assert_eq!(row(&world, segment).unwrap().epoch, Epoch(3), "it is being asked");
    let later = world.owner();
    for session in [one.session, two.session] {
        later.owner.reclaim(session, &[]).unwrap();
    }
    let again = later.client(one.session, one.next());
    later.owner.group_is(GROUP, &without(&[A], &[B], 5));
    tidied(&later, &again);
    assert_eq!(row(&world, segment).unwrap().epoch, Epoch(3), "A has not been heard of");
    a.offers(&again);
    tidied(&later, &again);
    tidied(&later, &again);
    assert_eq!(a.fences(&later, &again), [(segment, Epoch(4))], "in an epoch of its own");
    tidied(&later, &again);
    assert!(matches!(row(&world, segment).unwrap().state, SetRowState::Sealed { len: 3, .. }));
    later.stop().unwrap();
}

#[test]
fn who_is_left_may_be_given_up_while_it_is_asked() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
    let (_, segment, mut a, _) = recovered_at_b(&world, &server, (&writer, &two));
    a.offers(&one);
    server.owner.group_is(GROUP, &without(&[A], &[B], 5));
    tidied(&server, &one);
    server.owner.group_is(GROUP, &without(&[], &[A, B], 6));
    tidied(&server, &two);
    assert!(is_lost(&world, segment));
    server.stop().unwrap();
}

#[test]
fn what_its_writer_sealed_is_not_cut_although_who_is_left_has_less() {
    let world = World::new();
    let server = world.owner();
    let (writer, one) = (server.begin(1), server.begin(2));
    let (_, segment) = sealed_file(&writer, "a");
    let mut a = Member::new(A);
    // Its disk has forgotten what it said to have synced.
    a.append(segment, 1, b"ab").unwrap();
    a.offers(&one);
    server.owner.group_is(GROUP, &without(&[A], &[B], 5));
    tidied(&server, &one);
    a.offers(&one);
    tidied(&server, &one);
    let found = row(&world, segment).unwrap();
    assert!(
        matches!(found.state, SetRowState::Sealed { len: 3, .. }) && found.epoch == Epoch(1),
        "{found:?}"
    );
    server.stop().unwrap();
}

#[test]
fn a_member_that_was_given_up_fences_stores_and_copies_nothing() {
    for by_word in [true, false] {
        let world = World::new();
        let server = world.owner();
        let (writer, two, three) = (server.begin(1), server.begin(3), server.begin(4));
        let (mut b, c) = (Member::new(B), Member::new(C));
        let (_, done) = sealed_file(&writer, "a");
        let ino = writer.inode(make("b")).ino;
        let left = open(&writer);
        assert_eq!(committed(&writer, ino, left, 0, 3), Answer::Committed(vec![]));
        for segment in [done, left] {
            b.append(segment, 1, b"abc").unwrap();
        }
        b.seal(done, b"abc");
        if by_word {
            // A later owner has not heard an offer of it.
            server.owner.is_of_member(two.session, B);
        } else {
            b.offers(&two);
        }
        c_is_there(&c, &three);
        let given = numbers(&two, 1);
        server.owner.end_session(writer.session);
        tidied(&server, &two);
        server.owner.group_is(GROUP, &without(&[C], &[B], 5));
        let fenced = forebay_group::Fenced { end: 3, check: crc32c::crc32c(b"abc"), damaged: false };
        let copies = vec![FencedCopy { segment: left, epoch: Epoch(2), fenced }];
        let says = Operation::Fenced(FencedCopies { member: B, copies });
        assert_eq!(two.ask(says).answer(), Answer::Failed(Failure::NotPermitted));
        world.pass(&server, &[&two, &three], Duration::from_secs(31));
        tidied(&server, &three);
        tidied(&server, &three);
        assert!(matches!(row(&world, left).unwrap().state, SetRowState::Open), "A is waited for");
        let put = store(&given, 0, vec![stored(done, 1, b"abc")]);
        assert_eq!(two.ask(put).answer(), Answer::Stored(vec![(done, NotTaken::Over)]));
        let now = row(&world, done).unwrap();
        assert!(matches!(now.state, SetRowState::Sealed { .. }), "it is not in the store: {now:?}");
        let seated = Operation::Reseat(Reseat { segment: done, epoch: now.epoch, member: C });
        assert_eq!(two.ask(seated).answer(), Answer::Failed(Failure::NotPermitted));
        server.stop().unwrap();
    }
}

fn c_is_there(c: &Member, three: &Client<'_>) {
    assert_eq!(three.ask(c.offer()).answer(), Answer::Judged(vec![]));
}

#[test]
fn what_is_lost_is_not_shared_with_another_file() {
    let world = World::new();
    let server = world.owner();
    let writer = server.begin(1);
    let (ino, _) = sealed_file(&writer, "a");
    let (other, whole) = (writer.inode(make("b")).ino, open_elsewhere(&writer));
    assert_eq!(committed(&writer, other, whole, 0, 3), Answer::Committed(vec![]));
    let target = writer.inode(make("c")).ino;
    let share = |source, len| {
        let attr = WriteAttr::default();
        writer.ask(Operation::Share { source, from: 0, target, to: 0, len, attr }).answer()
    };
    assert!(matches!(share(ino, 3), Answer::Inode(_)), "nothing is lost yet");
    server.owner.group_is(GROUP, &without(&[C], &[A, B], 5));
    tidied(&server, &writer);
    assert_eq!(share(ino, 3), Answer::Failed(Failure::Io), "a copy of it would be none");
    assert!(matches!(share(other, 3), Answer::Inode(_)));
    server.stop().unwrap();
    // A later owner knows it from the rows.
    let later = world.owner();
    later.owner.reclaim(writer.session, &[]).unwrap();
    let again = later.client(writer.session, writer.next());
    let attr = WriteAttr::default();
    let share = Operation::Share { source: ino, from: 0, target, to: 0, len: 3, attr };
    assert_eq!(again.ask(share).answer(), Answer::Failed(Failure::Io));
    later.stop().unwrap();
}

/// A segment on B and C.
fn open_elsewhere(client: &Client<'_>) -> SegmentId {
    opened(client, open_of(Ino::ROOT, 1, Placing::Set(vec![B, C])))[0].segment
}
