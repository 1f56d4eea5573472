//! What the owner is asked, and what it answers.

use std::sync::Arc;

use forebay_cluster::{Grant, Lease, Moment, SlotNumber};
use forebay_types::Ino;
use rand::RngExt;

use super::{AGAIN_AFTER, Client};
use crate::{
    faults::Planted,
    messages::{GONE, Message, Op, Request},
    world::{Context, SERVERS},
};

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The application waits for it.
    Application,
    /// A lease to write, and then the application's write under it.
    Acquire(u64),
    /// What names stand for, and a directory with its names, before the application's operation.
    Before,
    Learn(Ino),
    /// Something that was written.
    Flush(Ino),
    /// What was done ahead.
    Ship,
    Numbers,
}

#[derive(Clone, Debug)]
pub struct Sent {
    pub purpose: Purpose,
    op: Op,
    slot: Option<(SlotNumber, u64)>,
    wish: Option<Lease>,
    steps: Arc<[Op]>,
    last: Moment,
}

impl Client {
    pub(super) fn ask_again(&mut self, context: &mut Context<'_>) {
        let late: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, sent)| context.clock.since(sent.last) >= AGAIN_AFTER)
            .map(|(tag, _)| *tag)
            .collect();
        if !late.is_empty() && context.rng.random_bool(0.3) {
            self.server = context.rng.random_range(0..SERVERS);
        }
        for tag in late {
            self.send(tag, context);
        }
    }

    fn send(&mut self, tag: u64, context: &mut Context<'_>) {
        let Some(sent) = self.requests.get_mut(&tag) else { return };
        sent.last = context.clock;
        let Sent { op, slot, wish, steps, .. } = sent.clone();
        let (session, sent) = (self.session, context.clock.0);
        self.to_server(context, Message::Request(Request { session, tag, sent, slot, op, wish, steps }));
    }

    pub(super) fn request(
        &mut self,
        purpose: Purpose,
        op: Op,
        wish: Option<Lease>,
        context: &mut Context<'_>,
    ) {
        self.request_with(purpose, op, wish, Vec::new(), context);
    }

    pub(super) fn request_with(
        &mut self,
        purpose: Purpose,
        op: Op,
        wish: Option<Lease>,
        steps: Vec<Op>,
        context: &mut Context<'_>,
    ) {
        let slot = op.changes().then(|| {
            let used =
                |slot: &u16| self.requests.values().any(|it| it.slot.is_some_and(|it| it.0.0 == *slot));
            let slot = SlotNumber((0..).find(|slot| !used(slot)).unwrap_or(0));
            let number = self.slots.entry(slot).or_default();
            *number += 1;
            (slot, *number)
        });
        if op.changes() && purpose == Purpose::Application {
            // What is kept is not true any more once the owner has carried it out, which is before the answer comes.
            let named = op.names().into_iter().filter_map(|name| self.known.names.get(&name).copied());
            let inos: Vec<Ino> = op.inos().into_iter().chain(named).collect();
            for ino in inos {
                self.known.forget(ino);
                self.kernel.forget(ino);
                self.ahead.forget(ino);
            }
        }
        self.next_tag += 1;
        let sent = Sent { purpose, op, slot, wish, steps: steps.into(), last: context.clock };
        self.requests.insert(self.next_tag, sent);
        self.send(self.next_tag, context);
    }

    pub(super) fn is_asking(&self, purpose: Purpose) -> bool {
        self.requests.values().any(|sent| sent.purpose == purpose)
    }

    pub(super) fn answered(
        &mut self,
        tag: u64,
        (value, also): (u64, Ino),
        grants: &[Grant],
        context: &mut Context<'_>,
    ) {
        let Some(Sent { purpose, op, wish, .. }) = self.requests.remove(&tag) else { return };
        let mut kept: Vec<(Ino, Lease)> = Vec::new();
        for grant in grants {
            if self.held.as_mut().is_some_and(|held| held.granted(*grant)) {
                self.giving_back.retain(|ino| *ino != grant.ino);
                kept.push((grant.ino, grant.lease));
            }
        }
        let writes = |ino: Ino| kept.contains(&(ino, Lease::Write));
        match (purpose, op) {
            (Purpose::Flush(ino), _) => self.flushed(ino, value, context),
            (Purpose::Ship, _) => self.shipped(value, context),
            (Purpose::Numbers, _) => self.ahead.add_run(value),
            (Purpose::Acquire(to_write), Op::Read(ino)) => {
                let may = writes(ino) && value != GONE;
                self.acquired(ino, to_write, may, context);
            }
            (Purpose::Learn(directory), _) => {
                if writes(directory) && self.has(directory, Lease::Write, context) && value != GONE {
                    self.known.forget(directory);
                    self.ahead.delegate(directory, value);
                } else {
                    self.ahead.put_off(directory);
                }
                self.asked_before(context);
            }
            (_, Op::Look(_)) if self.flushed_since(value, tag, context) => {
                self.request(purpose, op, wish, context);
            }
            _ => {
                let value = self.put_over(op, value, context);
                let reads: Vec<Ino> = kept.iter().map(|(ino, _)| *ino).collect();
                self.learn_from(op, (value, also), &reads, context);
                if let (Op::Make(_, ino, true), 1) = (op, value)
                    && writes(ino)
                    && self.has(ino, Lease::Write, context)
                {
                    // The lease is the one that came along, so nobody has had it since: the directory is empty.
                    self.ahead.delegate(ino, 0);
                }
                self.application_answered(purpose, op, value, context);
            }
        }
    }

    /// Whether a file was flushed after this request was sent: what it tells may be of before, without what was written and was over it until then.
    fn flushed_since(&self, value: u64, tag: u64, context: &Context<'_>) -> bool {
        let flushed = self.flushed_at.get(&Ino(value >> 32)).is_some_and(|at| *at >= tag);
        flushed && value != GONE && !context.planted(Planted::OldOverNew)
    }

    /// What the owner tells of a file, with what was written to it and is not told over it.
    fn put_over(&self, op: Op, value: u64, context: &Context<'_>) -> u64 {
        match (op, self.dirty.get(&Ino(value >> 32))) {
            (Op::Look(_), Some(dirty)) if value != GONE && !context.planted(Planted::OldOverNew) => {
                value >> 32 << 32 | dirty.value
            }
            _ => value,
        }
    }

    /// Takes in what an answer says of inodes on which the lease that came with it is kept.
    fn learn_from(&mut self, op: Op, (value, also): (u64, Ino), kept: &[Ino], context: &mut Context<'_>) {
        self.known.forget(also);
        self.kernel.forget(also);
        self.ahead.forget(also);
        let told = match op {
            _ if value == GONE => None,
            Op::Read(ino) => Some((ino, value)),
            Op::Write(ino, written) => Some((ino, written)),
            Op::Look(name) => {
                let ino = Ino(value >> 32);
                if kept.contains(&name.0) {
                    self.known.names.insert(name, ino);
                    self.tell_kernel_name(name, ino, context);
                }
                (ino.0 != 0).then_some((ino, value & 0xffff_ffff))
            }
            Op::Make(_, ino, false) if value == 1 => Some((ino, 0)),
            _ => None,
        };
        if let Some((ino, value)) = told.filter(|(ino, _)| kept.contains(ino)) {
            self.known.values.insert(ino, value);
            self.tell_kernel(ino, value, context);
        }
    }
}
