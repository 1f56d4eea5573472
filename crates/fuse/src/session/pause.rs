//! Stopping a session between two requests, so that this process or another can go on with it.
//!
//! Guarantees: once [`Pauser::pause`] has returned without an error, nothing is being served, nothing that was taken is without an answer
//! but what the session keeps (among it all that waits for locks, to be served again), and the kernel holds back all further requests. If it returns with an error, everything is served as
//! before. One thread decides: whoever called [`Pauser::pause`]; the parts of the session wait for its decision.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::lock_reply::{Left, Pending};

/// How often those are asked again that have not stopped.
const ROUND: Duration = Duration::from_millis(20);
/// How many rounds pass before knocks are asked for again.
const ROUNDS_A_KNOCK: u32 = 10;

/// Threads of a session that serve one transport.
pub(super) trait Part: Send + Sync {
    /// Has the threads that wait end, and those that serve end with their request. Called again and again until all have ended.
    /// `knock` is for those that only a request can wake; `None`: it was called a moment ago.
    fn stop(&self, knock: Option<&mut Knock<'_>>);

    fn state(&self) -> PartState;

    /// Why threads may not have stopped, besides that they are busy.
    fn obstacle(&self) -> Option<PauseError>;

    /// Starts threads anew.
    fn go_on(self: Arc<Self>);

    /// Wakes who waits for [`Pause::is_undecided`] to change.
    fn decided(&self);
}

/// Has somebody make a number of requests, whatever they are, on a processor.
pub type Knock<'a> = dyn FnMut(u16, usize) + 'a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartState {
    Running,
    Stopped,
    /// The mount has ended.
    Ended,
}

/// Why a session was not paused; it serves on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// Requests that were under way took longer.
    #[error("requests that were under way did not end within {} s", .0.as_secs())]
    Busy(Duration),
    /// Requests of this processor could not be held back: no knock came either.
    #[error(
        "threads of this process may not run on processor {0}, and no request came there that could be handed over"
    )]
    Unreachable(u16),
    /// There is nothing to pause (any more).
    #[error("the mount is not being served")]
    NotServing,
    /// The threads cannot be woken.
    #[error("cannot prepare for a pause: {0}")]
    System(rustix::io::Errno),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// Not begun yet, or not gone on with.
    #[default]
    Idle,
    Serving,
    Wanted,
    Paused,
    /// The mount has ended.
    Over,
}

/// What the threads of a session ask.
#[derive(Default)]
pub(crate) struct Pause {
    wanted: AtomicBool,
    /// Wanted, and neither reached nor given up. Apart from the state, whose lock is held while parts are asked for theirs: who holds a lock of a part asks here.
    undecided: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    parts: Vec<Weak<dyn Part>>,
    /// Requests that are answered later.
    pending: Option<Arc<Pending>>,
    /// Of these, what was taken back.
    left: Vec<Left>,
}

impl std::fmt::Debug for Pause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pause").field("phase", &self.state.lock().phase).finish_non_exhaustive()
    }
}

impl Pause {
    /// Whether threads are to end.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Whether a pause is wanted and neither reached nor given up yet. Takes no lock.
    pub(super) fn is_undecided(&self) -> bool {
        self.undecided.load(Ordering::Acquire)
    }

    /// Serving begins, by these parts. `pending`: requests that are answered later.
    pub(super) fn begin(&self, parts: Vec<Weak<dyn Part>>, pending: Arc<Pending>) {
        *self.state.lock() = State { phase: Phase::Serving, parts, pending: Some(pending), left: Vec::new() };
        self.changed.notify_all();
    }

    /// Serving has ended. `over`: for good. Otherwise it may be gone on with, and these are to be served again.
    pub(super) fn end(&self, over: bool) -> Option<Vec<Left>> {
        let mut state = self.state.lock();
        let paused = state.phase == Phase::Paused && !over;
        // Before anything is gone on with: a thread that saw it would keep its next request, and nobody would ask for that.
        self.wanted.store(false, Ordering::Release);
        let left = std::mem::take(&mut state.left);
        *state = State { phase: if paused { Phase::Idle } else { Phase::Over }, ..State::default() };
        self.changed.notify_all();
        paused.then_some(left)
    }

    /// A thread has ended.
    pub(super) fn thread_ended(&self) {
        if self.is_wanted() {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    fn want(&self, deadline: Instant) -> Result<Vec<Arc<dyn Part>>, PauseError> {
        let mut state = self.state.lock();
        while state.phase == Phase::Idle && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        if state.phase != Phase::Serving {
            return Err(PauseError::NotServing);
        }
        let parts: Vec<_> = state.parts.iter().filter_map(Weak::upgrade).collect();
        state.phase = Phase::Wanted;
        self.undecided.store(true, Ordering::Release);
        self.wanted.store(true, Ordering::Release);
        Ok(parts)
    }

    fn wait_for(&self, parts: &[Arc<dyn Part>], most: Duration) {
        let mut state = self.state.lock();
        if parts.iter().any(|part| part.state() == PartState::Running) {
            self.changed.wait_for(&mut state, most);
        }
    }

    fn reach(&self, parts: &[Arc<dyn Part>], left: Vec<Left>) {
        {
            let mut state = self.state.lock();
            (state.phase, state.left) = (Phase::Paused, left);
            self.undecided.store(false, Ordering::Release);
        }
        parts.iter().for_each(|part| part.decided());
    }

    fn give_up(&self, parts: &[Arc<dyn Part>]) {
        {
            let mut state = self.state.lock();
            self.wanted.store(false, Ordering::Release);
            parts.iter().for_each(|part| Arc::clone(part).go_on());
            state.phase = Phase::Serving;
            self.undecided.store(false, Ordering::Release);
        }
        parts.iter().for_each(|part| part.decided());
    }
}

/// Pauses a session that is served by other threads.
#[derive(Debug, Clone)]
pub struct Pauser(pub(super) Arc<Pause>);

impl Pauser {
    /// Stops the session: its `run` returns with what is needed to go on. Gives requests that are under way `patience` to end; meanwhile
    /// others wait. `knock` may be asked for requests of the mount, to be made on a processor: by another process than this one, which
    /// would wait for itself.
    ///
    /// # Errors
    /// [`PauseError`]: the session is served as before.
    pub fn pause(&self, patience: Duration, knock: &mut Knock<'_>) -> Result<(), PauseError> {
        super::wake::prepare().map_err(PauseError::System)?;
        let begun = Instant::now();
        let parts = self.0.want(begun + patience)?;
        let pending = self.0.state.lock().pending.clone().unwrap_or_default();
        let is_still = || parts.iter().all(|part| part.state() != PartState::Running);
        for round in 0u32.. {
            let mut knock = round.is_multiple_of(ROUNDS_A_KNOCK).then_some(&mut *knock);
            for part in &parts {
                part.stop(knock.as_deref_mut());
            }
            self.0.wait_for(&parts, ROUND);
            // Who waits for a close is answered, by threads that are started for it. Looked at again after nobody does: then none comes any more.
            if is_still() && pending.hurry() && is_still() {
                break;
            }
            if begun.elapsed() >= patience {
                let obstacle = parts.iter().find_map(|part| part.obstacle());
                self.0.give_up(&parts);
                return Err(obstacle.unwrap_or(PauseError::Busy(patience)));
            }
        }
        if parts.iter().any(|part| part.state() == PartState::Ended) {
            self.0.reach(&parts, Vec::new());
            return Err(PauseError::NotServing);
        }
        self.0.reach(&parts, pending.take_back());
        Ok(())
    }
}
