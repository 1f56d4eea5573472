use super::*;

const INO: Ino = Ino(5);

fn seconds(seconds: u64) -> Moment {
    Moment(seconds * 1_000_000_000)
}

fn stamp(number: u64) -> Stamp {
    Stamp { epoch: Epoch(1), number }
}

fn grant(ino: Ino, lease: Lease, number: u64) -> Grant {
    Grant { ino, lease, stamp: stamp(number) }
}

fn none() -> HeldLeases {
    HeldLeases::new(Terms::default(), Epoch(1), seconds(0))
}

#[test]
fn a_lease_counts_until_the_session_ends() {
    let mut leases = none();
    assert!(leases.granted(grant(INO, Lease::Read, 1)));
    assert!(leases.has(INO, Lease::Read, seconds(8)));
    assert!(!leases.has(INO, Lease::Write, seconds(8)));
    assert_eq!(leases.lifetime(INO, seconds(8)), Duration::from_secs(1));
    assert!(!leases.has(INO, Lease::Read, seconds(9)));
    assert_eq!(leases.lifetime(INO, seconds(9)), Duration::ZERO);
    leases.heard(seconds(5));
    leases.heard(seconds(3));
    assert!(leases.has(INO, Lease::Read, seconds(13)));
    assert!(!leases.has(INO, Lease::Read, seconds(14)));
}

#[test]
fn what_is_given_up_is_returned_like_what_is_recalled_unless_somebody_came_first() {
    let mut leases = none();
    assert!(!leases.give_up(INO, stamp(1)), "there is none");
    leases.granted(grant(INO, Lease::Write, 1));
    leases.granted(grant(INO, Lease::Write, 2));
    assert!(!leases.give_up(INO, stamp(1)), "it was granted anew since");
    assert!(leases.give_up(INO, stamp(2)));
    assert!(!leases.has(INO, Lease::Read, seconds(1)) && !leases.give_up(INO, stamp(2)));
    assert_eq!(leases.recall(INO, None, stamp(2)), Recalled::UnderWay);
    assert!(!leases.granted(grant(INO, Lease::Write, 2)), "it was on its way");
    assert_eq!(leases.returned(INO), Some((stamp(2), None)));
    leases.granted(grant(INO, Lease::Write, 3));
    leases.recall(INO, Some(Lease::Read), stamp(3));
    assert!(!leases.give_up(INO, stamp(3)), "somebody waits for it to be returned");
    assert_eq!(leases.returned(INO), Some((stamp(3), Some(Lease::Read))));
}

#[test]
fn what_was_made_here_is_held_until_the_owner_says_otherwise() {
    let mut leases = none();
    assert_eq!(leases.made(INO), Grant { ino: INO, lease: Lease::Write, stamp: stamp(0) });
    assert!(leases.has(INO, Lease::Write, seconds(8)));
    assert!(!leases.has(INO, Lease::Write, seconds(9)), "the session ends");
    // Another owner takes over, which does not know it.
    leases.made(Ino(6));
    assert_eq!(leases.to_reclaim(Epoch(2)), [(INO, Lease::Write), (Ino(6), Lease::Write)]);
    let known = Grant { ino: Ino(6), lease: Lease::Write, stamp: Stamp { epoch: Epoch(2), number: 3 } };
    leases.reclaimed(Epoch(2), &[known]);
    assert_eq!(leases.to_write(Ino(6), seconds(1)), Some(known));
    assert_eq!(leases.stamp(INO), Some(Stamp { epoch: Epoch(2), number: 0 }));
    // It is told of it, gives the lease, and recalls it; what it said first is late.
    let given = Stamp { epoch: Epoch(2), number: 4 };
    assert_eq!(leases.recall(INO, None, given), Recalled::GiveBack, "what was made is to be sent");
    assert!(!leases.granted(Grant { ino: INO, lease: Lease::Write, stamp: given }));
    assert_eq!(leases.returned(INO), Some((given, None)));
    assert_eq!(leases.to_write(INO, seconds(1)), None);
}

#[test]
fn what_a_lost_owner_recalled_before_its_making_was_committed_is_still_held() {
    let mut leases = none();
    leases.made(INO);
    assert_eq!(leases.recall(INO, None, stamp(7)), Recalled::GiveBack, "what was made is to be sent");
    leases.to_reclaim(Epoch(2));
    leases.reclaimed(Epoch(2), &[]);
    assert!(leases.to_write(INO, seconds(1)).is_some(), "what was written to it would be lost");
    // Its making is told to the next owner, which gives the lease; then that is what counts.
    let given = Stamp { epoch: Epoch(2), number: 4 };
    assert!(leases.granted(Grant { ino: INO, lease: Lease::Write, stamp: given }));
    leases.to_reclaim(Epoch(3));
    leases.reclaimed(Epoch(3), &[]);
    assert_eq!(leases.to_write(INO, seconds(1)), None);
}

#[test]
fn what_the_new_owner_was_told_of_is_held_although_its_recall_came_first_and_the_answer_to_the_reclaim_last()
{
    let of_two = Stamp { epoch: Epoch(2), number: 7 };
    let mut leases = none();
    leases.made(INO);
    leases.to_reclaim(Epoch(2));
    assert_eq!(leases.recall(INO, Some(Lease::Read), of_two), Recalled::GiveBack);
    assert!(
        !leases.granted(Grant { ino: INO, lease: Lease::Write, stamp: of_two }),
        "it is being given back"
    );
    leases.reclaimed(Epoch(2), &[]);
    assert_eq!(leases.lease(INO), Some(Lease::Write), "what was changed under it may not be sent yet");
    assert_eq!(leases.returned(INO), Some((of_two, Some(Lease::Read))));
}

#[test]
fn an_answer_that_overtakes_that_to_the_reclaim_counts() {
    let mut leases = none();
    leases.granted(grant(INO, Lease::Read, 1));
    leases.to_reclaim(Epoch(2));
    let of_two = |number| Stamp { epoch: Epoch(2), number };
    let later = Grant { ino: Ino(6), lease: Lease::Write, stamp: of_two(2) };
    assert!(leases.granted(later));
    leases.reclaimed(Epoch(2), &[Grant { ino: INO, lease: Lease::Read, stamp: of_two(1) }]);
    assert_eq!(leases.to_write(Ino(6), seconds(1)), Some(later), "the owner goes by it");
    assert!(leases.has(INO, Lease::Read, seconds(1)));
}

/// Whether the new owner has given the lease again is not known: others may have changed what is known by the former one.
#[test]
fn a_grant_before_it_is_known_what_was_given_again_is_good_for_one_answer() {
    let of_two = |ino, number| {
        let stamp = Stamp { epoch: Epoch(2), number };
        Grant { ino, lease: Lease::Read, stamp }
    };
    let mut leases = none();
    leases.granted(grant(INO, Lease::Read, 1));
    leases.granted(grant(Ino(6), Lease::Read, 2));
    leases.made(Ino(7));
    leases.to_reclaim(Epoch(2));
    assert!(!leases.granted(of_two(INO, 4)) && !leases.granted(of_two(Ino(6), 5)));
    // Its recall does not make the former one a later one.
    assert_eq!(leases.recall(Ino(6), None, of_two(Ino(6), 5).stamp), Recalled::GiveBack);
    assert!(!leases.granted(of_two(Ino(6), 6)));
    assert!(leases.granted(of_two(Ino(7), 7)), "what was made here nobody else can know");
    leases.reclaimed(Epoch(2), &[of_two(INO, 1)]);
    assert!(leases.has(INO, Lease::Read, seconds(0)) && leases.granted(of_two(INO, 8)));
    assert!(!leases.has(Ino(6), Lease::Read, seconds(0)), "it was refused");
    assert_eq!(leases.recall(Ino(6), None, of_two(Ino(6), 6).stamp), Recalled::NotHeld);
    assert!(leases.granted(of_two(Ino(6), 9)), "from now on it is a lease like any other");
}

#[test]
fn a_recall_counts_at_once() {
    let mut leases = none();
    leases.granted(grant(INO, Lease::Write, 1));
    assert_eq!(leases.recall(INO, Some(Lease::Read), stamp(1)), Recalled::GiveBack);
    assert!(!leases.has(INO, Lease::Write, seconds(0)));
    assert!(leases.has(INO, Lease::Read, seconds(0)));
    assert_eq!(leases.recall(INO, Some(Lease::Read), stamp(1)), Recalled::UnderWay);
    assert_eq!(leases.recall(INO, None, stamp(1)), Recalled::GiveBack, "more is asked for");
    assert!(!leases.has(INO, Lease::Read, seconds(0)));
    assert_eq!(leases.returned(INO), Some((stamp(1), None)));
    assert_eq!(leases.returned(INO), None);
    assert_eq!(leases.recall(INO, None, stamp(1)), Recalled::NotHeld);
}

#[test]
fn what_is_kept_can_be_recalled_too() {
    let mut leases = none();
    leases.granted(grant(INO, Lease::Write, 1));
    leases.recall(INO, Some(Lease::Read), stamp(1));
    assert_eq!(leases.returned(INO), Some((stamp(1), Some(Lease::Read))));
    assert!(leases.has(INO, Lease::Read, seconds(0)));
    assert!(!leases.has(INO, Lease::Write, seconds(0)));
    assert_eq!(leases.recall(INO, None, stamp(1)), Recalled::GiveBack);
}

#[test]
fn a_recall_that_overtakes_its_grant_voids_it() {
    let mut leases = none();
    assert_eq!(leases.recall(INO, None, stamp(4)), Recalled::NotHeld);
    assert!(!leases.granted(grant(INO, Lease::Read, 4)));
    assert!(!leases.granted(grant(INO, Lease::Read, 3)));
    assert!(!leases.has(INO, Lease::Read, seconds(0)));
    assert!(leases.granted(grant(INO, Lease::Read, 5)), "a later one counts");
    assert_eq!(leases.recall(INO, None, stamp(4)), Recalled::NotHeld, "and is not meant by an old recall");
    assert!(leases.has(INO, Lease::Read, seconds(0)));
}

#[test]
fn an_answer_that_a_later_grant_overtook_is_not_kept() {
    let mut leases = none();
    assert_eq!(leases.recall(INO, None, stamp(4)), Recalled::NotHeld);
    assert!(leases.granted(grant(INO, Lease::Read, 6)));
    assert!(!leases.granted(grant(INO, Lease::Read, 4)), "somebody may have changed it since");
    assert!(leases.granted(grant(INO, Lease::Read, 6)), "said again");
    assert_eq!(leases.stamp(INO), Some(stamp(6)));
}

#[test]
fn a_recall_of_a_later_grant_takes_the_earlier_one_along() {
    let mut leases = none();
    leases.granted(grant(INO, Lease::Write, 1));
    assert_eq!(
        leases.recall(INO, None, stamp(2)),
        Recalled::GiveBack,
        "what was kept back under it is to be sent"
    );
    assert!(!leases.has(INO, Lease::Read, seconds(0)));
    assert!(!leases.granted(grant(INO, Lease::Write, 2)));
    assert_eq!(leases.returned(INO), Some((stamp(2), None)));
    assert!(!leases.granted(grant(INO, Lease::Write, 2)));
}

#[test]
fn only_what_was_given_again_survives_a_takeover() {
    let mut leases = none();
    leases.granted(grant(INO, Lease::Read, 1));
    leases.granted(grant(Ino(6), Lease::Write, 2));
    leases.recall(Ino(6), None, stamp(2));
    assert_eq!(leases.to_reclaim(Epoch(2)), [(INO, Lease::Read), (Ino(6), Lease::Write)]);
    assert!(!leases.granted(grant(Ino(8), Lease::Read, 4)), "the new owner was not told of it");
    let again = Grant { ino: INO, lease: Lease::Read, stamp: Stamp { epoch: Epoch(2), number: 1 } };
    leases.reclaimed(Epoch(2), &[again]);
    assert!(leases.has(INO, Lease::Read, seconds(0)));
    assert!(!leases.has(Ino(6), Lease::Read, seconds(0)));
    assert!(!leases.granted(grant(Ino(6), Lease::Read, 9)), "an answer of the former owner");
    assert_eq!(leases.recall(INO, None, stamp(9)), Recalled::NotHeld, "and its recall");
}

#[test]
fn a_recall_that_overtakes_the_answer_to_a_reclaim_counts() {
    let of_two = |number| Stamp { epoch: Epoch(2), number };
    let mut leases = none();
    leases.granted(grant(INO, Lease::Write, 1));
    leases.granted(grant(Ino(6), Lease::Write, 2));
    assert_eq!(leases.recall(INO, None, of_two(1)), Recalled::GiveBack);
    assert_eq!(leases.returned(INO), Some((of_two(1), None)));
    assert_eq!(leases.recall(Ino(6), None, of_two(2)), Recalled::GiveBack);
    let given = [INO, Ino(6)].into_iter().zip(1..);
    let given: Vec<Grant> =
        given.map(|(ino, number)| Grant { ino, lease: Lease::Write, stamp: of_two(number) }).collect();
    leases.reclaimed(Epoch(2), &given);
    assert!(!leases.has(INO, Lease::Read, seconds(0)), "it was returned");
    assert!(!leases.has(Ino(6), Lease::Read, seconds(0)), "it is being given back");
    assert_eq!(leases.returned(Ino(6)), Some((of_two(2), None)));
}
