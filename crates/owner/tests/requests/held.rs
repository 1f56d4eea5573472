//! An engine under a test's control.

use std::{
    sync::Arc,
    thread::{self, ThreadId},
};

use forebay_engine::{Batch, Engine, EngineError, Outcome, RowPage, Writers};
use parking_lot::{Condvar, Mutex};

/// What becomes of commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    #[default]
    Works,
    /// Commits wait until the mode changes.
    Holds,
    /// Reads of ranges wait until the mode changes.
    HoldsScans,
    /// Commits take effect, and nobody can tell.
    LosesAnswers,
    /// The next commit takes effect, nobody can tell, and the engine is away.
    BreaksOff,
    /// Commits do nothing, and nobody can tell.
    LosesBatches,
    /// Neither single rows nor ranges are to be had.
    ReadsFail,
    /// The engine is not there.
    Away,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    /// Commits that were asked for, and those that took effect.
    asked: u64,
    committed: u64,
    committed_by: Option<ThreadId>,
    /// Calls that read one row or a range, and those that read many rows.
    single: u64,
    many: u64,
    /// Reads that failed.
    failed: u64,
    /// So many of the next reads, of one row or many, do not fail, and then so many do.
    pass_next: u64,
    fail_next: u64,
}

#[derive(Debug)]
pub struct HeldEngine {
    rows: Arc<dyn Engine>,
    state: Mutex<State>,
    changed: Condvar,
}

impl HeldEngine {
    pub fn over(rows: Arc<dyn Engine>) -> Arc<HeldEngine> {
        Arc::new(HeldEngine { rows, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Another way to the same rows.
    pub fn beside(&self) -> Arc<HeldEngine> {
        HeldEngine::over(Arc::clone(&self.rows))
    }

    pub fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    pub fn set(&self, mode: Mode) {
        self.state.lock().mode = mode;
        self.changed.notify_all();
    }

    pub fn committed(&self) -> u64 {
        self.state.lock().committed
    }

    /// The thread of the last commit that took effect.
    pub fn committed_by(&self) -> Option<ThreadId> {
        self.state.lock().committed_by
    }

    pub fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// How often one row or a range was read, and how often many rows at once.
    pub fn reads(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.single, state.many)
    }

    /// The next reads fail, and those after them do not.
    pub fn fail_next(&self, reads: u64) {
        self.state.lock().fail_next = reads;
    }

    /// The next reads do not fail, one after them does.
    pub fn fail_after(&self, reads: u64) {
        let mut state = self.state.lock();
        (state.pass_next, state.fail_next) = (reads, 1);
    }

    /// How many reads have failed.
    pub fn failed_reads(&self) -> u64 {
        self.state.lock().failed
    }

    fn away(&self) -> Result<(), EngineError> {
        if self.mode() == Mode::Away { Err(is_away()) } else { Ok(()) }
    }

    fn reads_one(&self) -> Result<(), EngineError> {
        let mut state = self.state.lock();
        if matches!(state.mode, Mode::Away | Mode::ReadsFail) {
            state.failed += 1;
            return Err(is_away());
        }
        state.take_failure()
    }
}

impl State {
    fn take_failure(&mut self) -> Result<(), EngineError> {
        if self.fail_next == 0 {
            return Ok(());
        }
        if self.pass_next > 0 {
            self.pass_next -= 1;
            return Ok(());
        }
        (self.fail_next, self.failed) = (self.fail_next - 1, self.failed + 1);
        Err(is_away())
    }
}

fn is_away() -> EngineError {
    EngineError::Failed { place: "the test".to_owned(), detail: "it is away".to_owned() }
}

impl Engine for HeldEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.reads_one()?;
        self.state.lock().single += 1;
        self.rows.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.away()?;
        self.state.lock().take_failure()?;
        self.state.lock().many += 1;
        self.rows.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.reads_one()?;
        let mut state = self.state.lock();
        state.single += 1;
        while state.mode == Mode::HoldsScans {
            self.changed.wait(&mut state);
        }
        drop(state);
        self.rows.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let mut state = self.state.lock();
        state.asked += 1;
        self.changed.notify_all();
        while state.mode == Mode::Holds {
            self.changed.wait(&mut state);
        }
        let mode = state.mode;
        drop(state);
        self.away()?;
        if mode == Mode::LosesBatches {
            return Ok(Outcome::Unknown);
        }
        let outcome = self.rows.commit(batch)?;
        if outcome != Outcome::Committed {
            return Ok(outcome);
        }
        let mut state = self.state.lock();
        (state.committed, state.committed_by) = (state.committed + 1, Some(thread::current().id()));
        drop(state);
        if mode == Mode::BreaksOff {
            self.set(Mode::Away);
            return Ok(Outcome::Unknown);
        }
        Ok(if mode == Mode::LosesAnswers { Outcome::Unknown } else { outcome })
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}
