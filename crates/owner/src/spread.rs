//! Which numbers segments get, so that members get them in turn.
//!
//! Which members have a segment follows from its number as if by chance, so of few one after the other some members have many and others none: a file's reader, or its
//! writer, would wait for one member while the rest is idle. Numbers cost nothing, so of some each time the one is taken whose members are owed most. In the long
//! run each has its share, as before: what it is owed is what chance would have given it, and it did not get.

use forebay_group::MemberId;
use rustc_hash::FxHashMap;

/// Of so many numbers one is taken.
pub(crate) const CHOICES: u32 = 8;
/// What a member is owed at most, or has had too much, in segments.
const OWED_MAX: i32 = 8;

/// Who would have a segment, by one of its possible numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// Who is given it.
    pub(crate) set: Vec<MemberId>,
    /// Who is asked for it by readers.
    pub(crate) asked: Option<MemberId>,
}

/// What members are owed, in parts of a segment of which there are [`CHOICES`].
#[derive(Debug, Default)]
pub(crate) struct Spread {
    to_have: FxHashMap<MemberId, i32>,
    to_be_asked: FxHashMap<MemberId, i32>,
}

impl Spread {
    /// Which of these a segment gets; the first of those that are alike. At least one, at most [`CHOICES`].
    pub(crate) fn choose(&mut self, choices: &[Choice]) -> usize {
        let part = CHOICES as i32 / (choices.len() as i32).max(1);
        for choice in choices {
            choice.set.iter().for_each(|member| owe(&mut self.to_have, *member, part));
            choice.asked.iter().for_each(|member| owe(&mut self.to_be_asked, *member, part));
        }
        let owed = |choice: &Choice| {
            let of = |owed: &FxHashMap<MemberId, i32>, member| owed.get(member).copied().unwrap_or(0);
            let set: i32 = choice.set.iter().map(|member| of(&self.to_have, member)).sum();
            set + choice.asked.iter().map(|member| of(&self.to_be_asked, member)).sum::<i32>()
        };
        let best = (0..choices.len()).rev().max_by_key(|at| owed(&choices[*at])).unwrap_or(0);
        if let Some(Choice { set, asked }) = choices.get(best) {
            set.iter().for_each(|member| owe(&mut self.to_have, *member, -(CHOICES as i32)));
            asked.iter().for_each(|member| owe(&mut self.to_be_asked, *member, -(CHOICES as i32)));
        }
        best
    }
}

fn owe(owed: &mut FxHashMap<MemberId, i32>, member: MemberId, parts: i32) {
    const MAX: i32 = OWED_MAX * CHOICES as i32;
    let owed = owed.entry(member).or_default();
    *owed = (*owed + parts).clamp(-MAX, MAX);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_group::{Candidate, PieceKey, placement};
    use forebay_types::SegmentId;

    use super::*;

    fn member(number: u8, weight: u32, zone: u8) -> Candidate {
        Candidate { id: MemberId([number; 16]), weight, zone: format!("z{zone}") }
    }

    /// Gives numbers to segments one after the other, as the owner does, and says which members have each, who is asked first.
    struct Giving {
        spread: Spread,
        next: u64,
        choices: u64,
    }

    impl Giving {
        fn new(choices: u32) -> Giving {
            Giving { spread: Spread::default(), next: 0, choices: choices.into() }
        }

        fn give(&mut self, members: &[Candidate]) -> Choice {
            let choices: Vec<Choice> = (self.next..self.next + self.choices)
                .map(|run| {
                    let piece = PieceKey::of(SegmentId(run << 8), 0);
                    let set = placement::choose(piece, members, 2, None);
                    Choice { set, asked: placement::first(piece, members) }
                })
                .collect();
            self.next += self.choices;
            choices[self.spread.choose(&choices)].clone()
        }

        /// How often each was asked first, and given one of two copies, of so many segments.
        fn counts(&mut self, members: &[Candidate], segments: u64) -> BTreeMap<u8, (u64, u64)> {
            let mut counts: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
            for _ in 0..segments {
                let Choice { set, asked } = self.give(members);
                asked.iter().for_each(|member| counts.entry(member.0[0]).or_default().0 += 1);
                set.iter().for_each(|member| counts.entry(member.0[0]).or_default().1 += 1);
            }
            counts
        }
    }

    /// How much more one has than another, of the worst twelve segments one after the other.
    fn worst(giving: &mut Giving, members: &[Candidate]) -> (u64, u64) {
        let mut worst = (0, 0);
        for _ in 0..200 {
            let counts = giving.counts(members, 12);
            let all =
                || members.iter().map(|member| counts.get(&member.id.0[0]).copied().unwrap_or_default());
            let between = |of: fn((u64, u64)) -> u64| {
                all().map(of).max().unwrap_or(0) - all().map(of).min().unwrap_or(0)
            };
            worst = (worst.0.max(between(|(asked, _)| asked)), worst.1.max(between(|(_, has)| has)));
        }
        worst
    }

    #[test]
    fn members_get_segments_in_turn() {
        let members: Vec<_> = (1..=3).map(|number| member(number, 1, number)).collect();
        let (by_chance, in_turn) =
            (worst(&mut Giving::new(1), &members), worst(&mut Giving::new(CHOICES), &members));
        assert!(by_chance.0 >= 8 && by_chance.1 >= 6, "{by_chance:?}");
        assert!(in_turn.0 <= 4 && in_turn.1 <= 4, "{in_turn:?}");
    }

    #[test]
    fn in_the_long_run_each_has_what_chance_would_have_given_it() {
        for (what, members) in [
            ("weights", vec![member(1, 10, 1), member(2, 20, 2), member(3, 70, 3), member(4, 1, 4)]),
            ("zones", vec![member(1, 1, 1), member(2, 1, 2), member(3, 1, 2), member(4, 1, 2)]),
        ] {
            let (chance, turn) =
                (Giving::new(1).counts(&members, 20_000), Giving::new(CHOICES).counts(&members, 20_000));
            for (member, (asked, has)) in &chance {
                let (asked_in_turn, had) = turn[member];
                assert!(asked.abs_diff(asked_in_turn) < 400, "{what}: {member}: {asked} {asked_in_turn}");
                assert!(has.abs_diff(had) < 400, "{what}: {member}: {has} {had}");
            }
        }
    }

    #[test]
    fn one_that_comes_or_was_away_gets_its_share_and_not_all_of_it_at_once() {
        let members: Vec<_> = (1..=4).map(|number| member(number, 1, number)).collect();
        let mut giving = Giving::new(CHOICES);
        giving.counts(&members[..3], 1_000);
        assert!(giving.counts(&members, 40)[&4].0 <= 20);
        giving.counts(&members[..3], 1_000);
        assert!(giving.counts(&members, 40)[&4].0 <= 20);
    }
}
