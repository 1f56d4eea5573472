//! What is known under leases, what the kernel keeps, and what was written and not sent.

use std::{collections::BTreeMap, time::Duration};

use forebay_cluster::{Lease, Moment};
use forebay_types::Ino;

use super::{AGAIN_AFTER, Client, asking::Purpose};
use crate::{
    faults::Planted,
    history::{History, State},
    messages::{GONE, Name, Op},
    world::Context,
};

/// What the owner, or an operation here, has told: it counts under a lease to read on the inode, or on the name's directory.
#[derive(Debug, Default)]
pub struct Known {
    pub values: BTreeMap<Ino, u64>,
    /// Inode 0: the name is not there.
    pub names: BTreeMap<Name, Ino>,
}

impl Known {
    pub fn forget(&mut self, ino: Ino) {
        self.values.remove(&ino);
        self.names.retain(|name, _| name.0 != ino);
    }

    pub fn retain(&mut self, may: &dyn Fn(Ino) -> bool) {
        self.values.retain(|ino, _| may(*ino));
        self.names.retain(|name, _| may(name.0));
    }
}

/// What the kernel has, and until when.
#[derive(Debug, Default)]
pub struct Kernel {
    pub values: BTreeMap<Ino, (u64, Moment)>,
    pub names: BTreeMap<Name, (Ino, Moment)>,
}

impl Kernel {
    pub fn forget(&mut self, ino: Ino) {
        self.values.remove(&ino);
        self.names.retain(|name, _| name.0 != ino);
    }

    pub fn retain(&mut self, may: &dyn Fn(Ino) -> bool) {
        self.values.retain(|ino, _| may(*ino));
        self.names.retain(|name, _| may(name.0));
    }
}

/// What an application wrote and the owner does not know of.
#[derive(Debug, Default)]
pub struct Dirty {
    pub value: u64,
    /// In the history: what was written and seen under it, in order.
    pub operations: Vec<usize>,
    pub flushing: Option<Flushing>,
}

/// A value on its way: to the store, then to the owner.
#[derive(Debug)]
pub struct Flushing {
    value: u64,
    /// How many of the operations it covers.
    covered: usize,
    object: u64,
    put: Moment,
    committing: bool,
}

impl Client {
    fn lifetime(&self, ino: Ino, context: &Context<'_>) -> Duration {
        match &self.held {
            Some(_) if context.planted(Planted::KeepsTooLong) => Duration::from_secs(60),
            Some(held) => held.lifetime(ino, context.clock),
            None => Duration::ZERO,
        }
    }

    pub(super) fn tell_kernel(&mut self, ino: Ino, value: u64, context: &Context<'_>) {
        let until = context.clock + self.lifetime(ino, context);
        self.kernel.values.insert(ino, (value, until));
    }

    pub(super) fn tell_kernel_name(&mut self, name: Name, ino: Ino, context: &Context<'_>) {
        let until = context.clock + self.lifetime(name.0, context);
        self.kernel.names.insert(name, (ino, until));
    }

    /// Something was answered without the owner. What was seen of what is kept back is not known to stay.
    pub(super) fn saw(&mut self, at: usize, op: Op, value: u64, inos: &[Ino], context: &mut Context<'_>) {
        context.history.end(at, value, context.now, State::Done);
        for ino in inos {
            if let Some(dirty) = self.dirty.get_mut(ino) {
                dirty.operations.push(at);
                context.history.keeps_back(at);
            }
        }
        if self.ahead.saw(at, op, inos) {
            context.history.keeps_back(at);
        }
        self.last_done = context.now;
    }

    pub(super) fn keep_back(&mut self, at: usize, ino: Ino, value: u64, context: &mut Context<'_>) {
        self.known.values.insert(ino, value);
        self.tell_kernel(ino, value, context);
        self.dirty.entry(ino).or_default().value = value;
        self.saw(at, Op::Write(ino, value), 0, &[ino], context);
    }

    pub(super) fn lose_dirty(&mut self, ino: Ino, history: &mut History) {
        let Some(dirty) = self.dirty.remove(&ino) else { return };
        self.failures.insert(ino);
        let covered = dirty.flushing.filter(|flushing| flushing.committing).map_or(0, |it| it.covered);
        let flushed = dirty.operations[..covered].iter().rev();
        // The last write that was on its way may arrive; nobody but this client saw the others.
        let on_its_way = flushed.copied().find(|at| history.is_change(*at));
        history.unknown(on_its_way.as_slice());
        dirty.operations.into_iter().filter(|at| Some(*at) != on_its_way).for_each(|at| history.lost(at));
    }

    /// Sends what was written: first what was done ahead with the file, then the bytes to the store, then their name to the owner.
    pub(super) fn flush(&mut self, ino: Ino, context: &mut Context<'_>) {
        let is_told = self.ahead.is_told(self.ahead.until(&[ino]));
        let Some(dirty) = self.dirty.get_mut(&ino) else { return };
        if dirty.flushing.is_some() || !is_told {
            return;
        }
        self.written += 1;
        let object = (self.at as u64 + 1) << 32 | self.written;
        let (value, covered, put) = (dirty.value, dirty.operations.len(), context.clock);
        dirty.flushing = Some(Flushing { value, covered, object, put, committing: false });
        context.put(object);
        if context.planted(Planted::CommitBeforeStored) {
            self.is_put(object, context);
        }
    }

    /// Puts objects again of which the store has not said that it has them: under the same name, so that there is one.
    pub(super) fn put_again(&mut self, context: &mut Context<'_>) {
        for flushing in self.dirty.values_mut().filter_map(|dirty| dirty.flushing.as_mut()) {
            if !flushing.committing && context.clock.since(flushing.put) >= AGAIN_AFTER {
                flushing.put = context.clock;
                context.put(flushing.object);
            }
        }
    }

    /// The store has an object.
    pub fn is_put(&mut self, object: u64, context: &mut Context<'_>) {
        let mut flushing =
            self.dirty.iter_mut().filter_map(|(ino, dirty)| Some((*ino, dirty.flushing.as_mut()?)));
        let is_it = |it: &(Ino, &mut Flushing)| it.1.object == object && !it.1.committing;
        let Some((ino, flushing)) = flushing.find(is_it) else { return };
        flushing.committing = true;
        let op = Op::Commit(ino, flushing.value, object);
        self.request(Purpose::Flush(ino), op, None, context);
    }

    /// The owner has taken in what was written, or the file is gone.
    pub(super) fn flushed(&mut self, ino: Ino, value: u64, context: &mut Context<'_>) {
        if value == GONE {
            context.history.is_gone(ino);
            self.failures.insert(ino);
            for at in self.dirty.remove(&ino).into_iter().flat_map(|dirty| dirty.operations) {
                context.history.lost(at);
            }
        }
        self.flushed_at.insert(ino, self.next_tag);
        if let Some(dirty) = self.dirty.get_mut(&ino) {
            let covered = dirty.flushing.take().map_or(0, |flushing| flushing.covered);
            dirty.operations.drain(..covered).for_each(|at| context.history.told(at));
            if dirty.operations.is_empty() {
                self.dirty.remove(&ino);
            }
        }
        self.give_back_more(context);
    }

    /// Whether something may be answered from what is known of an inode's value.
    pub(super) fn known_value(&self, ino: Ino, context: &Context<'_>) -> Option<u64> {
        self.known.values.get(&ino).copied().filter(|_| self.has(ino, Lease::Read, context))
    }

    /// What a name is known to stand for.
    pub(super) fn known_name(&self, name: Name, context: &Context<'_>) -> Option<Ino> {
        self.known.names.get(&name).copied().filter(|_| self.has(name.0, Lease::Read, context))
    }
}
