//! What clients have carried out by themselves (`docs/design/delegation.md`).
//!
//! Guarantees: a request is refused whole unless its session has the lease to write on every inode that it names and has not made; each step is checked and
//! carried out like a request of its own, with the time and the inode number that the client chose, and all of them are in one batch. A step that fails changes
//! nothing, and takes along what depends on it and nothing else. A session that names what it has no lease on is refused before anybody else is asked for a lease.
//! A commit among the steps is carried out only where its session has the lease to write on all of its files or has made them; for its sake nothing else is refused.

use std::{collections::VecDeque, time::Duration};

use forebay_cluster::{Access, Lease, Need, RequestId, SessionId};
use forebay_meta::{MetaError, Namespace};
use forebay_protocol::{Answer, Failure, InodeAnswer, Operation, Request, Rights, Step, Undone};
use forebay_types::{Ino, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{batch::Core, carry, owner::VolumeOwner, rights, take::may_pass, told::at_time};

/// Runs that one request is given at most.
const RUNS_MAX: u32 = 1024;
/// Stretches of neighbouring runs that a session has at most: 64 KiB of memory, and a quarter of a million directories of one that asks for 64 at a time and never gets
/// two that are neighbours.
const STRETCHES_MAX: usize = 4096;
/// The pause before a step is tried again that the engine did not let read.
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

    fn has_room(&self, session: SessionId) -> bool {
        self.given.get(&session).is_none_or(|given| given.len() < STRETCHES_MAX)
    }

    fn give(&mut self, session: SessionId, first: u64, count: u64) {
        let given = self.given.entry(session).or_default();
        match given.front_mut() {
            Some((from, many)) if *from + *many == first => *many += count,
            _ => given.push_front((first, count)),
        }
    }

    fn may_use(&self, session: SessionId, ino: Ino) -> bool {
        let (run, mut given) = (ino.run(), self.given.get(&session).into_iter().flatten());
        given.any(|(first, count)| (*first..first + count).contains(&run))
            || self.former.contains(&session) && run < self.from
    }
}

/// The inodes that the steps look at and change, but for those that steps before have made, and for the files of commits. What a name stands for at a step is what the steps before have let it
/// stand for.
///
/// # Errors
/// [`MetaError`] where it is not to be had what a name stands for.
pub(crate) fn needs(steps: &[Step], ns: &Namespace, at: SubvolumeId) -> Result<Vec<Need>, MetaError> {
    let mut made: FxHashSet<Ino> = FxHashSet::default();
    let mut names: FxHashMap<(Ino, &[u8]), Option<Ino>> = FxHashMap::default();
    let mut needed: FxHashSet<Ino> = FxHashSet::default();
    for step in steps.iter().filter(|step| !is_commit(step)) {
        let named = |parent: Ino, name: &[u8]| match names.get(&(parent, name)) {
            Some(known) => Ok(*known),
            None if made.contains(&parent) => Ok(None),
            None => match carry::found(ns.lookup(at, parent, name)) {
                // Its step fails, and not all the others with it.
                Err(MetaError::Damaged { .. }) => Ok(None),
                found => found,
            },
        };
        let needs = carry::needs_of(&step.operation, &named)?;
        needed.extend(needs.iter().map(|need| need.ino).filter(|ino| !made.contains(ino)));
        match &step.operation {
            Operation::Make(parent, name, _) => drop(names.insert((*parent, name), step.made)),
            Operation::Link(ino, parent, name) => drop(names.insert((*parent, name), Some(*ino))),
            Operation::Unlink(parent, name, _) | Operation::Rmdir(parent, name, _) => {
                names.insert((*parent, name), None);
            }
            Operation::Rename { from, name, to, new_name, mode, .. } => {
                let (moved, taken) = (named(*from, name)?, named(*to, new_name)?);
                let exchanged = *mode == forebay_meta::RenameMode::Exchange;
                names.insert((*from, name), taken.filter(|_| exchanged));
                names.insert((*to, new_name), moved);
            }
            _ => {}
        }
        made.extend(step.made);
    }
    let mut needed: Vec<Ino> = needed.into_iter().collect();
    needed.sort_unstable();
    Ok(needed.into_iter().map(|ino| Need { ino, access: Access::Write }).collect())
}

fn is_commit(step: &Step) -> bool {
    matches!(step.operation, Operation::Commit(_))
}

/// The files of commits among the steps.
fn committed(steps: &[Step]) -> impl Iterator<Item = Ino> {
    let commits = steps.iter().filter_map(|step| match &step.operation {
        Operation::Commit(commit) => Some(commit),
        _ => None,
    });
    commits.flat_map(|commit| commit.files.iter().map(|file| file.ino))
}

impl Core {
    /// What the commits among the steps need, as far as it is to be had at once: the files on which the session has the lease to write. It has none on those that the
    /// steps make, and on those that are gone.
    pub(crate) fn needed_by_commits(&self, session: SessionId, steps: &[Step]) -> Vec<Need> {
        let held = |ino: &Ino| self.table.lease(session, *ino) == Some(Lease::Write);
        committed(steps).filter(held).map(|ino| Need { ino, access: Access::Write }).collect()
    }

    /// Whether a session has not the lease to write on all of these.
    pub(crate) fn lacks_lease(&self, session: SessionId, needs: &[Need]) -> bool {
        !needs.iter().all(|need| self.table.lease(session, need.ino) == Some(Lease::Write))
    }
}

impl VolumeOwner {
    /// Gives a session runs of inode numbers; none to one that has as many as anybody may have, which then has its directories made here.
    ///
    /// # Errors
    /// [`MetaError`].
    pub(crate) fn give_runs(&self, session: SessionId, runs: u32) -> Result<Answer, MetaError> {
        if runs == 0 || runs > RUNS_MAX {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        if !self.core.lock().runs.has_room(session) {
            return Ok(Answer::Failed(Failure::NoSpace));
        }
        let first = self.ns.new_runs(runs);
        self.ns.record_numbers()?;
        let mut core = self.core.lock();
        if core.sessions.lives(session) {
            core.runs.give(session, first, u64::from(runs));
        }
        Ok(Answer::Runs(first, runs))
    }

    /// Carries out what a client has done.
    ///
    /// # Errors
    /// [`MetaError`] where nothing was changed.
    pub(crate) fn carry_out_ahead(
        &self,
        by: (SessionId, RequestId),
        rights: &Rights,
        (steps, held): (&[Step], &[Need]),
    ) -> Result<Answer, MetaError> {
        let needs = needs(steps, &self.ns, self.at)?;
        if self.core.lock().lacks_lease(by.0, &needs) {
            return Ok(Answer::Failed(Failure::NotPermitted));
        }
        // Those of commits are among the latter.
        let mut covered: FxHashSet<Ino> = needs.iter().chain(held).map(|need| need.ino).collect();
        let (mut undone, mut failed, mut gone) = (Undone::default(), Vec::new(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            let failure = match self.step_once_read(by, rights, (at, step), (&covered, &undone)) {
                Ok(Answer::Failed(failure)) => failure,
                Ok(Answer::Committed(left_out)) => {
                    gone.extend(left_out);
                    continue;
                }
                Ok(_) => {
                    covered.extend(step.made);
                    continue;
                }
                Err(MetaError::Engine(error)) if may_pass(&error) => return Err(MetaError::Engine(error)),
                Err(error) => Failure::from(&error),
            };
            tracing::info!(?failure, ?step, "what a client has done is not to be done");
            undone.add(step, failure);
            failed.push((u32::try_from(at).unwrap_or(u32::MAX), failure));
        }
        Ok(if gone.is_empty() { Answer::Ahead(failed) } else { Answer::AheadGone(failed, gone) })
    }

    /// Carries a step out. One that the engine does not let read is tried until it does, or the ownership is over: the steps before cannot be taken back, and
    /// are committed with all the others or not at all. The first has none before it: it is for the caller to begin again.
    fn step_once_read(
        &self,
        by: (SessionId, RequestId),
        rights: &Rights,
        (at, step): (usize, &Step),
        (covered, undone): (&FxHashSet<Ino>, &Undone),
    ) -> Result<Answer, MetaError> {
        let mut told = false;
        loop {
            let done = self.step(by, rights, step, (covered, undone));
            match &done {
                Err(MetaError::Engine(error)) if may_pass(error) && at > 0 => {
                    if !told {
                        tracing::warn!(%error, "a request waits for the metadata engine");
                        told = true;
                    }
                }
                _ => return done,
            }
            {
                let mut core = self.core.lock();
                if core.stops_in_vain(self.ticks.now()) {
                    // What was carried out of the request is not to be committed without the rest.
                    core.over = true;
                    return done;
                }
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    fn step(
        &self,
        by: (SessionId, RequestId),
        rights: &Rights,
        step: &Step,
        (covered, undone): (&FxHashSet<Ino>, &Undone),
    ) -> Result<Answer, MetaError> {
        let needs = carry::needs(&step.operation, &self.ns, self.at)?;
        let inos = || needs.iter().map(|need| need.ino);
        if let Some(failure) = undone.concerns(&step.operation, inos().chain(step.made)) {
            return Ok(Answer::Failed(failure));
        }
        // Where a step before has failed, a name may stand for something that was not asked for.
        if !inos().all(|ino| covered.contains(&ino)) {
            return Ok(Answer::Failed(Failure::NotPermitted));
        }
        at_time(step.time, || match (&step.operation, step.made) {
            (Operation::Commit(commit), None) if !commit.objects.is_empty() => {
                Ok(Answer::Failed(Failure::Invalid))
            }
            (Operation::Make(..), Some(ino)) => self.make_ahead(by.0, rights, &step.operation, ino),
            (Operation::Make(..), None) | (_, Some(_)) => Ok(Answer::Failed(Failure::Invalid)),
            (operation, None) if Step::may_be(operation) => self.perform(by, rights, operation, &needs),
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

    /// The inodes that a request has made and that are there still, by a name or because its session has them open: the session gets the lease to write along with
    /// the answer. The client counts on that from when it has made them.
    pub(crate) fn made_ahead(&self, request: &Request, done: &Result<Answer, MetaError>) -> Vec<Ino> {
        let (Operation::Ahead(steps), Ok(answer), Some(Lease::Write)) =
            (&request.operation, done, request.wish)
        else {
            return Vec::new();
        };
        let Some(failed) = answer.failed_steps() else { return Vec::new() };
        let failed: FxHashSet<u32> = failed.iter().map(|(at, _)| *at).collect();
        let carried_out = (0_u32..).zip(steps).filter(|(at, _)| !failed.contains(at));
        let made: Vec<Ino> = carried_out.filter_map(|(_, step)| step.made).collect();
        let has_name = |ino: Ino| self.ns.inode(self.at, ino).is_ok_and(|inode| inode.row.nlink > 0);
        let is_open = |ino: Ino| self.core.lock().opens.has(request.session, ino);
        made.into_iter().filter(|ino| has_name(*ino) || is_open(*ino)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_bounded_number_of_stretches() {
        let (one, other) = (SessionId(1), SessionId(2));
        let mut runs = GivenRuns::default();
        for number in 0..1_000_000 {
            runs.give(one, number * 64, 64);
        }
        assert!(runs.has_room(one), "neighbours are one");
        assert!(runs.may_use(one, Ino::in_run(0, 7)) && runs.may_use(one, Ino::in_run(63_999_999, 7)));
        for number in 0..STRETCHES_MAX as u64 {
            assert!(runs.has_room(other));
            runs.give(other, (number * 2 + 1) << 32, 64);
        }
        assert!(!runs.has_room(other));
        assert!(runs.may_use(other, Ino::in_run(1 << 32, 0)), "what it was given stays its own");
        runs.forget(other);
        assert!(runs.has_room(other));
    }
}
