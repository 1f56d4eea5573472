//! How many copies there are to be.

use super::{recovering::used, *};

#[test]
fn there_are_as_many_copies_as_the_volume_asks_for() {
    // Of two, with one gone: not by how many copies the group has of other volumes' segments.
    for (of_group, of_volume) in [(2, None), (3, Some(2)), (2, Some(3))] {
        let world = World::new();
        let server = world.owner();
        let (writer, one) = (server.begin(1), server.begin(2));
        let segment = used(&writer);
        assert_eq!(writer.ask(settle(vec![sealed(segment, b"abc")], vec![])).answer(), Answer::Done);
        server.owner.set_copies(of_volume);
        let mut group = group_of(&[A, B, C], 5);
        group.view.copies = of_group;
        server.owner.group_is(GROUP, &group);
        let three = of_volume == Some(3);
        let under = || server.owner.sets(false)[&GROUP].under.segments;
        assert_eq!(under(), u64::from(three));
        tidied(&server, &one);
        world.pass(&server, &[&writer, &one], Duration::from_secs(31));
        tidied(&server, &one);
        let joining = || row(&world, segment).unwrap().joining;
        assert_eq!(joining(), three.then_some(C.0), "{of_group} of the group, {of_volume:?} of the volume");
        let mut group = group_of(&[A, C], 6);
        group.view.copies = of_group;
        server.owner.group_is(GROUP, &group);
        assert_eq!(under(), 1);
        tidied(&server, &one);
        assert!(joining().is_some());
        server.stop().unwrap();
    }
}

#[test]
fn who_copies_stays_in_the_set_and_who_has_all_of_it_puts_it_where_nobody_of_the_set_is_there() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
    let (mut a, mut b) = (Member::new(A), Member::new(B));
    let segment = used(&writer);
    for member in [&mut a, &mut b] {
        member.append(segment, 1, b"abc").unwrap();
        member.seal(segment, b"abc");
    }
    assert_eq!(writer.ask(settle(vec![sealed(segment, b"abc")], vec![])).answer(), Answer::Done);
    server.owner.group_is(GROUP, &group_of(&[A, C], 5));
    a.offers(&one);
    tidied(&server, &one);
    world.pass(&server, &[&writer, &one, &two], Duration::from_secs(31));
    tidied(&server, &one);
    a.offers(&one);
    assert_eq!(a.offers(&one)[&segment].copy_to, Some((C, Epoch(2))));
    // A is counted out while it copies, and is there all the same.
    server.owner.group_is(GROUP, &group_of(&[C], 6));
    let seated = Reseat { segment, epoch: Epoch(2), member: C };
    assert_eq!(one.ask(Operation::Reseat(seated)).answer(), Answer::Done);
    assert_eq!(row(&world, segment).unwrap().set, vec![A.0, C.0]);
    assert_eq!(a.offers(&one)[&segment].verdict, Verdict::Wanted);
    // Both are gone, and B is back, whom the set does not name any more.
    server.owner.group_is(GROUP, &group_of(&[B], 7));
    let check = crc32c::crc32c(b"abc");
    assert_eq!(b.offers(&two)[&segment].verdict, Verdict::SealedAt { epoch: Epoch(2), len: 3, check });
    let told = b.offers(&two)[&segment];
    assert_eq!((told.verdict, told.puts), (Verdict::Wanted, true));
    let given = numbers(&two, 1);
    assert_eq!(two.ask(store(&given, 0, vec![stored(segment, 2, b"abc")])).answer(), Answer::Stored(vec![]));
    server.stop().unwrap();
}
