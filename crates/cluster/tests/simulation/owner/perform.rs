//! Carrying a request out: its rows, with that of its slot, are one record.

use std::collections::BTreeSet;

use forebay_cluster::{Access, Lease, Need, SessionId};
use forebay_types::Ino;

use super::{
    Owner,
    tree::{Change, Done},
};
use crate::{
    engine::Key,
    faults::Planted,
    history::has_effect,
    messages::{GONE, Name, Op, REFUSED, Request},
    world::{Context, RUN},
};

impl Owner {
    /// What a request needs as names are now.
    pub(super) fn needs(&self, request: &Request) -> Vec<Need> {
        let mut needs = match request.op {
            Op::Ahead => self.needs_of_steps(request.session, &request.steps),
            op => self.tree.needs(op),
        };
        if request.wish == Some(Lease::Write) && !request.op.changes() {
            needs.iter_mut().for_each(|need| need.access = Access::Write);
        }
        needs
    }

    /// Those of what was done ahead; of its commits only what is to be had at once, so that nobody is asked for a lease for their sake.
    fn needs_of_steps(&self, session: SessionId, steps: &[Op]) -> Vec<Need> {
        let held = |ino: &Ino| self.table.lease(session, *ino) == Some(Lease::Write);
        let committed = committed(steps).filter(held).map(|ino| Need { ino, access: Access::Write });
        self.tree.needs_of_steps(steps).into_iter().chain(committed).collect()
    }

    /// Returns the record that the answer waits for, the value, what went by the way, and what was made ahead.
    pub(super) fn perform(
        &mut self,
        request: &Request,
        context: &mut Context<'_>,
    ) -> (u64, u64, Ino, Vec<Ino>) {
        let session = request.session;
        if !request.op.changes() {
            return (0, self.tree.carry_out(request.op).value, Ino(0), Vec::new());
        }
        let (done, made) = match request.op {
            Op::Ahead => self.ahead(session, &request.steps, context),
            Op::Runs => (self.give_run(session), Vec::new()),
            Op::Lock(ino) => (self.lock(session, ino, context), Vec::new()),
            Op::Unlock(ino) => (self.unlock(session, ino), Vec::new()),
            Op::Commit(ino, value, object) => (self.commit(ino, value, object, context), Vec::new()),
            Op::Make(_, ino, _) if !self.may_use(session, ino) => {
                (Done { value: REFUSED, ..Done::default() }, Vec::new())
            }
            op => (self.tree.carry_out(op), Vec::new()),
        };
        let Done { value, also, mut rows, changed } = done;
        if let Some((slot, number)) = request.slot.filter(|_| !context.planted(Planted::NoRetryRow)) {
            rows.push((Key::Slot(session, slot), Some([number, value, also.0])));
        }
        let record = self.record(rows);
        self.changed.extend(changed.into_iter().map(|ino| (ino, record)));
        if let Some((slot, _)) = request.slot {
            self.sessions.answered(session, slot, (value, also, record));
        }
        (record, value, also, made)
    }

    /// What a client has done ahead, all of it or none where it may not. A step that fails changes nothing, nor does what depends on it. A commit takes nothing along.
    fn ahead(&mut self, session: SessionId, steps: &[Op], context: &mut Context<'_>) -> (Done, Vec<Ino>) {
        let mut needed: Vec<Ino> = self.tree.needs_of_steps(steps).iter().map(|need| need.ino).collect();
        if context.planted(Planted::RefusesForCommit) {
            let made = |ino: &Ino| steps.iter().any(|step| matches!(step, Op::Make(_, it, _) if it == ino));
            needed.extend(committed(steps).filter(|ino| !made(ino)));
        }
        let mut all = Done { value: GONE, ..Done::default() };
        if needed.iter().any(|ino| self.table.lease(session, *ino) != Some(Lease::Write)) {
            return (all, Vec::new());
        }
        all.value = 0;
        let (mut wrong, mut made) = (Wrong::default(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            let allowed = match step {
                Op::Make(_, ino, _) => self.may_use(session, *ino),
                Op::Commit(ino, _, 0) => {
                    made.contains(ino) || self.table.lease(session, *ino) == Some(Lease::Write)
                }
                step => step.renames(),
            };
            let done = match allowed && !wrong.concerns(*step) {
                true => self.tree.carry_out(*step),
                false => Done { value: REFUSED, ..Done::default() },
            };
            let is_taken_in = matches!(step, Op::Commit(..)) && done.value == 0;
            if !is_taken_in && !has_effect(*step, done.value) {
                wrong.add(*step);
                all.value |= 1 << at;
                continue;
            }
            if let Op::Make(_, ino, _) = step {
                made.push(*ino);
            }
            all.rows.extend(done.rows);
            all.changed.extend(done.changed);
        }
        made.retain(|ino| self.tree.value(*ino) != GONE);
        (all, made)
    }

    fn may_use(&self, session: SessionId, ino: Ino) -> bool {
        let run = ino.0 / RUN;
        self.given.get(&session).is_some_and(|given| given.contains(&run))
            || self.former.0.contains(&session) && run < self.former.1
    }

    fn give_run(&mut self, session: SessionId) -> Done {
        let run = self.next_run;
        self.next_run += 1;
        self.given.entry(session).or_default().insert(run);
        let rows: Vec<Change> = vec![(Key::Runs, Some([self.next_run, 0, 0]))];
        Done { value: run, rows, ..Done::default() }
    }

    fn commit(&mut self, ino: Ino, value: u64, object: u64, context: &mut Context<'_>) -> Done {
        let mut done = self.tree.carry_out(Op::Commit(ino, value, object));
        if done.value == 0 && object != 0 {
            if !context.stored.contains(&object) {
                context.history.finds(format!("object {object} is named by {ino:?}, and not in the store"));
            }
            if !self.objects.insert(object) {
                context.history.finds(format!("object {object} is named a second time, by {ino:?}"));
            }
            done.rows.push((Key::Object(object), Some([ino.0, 0, 0])));
        }
        done
    }

    fn lock(&mut self, session: SessionId, ino: Ino, context: &Context<'_>) -> Done {
        let holder = *self.locks.entry(ino).or_insert(session);
        let mut rows = Vec::new();
        if holder == session && !context.planted(Planted::NoLockRow) {
            let (high, low) = ((session.0 >> 64) as u64, session.0 as u64);
            rows.push((Key::Lock(ino), Some([high, low, 0])));
        }
        Done { value: u64::from(holder == session), rows, ..Done::default() }
    }

    fn unlock(&mut self, session: SessionId, ino: Ino) -> Done {
        if self.locks.get(&ino) != Some(&session) {
            return Done::default();
        }
        self.locks.remove(&ino);
        Done { rows: vec![(Key::Lock(ino), None)], ..Done::default() }
    }
}

/// The files of commits among steps.
fn committed(steps: &[Op]) -> impl Iterator<Item = Ino> {
    steps.iter().filter_map(|step| if let Op::Commit(ino, ..) = step { Some(*ino) } else { None })
}

/// What is not as a client has told: names and inodes that steps which failed were about.
#[derive(Debug, Default)]
pub struct Wrong {
    names: BTreeSet<Name>,
    inos: BTreeSet<Ino>,
}

impl Wrong {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn add(&mut self, op: Op) {
        self.names.extend(op.names());
        if let Op::Make(_, ino, _) = op {
            self.inos.insert(ino);
        }
    }

    /// Whether an operation depends on any of it.
    pub fn concerns(&self, op: Op) -> bool {
        op.names().iter().any(|name| self.names.contains(name))
            || op.inos().iter().any(|ino| self.inos.contains(ino))
    }
}
