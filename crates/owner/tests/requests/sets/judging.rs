//! What members are told of their copies.

use super::*;

#[test]
fn members_are_told_what_becomes_of_copies() {
    let world = World::new();
    let server = world.owner();
    let (writer, one, two) = (server.begin(1), server.begin(2), server.begin(3));
    let (mut a, mut b, mut c) = (Member::new(A), Member::new(B), Member::new(C));
    let segment = open(&writer);
    let ino = writer.inode(make("a")).ino;
    assert_eq!(committed(&writer, ino, segment, 0, 3), Answer::Committed(vec![]));
    for member in [&mut a, &mut b, &mut c] {
        member.append(segment, 1, b"abc").unwrap();
    }
    b.append(segment, 1, b"de").unwrap();
    assert_eq!(a.offers(&one)[&segment].verdict, Verdict::Wanted);
    assert_eq!(c.offers(&two)[&segment].verdict, Verdict::Unwanted(Epoch(1)));
    assert!(!c.log.has(segment));
    a.seal(segment, b"abc");
    assert_eq!(writer.ask(settle(vec![sealed(segment, b"abc")], vec![])).answer(), Answer::Done);
    let told = b.offers(&two)[&segment];
    assert_eq!(told.verdict, Verdict::SealedAt { epoch: Epoch(1), len: 3, check: crc32c::crc32c(b"abc") });
    assert_eq!(b.log.kept(segment).unwrap().end(), 3, "what was not acknowledged is cut");
    // The first of the set has its turn, then the next one, then it again.
    let turn =
        |a: &mut Member, b: &mut Member| (a.offers(&one)[&segment].puts, b.offers(&two)[&segment].puts);
    assert_eq!(turn(&mut a, &mut b), (true, false));
    world.pass(&server, &[&writer, &one, &two], Duration::from_secs(15));
    assert_eq!(turn(&mut a, &mut b), (false, true));
    world.pass(&server, &[&writer, &one, &two], Duration::from_secs(15));
    assert_eq!(turn(&mut a, &mut b), (true, false));
    let given = numbers(&one, 1);
    assert_eq!(one.ask(store(&given, 0, vec![stored(segment, 1, b"abc")])).answer(), Answer::Stored(vec![]));
    let clean = a.offers(&one)[&segment];
    let place = clean.place.unwrap();
    assert_eq!((clean.verdict, place.object, place.offset), (Verdict::Clean, given.first_object, 64));
    let unused = open(&writer);
    b.append(unused, 1, b"never acknowledged").unwrap();
    let ends = vec![sealed(unused, b"")];
    assert_eq!(writer.ask(settle(ends, vec![segment, unused])).answer(), Answer::Done);
    tidied(&server, &writer);
    let told = b.offers(&two);
    assert_eq!(
        (told[&segment].verdict, told[&segment].place),
        (Verdict::Clean, Some(place)),
        "without a row"
    );
    assert_eq!((told[&unused].verdict, told[&unused].place), (Verdict::Gone, None));
    assert!(!a.log.has(segment) && !b.log.has(segment));
    server.stop().unwrap();
}

#[test]
fn a_copy_is_not_said_to_be_clean_before_that_is_committed() {
    use crate::held::Mode;
    let world = World::new();
    let server = world.owner();
    let (writer, proxy) = (server.begin(1), server.begin(2));
    let mut a = Member::new(A);
    let segment = open(&writer);
    a.append(segment, 1, b"abc").unwrap();
    let given = numbers(&proxy, 1);
    world.engine.set(Mode::Holds);
    let storing = proxy.ask(store(&given, 0, vec![stored(segment, 1, b"abc")]));
    let offered = proxy.ask(a.offer());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!offered.is_there() && !storing.is_there());
    world.engine.set(Mode::Works);
    assert_eq!(storing.answer(), Answer::Stored(vec![]));
    let Answer::Judged(judged) = offered.answer() else { panic!("no verdicts") };
    assert_eq!(judged[0].verdict, Verdict::Clean);
    server.stop().unwrap();
}
