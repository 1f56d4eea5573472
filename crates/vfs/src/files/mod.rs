//! What [`crate::Vfs`] needs of a volume: one trait, for a volume on this machine and for one that many machines share.
//!
//! An implementation answers for one subvolume. What it answers is true at some moment between call and return; what it has returned
//! from is seen by every later call, on a shared volume by those of every machine. It decides nothing about permissions, set-id bits,
//! handles or ACLs: those are asked of the vfs before.

mod bytes;
mod kernel;

use std::{fmt::Debug, sync::Arc, time::Duration};

use forebay_meta::{DirEntry, Inode, NewInode, Removed, RenameMode, SetAttr, SetXattr};
use forebay_types::{Ino, PolicyId, Timespec};

pub use bytes::{By, Space, Through, Whence, Write, WriteAt};
pub use forebay_data::{ReadPiece, ReadPieces};
pub use kernel::{KernelCaches, Told};

use crate::{error::VfsError, locks::Locks};

/// The files of a volume. Called by many threads at once, never with a lock of the vfs held but where it says so.
///
/// # Errors
/// Of every operation: [`VfsError::Stale`] where an inode is gone, [`VfsError::NotFound`] where a name is, and what the volume itself failed
/// with: [`VfsError::NoSpace`], [`VfsError::Failed`], [`VfsError::TimedOut`], [`VfsError::Denied`]. Other refusals are those of the namespace
/// ([`forebay_meta::MetaError`], of which `From` makes the right ones). After an error nothing was changed.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait Files: Debug + Send + Sync {
    /// An inode that has a name, or that somebody has open.
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError>;

    /// The inode, if it has no name any more as far as is known here without waiting for another machine. Asked when its last handle was closed.
    fn nameless(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inode(ino).ok().filter(|inode| inode.row.nlink == 0)
    }

    /// What a name stands for. Neither `.` nor `..` is asked for.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError>;

    /// About `limit` entries in the order of their names, those after the name `after` (`None`: from the first). An empty page is the end.
    /// `inodes`: those of the entries will be asked for next.
    fn entries(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Result<Vec<DirEntry>, VfsError>;

    /// The target of a symbolic link; [`VfsError::Invalid`] where the inode is none.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, VfsError>;

    /// An extended attribute; [`VfsError::NoAttribute`].
    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError>;

    /// The names of all extended attributes.
    fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, VfsError>;

    /// Makes an inode with a name.
    fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode, VfsError>;

    /// Makes a regular file without a name. Nobody else knows it; it lives until [`Files::purge`].
    fn make_nameless(&self, parent: Ino, new: &NewInode) -> Result<Inode, VfsError>;

    /// Gives an inode another name.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, VfsError>;

    /// Removes a name that is not a directory's. `in_use` says whether an inode is open here; it is asked while the removal takes place, in such a
    /// way that an open which comes later finds the inode gone.
    fn unlink(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError>;

    /// Removes an empty directory; `in_use` as of [`Files::unlink`].
    fn rmdir(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError>;

    /// Moves a name; what it replaced. `in_use` as of [`Files::unlink`].
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, VfsError>;

    /// Sets attributes, a size too.
    fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<Inode, VfsError>;

    /// The same, through an open file.
    fn set_attr_through(&self, ino: Ino, set: &SetAttr, through: Through) -> Result<Inode, VfsError> {
        let _ = through;
        self.set_attr(ino, set)
    }

    /// Notes an access, which changes no other time.
    fn set_atime(&self, ino: Ino, atime: Timespec) -> Result<(), VfsError>;

    /// Sets an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: SetXattr) -> Result<(), VfsError>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError>;

    /// An inode without a name is no longer in use here: what is left of it may go. Does not wait for that.
    fn purge(&self, ino: Ino);

    /// An inode was gone that was asked for by its number: who asked has had that by a name, asks for the name once more, and does not ask a third time. What look-ups tell
    /// of from now on, for a while, is to be there when it is asked for.
    fn was_gone(&self) {}

    /// The first handle of an inode is about to be made here; the inode may be gone. Called in turn with [`Files::closed`] of the same inode, under
    /// a lock of the vfs: it must not wait, and not call back.
    fn opened(&self, ino: Ino) {
        let _ = ino;
    }

    /// The last handle of an inode was closed here; see [`Files::opened`].
    fn closed(&self, ino: Ino) {
        let _ = ino;
    }

    /// The last handle of an inode was closed here. If it is a file of an immutable tree that was written here, its contents are final from now on, as soon as they
    /// are where others see them. Does not wait for that.
    fn seal(&self, ino: Ino);

    /// A file of this size was opened for reading: a hint. Cheap.
    fn opened_for_reading(&self, ino: Ino, size: u64) {
        let _ = (ino, size);
    }

    /// Whether bytes of this inode may be on a disk of this machine, by its policy. Asked before each piece that is put there; may wait for other machines.
    fn may_keep(&self, inode: &Inode) -> bool {
        inode.row.policy == PolicyId::NONE
    }

    /// `len` bytes from `offset` on, fewer at the end of the file.
    fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VfsError>;

    /// Writes; says at which offset.
    fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64, VfsError>;

    /// Makes zeros of bytes `from..to` and frees what they took. The size grows to at least `size`.
    fn punch(&self, ino: Ino, from: u64, to: u64, size: Option<u64>, by: By) -> Result<(), VfsError>;

    /// Raises the size to at least `end`.
    fn allocate(&self, ino: Ino, end: u64, by: By) -> Result<(), VfsError>;

    /// Makes up to `len` bytes of one file, fewer at its end, part of another. The ranges do not overlap. Returns how many.
    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64, by: By) -> Result<u64, VfsError>;

    /// Where at or after `offset` data or a hole begins; `None` where there is none, or `offset` is beyond the end.
    fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VfsError>;

    /// Makes what was acknowledged of this inode, its name included, as durable as the volume's class promises.
    fn sync_file(&self, ino: Ino) -> Result<(), VfsError>;

    /// The same of everything.
    fn sync_all(&self) -> Result<(), VfsError>;

    /// A descriptor of the file was closed. What fails is what close(2) says.
    fn flush(&self, ino: Ino) -> Result<(), VfsError> {
        let _ = ino;
        Ok(())
    }

    /// Space and inodes.
    fn space(&self) -> Result<Space, VfsError>;

    /// Whether all changes are refused.
    fn read_only(&self) -> bool;

    /// A path of an inode of a volume that others change too, for messages: what is known of it without asking anybody, perhaps nothing.
    fn known_path(&self, ino: Ino) -> Option<Vec<u8>> {
        let _ = ino;
        None
    }

    /// Bytes of a block: how large a file can be follows from it.
    fn block_size(&self) -> u32;

    /// For how long the kernel may keep what was just answered of this inode: its attributes, its bytes, and of a directory its entries, missing ones
    /// too. `None`: until it changes it itself. Cheap; does not wait.
    fn lifetime(&self, ino: Ino) -> Option<Duration> {
        let _ = ino;
        None
    }

    /// The same for the name of `ino` in a directory.
    fn name_lifetime(&self, parent: Ino, ino: Ino) -> Option<Duration> {
        let _ = ino;
        self.lifetime(parent)
    }

    /// Whether other machines may change the files too, so that the kernel keeps nothing but what a [`Files::lifetime`] says, and writes nothing
    /// behind our back.
    fn is_shared(&self) -> bool {
        false
    }

    /// The locks of flock(2) and fcntl(2), where they are kept elsewhere.
    fn locks(&self) -> Option<&dyn Locks> {
        None
    }
}
