//! Whether there is an order of all operations, each between its beginning and its end, in which each saw what it saw.
//!
//! After Wing and Gong, with the remembering of tried states of Lowe ("Testing for linearizability", 2017).

use std::collections::HashSet;

use crate::{
    history::{Operation, State},
    messages::Op,
    world::REGISTERS,
};

type Values = [u64; REGISTERS];

/// # Errors
/// The operation before which every order fails.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut search = Search { operations, tried: HashSet::new(), furthest: 0 };
    if search.from(0, Vec::new(), [0; REGISTERS]) {
        return Ok(());
    }
    let at = search.furthest.min(operations.len().saturating_sub(1));
    let around: Vec<String> = operations[at.saturating_sub(6)..(at + 4).min(operations.len())]
        .iter()
        .map(|it| format!("{it:?}"))
        .collect();
    Err(format!("no order explains what was seen around\n  {}", around.join("\n  ")))
}

struct Search<'a> {
    /// In the order of their beginnings.
    operations: &'a [Operation],
    /// All before the first are in the order, and those after it that are listed.
    tried: HashSet<(usize, Vec<usize>, Values)>,
    furthest: usize,
}

impl Search<'_> {
    /// Whether the rest can be ordered, when all before `first` and those in `taken` (ascending) are, and the registers have these values.
    fn from(&mut self, first: usize, taken: Vec<usize>, values: Values) -> bool {
        // A stack of its own: histories are long.
        let mut stack = vec![(first, taken, values)];
        while let Some((mut first, mut taken, values)) = stack.pop() {
            while taken.first() == Some(&first) {
                taken.remove(0);
                first += 1;
            }
            self.furthest = self.furthest.max(first);
            // What never returned need not be carried out.
            let rest = self.operations[first..].iter().enumerate();
            if rest
                .filter(|(at, _)| !taken.contains(&(first + at)))
                .all(|(_, left)| left.state == State::Open)
            {
                return true;
            }
            if !self.tried.insert((first, taken.clone(), values)) {
                continue;
            }
            let left = (first..self.operations.len()).filter(|at| !taken.contains(at));
            let mut earliest_end = u64::MAX;
            let mut next = Vec::new();
            for at in left {
                let operation = &self.operations[at];
                if operation.began > earliest_end {
                    break;
                }
                earliest_end = earliest_end.min(operation.ended);
                if let Some(values) = apply(operation, values) {
                    let mut taken = taken.clone();
                    taken.insert(taken.partition_point(|known| *known < at), at);
                    next.push((first, taken, values));
                }
            }
            next.reverse();
            stack.extend(next);
        }
        false
    }
}

/// The values after an operation, where it can have seen what it saw.
fn apply(operation: &Operation, mut values: Values) -> Option<Values> {
    let at = |ino: forebay_types::Ino| ino.0 as usize - 1;
    let returned = operation.state != State::Open;
    match operation.op {
        Op::Read(ino) => (values[at(ino)] == operation.value).then_some(values),
        Op::Write(ino, value) => {
            values[at(ino)] = value;
            Some(values)
        }
        Op::Move(from, to) => {
            let moved = values[at(from)];
            values[at(from)] = 0;
            values[at(to)] = moved;
            (!returned || moved == operation.value).then_some(values)
        }
    }
}
