//! Inodes that are open on this mount.
//!
//! An inode that is open here lives though it loses its last name. The owner knows of it in one of two ways: this client has a lease on it, and says that it is open
//! when it returns that; or the owner was told (`Hold`, a removal), and keeps a row until it is released. So an open inode is either leased or told. What is told waits for a
//! release of the same inode that is under way, which might come later and take the row away.
//!
//! The kernel looks a name up and opens what it stands for by another request. An inode that is *expected* counts as open for some seconds, so that the second request finds
//! it although somebody has removed it in between.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_meta::Inode;
use forebay_types::Ino;
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{ClientError, Patience};

/// How long an inode is expected to be used that a look-up has told of, and for how long look-ups expect that after something was not found that one had told of.
pub(crate) const EXPECTED: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Open {
    /// There are handles.
    has_handles: bool,
    /// A look-up has told of it, and until when it is expected to be used.
    expected: Option<Instant>,
    /// The owner has a row.
    told: bool,
    /// The owner may have one.
    perhaps: bool,
    /// What it was when it was last seen, for pages that the kernel writes back without a lease.
    seen: Option<Arc<Inode>>,
    /// It lost its last name by a removal of ours.
    nameless: Option<Arc<Inode>>,
}

/// Open inodes. Its methods do not wait, but for [`Opens::wait_released`].
#[derive(Debug, Default)]
pub(crate) struct Opens {
    inodes: Mutex<FxHashMap<Ino, Open>>,
    expecting: Mutex<Expecting>,
    /// Inodes of which the owner is being told that they are open no longer.
    releasing: Mutex<FxHashSet<Ino>>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Expecting {
    /// Look-ups expect that what they tell of is used.
    until: Option<Instant>,
    /// A thread sees to what is expected.
    has_thread: bool,
}

impl Opens {
    pub(crate) fn opened(&self, ino: Ino) {
        self.inodes.lock().entry(ino).or_default().has_handles = true;
    }

    /// The last handle is closed. True: the owner was told of it, or may have been, and is to be told that it is open no longer.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        let mut inodes = self.inodes.lock();
        if let Some(open) = inodes.get_mut(&ino).filter(|open| open.expected.is_some()) {
            open.has_handles = false;
            return false;
        }
        inodes.remove(&ino).is_some_and(|open| open.told || open.perhaps)
    }

    // ---- releases ------------------------------------------------------------------------------------------------

    /// Tells the owner by `tell` that an inode is open no longer, unless it is again by now: then the owner has its row still, and whoever closes it next is to tell.
    pub(crate) fn release(&self, ino: Ino, tell: impl FnOnce()) {
        {
            let mut inodes = self.inodes.lock();
            if let Some(open) = inodes.get_mut(&ino) {
                open.perhaps = true;
                return;
            }
            self.releasing.lock().insert(ino);
        }
        tell();
        self.releasing.lock().remove(&ino);
        self.released.notify_all();
    }

    /// Waits until the owner has heard of a release that is under way. For who has opened the inode since, before it tells so.
    ///
    /// # Errors
    /// [`ClientError`] where patience ends.
    pub(crate) fn wait_released(&self, ino: Ino, patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut releasing = self.releasing.lock();
        while releasing.contains(&ino) {
            patience.wait(&self.released, &mut releasing)?;
        }
        Ok(())
    }

    // ---- expected inodes -----------------------------------------------------------------------------------------

    /// Something was gone that a look-up has told of: the name is going to be asked for again.
    pub(crate) fn was_gone(&self) {
        self.expecting.lock().until = Some(Instant::now() + EXPECTED);
    }

    /// Whether what a look-up tells of is to be expected.
    pub(crate) fn expects(&self) -> bool {
        let mut expecting = self.expecting.lock();
        let expects = expecting.until.is_some_and(|until| Instant::now() < until);
        if !expects {
            expecting.until = None;
        }
        expects
    }

    /// From now on an inode counts as open for a while. True: a thread is to be started that calls [`Opens::unexpected`].
    pub(crate) fn expect(&self, ino: Ino) -> bool {
        self.inodes.lock().entry(ino).or_default().expected = Some(Instant::now() + EXPECTED);
        !std::mem::replace(&mut self.expecting.lock().has_thread, true)
    }

    /// Those that are expected no longer, have no handles, and of which the owner was told; and when to ask again, unless nothing is expected any more: then
    /// the thread ends. `all`: also those whose time has not come.
    pub(crate) fn unexpected(&self, all: bool) -> (Vec<Ino>, Option<Instant>) {
        let now = Instant::now();
        let (mut released, mut next) = (Vec::new(), None);
        let mut inodes = self.inodes.lock();
        inodes.retain(|ino, open| {
            let Some(until) = open.expected else { return true };
            if until > now && !all {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
                return true;
            }
            open.expected = None;
            if !open.has_handles && (open.told || open.perhaps) {
                released.push(*ino);
            }
            open.has_handles
        });
        if next.is_none() {
            self.expecting.lock().has_thread = false;
        }
        (released, next)
    }

    // ---- what is known of open inodes ----------------------------------------------------------------------------

    /// Whether it is open, or expected to be.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.inodes.lock().contains_key(&ino)
    }

    /// Whether it is open, to be said to the owner, which then keeps a row.
    pub(crate) fn tell(&self, ino: Ino) -> bool {
        self.inodes.lock().get_mut(&ino).map(|open| open.told = true).is_some()
    }

    /// Whether it is open, to be said to an owner who may not take it in.
    pub(crate) fn tell_perhaps(&self, ino: Ino) -> bool {
        self.inodes.lock().get_mut(&ino).map(|open| open.perhaps = true).is_some()
    }

    /// Whether it is open, and the owner knows of that only if there is a lease.
    pub(crate) fn needs_lease(&self, ino: Ino) -> bool {
        self.inodes.lock().get(&ino).is_some_and(|open| !open.told)
    }

    pub(crate) fn see(&self, inode: &Arc<Inode>) {
        if let Some(open) = self.inodes.lock().get_mut(&inode.ino) {
            open.seen = Some(Arc::clone(inode));
        }
    }

    pub(crate) fn seen(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().get(&ino)?.seen.clone()
    }

    pub(crate) fn lost_its_name(&self, inode: &Arc<Inode>) {
        if let Some(open) = self.inodes.lock().get_mut(&inode.ino) {
            open.nameless = Some(Arc::clone(inode));
        }
    }

    pub(crate) fn nameless(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().get(&ino)?.nameless.clone()
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Ino> {
        self.inodes.lock().keys().copied().collect()
    }

    /// The owner was told in a session that is over.
    pub(crate) fn not_told(&self, ino: Ino) {
        self.inodes.lock().entry(ino).and_modify(|open| open.told = false);
    }

    /// The owner knows of none any more.
    pub(crate) fn forgotten(&self) {
        self.inodes.lock().values_mut().for_each(|open| open.told = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_again_before_its_release_is_released_after_that() {
        let (opens, ino) = (Opens::default(), Ino(4096));
        opens.opened(ino);
        assert!(opens.tell(ino));
        assert!(opens.closed(ino), "the owner has a row");
        opens.opened(ino);
        opens.release(ino, || panic!("it is open"));
        assert!(opens.needs_lease(ino), "of that row nobody here can be sure");
        assert!(opens.closed(ino), "the owner has it still");
        let mut told = false;
        opens.release(ino, || told = true);
        assert!(told);
        opens.opened(ino);
        assert!(!opens.closed(ino), "now it has none");
    }
}
