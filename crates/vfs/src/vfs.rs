use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use forebay_meta::Inode;
use forebay_types::{Attr, Ino, Timespec};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::{
    access::{self, PendingAtimes},
    dirs::OpenDir,
    error::VfsError,
    files::{Files, Space},
    locks::{LockTable, Locks},
    open_inodes::OpenInodes,
    options::{AtimeMode, LockKeeper, VfsOptions},
    removals::Ghosts,
};

/// The files of a volume with POSIX semantics. Shared by all threads.
#[derive(Debug)]
pub struct Vfs {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) options: VfsOptions,
    pub(crate) open: OpenInodes,
    pub(crate) dirs: RwLock<FxHashMap<u64, Arc<OpenDir>>>,
    pub(crate) ghosts: Ghosts,
    pub(crate) locks: LockTable,
    atimes: PendingAtimes,
    next_fh: AtomicU64,
}

impl Vfs {
    /// Over the files of an open volume.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, options: VfsOptions) -> Vfs {
        Vfs::numbered_from(files, options, 1)
    }

    /// The same, whose first handle is `next_fh`.
    pub(crate) fn numbered_from(files: Arc<dyn Files>, options: VfsOptions, next_fh: u64) -> Vfs {
        Vfs {
            files,
            options,
            open: OpenInodes::default(),
            dirs: RwLock::default(),
            ghosts: Ghosts::default(),
            locks: LockTable::default(),
            atimes: PendingAtimes::default(),
            next_fh: AtomicU64::new(next_fh),
        }
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Whether there are ACLs.
    #[must_use]
    pub fn has_acls(&self) -> bool {
        self.options.acls
    }

    /// Who keeps advisory locks.
    #[must_use]
    pub fn lock_keeper(&self) -> LockKeeper {
        self.options.locks
    }

    /// Advisory locks; none where the kernel keeps them.
    #[must_use]
    pub fn locks(&self) -> &dyn Locks {
        self.files.locks().unwrap_or(&self.locks)
    }

    /// Files and directories that are open.
    #[must_use]
    pub fn open_handles(&self) -> u64 {
        self.open.handles()
    }

    /// The kernel, or whoever looked the inode up, no longer knows it. It may be asked for again by name.
    pub fn forget(&self, ino: Ino) {
        self.ghosts.forget(ino);
        self.open.unretire(ino);
    }

    /// Makes everything that was acknowledged as durable as the volume's class promises.
    ///
    /// # Errors
    /// [`VfsError`]: what was not synced before may be lost.
    pub fn sync_all(&self) -> Result<(), VfsError> {
        self.write_access_times();
        self.files.sync_all()
    }

    /// Writes the access times that are only in memory. Called before the volume is closed; what fails is lost.
    pub fn write_access_times(&self) {
        self.write_atimes(self.atimes.take_all());
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// [`VfsError`].
    pub fn space(&self) -> Result<Space, VfsError> {
        self.files.space()
    }

    pub(crate) fn writable(&self) -> Result<(), VfsError> {
        if self.files.read_only() { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn new_handle(&self) -> u64 {
        self.next_fh.fetch_add(1, Ordering::Relaxed)
    }

    /// The handle that would be given next.
    pub(crate) fn next_handle(&self) -> u64 {
        self.next_fh.load(Ordering::Relaxed)
    }

    /// The inode, which has a name or an open handle.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        self.files.inode(ino)
    }

    /// The inode, also if only its attributes are left.
    pub(crate) fn inode_or_ghost(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        match self.inode(ino) {
            Err(VfsError::Stale(ino)) => self.ghosts.find(ino).ok_or(VfsError::Stale(ino)),
            found => found,
        }
    }

    /// The attributes, with the access time that is not written yet.
    pub(crate) fn attr_of(&self, inode: &Inode) -> Attr {
        let mut attr = inode.attr();
        attr.atime = self.atimes.get(inode.ino).unwrap_or(attr.atime);
        attr
    }

    /// Whether reading the inode now would change its access time.
    pub(crate) fn access_is_due(&self, inode: &Inode) -> bool {
        if !self.keeps_access_times() {
            return false;
        }
        let now = self.options.clock.now();
        access::is_due(self.options.atime, &inode.attr(), now)
            && access::is_due(self.options.atime, &self.attr_of(inode), now)
    }

    /// Whether reads may change access times at all.
    pub(crate) fn keeps_access_times(&self) -> bool {
        self.options.atime != AtimeMode::Off && !self.files.read_only()
    }

    /// The inode was read. Whether that changed its access time.
    pub(crate) fn accessed(&self, inode: &Inode) -> bool {
        let due = self.access_is_due(inode);
        if due {
            let overflow = self.atimes.note(inode.ino, self.options.clock.now());
            self.write_atimes(overflow);
        }
        due
    }

    /// Takes the access time that is not written yet, because it is written now or no longer true.
    pub(crate) fn take_atime(&self, ino: Ino) -> Option<Timespec> {
        self.atimes.take(ino)
    }

    pub(crate) fn write_atimes(&self, mut atimes: Vec<(Ino, Timespec)>) {
        atimes.sort_unstable_by_key(|(ino, _)| *ino);
        for (ino, atime) in atimes {
            if let Err(error) = self.files.set_atime(ino, atime) {
                tracing::debug!(%ino, "an access time was not written: {error}");
            }
        }
    }

    /// Keeps what can still be asked of an inode that is gone.
    pub(crate) fn keep_ghost(&self, mut inode: Inode) {
        inode.row.atime = self.take_atime(inode.ino).unwrap_or(inode.row.atime);
        self.ghosts.keep(Arc::new(inode));
    }

    /// Has an inode removed that has no name, if no handle is open on it.
    pub(crate) fn settle_nameless(&self, ino: Ino) {
        let Some(inode) = self.files.nameless(ino) else { return };
        if self.open.retire(ino) {
            self.keep_ghost(Inode::clone(&inode));
            self.files.purge(ino);
        }
    }
}
