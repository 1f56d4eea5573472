use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use forebay_fuse::{Agreed, flags::Capabilities};
use parking_lot::{Condvar, Mutex};

use super::PassthroughStatus;

/// How often what is assembled is compared with what the kernel was told, and idle files are given back.
const ROUND: Duration = Duration::from_secs(1);

/// Whether the kernel reads files by itself, and the thread that goes round meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    on: AtomicBool,
    why_not: Mutex<Option<String>>,
    opens: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    resting: Mutex<()>,
    wake: Condvar,
}

impl Rounds {
    /// The mount has begun: `run`, which is to call [`Rounds::run`], is left to a thread.
    ///
    /// # Errors
    /// Why the kernel reads no file by itself.
    pub(crate) fn start(&self, agreed: &Agreed, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
        if !agreed.capabilities.contains(Capabilities::PASSTHROUGH) {
            let why = match forebay_fuse::may_pass_through() {
                true => "this kernel does not offer it; Linux 6.9 and later do",
                false => "it needs root's CAP_SYS_ADMIN",
            };
            return Err(why.to_owned());
        }
        self.on.store(true, Ordering::SeqCst);
        let thread = thread::Builder::new().name("fb-through".to_owned()).spawn(run);
        *self.thread.lock() = Some(thread.map_err(|error| format!("no thread can be started: {error}"))?);
        Ok(())
    }

    /// Calls `round` each second, until it is off.
    pub(crate) fn run(&self, round: impl Fn()) {
        while self.is_on() {
            round();
            let mut resting = self.resting.lock();
            if self.is_on() {
                self.wake.wait_for(&mut resting, ROUND);
            }
        }
    }

    /// Ends it, and waits for the thread.
    pub(crate) fn end(&self) {
        self.stop();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks after what the kernel reads by itself panicked");
        }
    }

    fn stop(&self) {
        let _asleep_or_before = self.resting.lock();
        self.on.store(false, Ordering::SeqCst);
        self.wake.notify_all();
    }

    /// No more of it. What is open stays as it is.
    pub(crate) fn off(&self, why: String) {
        self.stop();
        let mut told = self.why_not.lock();
        if told.is_none() {
            tracing::warn!("the kernel reads no file by itself: {why}");
            *told = Some(why);
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// One more open was answered that way.
    pub(crate) fn count(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    /// Of `open` that are open and `known` files.
    pub(crate) fn status(&self, open: u64, known: u64) -> PassthroughStatus {
        PassthroughStatus {
            on: self.is_on(),
            why_not: self.why_not.lock().clone(),
            opens: self.opens.load(Ordering::Relaxed),
            open,
            known,
        }
    }
}
