use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const C: SessionId = SessionId(3);
const DIR: Ino = Ino(10);
const FILE: Ino = Ino(11);

fn reads(ino: Ino) -> Need {
    Need { ino, access: Access::Read }
}

fn writes(ino: Ino) -> Need {
    Need { ino, access: Access::Write }
}

fn runs(id: u64) -> Effect {
    Effect::Run(RequestId(id))
}

/// Gives `session` a lease that nobody is in the way of, and returns its stamp.
fn give(table: &mut LeaseTable, id: u64, session: SessionId, ino: Ino, lease: Lease) -> Stamp {
    let need = Need { ino, access: lease.access() };
    assert_eq!(table.arrive(RequestId(id), session, &[need]), [runs(id)]);
    let (given, effects) = table.done(RequestId(id), &[(ino, lease)]);
    assert_eq!(effects, []);
    assert_eq!(given.len(), 1);
    given[0].stamp
}

/// What a session gets that need not wait.
fn reclaim(table: &mut LeaseTable, session: SessionId, leases: &[(Ino, Lease)]) -> (Vec<Grant>, Vec<Effect>) {
    let (given, effects) = table.reclaim(session, leases);
    (given.unwrap(), effects)
}

#[test]
fn readers_share_and_a_change_waits_for_them() {
    let mut table = LeaseTable::new(Epoch(1));
    let of_a = give(&mut table, 1, A, DIR, Lease::Read);
    let of_b = give(&mut table, 2, B, DIR, Lease::Read);
    let recall = |session, stamp| Effect::Recall { session, ino: DIR, keep: None, stamp };
    assert_eq!(table.arrive(RequestId(3), C, &[writes(DIR)]), [recall(A, of_a), recall(B, of_b)]);
    assert_eq!(table.outstanding(A), [recall(A, of_a)]);
    assert_eq!(table.returned(A, DIR, of_a, None), []);
    assert_eq!(table.returned(B, DIR, of_b, None), [runs(3)]);
    assert_eq!(table.done(RequestId(3), &[]), (vec![], vec![]));
}

#[test]
fn a_sessions_own_lease_is_not_in_its_way() {
    let mut table = LeaseTable::new(Epoch(1));
    give(&mut table, 1, A, DIR, Lease::Read);
    assert_eq!(table.arrive(RequestId(2), A, &[writes(DIR)]), [runs(2)]);
    let (given, _) = table.done(RequestId(2), &[(DIR, Lease::Read)]);
    assert_eq!(given.len(), 1);
    assert_eq!(table.lease(A, DIR), Some(Lease::Read));
}

#[test]
fn an_inode_is_wanted_beside_a_session_by_leases_and_by_requests() {
    let mut table = LeaseTable::new(Epoch(1));
    let stamp = give(&mut table, 1, A, FILE, Lease::Write);
    assert!(!table.is_wanted_beside(A, FILE) && table.is_wanted_beside(B, FILE));
    assert_eq!(table.arrive(RequestId(2), B, &[reads(FILE)]).len(), 1, "a recall");
    assert!(table.is_wanted_beside(A, FILE));
    assert_eq!(table.returned(A, FILE, stamp, None), [runs(2)]);
    assert_eq!(table.done(RequestId(2), &[]), (vec![], vec![]));
    assert!(!table.is_wanted_beside(A, FILE) && !table.is_wanted_beside(B, FILE));
    let recovering = LeaseTable::taken_over(Epoch(2), &[C], &[]);
    assert!(recovering.is_wanted_beside(A, FILE));
}

#[test]
fn who_waits_for_many_runs_once_when_all_are_returned() {
    let mut table = LeaseTable::new(Epoch(1));
    let inos: Vec<Ino> = (100..200).map(Ino).collect();
    let stamps: Vec<Stamp> =
        inos.iter().zip(10..).map(|(ino, id)| give(&mut table, id, A, *ino, Lease::Write)).collect();
    assert!(table.is_written_beside(B, inos[0]) && !table.is_written_beside(A, inos[0]));
    let needs: Vec<Need> = inos.iter().copied().map(reads).collect();
    assert_eq!(table.arrive(RequestId(2), B, &needs).len(), inos.len(), "a recall each");
    let keeps = |at: usize| (inos[at], stamps[at], Some(Lease::Read));
    let but_one: Vec<_> = (0..99).map(keeps).collect();
    assert_eq!(table.all_returned(A, &but_one), []);
    // Neither another session's nor an older grant's return is taken for the last one.
    assert_eq!(table.all_returned(C, &[keeps(99)]), []);
    assert_eq!(table.all_returned(A, &[(inos[99], stamps[98], None)]), []);
    assert!(table.is_written_beside(B, inos[99]));
    assert_eq!(table.all_returned(A, &[keeps(99)]), [runs(2)]);
    assert!(inos.iter().all(|ino| table.lease(A, *ino) == Some(Lease::Read)));
    assert_eq!(table.take_write_changes().len(), 200, "each was given, and each is gone");
}

#[test]
fn a_writer_keeps_what_a_reader_leaves() {
    let mut table = LeaseTable::new(Epoch(1));
    let stamp = give(&mut table, 1, A, FILE, Lease::Write);
    let down = Effect::Recall { session: A, ino: FILE, keep: Some(Lease::Read), stamp };
    assert_eq!(table.arrive(RequestId(2), B, &[reads(FILE)]), [down]);
    let gone = Effect::Recall { session: A, ino: FILE, keep: None, stamp };
    assert_eq!(table.arrive(RequestId(3), C, &[writes(FILE)]), [gone], "a stronger need recalls more");
    assert_eq!(table.returned(A, FILE, stamp, Some(Lease::Read)), [runs(2)]);
    assert_eq!(table.lease(A, FILE), Some(Lease::Read));
    assert_eq!(table.outstanding(A), [gone]);
    assert_eq!(table.done(RequestId(2), &[(FILE, Lease::Read)]).0, [], "somebody waits to change it");
    assert_eq!(table.returned(A, FILE, stamp, None), [runs(3)]);
}

#[test]
fn what_was_kept_back_is_sent_before_those_who_wait_for_it() {
    let mut table = LeaseTable::new(Epoch(1));
    let stamp = give(&mut table, 1, A, FILE, Lease::Write);
    assert_eq!(table.arrive(RequestId(2), B, &[reads(FILE)]).len(), 1, "a recall");
    assert_eq!(
        table.arrive(RequestId(3), A, &[writes(FILE), writes(DIR)]),
        [],
        "more than what was kept back"
    );
    assert_eq!(table.arrive(RequestId(4), A, &[writes(FILE)]), [runs(4)]);
    assert_eq!(table.arrive(RequestId(5), A, &[writes(FILE)]), [], "one after the other");
    assert_eq!(table.done(RequestId(4), &[]).1, [runs(5)]);
    assert_eq!(table.done(RequestId(5), &[]).1, []);
    assert_eq!(table.returned(A, FILE, stamp, Some(Lease::Read)), [runs(2)]);
}

#[test]
fn requests_that_conflict_run_in_their_order() {
    let mut table = LeaseTable::new(Epoch(1));
    assert_eq!(table.arrive(RequestId(1), A, &[writes(DIR), writes(FILE)]), [runs(1)]);
    assert_eq!(table.arrive(RequestId(2), B, &[writes(FILE)]), []);
    assert_eq!(table.arrive(RequestId(3), C, &[reads(FILE)]), []);
    assert_eq!(table.arrive(RequestId(4), C, &[reads(FILE)]), []);
    assert_eq!(table.arrive(RequestId(5), A, &[reads(Ino(99))]), [runs(5)]);
    assert_eq!(table.done(RequestId(1), &[]).1, [runs(2)]);
    assert_eq!(table.done(RequestId(2), &[]).1, [runs(3), runs(4)], "readers together");
    assert_eq!(table.requests(), 3);
}

#[test]
fn two_that_recall_each_other_both_get_on() {
    let mut table = LeaseTable::new(Epoch(1));
    let of_a = give(&mut table, 1, A, DIR, Lease::Read);
    let of_b = give(&mut table, 2, B, DIR, Lease::Read);
    let recall = |session, stamp| Effect::Recall { session, ino: DIR, keep: None, stamp };
    assert_eq!(table.arrive(RequestId(3), A, &[writes(DIR)]), [recall(B, of_b)]);
    assert_eq!(table.arrive(RequestId(4), B, &[writes(DIR)]), [recall(A, of_a)]);
    // B returns its lease although a request of its own waits.
    assert_eq!(table.returned(B, DIR, of_b, None), [runs(3)]);
    assert_eq!(table.returned(A, DIR, of_a, None), []);
    assert_eq!(table.done(RequestId(3), &[(DIR, Lease::Read)]), (vec![], vec![runs(4)]));
    assert_eq!(table.done(RequestId(4), &[(DIR, Lease::Read)]).0.len(), 1);
}

#[test]
fn a_lease_to_write_is_given_in_turn_though_others_wait() {
    let mut table = LeaseTable::new(Epoch(1));
    assert_eq!(table.arrive(RequestId(1), A, &[writes(FILE)]), [runs(1)]);
    assert_eq!(table.arrive(RequestId(2), B, &[writes(FILE)]), []);
    let (given, effects) = table.done(RequestId(1), &[(FILE, Lease::Write)]);
    let stamp = given[0].stamp;
    assert_eq!(effects, [Effect::Recall { session: A, ino: FILE, keep: None, stamp }]);
    assert_eq!(table.returned(A, FILE, stamp, None), [runs(2)]);
}

#[test]
fn a_request_that_needs_more_begins_again() {
    let mut table = LeaseTable::new(Epoch(1));
    assert_eq!(table.arrive(RequestId(1), A, &[reads(DIR)]), [runs(1)]);
    assert_eq!(table.arrive(RequestId(2), B, &[writes(DIR)]), []);
    assert_eq!(table.again(RequestId(1), &[reads(DIR), reads(FILE)]), [runs(2)], "others go first");
    assert_eq!(table.done(RequestId(2), &[]).1, [runs(1)]);
}

#[test]
fn the_end_of_a_session_lets_others_on() {
    let mut table = LeaseTable::new(Epoch(1));
    give(&mut table, 1, A, DIR, Lease::Write);
    assert_eq!(table.arrive(RequestId(2), B, &[writes(DIR), writes(FILE)]).len(), 1);
    assert_eq!(table.arrive(RequestId(3), C, &[reads(FILE)]), []);
    assert_eq!(table.end(B), [runs(3)], "its requests are gone");
    assert_eq!(table.arrive(RequestId(4), C, &[reads(DIR)]).len(), 0, "told already");
    assert_eq!(table.end(A), [runs(4)]);
    assert_eq!(table.lease(A, DIR), None);
}

#[test]
fn an_old_return_is_not_taken_for_a_new_lease() {
    let mut table = LeaseTable::new(Epoch(1));
    let first = give(&mut table, 1, A, DIR, Lease::Read);
    let second = give(&mut table, 2, A, DIR, Lease::Read);
    assert!(second > first);
    assert_eq!(table.returned(A, DIR, first, None), []);
    assert_eq!(table.lease(A, DIR), Some(Lease::Read));
}

#[test]
fn after_a_takeover_nothing_changes_until_all_have_reclaimed() {
    let mut table = LeaseTable::taken_over(Epoch(2), &[A, B], &[(A, FILE)]);
    assert_eq!(table.arrive(RequestId(1), C, &[reads(DIR)]), [runs(1)]);
    assert_eq!(table.done(RequestId(1), &[(DIR, Lease::Write)]).0, [], "nobody gets it");
    let first = table.arrive(RequestId(2), C, &[reads(FILE)]);
    assert!(matches!(first[..], [Effect::Recall { session: A, ino: FILE, keep: Some(Lease::Read), .. }]));
    assert_eq!(table.arrive(RequestId(3), C, &[writes(DIR)]), []);
    // A has written its changes back before, and has only a lease to read left.
    let (given, effects) = reclaim(&mut table, A, &[(DIR, Lease::Read), (Ino(50), Lease::Write)]);
    assert_eq!(given.iter().map(|given| (given.ino, given.lease)).collect::<Vec<_>>(), [(DIR, Lease::Read)]);
    assert!(effects.contains(&runs(2)));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Recall { session: A, ino: DIR, .. }))
            || !table.outstanding(A).is_empty()
    );
    let last = table.end(B);
    assert_eq!(last, [], "A's lease is still in the way");
    let stamp = given[0].stamp;
    assert_eq!(table.returned(A, DIR, stamp, None), [runs(3)]);
    assert!(!table.recovers());
}

#[test]
fn a_lease_given_to_somebody_else_cannot_be_reclaimed() {
    let mut table = LeaseTable::taken_over(Epoch(2), &[A], &[]);
    give(&mut table, 1, C, DIR, Lease::Read);
    let (given, _) = reclaim(&mut table, A, &[(DIR, Lease::Read), (FILE, Lease::Write)]);
    assert_eq!(given.len(), 1, "a lease to write was in no row");
    assert_eq!(reclaim(&mut table, A, &[]), (given, vec![]), "the answer was lost");
    assert!(!table.must_reclaim(A));
}

fn names(given: &[Grant]) -> Vec<(Ino, Lease)> {
    given.iter().map(|grant| (grant.ino, grant.lease)).collect()
}

/// The rows of leases to write outlived these: what was told before they were gone is no less true.
#[test]
fn what_a_session_has_is_not_refused_for_a_row_of_one_that_has_yet_to_speak() {
    let rows = [(A, FILE), (B, DIR), (B, Ino(12))];
    let mut table = LeaseTable::taken_over(Epoch(2), &[A, B], &rows);
    let of_a = [(DIR, Lease::Read), (Ino(12), Lease::Read)];
    assert_eq!(table.reclaim(A, &of_a), (None, vec![]));
    assert!(table.must_reclaim(A));
    assert_eq!(table.take_write_changes(), [(A, FILE, false)], "it has said that it does not have it");
    assert_eq!(table.arrive(RequestId(1), C, &[writes(DIR)]).len(), 1, "a recall, and it waits");
    // B waits for nobody: of one it kept what a reader may keep, and the other is gone.
    let (given, _) = reclaim(&mut table, B, &[(FILE, Lease::Read), (Ino(12), Lease::Read)]);
    assert_eq!(names(&given), [(FILE, Lease::Read), (Ino(12), Lease::Read)]);
    let (given, effects) = reclaim(&mut table, A, &of_a);
    assert_eq!(names(&given), of_a);
    let stamp = given[0].stamp;
    assert_eq!(effects, [Effect::Recall { session: A, ino: DIR, keep: None, stamp }]);
    assert_eq!(table.returned(A, DIR, stamp, None), [runs(1)]);
}

#[test]
fn sessions_that_say_what_cannot_be_do_not_wait_for_each_other() {
    let mut table = LeaseTable::taken_over(Epoch(2), &[A, B], &[(A, FILE), (B, DIR)]);
    assert_eq!(table.reclaim(A, &[(FILE, Lease::Write), (DIR, Lease::Read)]), (None, vec![]));
    let (given, _) = reclaim(&mut table, B, &[(DIR, Lease::Write), (FILE, Lease::Read)]);
    assert_eq!(names(&given), [(DIR, Lease::Write)]);
    let (given, _) = reclaim(&mut table, A, &[(FILE, Lease::Write), (DIR, Lease::Read)]);
    assert_eq!(names(&given), [(FILE, Lease::Write)]);
}

#[test]
fn the_end_of_a_session_lets_what_waits_for_it_be_reclaimed() {
    let mut table = LeaseTable::taken_over(Epoch(2), &[A, B], &[(B, DIR)]);
    assert_eq!(table.reclaim(A, &[(DIR, Lease::Read)]), (None, vec![]));
    assert_eq!(table.end(B), []);
    let (given, _) = reclaim(&mut table, A, &[(DIR, Lease::Read)]);
    assert_eq!(names(&given), [(DIR, Lease::Read)]);
    assert!(!table.recovers());
}

#[test]
fn the_rows_of_leases_to_write_follow_the_leases() {
    let mut table = LeaseTable::taken_over(Epoch(2), &[A, B], &[(A, FILE), (B, DIR)]);
    assert_eq!(table.take_write_changes(), [], "they are there");
    // A does not know of its lease: the answer that gave it was lost.
    let _ = table.reclaim(A, &[]);
    assert_eq!(table.take_write_changes(), [(A, FILE, false)]);
    let (given, _) = reclaim(&mut table, B, &[(DIR, Lease::Write)]);
    assert_eq!(table.take_write_changes(), []);
    let stamp = give(&mut table, 1, A, FILE, Lease::Write);
    assert_eq!(table.take_write_changes(), [(A, FILE, true)]);
    let _ = table.returned(A, FILE, stamp, Some(Lease::Read));
    assert_eq!(table.take_write_changes(), [(A, FILE, false)]);
    let _ = table.end(B);
    assert_eq!(table.take_write_changes(), [(B, DIR, false)]);
    let _ = table.returned(B, DIR, given[0].stamp, None);
    assert_eq!(table.take_write_changes(), []);
}

/// A listing tells of many inodes that it does not need, and would give leases on them anew.
#[test]
fn a_lease_that_is_recalled_is_not_renewed_by_the_way() {
    let mut table = LeaseTable::new(Epoch(1));
    let stamp = give(&mut table, 1, A, FILE, Lease::Write);
    let down = Effect::Recall { session: A, ino: FILE, keep: Some(Lease::Read), stamp };
    assert_eq!(table.arrive(RequestId(2), B, &[reads(FILE)]), [down]);
    assert_eq!(table.arrive(RequestId(3), A, &[reads(DIR)]), [runs(3)]);
    let (given, effects) = table.done(RequestId(3), &[(FILE, Lease::Read)]);
    assert_eq!((given, effects), (vec![], vec![]));
    assert_eq!(table.returned(A, FILE, stamp, Some(Lease::Read)), [runs(2)]);
}

#[test]
fn a_lease_to_write_that_is_given_anew_is_recalled_anew() {
    let mut table = LeaseTable::new(Epoch(1));
    let stamp = give(&mut table, 1, A, FILE, Lease::Read);
    assert_eq!(table.arrive(RequestId(2), A, &[reads(DIR)]), [runs(2)]);
    let recall = |stamp| Effect::Recall { session: A, ino: FILE, keep: None, stamp };
    assert_eq!(table.arrive(RequestId(3), B, &[writes(FILE)]), [recall(stamp)]);
    let (given, effects) = table.done(RequestId(2), &[(FILE, Lease::Write)]);
    assert_eq!(effects, [recall(given[0].stamp)]);
    // What it returned was the former one.
    assert_eq!(table.returned(A, FILE, stamp, None), []);
    assert_eq!(table.returned(A, FILE, given[0].stamp, None), [runs(3)]);
}
