//! What was carried out here and is to be told to the owner, in its order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use forebay_protocol::{Failure, Operation, Step, Undone};
use forebay_types::Ino;
use rustc_hash::FxHashMap;

/// How long an operation is held back for others to be told with it, most of all for the bytes of a file that it makes: its writer syncs it within that, if he does. Not where somebody waits for
/// it, or so many have collected.
pub(super) const HOLD: Duration = Duration::from_millis(5);
const COLLECT: usize = 1024;
const COLLECT_BYTES: usize = 512 << 10;

/// One operation.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) step: Step,
    pub(super) touched: Vec<Ino>,
    bytes: usize,
}

/// The queue. Numbers count from 1, in the order of the operations.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Queued>,
    bytes: usize,
    /// The last number that was given.
    last: u64,
    /// Since when the first of them is there, or waits for one that was under way.
    since: Option<Instant>,
    /// Up to which number somebody waits for them.
    wanted: u64,
    /// The last operation that concerns an inode, while it is not told.
    concerns: FxHashMap<Ino, u64>,
}

impl Queue {
    pub(super) fn push(&mut self, step: Step, touched: Vec<Ino>) {
        self.last += 1;
        if self.items.is_empty() {
            self.since = Some(Instant::now());
        }
        let bytes = size(&step.operation);
        self.bytes += bytes;
        self.concerns.extend(touched.iter().map(|ino| (*ino, self.last)));
        self.items.push_back(Queued { number: self.last, step, touched, bytes });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Somebody waits until the owner has answered everything up to this number.
    pub(super) fn want(&mut self, number: u64) {
        self.wanted = self.wanted.max(number);
    }

    /// How long the first ones are held back yet, for others to be told with them; `None` where they are not.
    pub(super) fn held_back_for(&self) -> Option<Duration> {
        let first = self.items.front()?.number;
        let collects = self.items.len() < COLLECT && self.bytes < COLLECT_BYTES && self.wanted < first;
        let left = HOLD.saturating_sub(self.since?.elapsed());
        (collects && !left.is_zero()).then_some(left)
    }

    /// Whether so many are there just now that they are not held back any more.
    pub(super) fn has_collected(&self) -> bool {
        self.items.len() >= COLLECT || self.bytes >= COLLECT_BYTES
    }

    /// What is there from now on waits for what is being sent.
    pub(super) fn sends(&mut self) {
        self.since = Some(Instant::now());
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Whether the owner has answered everything up to this number, or it was lost.
    pub(super) fn is_told(&self, number: u64) -> bool {
        self.items.front().is_none_or(|first| first.number > number)
    }

    /// The number of the last operation that concerns any of these; 0 where all are told.
    pub(super) fn until(&self, inos: &[Ino]) -> u64 {
        inos.iter().filter_map(|ino| self.concerns.get(ino)).copied().max().unwrap_or(0)
    }

    /// The first ones, as many as one request may have.
    pub(super) fn first(&self, operations: usize, bytes: usize) -> Vec<Step> {
        let mut sum = 0;
        let fits = |item: &&Queued| {
            sum += item.bytes;
            sum <= bytes || sum == item.bytes
        };
        self.items.iter().take(operations).take_while(fits).map(|item| item.step.clone()).collect()
    }

    /// Takes out the first ones: they are told, or lost.
    pub(super) fn take(&mut self, count: usize) -> Vec<Queued> {
        let taken: Vec<Queued> = self.items.drain(..count.min(self.items.len())).collect();
        for item in &taken {
            self.bytes -= item.bytes;
            for ino in &item.touched {
                if self.concerns.get(ino) == Some(&item.number) {
                    self.concerns.remove(ino);
                }
            }
        }
        taken
    }

    /// Takes out what depends on what is undone, and adds it to that. Returns it, and why it fails.
    pub(super) fn take_dependent(&mut self, undone: &mut Undone) -> Vec<(Queued, Failure)> {
        let mut taken = Vec::new();
        for item in std::mem::take(&mut self.items) {
            match undone.concerns(&item.step.operation, item.touched.iter().copied()) {
                Some(why) => {
                    undone.add(&item.step, why);
                    self.bytes -= item.bytes;
                    taken.push((item, why));
                }
                None => self.items.push_back(item),
            }
        }
        if !taken.is_empty() {
            self.concerns.clear();
            for item in &self.items {
                self.concerns.extend(item.touched.iter().map(|ino| (*ino, item.number)));
            }
        }
        taken
    }

    pub(super) fn concerns(&self, ino: Ino) -> bool {
        self.concerns.contains_key(&ino)
    }
}

/// What an operation takes in memory and on the wire, about.
fn size(operation: &Operation) -> usize {
    let beside = match operation {
        Operation::Make(_, name, new) => {
            let xattrs = new.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            name.len() + new.target.len() + xattrs
        }
        Operation::Link(_, _, name) | Operation::RemoveXattr(_, name) => name.len(),
        Operation::Unlink(_, name, open) | Operation::Rmdir(_, name, open) => name.len() + 8 * open.len(),
        Operation::Rename { name, new_name, open, .. } => name.len() + new_name.len() + 8 * open.len(),
        Operation::SetAttr(_, set) => {
            set.xattrs.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum()
        }
        Operation::SetXattr(_, name, value, _) => name.len() + value.len(),
        Operation::Commit(commit) => {
            commit.files.iter().map(|file| 100 + file.inline.as_ref().map_or(0, Vec::len)).sum()
        }
        _ => 0,
    };
    200 + beside
}
