//! Which lines about peers are written to the log.
//!
//! A peer that is set up wrongly comes again several times a second. Of what one machine does wrong in one way the first time is written at once; what follows is counted,
//! and said in a line a minute for as long as it goes on. So a minute has at most two lines of a machine and a reason, and at most `LINES_MAX` and one in all.

use std::collections::BTreeMap;

/// Machines and reasons that are told apart at a time. More are only counted.
const LINES_MAX: usize = 512;
/// Of these, those of one machine: texts may have numbers in them that a peer chooses.
const OF_ONE_MAX: usize = 16;

/// What was written within a minute, and how often it would have been again.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// By machine and reason.
    told: BTreeMap<String, BTreeMap<String, u64>>,
    /// What there was no room for.
    others: u64,
}

/// What is to be done about something that a peer did wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    /// Whether it is written now.
    pub(super) is_new: bool,
    /// Whether a minute begins with it, at whose end [`Complaints::minute_over`] is to be asked.
    pub(super) begins: bool,
}

impl Complaints {
    /// Something that `machine` did wrong.
    pub(super) fn hear(&mut self, machine: &str, reason: &str) -> Heard {
        let begins = self.told.is_empty() && self.others == 0;
        if let Some(count) = self.told.get_mut(machine).and_then(|of| of.get_mut(reason)) {
            *count += 1;
            return Heard { is_new: false, begins };
        }
        let lines: usize = self.told.values().map(BTreeMap::len).sum();
        let of_it = self.told.get(machine).map_or(0, BTreeMap::len);
        if lines >= LINES_MAX || of_it >= OF_ONE_MAX {
            self.others += 1;
            return Heard { is_new: false, begins };
        }
        self.told.entry(machine.to_owned()).or_default().insert(reason.to_owned(), 0);
        Heard { is_new: true, begins }
    }

    /// What was left out in the minute that is over, in lines. None: nothing goes on, and the next time begins a minute.
    pub(super) fn minute_over(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (machine, of) in &mut self.told {
            of.retain(|reason, count| {
                let times = std::mem::take(count);
                if times > 0 {
                    lines.push(format!("{machine}, {times} times more within a minute: {reason}"));
                }
                times > 0
            });
        }
        self.told.retain(|_, of| !of.is_empty());
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            lines.push(format!("{others} more connections within a minute were refused or cut off, for other reasons or from other machines"));
        }
        lines
    }

    /// Whether there is nothing to be said when the minute is over, nor to be remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty() && self.others == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_does_again_is_counted_and_said_once_a_minute() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.hear("a", "expired"), Heard { is_new: true, begins: true });
        for _ in 0..700 {
            assert_eq!(complaints.hear("a", "expired"), Heard { is_new: false, begins: false });
        }
        assert!(complaints.hear("b", "expired").is_new, "another machine");
        assert!(complaints.hear("a", "version").is_new, "another reason");
        assert_eq!(complaints.minute_over(), ["a, 700 times more within a minute: expired"]);
        // It goes on: the line at the end of the minute is enough.
        assert_eq!(complaints.hear("a", "expired"), Heard { is_new: false, begins: false });
        assert!(complaints.hear("a", "version").is_new, "what had stopped is new again");
        assert_eq!(complaints.minute_over(), ["a, 1 times more within a minute: expired"]);
        assert!(complaints.minute_over().is_empty());
        assert!(complaints.is_empty());
        assert_eq!(complaints.hear("a", "expired"), Heard { is_new: true, begins: true });
    }

    #[test]
    fn texts_and_machines_that_differ_every_time_have_a_bound() {
        let mut complaints = Complaints::default();
        let mut written = 0;
        for number in 0..10_000 {
            written += usize::from(complaints.hear("a", &format!("a frame has type {number}")).is_new);
        }
        assert_eq!(written, OF_ONE_MAX);
        for number in 0..10_000 {
            written += usize::from(complaints.hear(&format!("machine {number}"), "expired").is_new);
        }
        assert_eq!(written, LINES_MAX);
        let left_out = 20_000 - LINES_MAX;
        let lines = complaints.minute_over();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with(&format!("{left_out} more connections")), "{lines:?}");
        assert!(complaints.is_empty());
    }
}
