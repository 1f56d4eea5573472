//! Group commit: everything that has collected while one batch was on its way to the engine is the next one.
//!
//! A batch has the namespace's rows, those of sessions, slots and leases, and the next fence. It is committed, or found to be fenced; where nobody can tell, the
//! same batch is committed again until somebody can. Only then the next one is closed.
//!
//! Whoever takes a request in may commit it himself where nobody commits ([`VolumeOwner::submit_and_commit`]): the committing thread would have to be woken for it. What collects meanwhile
//! is that thread's.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use forebay_cluster::{Claim, SessionId};
use forebay_engine::{Batch, EngineError, Outcome, settle};
use forebay_format::key::Key;
use forebay_meta::{Checkpoint, MetaError};
use forebay_protocol::{Push, Refusal, Request};

use crate::{
    batch::{BatchNumber, Core, HeldBack, Rows},
    owner::{VolumeOwner, not_owner},
    request::Reply,
    take::{fence_value, read_fence},
};

/// How long the committer sleeps at most while there is nothing to commit: so late it sees that a session is overdue.
const IDLE: Duration = Duration::from_millis(100);
/// After which a batch is tried again that the engine did not take.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A batch that is closed.
struct Closed<'a> {
    checkpoint: Option<Checkpoint<'a>>,
    rows: Rows,
    claim: Claim,
    number: BatchNumber,
}

/// What came of committing once.
enum Round {
    Committed,
    Nothing,
    /// The volume is another server's.
    Over,
}

thread_local! {
    /// Whether this thread commits by itself what it has a reply wait for.
    static COMMITS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread will see that what waits is committed.
pub(crate) fn commits_here() -> bool {
    COMMITS.get()
}

/// The calling thread does, while this lives.
struct CommitsHere;

impl CommitsHere {
    fn begin() -> CommitsHere {
        COMMITS.set(true);
        CommitsHere
    }
}

impl Drop for CommitsHere {
    fn drop(&mut self) {
        COMMITS.set(false);
    }
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Committed,
    /// It was not committed, and never will be.
    Lost,
    /// It may have been.
    Unknown,
}

impl VolumeOwner {
    /// Takes a request in as [`VolumeOwner::submit`] does, and commits what it has changed in the calling thread, where nobody else commits: it waits for the engine.
    pub fn submit_and_commit(&self, request: Request, reply: Reply) {
        {
            let _commits = CommitsHere::begin();
            self.submit(request, reply);
        }
        self.commit_here();
    }

    /// Commits one batch, where there is something to commit and nobody does. What is left then is the committing thread's.
    fn commit_here(&self) {
        let has_work = || {
            let core = self.core.lock();
            !core.over && !core.stops && core.has_work(self.ticks.now())
        };
        let Some(committing) = self.committing.try_lock() else {
            if has_work() {
                self.work.notify_one();
            }
            return;
        };
        if !has_work() {
            return;
        }
        let ends = Ends(self);
        match self.commit_round(false) {
            Ok(Round::Committed | Round::Nothing) => std::mem::forget(ends),
            Ok(Round::Over) => drop(ends),
            Err(error) => {
                tracing::error!("nothing can be committed any more: {error}");
                drop(ends);
            }
        }
        drop(committing);
        let core = self.core.lock();
        if core.over || core.has_work(self.ticks.now()) {
            self.work.notify_one();
        }
    }

    /// Commits batches until [`VolumeOwner::stop`] was called and everything is committed, or another server has taken the volume. One thread runs this.
    ///
    /// # Errors
    /// [`MetaError`] where the namespace's rows cannot be handed out; nothing is answered any more.
    pub fn commit_until_stopped(&self) -> Result<(), MetaError> {
        let _ends = Ends(self);
        let ended = self.commit_all();
        // Nobody else does any more.
        drop(self.committing.lock());
        ended
    }

    /// Answers nothing new from now on. What was carried out is committed and answered, what was taken in and waits is refused; then the volume is given up, so that
    /// another server may have it at once.
    pub fn stop(&self) {
        self.core.lock().stops = true;
        self.work.notify_one();
    }

    fn commit_all(&self) -> Result<(), MetaError> {
        loop {
            if !self.wait_for_work() {
                return Ok(());
            }
            let _committing = self.committing.lock();
            // Somebody else may have committed what there was.
            let stops = {
                let core = self.core.lock();
                if core.over || !core.wants_batch(self.ticks.now()) {
                    continue;
                }
                core.stops
            };
            match self.commit_round(stops)? {
                Round::Over => return Ok(()),
                Round::Nothing if stops => {
                    self.give_up();
                    return Ok(());
                }
                Round::Nothing | Round::Committed => {}
            }
        }
    }

    /// Commits what has collected, and tells those who waited for it. Called by one thread at a time.
    fn commit_round(&self, stops: bool) -> Result<Round, MetaError> {
        let Some(closed) = self.close_batch(stops)? else { return Ok(Round::Nothing) };
        let began = Instant::now();
        if !self.commit(closed) {
            return Ok(Round::Over);
        }
        self.batches.took(began.elapsed());
        self.committed();
        Ok(Round::Committed)
    }

    /// Waits until something is to be committed, which may be a beat or the end of a session, or the owner stops. False once it is over.
    fn wait_for_work(&self) -> bool {
        let mut core = self.core.lock();
        loop {
            let now = self.ticks.now();
            core.note_deafness(now);
            // Where the owner stops, all are refused before anybody hears of them.
            let overdue = if core.stops { Vec::new() } else { core.sessions.overdue(now) };
            for session in overdue {
                tracing::warn!(
                    session = format_args!("{:032x}", session.0),
                    "a client was not heard of: its session ends"
                );
                core.end_session(session, self.at, now);
            }
            if core.over {
                return false;
            }
            if core.wants_batch(now) {
                return true;
            }
            self.work.wait_for(&mut core, IDLE);
        }
    }

    /// Closes the batch that collects. `None` where the owner stops and nothing is left.
    fn close_batch(&self, stops: bool) -> Result<Option<Closed<'_>>, MetaError> {
        // No operation is between its record and its other rows now.
        let _alone = self.batch.write();
        if stops {
            self.refuse_what_waits();
        }
        let checkpoint = self.ns.checkpoint()?;
        let mut core = self.core.lock();
        if core.over || stops && checkpoint.is_none() && core.rows.is_empty() {
            return Ok(None);
        }
        let Some(claim) = core.ownership.begin(self.ticks.now()) else { return Ok(None) };
        let (rows, number) = (std::mem::take(&mut core.rows), core.open);
        core.open += 1;
        core.dirty = false;
        Ok(Some(Closed { checkpoint, rows, claim, number }))
    }

    /// Refuses requests that are not carried out: their clients ask the next owner. Most wait for leases, and who has those may first have to tell something, which
    /// is refused here, too. Called while no operation is carried out.
    fn refuse_what_waits(&self) {
        let (refusal, requests) = {
            let mut core = self.core.lock();
            (not_owner(&core), std::mem::take(&mut core.requests))
        };
        for pending in requests.into_values() {
            (pending.reply)(Err(refusal.clone()));
        }
    }

    /// Commits a batch. Returns whether the volume is still owned.
    fn commit(&self, closed: Closed<'_>) -> bool {
        let Closed { checkpoint, mut rows, claim, number } = closed;
        let fence = Key::Fence.encode();
        rows.insert(fence.clone(), Some(fence_value(&claim.fence)));
        let expect = vec![(fence.clone(), claim.expect.as_ref().map(fence_value))];
        let ours = rows.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        let mut all: Vec<_> = checkpoint.iter().flat_map(Checkpoint::rows).chain(ours).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        let batch = Batch { expect, rows: all };
        let fate = self.commit_batch(&batch, &fence);
        drop(batch);
        match fate {
            Fate::Committed => {
                checkpoint.map(Checkpoint::stored);
                let mut core = self.core.lock();
                core.note_deafness(self.ticks.now());
                core.ownership.committed();
                core.committed = number;
            }
            Fate::Lost => {}
            Fate::Unknown => self.core.lock().unsettled = Some(number),
        }
        fate == Fate::Committed
    }

    /// Hands a batch to the engine until it says what became of it. Unless it was committed, the ownership is over.
    fn commit_batch(&self, batch: &Batch<'_>, fence: &[u8]) -> Fate {
        let engine = self.ns.engine();
        // Whether a try before may have been carried out: then whoever finds the volume taken cannot tell if it was.
        let mut unknown = false;
        let lost = |unknown| if unknown { Fate::Unknown } else { Fate::Lost };
        loop {
            let outcome = if unknown { settle(engine.as_ref(), batch, fence) } else { engine.commit(batch) };
            match outcome {
                Ok(Outcome::Committed) => return Fate::Committed,
                Ok(Outcome::Unknown) => unknown = true,
                Ok(Outcome::Fenced) => match read_fence(engine.as_ref()) {
                    Ok(found) => {
                        let found = found.for_owner();
                        let ours = self.core.lock().ownership.fenced(found, self.ticks.now());
                        return if ours { Fate::Committed } else { lost(unknown) };
                    }
                    Err(error) => tracing::warn!(%error, "the owner's fence cannot be read"),
                },
                // Nothing was changed by this try; by one before it perhaps.
                Err(error) => warn_of(&error),
            }
            if self.core.lock().stops_in_vain(self.ticks.now()) {
                return lost(unknown);
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    /// Tells those who waited for the batch, and does what it makes possible.
    fn committed(&self) {
        let (ready, late, ended) = {
            let mut core = self.core.lock();
            let committed = core.committed;
            let ended: Vec<SessionId> =
                core.ending.extract_if(.., |end| end.0 <= committed).map(|end| end.1).collect();
            (core.take_ready(), std::mem::take(&mut core.late), ended)
        };
        for HeldBack { reply, response, .. } in ready {
            reply(response);
        }
        for session in ended {
            self.session_ended(session);
        }
        self.tell_all();
        for id in late {
            let effects = self.run(id);
            self.carry_out(effects);
        }
    }

    /// The end of a session is committed: others may have what it had, and what it still waited for is refused.
    fn session_ended(&self, session: SessionId) {
        let (effects, refused) = {
            let mut core = self.core.lock();
            let effects = core.table.end(session);
            let Core { requests, table, .. } = &mut *core;
            let gone = requests
                .extract_if(|id, pending| pending.request.session == session && !table.has_request(*id));
            let refused: Vec<_> = gone.map(|(_, pending)| pending.reply).collect();
            core.tell.push((session, Push::Ended { session }));
            (effects, refused)
        };
        refused.into_iter().for_each(|reply| reply(Err(Refusal::SessionEnded)));
        self.carry_out(effects);
    }

    /// Puts a fence without an owner, so that another server need not wait. Failing is no harm: then it waits.
    fn give_up(&self) {
        let Some(claim) = self.core.lock().ownership.give_up() else { return };
        let (key, value) = (Key::Fence.encode(), fence_value(&claim.fence));
        let expect = vec![(key.clone(), claim.expect.as_ref().map(fence_value))];
        let batch = Batch { expect, rows: vec![(&key, Some(&value))] };
        if let Err(error) = self.ns.engine().commit(&batch) {
            warn_of(&error);
        }
    }

    /// Refuses everything that waits. What is in a batch of which nobody can tell gets no answer: whoever is told that it is not the owner takes it that nothing was
    /// done.
    fn end(&self) {
        self.log.end();
        let (refusal, held_back, requests, unsettled) = {
            let mut core = self.core.lock();
            core.over = true;
            let (held_back, requests) =
                (std::mem::take(&mut core.held_back), std::mem::take(&mut core.requests));
            (not_owner(&core), held_back, requests, core.unsettled)
        };
        let undone = |held: &HeldBack| unsettled.is_none_or(|unsettled| held.batch > unsettled);
        let held_back = held_back.into_iter().filter(undone).map(|held| held.reply);
        let replies = held_back.chain(requests.into_values().map(|pending| pending.reply));
        for reply in replies {
            reply(Err(refusal.clone()));
        }
    }
}

/// Ends the ownership however committing ends.
struct Ends<'a>(&'a VolumeOwner);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut core = self.0.core.lock();
            core.unsettled = Some(core.open);
        }
        self.0.end();
    }
}

fn warn_of(error: &EngineError) {
    tracing::warn!(%error, "the metadata engine did not take a batch");
}
