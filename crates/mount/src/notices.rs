//! Telling the kernel of access times that changed without a request that would tell it.
//!
//! An open is an access, but its answer carries no attributes, so the kernel would go on answering `stat` with the old access time. A
//! thread of its own says so (never one that serves requests: see [`Notifier`]), a moment later and for many files at once.

use std::{io, mem, sync::Arc, thread, time::Duration};

use forebay_fuse::Notifier;
use parking_lot::{Condvar, Mutex};

/// For so long opens are collected: what waking the thread costs is shared by all of them.
const COLLECT: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    inodes: Vec<u64>,
    /// A thread takes them from here.
    served: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Inodes whose attributes the kernel shall ask for again. Ends its thread when dropped.
#[derive(Debug, Default)]
pub(crate) struct Notices(Arc<Shared>);

impl Notices {
    /// Begins to tell the kernel. What was noted before is told too.
    ///
    /// # Errors
    /// No thread could be started; then nothing is ever told.
    pub(crate) fn serve_by(&self, notifier: Notifier) -> io::Result<()> {
        self.0.state.lock().served = true;
        let shared = Arc::clone(&self.0);
        let started =
            thread::Builder::new().name("fb-notices".to_owned()).spawn(move || shared.serve(&notifier));
        if started.is_err() {
            self.0.state.lock().served = false;
        }
        started.map(drop)
    }

    /// The attributes of this inode are others than the kernel knows. Does not wait.
    pub(crate) fn note(&self, ino: u64) {
        let mut state = self.0.state.lock();
        if !state.served {
            return;
        }
        state.inodes.push(ino);
        if state.inodes.len() == 1 {
            self.0.changed.notify_one();
        }
    }

    /// Ends: there is nobody to be told any more.
    pub(crate) fn end(&self) {
        let mut state = self.0.state.lock();
        state.served = false;
        state.inodes.clear();
        self.0.changed.notify_all();
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn serve(&self, notifier: &Notifier) {
        while let Some(inodes) = self.next() {
            for ino in inodes {
                if let Err(error) = notifier.inval_inode(ino, -1, 0) {
                    tracing::debug!(ino, "the kernel was not told of an access: {error}");
                }
            }
        }
    }

    /// What was noted since the last time, each once; nothing at the end.
    fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        while state.served && state.inodes.is_empty() {
            self.changed.wait(&mut state);
        }
        if state.served {
            self.changed.wait_for(&mut state, COLLECT);
        }
        let mut inodes = mem::take(&mut state.inodes);
        inodes.sort_unstable();
        inodes.dedup();
        state.served.then_some(inodes)
    }
}
