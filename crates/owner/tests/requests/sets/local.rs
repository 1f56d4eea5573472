//! Sets of one: the log of the machine that writes.

use forebay_format::set_row::SetRowState;

use super::*;

/// A file of three bytes in a segment that these members have.
fn on(writer: &Client<'_>, name: &str, set: &[MemberId]) -> (Ino, SegmentId) {
    let candidate = |id: &MemberId| Candidate { id: *id, weight: 1, zone: id.to_string() };
    let (members, copies) = (set.iter().map(candidate).collect(), set.len() as u8);
    let placing = Placing::Best { members, copies, near: set.first().copied() };
    let opened = opened(writer, open_of(Ino::ROOT, 1, placing)).remove(0);
    assert_eq!((opened.set.len(), opened.set[0]), (set.len(), set[0]));
    let ino = writer.inode(make(name)).ino;
    assert_eq!(committed(writer, ino, opened.segment, 0, 3), Answer::Committed(vec![]));
    (ino, opened.segment)
}

#[test]
fn the_one_that_has_it_recovers_it_whenever_it_is_back_and_puts_it() {
    for world in World::both() {
        let server = world.owner();
        server.owner.set_copies(Some(1));
        server.owner.group_is(GROUP, &group_of(&[A, B, C], 5));
        let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
        let (mut a, b) = (Member::new(A), Member::new(B));
        let (ino, segment) = on(&writer, "a", &[A]);
        a.append(segment, 1, b"abc").unwrap();
        assert_eq!(server.owner.sets(false)[&GROUP].under.segments, 0, "one is what was promised");
        // Its machine goes: mount and member at once.
        server.owner.end_session(writer.session);
        let offer = Operation::Offer(OfferCopies { member: B, group: GROUP, offers: b.log.offers() });
        assert_eq!(two.ask(offer).answer(), Answer::Judged(vec![]));
        server.owner.group_is(GROUP, &group_of(&[B, C], 6));
        tidied(&server, &two);
        world.pass(&server, &[&one, &two], Duration::from_secs(120));
        tidied(&server, &two);
        assert_eq!(server.owner.missing_segments(), [(segment, vec![A])]);
        assert_eq!(sets(&two, ino)[0].set, [A], "who reads is told whom to wait for");
        // Back again, with its disk.
        server.owner.group_is(GROUP, &group_of(&[A, B, C], 7));
        a.offers(&one);
        server.owner.tidy().unwrap();
        assert_eq!(a.fences(&server, &one), [(segment, Epoch(2))]);
        assert!(a.append(segment, 1, b"late").is_err());
        tidied(&server, &one);
        let state = row(&world, segment).unwrap().state;
        assert_eq!(state, SetRowState::Sealed { len: 3, check: crc32c::crc32c(b"abc") });
        a.offers(&one);
        assert!(a.offers(&one)[&segment].puts);
        world.pass(&server, &[&one, &two], Duration::from_secs(31));
        tidied(&server, &one);
        assert_eq!(row(&world, segment).unwrap().joining, None, "no copy is made that nobody was promised");
        let given = numbers(&one, 1);
        let put = one.ask(store(&given, 0, vec![stored(segment, 2, b"abc")])).answer();
        assert_eq!(put, Answer::Stored(vec![]));
        tidied(&server, &one);
        assert!(row(&world, segment).is_none());
        server.stop().unwrap();
    }
}

/// Of a volume of class `local` some files are of a higher one: theirs is kept to where a member is gone.
#[test]
fn what_was_on_two_is_on_two_again_whatever_the_volume_says() {
    let world = World::new();
    let server = world.owner();
    server.owner.set_copies(Some(1));
    server.owner.group_is(GROUP, &group_of(&[A, B, C], 5));
    let (writer, one) = (server.begin(1), server.begin(2));
    let (_, single) = on(&writer, "single", &[A]);
    let (_, double) = on(&writer, "double", &[A, B]);
    let ends = vec![sealed(single, b"abc"), sealed(double, b"abc")];
    assert_eq!(writer.ask(settle(ends, vec![])).answer(), Answer::Done);
    server.owner.group_is(GROUP, &group_of(&[A, C], 6));
    assert_eq!(server.owner.sets(false)[&GROUP].under.segments, 1);
    tidied(&server, &one);
    world.pass(&server, &[&writer, &one], Duration::from_secs(31));
    tidied(&server, &one);
    let joining = |segment| row(&world, segment).unwrap().joining;
    assert_eq!((joining(single), joining(double)), (None, Some(C.0)));
    // Once more is promised of the volume, there is to be more of what it has.
    server.owner.set_copies(Some(2));
    assert_eq!(server.owner.sets(false)[&GROUP].under.segments, 2);
    tidied(&server, &one);
    assert_eq!(joining(single), Some(C.0));
    server.stop().unwrap();
}

#[test]
fn it_is_lost_with_the_one_that_had_it_once_that_is_given_up() {
    for world in World::both() {
        let server = world.owner();
        server.owner.set_copies(Some(1));
        let writer = server.begin(1);
        let (ended, open_one) = (on(&writer, "ended", &[A]), on(&writer, "open", &[A]));
        let other = on(&writer, "other", &[B]);
        assert_eq!(writer.ask(settle(vec![sealed(ended.1, b"abc")], vec![])).answer(), Answer::Done);
        server.owner.group_is(GROUP, &group_of(&[B], 5));
        world.pass(&server, &[&writer], Duration::from_secs(600));
        tidied(&server, &writer);
        let state = |segment| row(&world, segment).unwrap().state;
        assert!([ended.1, open_one.1].iter().all(|segment| state(*segment) != SetRowState::Lost));
        let mut group = group_of(&[B], 6);
        group.given_up.insert(A);
        server.owner.group_is(GROUP, &group);
        tidied(&server, &writer);
        assert!([ended.1, open_one.1].iter().all(|segment| state(*segment) == SetRowState::Lost));
        assert_eq!(state(other.1), SetRowState::Open);
        assert!([ended.0, open_one.0].iter().all(|ino| sets(&writer, *ino)[0].set.is_empty()));
        assert!(server.told(writer.session).contains(&Push::Lost), "who was promised it is told");
        let again = committed(&writer, open_one.0, open_one.1, 0, 3);
        assert_eq!(again, Answer::Failed(Failure::Io), "never as if it were safe");
        server.stop().unwrap();
    }
}
