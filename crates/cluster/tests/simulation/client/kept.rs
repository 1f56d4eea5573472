//! What is known under leases, what the kernel keeps, and what was written and not sent.

use std::{collections::BTreeMap, time::Duration};

use forebay_cluster::{Lease, Moment};
use forebay_types::Ino;

use super::{AGAIN_AFTER, Client, asking::Purpose};
use crate::{
    faults::Planted,
    history::{History, State},
    messages::{GONE, Name, Op, REFUSED, fits_row},
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

/// A value on its way.
#[derive(Debug)]
pub struct Flushing {
    value: u64,
    /// How many of the operations it covers.
    covered: usize,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// To the store, as this object, since when.
    Put(u64, Moment),
    /// To the owner, by itself.
    Commit,
    /// To the owner, by this number in the queue of what was done ahead.
    Along(u64),
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
        let covered = dirty.flushing.filter(|it| it.way == Way::Commit).map_or(0, |it| it.covered);
        let flushed = dirty.operations[..covered].iter().rev();
        // The last write that was on its way may arrive; nobody but this client saw the others.
        let on_its_way = flushed.copied().find(|at| history.is_change(*at));
        history.unknown(on_its_way.as_slice());
        dirty.operations.into_iter().filter(|at| Some(*at) != on_its_way).for_each(|at| history.lost(at));
    }

    /// Sends what was written: first what was done ahead with the file, then the bytes to the store, then their name to the owner. Bytes that fit the file's row go to the owner at once, along with
    /// what was done ahead where they would have to wait for that.
    pub(super) fn flush(&mut self, ino: Ino, context: &mut Context<'_>) {
        let Some(dirty) = self.dirty.get_mut(&ino).filter(|dirty| dirty.flushing.is_none()) else { return };
        let (value, covered) = (dirty.value, dirty.operations.len());
        let is_told = self.ahead.is_told(self.ahead.until(&[ino]));
        let way = match fits_row(value) {
            true if is_told || context.planted(Planted::CommitBeforeMade) => Way::Commit,
            true if self.has(ino, Lease::Write, context) => self.along(ino, context),
            false if is_told => {
                self.written += 1;
                Way::Put((self.at as u64 + 1) << 32 | self.written, context.clock)
            }
            _ => return,
        };
        let Some(dirty) = self.dirty.get_mut(&ino) else { return };
        dirty.flushing = Some(Flushing { value, covered, way });
        match way {
            Way::Commit => self.request(Purpose::Flush(ino), Op::Commit(ino, value, 0), None, context),
            Way::Put(object, _) => {
                context.put(object);
                if context.planted(Planted::CommitBeforeStored) {
                    self.is_put(object, context);
                }
            }
            Way::Along(_) => {}
        }
    }

    /// Puts the commit of what was written behind what was done ahead.
    fn along(&mut self, ino: Ino, context: &Context<'_>) -> Way {
        let Dirty { value, operations, .. } = &self.dirty[&ino];
        let last = operations.iter().rev().find(|at| context.history.is_change(**at)).or(operations.last());
        let (at, commit) = (last.copied().unwrap_or_default(), Op::Commit(ino, *value, 0));
        Way::Along(self.ahead.along(commit, at, context.now))
    }

    pub(super) fn is_along(&self, ino: Ino) -> bool {
        let flushing = self.dirty.get(&ino).and_then(|dirty| dirty.flushing.as_ref());
        flushing.is_some_and(|it| matches!(it.way, Way::Along(_)))
    }

    /// What became of a commit that went along. One that was refused goes by itself.
    pub(super) fn went_along(&mut self, ino: Ino, number: u64, refused: bool, context: &mut Context<'_>) {
        let flushing = self.dirty.get_mut(&ino).and_then(|dirty| dirty.flushing.as_mut());
        let Some(flushing) = flushing.filter(|it| it.way == Way::Along(number)) else { return };
        if refused && !context.planted(Planted::BelievesRefusedStep) {
            flushing.way = Way::Commit;
            let commit = Op::Commit(ino, flushing.value, 0);
            self.request(Purpose::Flush(ino), commit, None, context);
        } else {
            context.history.along += 1;
            self.flushed(ino, 0, context);
        }
    }

    /// Puts objects again of which the store has not said that it has them: under the same name, so that there is one.
    pub(super) fn put_again(&mut self, context: &mut Context<'_>) {
        for flushing in self.dirty.values_mut().filter_map(|dirty| dirty.flushing.as_mut()) {
            if let Way::Put(object, since) = &mut flushing.way
                && context.clock.since(*since) >= AGAIN_AFTER
            {
                *since = context.clock;
                context.put(*object);
            }
        }
    }

    /// The store has an object.
    pub fn is_put(&mut self, object: u64, context: &mut Context<'_>) {
        let mut flushing =
            self.dirty.iter_mut().filter_map(|(ino, dirty)| Some((*ino, dirty.flushing.as_mut()?)));
        let is_it = |it: &(Ino, &mut Flushing)| matches!(it.1.way, Way::Put(put, _) if put == object);
        let Some((ino, flushing)) = flushing.find(is_it) else { return };
        flushing.way = Way::Commit;
        let op = Op::Commit(ino, flushing.value, object);
        self.request(Purpose::Flush(ino), op, None, context);
    }

    /// The owner has taken in what was written, or refuses it, or the file is gone.
    pub(super) fn flushed(&mut self, ino: Ino, value: u64, context: &mut Context<'_>) {
        if value == GONE || value == REFUSED {
            if value == GONE {
                context.history.is_gone(ino);
            }
            self.failures.insert(ino);
            self.known.forget(ino);
            self.kernel.forget(ino);
            self.ahead.forget(ino);
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
