//! Inodes that are open on this mount.
//!
//! An inode that is open here lives though it loses its last name. The owner knows of it in one of two ways: this client has a lease on it, and says that it is open
//! when it returns that; or the owner was told (`Hold`, a removal), and keeps a row until it is released. So an open inode is either leased or told.

use std::sync::Arc;

use forebay_meta::Inode;
use forebay_types::Ino;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
struct Open {
    /// The owner has a row.
    told: bool,
    /// The owner may have one.
    perhaps: bool,
    /// What it was when it was last seen, for pages that the kernel writes back without a lease.
    seen: Option<Arc<Inode>>,
    /// It lost its last name by a removal of ours.
    nameless: Option<Arc<Inode>>,
}

/// Open inodes. Its methods do not wait.
#[derive(Debug, Default)]
pub(crate) struct Opens(Mutex<FxHashMap<Ino, Open>>);

impl Opens {
    pub(crate) fn opened(&self, ino: Ino) {
        self.0.lock().entry(ino).or_default();
    }

    /// The last handle is closed. True: the owner was told of it, or may have been.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        self.0.lock().remove(&ino).is_some_and(|open| open.told || open.perhaps)
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.0.lock().contains_key(&ino)
    }

    /// Whether it is open, to be said to the owner, which then keeps a row.
    pub(crate) fn tell(&self, ino: Ino) -> bool {
        self.0.lock().get_mut(&ino).map(|open| open.told = true).is_some()
    }

    /// Whether it is open, to be said to an owner who may not take it in.
    pub(crate) fn tell_perhaps(&self, ino: Ino) -> bool {
        self.0.lock().get_mut(&ino).map(|open| open.perhaps = true).is_some()
    }

    /// Whether it is open, and the owner knows of that only if there is a lease.
    pub(crate) fn needs_lease(&self, ino: Ino) -> bool {
        self.0.lock().get(&ino).is_some_and(|open| !open.told)
    }

    pub(crate) fn see(&self, inode: &Arc<Inode>) {
        if let Some(open) = self.0.lock().get_mut(&inode.ino) {
            open.seen = Some(Arc::clone(inode));
        }
    }

    pub(crate) fn seen(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.0.lock().get(&ino)?.seen.clone()
    }

    pub(crate) fn lost_its_name(&self, inode: &Arc<Inode>) {
        if let Some(open) = self.0.lock().get_mut(&inode.ino) {
            open.nameless = Some(Arc::clone(inode));
        }
    }

    pub(crate) fn nameless(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.0.lock().get(&ino)?.nameless.clone()
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Ino> {
        self.0.lock().keys().copied().collect()
    }

    /// The owner was told in a session that is over.
    pub(crate) fn not_told(&self, ino: Ino) {
        self.0.lock().entry(ino).and_modify(|open| open.told = false);
    }

    /// The owner knows of none any more.
    pub(crate) fn forgotten(&self) {
        self.0.lock().values_mut().for_each(|open| open.told = false);
    }
}
