use parking_lot::{Condvar, Mutex};

/// Group commit: one of those who wait does the work for all of them.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    leading: Mutex<bool>,
    ended: Condvar,
}

impl Rounds {
    /// Returns once `done` says so. Until then this thread either waits for the round that another one leads, or leads one itself by
    /// calling `lead`, which must make `done` true in the end for everybody who called before it began. No lock is held during `lead`.
    pub(crate) fn join(&self, done: impl Fn() -> bool, lead: impl Fn()) {
        let mut leading = self.leading.lock();
        while !done() {
            if *leading {
                self.ended.wait(&mut leading);
                continue;
            }
            *leading = true;
            parking_lot::MutexGuard::unlocked(&mut leading, &lead);
            *leading = false;
            self.ended.notify_all();
        }
    }
}
