//! What was carried out here and is to be told to the owner, in its order.

use std::collections::VecDeque;

use forebay_types::Ino;

use crate::messages::Op;

/// One operation.
#[derive(Debug)]
pub struct Queued {
    pub number: u64,
    pub op: Op,
    /// In the history, and when; of a commit what it makes the owner's.
    pub at: usize,
    pub time: u64,
    pub touched: Vec<Ino>,
    /// What was answered after it, and may have been by it.
    pub seen: Vec<(usize, Op)>,
}

/// The queue. Numbers count from 1, in the order of the operations.
#[derive(Debug, Default)]
pub struct Queue {
    pub items: VecDeque<Queued>,
    last: u64,
}

impl Queue {
    /// Returns the number of what is put at the end.
    pub fn push(&mut self, op: Op, at: usize, time: u64, touched: Vec<Ino>) -> u64 {
        self.last += 1;
        self.items.push_back(Queued { number: self.last, op, at, time, touched, seen: Vec::new() });
        self.last
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether everything up to this number is told.
    pub fn is_told(&self, number: u64) -> bool {
        self.items.front().is_none_or(|first| first.number > number)
    }

    /// The number of the last operation that concerns any of these; 0 where all are told.
    pub fn until(&self, inos: &[Ino]) -> u64 {
        let concerns = |item: &&Queued| item.touched.iter().any(|ino| inos.contains(ino));
        self.items.iter().rev().find(concerns).map_or(0, |item| item.number)
    }

    /// The first ones: they are told, or lost.
    pub fn take(&mut self, count: usize) -> Vec<Queued> {
        self.items.drain(..count.min(self.items.len())).collect()
    }
}
