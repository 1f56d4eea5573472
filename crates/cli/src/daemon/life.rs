//! What the threads of the process share: the volume, its mount, and how far its end is.

use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::{Transport, UnmountError, uring_advice};
use forebay_mount::{Stats, VolumeFs};
use forebay_vfs::Vfs;
use serde::Serialize;

use crate::{control::Left, daemon::kept::Kept, passthrough::Passthrough};

/// How the kernel caches what the mount tells it, so that a do-nothing file system can be mounted on the same terms.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Terms {
    /// Capabilities asked for at INIT, as bits.
    pub(crate) capabilities: u64,
    /// Lifetime of names and attributes in milliseconds.
    pub(crate) lifetime_ms: u64,
    /// Flags of opened files and directories, as bits.
    pub(crate) open_flags: u32,
    pub(crate) dir_flags: u32,
    pub(crate) read_ahead_kb: u32,
}

/// For how long a mount in use is looked at again before it counts as in use.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);
const BUSY_TICK: Duration = Duration::from_millis(20);

/// What the status calls the two transports.
pub(crate) const IO_URING: &str = "io_uring";
const DEV_FUSE: &str = "/dev/fuse";

/// How requests travel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// Why not the faster way, and what root could do about it; empty where that is the one, or was not wanted.
    pub(crate) advice: String,
}

impl Way {
    pub(crate) fn new(over_uring: bool, wanted: Transport) -> Way {
        match (over_uring, wanted) {
            (true, _) => Way { name: IO_URING, advice: String::new() },
            (false, Transport::DevFuse) => Way { name: DEV_FUSE, advice: String::new() },
            (false, _) => Way { name: DEV_FUSE, advice: uring_advice() },
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, " ({})", self.advice) }
    }
}

/// How far the process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The mount is served, or about to be.
    Serving,
    /// It was unmounted; the store is brought up to date and the volume closed.
    Closing,
    /// Closed, with what is left.
    Closed(Left),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    no_drain: bool,
    hurry: bool,
    /// Connections that wait for the end to tell of it.
    waiting: usize,
}

/// Shared by all threads of the process.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) kept: Kept,
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) fs: Arc<VolumeFs>,
    pub(crate) passthrough: Passthrough,
    pub(crate) stats: Arc<Stats>,
    pub(crate) mountpoint: PathBuf,
    pub(crate) log: Option<PathBuf>,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) terms: Terms,
    /// How requests travel, once the mount has begun.
    pub(crate) transport: OnceLock<Way>,
    pub(crate) began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

impl Life {
    pub(crate) fn new(fs: &Arc<VolumeFs>, kept: Kept, mountpoint: PathBuf, terms: Terms) -> Life {
        Life {
            kept,
            vfs: Arc::clone(fs.vfs()),
            fs: Arc::clone(fs),
            passthrough: Passthrough::Off("not asked for".to_owned()),
            stats: Arc::default(),
            mountpoint,
            log: None,
            metrics: None,
            terms,
            transport: OnceLock::new(),
            began: Instant::now(),
            state: Mutex::new(State { phase: Phase::Serving, no_drain: false, hurry: false, waiting: 0 }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase.clone()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.state().phase = phase;
        self.changed.notify_all();
    }

    /// Waits for a change of phase from `old`, at most for `most`, and gives the phase then.
    pub(crate) fn phase_after(&self, old: &Phase, most: Duration) -> Phase {
        let deadline = Instant::now() + most;
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.phase != *old || left.is_zero() {
                return state.phase.clone();
            }
            state = self.wait(state, left);
        }
    }

    /// Unmounts, if nobody uses the mount. The last file that was closed keeps it busy for another moment, and so does a process that was just
    /// forked.
    pub(crate) fn unmount(&self) -> Result<(), UnmountError> {
        let deadline = Instant::now() + BUSY_PATIENCE;
        loop {
            match forebay_fuse::unmount(&self.mountpoint, false) {
                Err(UnmountError::Busy(_)) if Instant::now() < deadline => thread::sleep(BUSY_TICK),
                unmounted => return unmounted,
            }
        }
    }

    /// Whether the end is to come without a drain.
    pub(crate) fn set_no_drain(&self, no_drain: bool) {
        self.state().no_drain = no_drain;
    }

    pub(crate) fn no_drain(&self) -> bool {
        let state = self.state();
        state.no_drain || state.hurry
    }

    /// Gives up a drain that the end waits for.
    pub(crate) fn hurry(&self) {
        self.state().hurry = true;
        self.changed.notify_all();
    }

    /// Something that [`Life::finished_or_hurried`] waits for may have come.
    pub(crate) fn nudge(&self) {
        let _state = self.state();
        self.changed.notify_all();
    }

    /// Waits until `finished`, which is asked every second at least, or somebody is in a hurry.
    pub(crate) fn finished_or_hurried(&self, mut finished: impl FnMut() -> bool) {
        let mut state = self.state();
        while !finished() && !state.hurry {
            state = self.wait(state, Duration::from_secs(1));
        }
    }

    /// Counts a connection that will tell of the end, for as long as the guard lives.
    pub(crate) fn will_tell(&self) -> Telling<'_> {
        self.state().waiting += 1;
        Telling(self)
    }

    /// Waits until all of them have told, but not for ones that never do.
    pub(crate) fn told(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.waiting == 0 || left.is_zero() {
                return;
            }
            state = self.wait(state, left);
        }
    }
}

/// A connection that waits for the end.
#[derive(Debug)]
pub(crate) struct Telling<'a>(&'a Life);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
        self.0.changed.notify_all();
    }
}
