//! A few connections for many threads.

use std::{
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    trouble::Trouble,
    wire::{Purpose, Wire},
};

const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    config: Config,
    tls: MakeRustlsConnect,
    purpose: Purpose,
    /// How long it is tried to get a connection, and a read to be answered.
    patience: Duration,
    state: Mutex<State>,
    given_back: Condvar,
}

struct State {
    /// The one used last at the end.
    idle: Vec<Wire>,
    /// Connections that may still be taken.
    free: usize,
}

impl Pool {
    pub(super) fn new(
        config: Config,
        tls: MakeRustlsConnect,
        purpose: Purpose,
        size: usize,
        patience: Duration,
    ) -> Pool {
        let state = Mutex::new(State { idle: Vec::new(), free: size });
        Pool { config, tls, purpose, patience, state, given_back: Condvar::new() }
    }

    /// Uses a connection, for something that may be done twice: it is done again, on another connection, after what may pass.
    pub(super) fn retried<T>(&self, work: impl Fn(&mut Wire) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let mut patience = Patience::new(self.patience);
        loop {
            match self.with(&mut patience, &work) {
                Err(trouble) if trouble.may_pass() && patience.wait() => {}
                result => return result,
            }
        }
    }

    /// Uses a connection once. Only getting one is tried again.
    pub(super) fn once<T>(&self, work: impl FnOnce(&mut Wire) -> Result<T, Trouble>) -> Result<T, Trouble> {
        self.with(&mut Patience::new(self.patience), work)
    }

    fn with<T>(
        &self,
        patience: &mut Patience,
        work: impl FnOnce(&mut Wire) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let _slot = self.slot();
        let mut wire = self.wire(patience)?;
        let result = work(&mut wire);
        if !result.as_ref().is_err_and(Trouble::ends_connection) {
            self.state.lock().idle.push(wire);
        }
        result
    }

    fn slot(&self) -> Slot<'_> {
        let mut state = self.state.lock();
        while state.free == 0 {
            self.given_back.wait(&mut state);
        }
        state.free -= 1;
        Slot(self)
    }

    fn wire(&self, patience: &mut Patience) -> Result<Wire, Trouble> {
        loop {
            let idle = self.state.lock().idle.pop();
            let Some(mut wire) = idle else { break };
            if wire.is_alive() {
                return Ok(wire);
            }
        }
        loop {
            match Wire::connect(&self.config, &self.tls, self.purpose) {
                Err(trouble) if trouble.may_pass() && patience.wait() => {}
                result => return result,
            }
        }
    }
}

/// The right to one connection.
struct Slot<'a>(&'a Pool);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.state.lock().free += 1;
        self.0.given_back.notify_one();
    }
}

/// Waits longer each time, until it is enough.
struct Patience {
    ends: Instant,
    next: Duration,
}

impl Patience {
    fn new(patience: Duration) -> Patience {
        Patience { ends: Instant::now() + patience, next: BACKOFF_MIN }
    }

    /// Waits, and says whether it is worth another try.
    fn wait(&mut self) -> bool {
        if Instant::now() + self.next > self.ends {
            return false;
        }
        thread::sleep(self.next);
        self.next = (self.next * 2).min(BACKOFF_MAX);
        true
    }
}
