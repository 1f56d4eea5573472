//! What clients have carried out by themselves (`docs/design/delegation.md`).
//!
//! Guarantees: a request is refused whole unless its session has the lease to write on every inode that it names and has not made; each step is checked and
//! carried out like a request of its own, with the time and the inode number that the client chose, and all of them are in one batch. A step that fails changes
//! nothing, and stops none that follows.

use std::{collections::VecDeque, time::Duration};

use forebay_cluster::{Access, Lease, Need, SessionId};
use forebay_meta::{MetaError, Namespace};
use forebay_protocol::{Answer, Failure, InodeAnswer, Operation, Request, Rights, Step};
use forebay_types::{Ino, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{carry, owner::VolumeOwner, rights, take::may_pass, told::at_time};

/// Runs that one request is given at most.
const RUNS_MAX: u32 = 1024;
/// How often a step is tried that the engine did not let read, and the pause between: later the ownership is over anyway.
const TRIES: u32 = 60;
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Runs of inode numbers that sessions were given. Those of a former owner are not known one by one: what its sessions say is believed, as far as the numbers were
/// given to anybody and are not in use.
#[derive(Debug, Default)]
pub(crate) struct GivenRuns {
    given: FxHashMap<SessionId, VecDeque<(u64, u64)>>,
    former: FxHashSet<SessionId>,
    /// The first run that no former owner has given out.
    from: u64,
}

impl GivenRuns {
    pub(crate) fn of(former: impl IntoIterator<Item = SessionId>, from: u64) -> GivenRuns {
        GivenRuns { given: FxHashMap::default(), former: former.into_iter().collect(), from }
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        self.given.remove(&session);
        self.former.remove(&session);
    }

    fn may_use(&self, session: SessionId, ino: Ino) -> bool {
        let (run, mut given) = (ino.run(), self.given.get(&session).into_iter().flatten());
        given.any(|(first, count)| (*first..first + count).contains(&run))
            || self.former.contains(&session) && run < self.from
    }
}

/// The inodes that the steps look at and change, but for those that they make. What a name stands for at a step is what the steps before have let it stand for.
pub(crate) fn needs(steps: &[Step], ns: &Namespace, at: SubvolumeId) -> Vec<Need> {
    let made: FxHashSet<Ino> = steps.iter().filter_map(|step| step.made).collect();
    let mut names: FxHashMap<(Ino, &[u8]), Option<Ino>> = FxHashMap::default();
    let mut needed: FxHashSet<Ino> = FxHashSet::default();
    for step in steps {
        let named = |parent: Ino, name: &[u8]| match names.get(&(parent, name)) {
            Some(known) => *known,
            None if made.contains(&parent) => None,
            None => ns.lookup(at, parent, name).ok().map(|inode| inode.ino),
        };
        needed.extend(carry::needs_of(&step.operation, &named).iter().map(|need| need.ino));
        match &step.operation {
            Operation::Make(parent, name, _) => drop(names.insert((*parent, name), step.made)),
            Operation::Link(ino, parent, name) => drop(names.insert((*parent, name), Some(*ino))),
            Operation::Unlink(parent, name, _) | Operation::Rmdir(parent, name, _) => {
                names.insert((*parent, name), None);
            }
            Operation::Rename { from, name, to, new_name, mode, .. } => {
                let (moved, taken) = (named(*from, name), named(*to, new_name));
                let exchanged = *mode == forebay_meta::RenameMode::Exchange;
                names.insert((*from, name), taken.filter(|_| exchanged));
                names.insert((*to, new_name), moved);
            }
            _ => {}
        }
    }
    let mut needed: Vec<Ino> = needed.into_iter().filter(|ino| !made.contains(ino)).collect();
    needed.sort_unstable();
    needed.into_iter().map(|ino| Need { ino, access: Access::Write }).collect()
}

impl VolumeOwner {
    /// Gives a session runs of inode numbers.
    ///
    /// # Errors
    /// [`MetaError`].
    pub(crate) fn give_runs(&self, session: SessionId, runs: u32) -> Result<Answer, MetaError> {
        if runs == 0 || runs > RUNS_MAX {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        let first = self.ns.new_runs(runs);
        self.ns.record_numbers()?;
        let mut core = self.core.lock();
        if core.sessions.lives(session) {
            core.runs.given.entry(session).or_default().push_front((first, u64::from(runs)));
        }
        Ok(Answer::Runs(first, runs))
    }

    /// Carries out what a client has done.
    ///
    /// # Errors
    /// [`MetaError`] where nothing was changed.
    pub(crate) fn carry_out_ahead(
        &self,
        session: SessionId,
        rights: &Rights,
        steps: &[Step],
    ) -> Result<Answer, MetaError> {
        let mut covered: FxHashSet<Ino> =
            needs(steps, &self.ns, self.at).iter().map(|need| need.ino).collect();
        {
            let core = self.core.lock();
            if !covered.iter().all(|ino| core.table.lease(session, *ino) == Some(Lease::Write)) {
                return Ok(Answer::Failed(Failure::NotPermitted));
            }
        }
        covered.extend(steps.iter().filter_map(|step| step.made));
        let mut failed = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let mut done = self.step(session, rights, step, &covered);
            for _ in 0..TRIES {
                match &done {
                    Err(MetaError::Engine(error)) if may_pass(error) && at > 0 => {
                        tracing::warn!(%error, "a request waits for the metadata engine");
                        std::thread::sleep(AGAIN_AFTER);
                        done = self.step(session, rights, step, &covered);
                    }
                    _ => break,
                }
            }
            let failure = match done {
                Ok(Answer::Failed(failure)) => failure,
                Ok(_) => continue,
                Err(MetaError::Engine(error)) if at == 0 => return Err(MetaError::Engine(error)),
                Err(error) => {
                    tracing::info!(%error, ?step, "what a client has done is not to be done");
                    Failure::from(&error)
                }
            };
            failed.push((u32::try_from(at).unwrap_or(u32::MAX), failure));
        }
        Ok(Answer::Ahead(failed))
    }

    fn step(
        &self,
        session: SessionId,
        rights: &Rights,
        step: &Step,
        covered: &FxHashSet<Ino>,
    ) -> Result<Answer, MetaError> {
        // Where a step before has failed, a name may stand for something that was not asked for.
        let needs = carry::needs(&step.operation, &self.ns, self.at);
        if !needs.iter().all(|need| covered.contains(&need.ino)) {
            return Ok(Answer::Failed(Failure::NotPermitted));
        }
        at_time(step.time, || match (&step.operation, step.made) {
            (Operation::Make(..), Some(ino)) => self.make_ahead(session, rights, &step.operation, ino),
            (Operation::Make(..), None) | (_, Some(_)) => Ok(Answer::Failed(Failure::Invalid)),
            (operation, None) if Step::may_be(operation) => self.perform(session, rights, operation, &needs),
            _ => Ok(Answer::Failed(Failure::Invalid)),
        })
    }

    fn make_ahead(
        &self,
        session: SessionId,
        rights: &Rights,
        operation: &Operation,
        ino: Ino,
    ) -> Result<Answer, MetaError> {
        if let Some(failure) = self.forbids(session, rights, operation)? {
            return Ok(Answer::Failed(failure));
        }
        if !self.core.lock().runs.may_use(session, ino) {
            return Ok(Answer::Failed(Failure::NotPermitted));
        }
        match rights::limited(operation, rights).as_ref() {
            Operation::Make(parent, name, new) => {
                let made = self.ns.make_numbered(self.at, *parent, name, new, ino)?;
                Ok(Answer::Inode(Box::new(InodeAnswer::of(&made))))
            }
            _ => Ok(Answer::Failed(Failure::Invalid)),
        }
    }

    /// The inodes that a request has made and that have a name: their session gets the lease to write along with the answer.
    pub(crate) fn made_ahead(&self, request: &Request, done: &Result<Answer, MetaError>) -> Vec<Ino> {
        let (Operation::Ahead(steps), Ok(Answer::Ahead(failed)), Some(Lease::Write)) =
            (&request.operation, done, request.wish)
        else {
            return Vec::new();
        };
        let failed: FxHashSet<u32> = failed.iter().map(|(at, _)| *at).collect();
        let carried_out = (0_u32..).zip(steps).filter(|(at, _)| !failed.contains(at));
        carried_out
            .filter_map(|(_, step)| step.made)
            .filter(|ino| self.ns.inode(self.at, *ino).is_ok_and(|inode| inode.row.nlink > 0))
            .collect()
    }
}
