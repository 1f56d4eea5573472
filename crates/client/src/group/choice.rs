//! Which of a volume's groups a mount goes by: the one with the least round trip of those that answer.
//!
//! No I/O and no clock of its own: what members answered, and when, is told. What is chosen changes at once where a group no longer answers, and only after a minute in which another
//! was better by enough each time it was measured: groups that are as near do not take turns, and one that comes and goes is not followed each time (`docs/design/proxy-group.md`,
//! "Several groups of one volume").

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use forebay_group::{GroupId, MemberId};

/// How often members are measured.
pub(super) const MEASURED_EVERY: Duration = Duration::from_secs(10);
/// A member answers for so long after it last did.
const ANSWERS_FOR: Duration = Duration::from_secs(20);
/// Round trips that are remembered of a member: the least of them counts.
const ROUND_TRIPS: usize = 6;
/// For so long at most measurements are waited for before the first choice.
pub(super) const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// For so long another group is better each time before it is chosen.
const BETTER_FOR: Duration = Duration::from_secs(60);
/// By how much, at least: by this, and by a quarter.
const BETTER_BY: Duration = Duration::from_micros(100);

/// A member of a group, as the view has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) member: MemberId,
    /// Whether it takes new segments.
    pub(super) active: bool,
    /// Whether it is on this machine.
    pub(super) here: bool,
}

#[derive(Debug, Default)]
struct Measured {
    active: bool,
    here: bool,
    /// The last ones, the oldest first.
    round_trips: VecDeque<Duration>,
    /// When it last answered; `None` once it has failed since.
    answered: Option<Instant>,
    /// Whether it has answered or failed at all.
    heard: bool,
}

impl Measured {
    fn answers(&self, now: Instant) -> bool {
        self.active && self.answered.is_some_and(|last| now.saturating_duration_since(last) < ANSWERS_FOR)
    }
}

/// How near a group is: first one with a member on this machine, then by round trip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Distance {
    elsewhere: bool,
    round_trip: Duration,
}

impl Distance {
    /// Whether it is nearer by so much that a change pays.
    fn is_better_than(self, other: Distance) -> bool {
        if self.elsewhere != other.elsewhere {
            return other.elsewhere;
        }
        let gain = other.round_trip.saturating_sub(self.round_trip);
        gain >= BETTER_BY && gain >= other.round_trip / 4
    }
}

#[derive(Debug)]
pub(super) struct Choice {
    began: Instant,
    /// In the order of the volume's row.
    groups: Vec<(GroupId, BTreeMap<MemberId, Measured>)>,
    /// Whether a choice was made by what was measured.
    made: bool,
    chosen: Option<GroupId>,
    /// Since when another one was better than what is chosen each time.
    better: Option<Instant>,
    /// When what was chosen was found not to answer, until another one is: what others answered before that says nothing, as it may be this machine's network that is away.
    lost: Option<Instant>,
}

impl Choice {
    pub(super) fn new(now: Instant) -> Choice {
        Choice { began: now, groups: Vec::new(), made: false, chosen: None, better: None, lost: None }
    }

    /// The groups that the volume has from now on, in the order of its row, with their members: what is known of those that stay is kept. Where what was chosen is not among them, or was
    /// the only one and so never measured, the first choice is made again.
    pub(super) fn follow(&mut self, groups: &[(GroupId, Vec<Candidate>)], now: Instant) {
        // Of a group whose members are all others nothing is known.
        let stays = groups.iter().any(|(id, members)| Some(*id) == self.chosen && self.knows(*id, members));
        if self.groups.len() < 2 || (self.chosen.is_some() && !stays) {
            (self.made, self.began, self.better, self.lost) = (false, now, None, None);
        }
        let mut before: BTreeMap<GroupId, BTreeMap<MemberId, Measured>> = self.groups.drain(..).collect();
        for (id, members) in groups {
            let mut known = before.remove(id).unwrap_or_default();
            let member = |of: &Candidate| {
                let measured = known.remove(&of.member).unwrap_or_default();
                (of.member, Measured { active: of.active, here: of.here, ..measured })
            };
            let members = members.iter().map(member).collect();
            self.groups.push((*id, members));
        }
    }

    /// Whether the first choice is still to be made.
    pub(super) fn is_due(&self) -> bool {
        !self.made && self.groups.len() > 1
    }

    /// A member answered an empty request after this time.
    pub(super) fn answered(&mut self, group: GroupId, member: MemberId, took: Duration, now: Instant) {
        let Some(measured) = self.measured(group, member) else { return };
        if measured.round_trips.len() == ROUND_TRIPS {
            measured.round_trips.pop_front();
        }
        measured.round_trips.push_back(took);
        (measured.answered, measured.heard) = (Some(now), true);
    }

    /// A member did not answer, or does not let this mount in: it does not count until it answers.
    pub(super) fn failed(&mut self, group: GroupId, member: MemberId) {
        if let Some(measured) = self.measured(group, member) {
            (measured.answered, measured.heard) = (None, true);
            measured.round_trips.clear();
        }
    }

    /// Of some of the groups the one to go by: the chosen one, or the nearest of those that answer.
    pub(super) fn nearest(&self, now: Instant, may: impl Fn(GroupId) -> bool) -> Option<GroupId> {
        if let Some(chosen) = self.chosen.filter(|chosen| may(*chosen)) {
            return Some(chosen);
        }
        let some = self.groups.iter().filter(|(id, _)| may(*id));
        let near = some.filter_map(|(id, members)| Some((distance(members, now)?, *id)));
        near.min_by_key(|(distance, _)| *distance).map(|(_, id)| id)
    }

    /// How long a group takes to answer, as far as it is measured and answers.
    pub(super) fn round_trip(&self, group: GroupId, now: Instant) -> Option<Duration> {
        let (_, members) = self.groups.iter().find(|(id, _)| *id == group)?;
        Some(distance(members, now)?.round_trip)
    }

    fn measured(&mut self, group: GroupId, member: MemberId) -> Option<&mut Measured> {
        let (_, members) = self.groups.iter_mut().find(|(id, _)| *id == group)?;
        members.get_mut(&member)
    }

    /// Which group to go by now; `None`: none answers, and the store is asked. A volume's only group is it in any case.
    pub(super) fn choose(&mut self, now: Instant) -> Option<GroupId> {
        let [(first, _), _, ..] = self.groups[..] else {
            let only = self.groups.first().map(|(id, _)| *id);
            (self.chosen, self.better) = (only, None);
            return only;
        };
        if !self.made {
            // A member that is on this machine, or the middle one, need not be the first that answers.
            let all = self.groups.iter().all(|(_, members)| members.values().all(|member| member.heard));
            if !all && now.saturating_duration_since(self.began) < FIRST_WITHIN {
                let stays = |chosen: &GroupId| self.groups.iter().any(|(id, _)| id == chosen);
                self.chosen = self.chosen.filter(stays).or(Some(first));
                return self.chosen;
            }
            (self.made, self.chosen) = (true, None);
        }
        if self.chosen.is_some_and(|chosen| self.round_trip(chosen, now).is_none()) {
            (self.chosen, self.better, self.lost) = (None, None, Some(now));
        }
        let lost = self.lost;
        let heard = |member: &Measured| member.answered.is_some_and(|at| lost.is_none_or(|lost| at >= lost));
        let near = self.groups.iter().filter(|(_, members)| members.values().any(heard));
        let near = near.filter_map(|(id, members)| Some((distance(members, now)?, *id)));
        // Of those that are as near the first one of the row.
        let nearest = near.clone().min_by_key(|(distance, _)| *distance);
        let present = near.clone().find(|(_, id)| Some(*id) == self.chosen);
        match (present, nearest) {
            (Some((present, _)), Some((least, id))) if least.is_better_than(present) => {
                let since = *self.better.get_or_insert(now);
                if now.saturating_duration_since(since) >= BETTER_FOR {
                    (self.chosen, self.better) = (Some(id), None);
                }
            }
            (Some(_), _) => self.better = None,
            (None, nearest) => (self.chosen, self.better) = (nearest.map(|(_, id)| id), None),
        }
        if self.chosen.is_some() {
            self.lost = None;
        }
        self.chosen
    }

    fn knows(&self, group: GroupId, members: &[Candidate]) -> bool {
        let known = self.groups.iter().find(|(id, _)| *id == group);
        known.is_some_and(|(_, known)| members.iter().any(|of| known.contains_key(&of.member)))
    }
}

/// The middle one of the members that answer; `None` where none does.
fn distance(members: &BTreeMap<MemberId, Measured>, now: Instant) -> Option<Distance> {
    let answering = || members.values().filter(|member| member.answers(now));
    let mut least: Vec<Duration> =
        answering().filter_map(|member| member.round_trips.iter().min().copied()).collect();
    least.sort_unstable();
    let round_trip = *least.get(least.len().checked_sub(1)? / 2)?;
    Some(Distance { elsewhere: !answering().any(|member| member.here), round_trip })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GroupId = GroupId([1; 16]);
    const B: GroupId = GroupId([2; 16]);

    fn member(number: u8) -> MemberId {
        MemberId([number; 16])
    }

    fn candidate(number: u8) -> Candidate {
        Candidate { member: member(number), active: true, here: false }
    }

    /// Two groups of two members each, 1 and 2, 3 and 4, and a clock.
    struct Site {
        choice: Choice,
        now: Instant,
    }

    impl Site {
        fn new() -> Site {
            let now = Instant::now();
            let mut choice = Choice::new(now);
            choice
                .follow(&[(A, vec![candidate(1), candidate(2)]), (B, vec![candidate(3), candidate(4)])], now);
            Site { choice, now }
        }

        fn pass(&mut self, seconds: f64) {
            self.now += Duration::from_secs_f64(seconds);
        }

        /// All members answer; those of the groups that take so many microseconds.
        fn measure(&mut self, of_a: u64, of_b: u64) -> Option<GroupId> {
            for (group, of, took) in [(A, 1, of_a), (A, 2, of_a), (B, 3, of_b), (B, 4, of_b)] {
                if took < u64::MAX {
                    self.choice.answered(group, member(of), Duration::from_micros(took), self.now);
                } else {
                    self.choice.failed(group, member(of));
                }
            }
            self.choice.choose(self.now)
        }

        /// As often as it is done in this time.
        fn measure_for(&mut self, seconds: u64, of_a: u64, of_b: u64) -> Option<GroupId> {
            for _ in 0..seconds / MEASURED_EVERY.as_secs() {
                self.pass(MEASURED_EVERY.as_secs_f64());
                self.measure(of_a, of_b);
            }
            self.choice.choose(self.now)
        }
    }

    #[test]
    fn a_volumes_only_group_is_it_whatever_was_measured() {
        let mut choice = Choice::new(Instant::now());
        assert_eq!(choice.choose(Instant::now()), None);
        choice.follow(&[(B, vec![candidate(3)])], Instant::now());
        choice.failed(B, member(3));
        assert_eq!(choice.choose(Instant::now()), Some(B));
        choice.follow(&[], Instant::now());
        assert_eq!(choice.choose(Instant::now()), None);
    }

    #[test]
    fn until_all_have_answered_or_for_a_second_the_first_one_is_gone_by() {
        let mut site = Site::new();
        assert_eq!(site.choice.choose(site.now), Some(A));
        site.choice.answered(B, member(3), Duration::from_micros(10), site.now);
        assert_eq!(site.choice.choose(site.now), Some(A), "what the other takes is not known");
        site.choice.answered(A, member(1), Duration::from_micros(900), site.now);
        assert_eq!(site.choice.choose(site.now), Some(A), "nor what all of its members take");
        site.choice.failed(A, member(1));
        site.pass(1.0);
        assert_eq!(site.choice.choose(site.now), Some(B), "it does not answer");
        let mut site = Site::new();
        assert_eq!(site.measure(900, 100), Some(B), "both have answered");
        let mut site = Site::new();
        site.pass(2.0);
        assert_eq!(site.choice.choose(site.now), None, "nobody does");
        site.pass(1.0);
        assert_eq!(site.measure(900, u64::MAX), Some(A));
    }

    #[test]
    fn a_better_one_is_taken_once_it_was_better_each_time_for_a_minute() {
        let mut site = Site::new();
        assert_eq!(site.measure(500, 900), Some(A));
        assert_eq!(site.measure_for(60, 500, 300), Some(A), "the first of these began the minute");
        assert_eq!(site.measure_for(10, 500, 300), Some(B));
        assert_eq!(site.measure_for(600, 300, 300), Some(B), "as near is not better");
    }

    #[test]
    fn what_is_better_by_little_or_not_each_time_is_left() {
        let mut site = Site::new();
        site.measure(1_000, 2_000);
        assert_eq!(site.measure_for(300, 1_000, 800), Some(A), "not by a quarter");
        let mut site = Site::new();
        site.measure(120, 500);
        assert_eq!(site.measure_for(300, 120, 30), Some(A), "not by 100 microseconds");
        let mut site = Site::new();
        site.measure(1_000, 2_000);
        for _ in 0..10 {
            // The least of the last six counts, so it is better for a while.
            site.measure_for(40, 1_000, 500);
            site.choice.failed(B, member(3));
            site.choice.failed(B, member(4));
            assert_eq!(site.choice.choose(site.now), Some(A), "it came and went");
        }
    }

    #[test]
    fn one_that_does_not_answer_is_left_at_once_and_not_taken_back_at_once() {
        let mut site = Site::new();
        site.measure(100, 5_000);
        assert_eq!(site.measure(u64::MAX, 5_000), Some(B), "all of its members fail");
        assert_eq!(site.measure_for(60, 100, 5_000), Some(B));
        assert_eq!(site.measure_for(10, 100, 5_000), Some(A), "it was better for a minute");
        // Half of it is enough.
        site.choice.failed(A, member(1));
        assert_eq!(site.choice.choose(site.now), Some(A));
        // Nobody says anything.
        site.pass(20.0);
        assert_eq!(site.choice.choose(site.now), None);
        assert_eq!(site.measure(u64::MAX, 5_000), Some(B));
    }

    #[test]
    fn of_a_group_the_middle_member_counts_and_of_a_member_the_least() {
        let mut site = Site::new();
        let members = |of: [u8; 3]| of.map(candidate).to_vec();
        site.choice.follow(&[(A, members([1, 2, 5])), (B, members([3, 4, 6]))], site.now);
        for (group, of, took) in
            [(A, 1, 10), (A, 2, 900), (A, 5, 5_000), (B, 3, 400), (B, 4, 600), (B, 6, 700)]
        {
            site.choice.answered(group, member(of), Duration::from_micros(took), site.now);
        }
        assert_eq!(site.choice.choose(site.now), Some(B), "600 of the one, 900 of the other");
        // One slow answer says nothing.
        for of in [3, 4, 6] {
            site.choice.answered(B, member(of), Duration::from_secs(1), site.now);
        }
        assert_eq!(site.choice.choose(site.now), Some(B));
        assert!(site.choice.better.is_none());
    }

    #[test]
    fn one_with_a_member_on_this_machine_comes_first() {
        let mut site = Site::new();
        let here = Candidate { here: true, ..candidate(3) };
        site.choice.follow(&[(A, vec![candidate(1), candidate(2)]), (B, vec![here, candidate(4)])], site.now);
        assert_eq!(site.measure(100, 900), Some(B));
        assert_eq!(site.measure_for(300, 100, 900), Some(B));
        site.choice.failed(B, member(3));
        assert_eq!(site.choice.choose(site.now), Some(B), "another member of it answers");
        assert!(site.choice.better.is_some());
    }

    #[test]
    fn members_that_drain_or_go_do_not_count_and_those_that_stay_are_known() {
        let mut site = Site::new();
        site.measure(100, 900);
        let drains = Candidate { active: false, ..candidate(1) };
        site.choice.follow(&[(A, vec![drains]), (B, vec![candidate(3)])], site.now);
        assert_eq!(site.choice.choose(site.now), Some(B), "nobody of the other takes new segments");
        site.choice.follow(&[(A, vec![candidate(1)]), (B, vec![candidate(3)])], site.now);
        assert!(site.choice.better.is_none());
        site.choice.choose(site.now);
        assert!(site.choice.better.is_some(), "what was known of it counts again");
    }

    /// A volume's only group was never measured; one of several that is taken away was.
    #[test]
    fn the_first_choice_is_made_again_where_another_group_comes_or_the_chosen_one_goes() {
        const C: GroupId = GroupId([3; 16]);
        let one = |group, of: u8| (group, vec![candidate(of)]);
        let mut site = Site::new();
        site.choice = Choice::new(site.now);
        site.choice.follow(&[one(A, 1)], site.now);
        assert_eq!(site.choice.choose(site.now), Some(A));
        site.pass(600.0);
        site.choice.follow(&[one(A, 1), one(B, 3)], site.now);
        assert_eq!(site.choice.choose(site.now), Some(A), "nothing was measured yet");
        site.pass(0.5);
        assert_eq!(site.measure(900, 100), Some(B));
        site.choice.follow(&[one(A, 1), one(C, 5)], site.now);
        assert_eq!(site.choice.choose(site.now), Some(A), "what the new one takes is not known");
        site.choice.answered(C, member(5), Duration::from_micros(50), site.now);
        assert_eq!(site.choice.choose(site.now), Some(C));
        site.choice.follow(&[one(B, 3), one(A, 1), one(C, 5)], site.now);
        assert_eq!(site.choice.choose(site.now), Some(C), "one more changes nothing by itself");
    }

    #[test]
    fn of_some_groups_the_chosen_one_is_gone_by_or_else_the_nearest_that_answers() {
        let mut site = Site::new();
        assert_eq!(site.measure(100, 900), Some(A));
        let nearest = |site: &Site, may: &[GroupId]| site.choice.nearest(site.now, |id| may.contains(&id));
        assert_eq!(nearest(&site, &[A, B]), Some(A));
        assert_eq!(nearest(&site, &[B]), Some(B));
        assert_eq!(nearest(&site, &[]), None);
        assert_eq!(site.choice.round_trip(B, site.now), Some(Duration::from_micros(900)));
        site.measure(100, u64::MAX);
        assert_eq!(nearest(&site, &[B]), None, "it does not answer");
        assert_eq!(site.choice.round_trip(B, site.now), None);
        // The only one is gone by whether or not it answers.
        site.choice.follow(&[(B, vec![candidate(3)])], site.now);
        site.choice.choose(site.now);
        assert_eq!((nearest(&site, &[B]), nearest(&site, &[A])), (Some(B), None));
    }

    /// A network of this machine that is away for a moment takes both.
    #[test]
    fn what_others_answered_before_the_chosen_one_was_lost_does_not_count() {
        let mut site = Site::new();
        assert_eq!(site.measure(100, 5_000), Some(A));
        site.pass(3.0);
        [1, 2].iter().for_each(|of| site.choice.failed(A, member(*of)));
        assert_eq!(site.choice.choose(site.now), None, "the other one answered before that");
        site.pass(0.5);
        site.choice.answered(A, member(1), Duration::from_micros(100), site.now);
        assert_eq!(site.choice.choose(site.now), Some(A));
        site.pass(3.0);
        [1, 2].iter().for_each(|of| site.choice.failed(A, member(*of)));
        assert_eq!(site.choice.choose(site.now), None);
        site.choice.answered(B, member(3), Duration::from_micros(5_000), site.now);
        assert_eq!(site.choice.choose(site.now), Some(B));
    }

    #[test]
    fn a_group_whose_members_are_all_others_is_not_left_for_that() {
        let mut site = Site::new();
        assert_eq!(site.measure(5_000, 100), Some(B));
        let others = [(A, vec![candidate(1), candidate(2)]), (B, vec![candidate(7)])];
        site.choice.follow(&others, site.now);
        assert_eq!(site.choice.choose(site.now), Some(B), "it is not measured yet");
        site.choice.answered(B, member(7), Duration::from_micros(100), site.now);
        assert_eq!(site.choice.choose(site.now), Some(B));
    }
}
