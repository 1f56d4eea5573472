//! Times that clients tell: an operation that one has carried out before has the time that it had there.

use std::{cell::Cell, sync::Arc};

use forebay_env::Clock;
use forebay_types::Timespec;

thread_local! {
    /// The time of the operation that this thread carries out, where somebody has told it.
    static TOLD: Cell<Option<Timespec>> = const { Cell::new(None) };
}

/// The system's clock, but for operations whose time is told.
pub(crate) struct ToldClock(pub(crate) Arc<dyn Clock>);

impl Clock for ToldClock {
    fn now(&self) -> Timespec {
        TOLD.get().unwrap_or_else(|| self.0.now())
    }
}

/// Runs `work` as if it were this time.
pub(crate) fn at_time<R>(time: Timespec, work: impl FnOnce() -> R) -> R {
    /// Puts back what was told before, however `work` ends.
    struct Before(Option<Timespec>);
    impl Drop for Before {
        fn drop(&mut self) {
            TOLD.set(self.0);
        }
    }
    let _before = Before(TOLD.replace(Some(time)));
    work()
}
