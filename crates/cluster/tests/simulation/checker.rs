//! Whether there is an order of all operations, each between its beginning and its end, in which each saw what it saw.
//!
//! After Wing and Gong, with the remembering of tried states of Lowe ("Testing for linearizability", 2017). What keeps the search small: registers and names
//! are checked by themselves, as no operation has to do with both; a write of which nobody knows whether it was carried out was, by the end of the first
//! operation that saw its value, or need not have been; what is tried is one state that is changed and changed back, and remembered as a number.

use std::collections::HashSet;

use crate::{
    history::Unit,
    messages::Op,
    sequential::{Tree, mix},
};

/// # Errors
/// The operations before which every order fails.
pub fn check(units: &[Unit]) -> Result<(), String> {
    let of_registers = |unit: &Unit| unit.parts.iter().all(|(op, _)| op.inos().iter().all(|ino| ino.0 < 10));
    let (registers, names): (Vec<Unit>, Vec<Unit>) =
        decided(units).into_iter().partition(|unit| of_registers(unit));
    check_part(&registers)?;
    check_part(&names)
}

/// Without writes that nobody saw and that may not have been; those that somebody saw have been.
fn decided(units: &[Unit]) -> Vec<Unit> {
    let mut decided = Vec::with_capacity(units.len());
    for unit in units {
        let (true, [(Op::Write(_, value), _)]) = (unit.open, unit.parts.as_slice()) else {
            decided.push(unit.clone());
            continue;
        };
        let saw = |unit: &&Unit| {
            unit.parts.iter().any(|(op, answer)| answer.is_some_and(|it| shows(*op, it, *value)))
        };
        if let Some(ended) = units.iter().filter(saw).map(|unit| unit.ended).min() {
            decided.push(Unit { ended, open: false, ..unit.clone() });
        }
    }
    decided
}

/// Whether an answer has a value in it; values are written once.
fn shows(op: Op, answer: u64, value: u64) -> bool {
    match op {
        Op::Read(_) | Op::Move(..) => answer == value,
        Op::Look(_) => answer & 0xffff_ffff == value,
        _ => false,
    }
}

fn check_part(units: &[Unit]) -> Result<(), String> {
    if Search::new(units).run() {
        return Ok(());
    }
    // Once more, to tell where it came furthest.
    let mut search = Search { notes: true, ..Search::new(units) };
    search.run();
    let (_, at, answers) = search.furthest;
    let line = |at: usize| {
        let Unit { client, parts, began, ended, open } = &units[at];
        let would = answers.iter().find(|(unit, _)| *unit == at).map(|(_, answers)| answers);
        let would = would.map(|answers| format!(" <- would answer {answers:?}")).unwrap_or_default();
        let open = if *open { " (perhaps)" } else { "" };
        format!("client {client} from {began} to {ended}{open}: {parts:?}{would}")
    };
    let (from, to) = (at.saturating_sub(6), (at + 3).min(units.len()));
    let mut around: Vec<usize> = (from..to).chain(answers.iter().map(|(unit, _)| *unit)).collect();
    around.sort_unstable();
    around.dedup();
    let around: Vec<String> = around.into_iter().map(line).collect();
    Err(format!("no order explains what was seen around\n  {}", around.join("\n  ")))
}

/// One more operation in the order.
struct Frame {
    unit: usize,
    /// How far the tree is to be changed back.
    mark: usize,
    /// What else may come here, the last first.
    others: Vec<usize>,
}

struct Search<'a> {
    /// In the order of their beginnings.
    units: &'a [Unit],
    /// The units that are not in the order yet, as a ring; the last place is its head.
    next: Vec<usize>,
    before: Vec<usize>,
    /// Units that must be in the order and are not yet.
    left: usize,
    tree: Tree,
    taken: u128,
    tried: HashSet<u128>,
    notes: bool,
    /// How many were in the order, the last of them, and what the next ones would have answered.
    furthest: (usize, usize, Vec<(usize, Vec<u64>)>),
}

impl Search<'_> {
    fn new(units: &[Unit]) -> Search<'_> {
        let head = units.len();
        Search {
            units,
            next: (0..=head).map(|at| if at == head { 0 } else { at + 1 }).collect(),
            before: (0..=head).map(|at| if at == 0 { head } else { at - 1 }).collect(),
            left: units.iter().filter(|unit| !unit.open).count(),
            tree: Tree::default(),
            taken: 0,
            tried: HashSet::new(),
            notes: false,
            furthest: (0, 0, Vec::new()),
        }
    }

    fn run(&mut self) -> bool {
        let mut frames: Vec<Frame> = Vec::new();
        let mut candidates = self.candidates();
        while self.left > 0 {
            let Some(unit) = candidates.pop() else {
                let Some(frame) = frames.pop() else { return false };
                self.put_back(&frame);
                candidates = frame.others;
                continue;
            };
            let mark = self.tree.mark();
            let all = self.units[unit].parts.iter().all(|(op, answer)| self.tree.carry_out(*op, *answer));
            let taken = self.taken ^ mix(unit as u64, u64::MAX);
            if all && self.tried.insert(taken ^ self.tree.digest()) {
                frames.push(Frame { unit, mark, others: candidates });
                self.take(unit);
                candidates = self.candidates();
                if self.notes && frames.len() > self.furthest.0 {
                    self.furthest = (frames.len(), unit, self.note(&candidates));
                }
            } else {
                self.tree.back_to(mark);
            }
        }
        true
    }

    /// What may come next: what began before anything that is left had ended. The best comes last: what must be, in the order of its beginning.
    fn candidates(&self) -> Vec<usize> {
        let head = self.units.len();
        let (mut all, mut earliest_end, mut at) = (Vec::new(), u64::MAX, self.next[head]);
        while at != head && self.units[at].began <= earliest_end {
            earliest_end = earliest_end.min(self.units[at].ended);
            all.push(at);
            at = self.next[at];
        }
        all.sort_by_key(|at| (self.units[*at].open, *at));
        all.reverse();
        all
    }

    fn note(&mut self, candidates: &[usize]) -> Vec<(usize, Vec<u64>)> {
        let (units, mark) = (self.units, self.tree.mark());
        let mut answers = |at: &usize| {
            let all = units[*at].parts.iter().map(|(op, _)| self.tree.answer(*op)).collect();
            self.tree.back_to(mark);
            (*at, all)
        };
        candidates.iter().map(&mut answers).collect()
    }

    fn take(&mut self, unit: usize) {
        let (before, next) = (self.before[unit], self.next[unit]);
        (self.next[before], self.before[next]) = (next, before);
        self.taken ^= mix(unit as u64, u64::MAX);
        self.left -= usize::from(!self.units[unit].open);
    }

    fn put_back(&mut self, frame: &Frame) {
        let unit = frame.unit;
        let (before, next) = (self.before[unit], self.next[unit]);
        (self.next[before], self.before[next]) = (unit, unit);
        self.taken ^= mix(unit as u64, u64::MAX);
        self.left += usize::from(!self.units[unit].open);
        self.tree.back_to(frame.mark);
    }
}
