//! What the kernel keeps of a shared volume, and how it is told that it is no longer so.

use std::fmt::Debug;

use forebay_types::Ino;

/// Something that the kernel was to be told, for [`KernelCaches::wait`]. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Told(pub u64);

/// The kernel's copies of a mount. A shared volume is given one when its mount is made.
///
/// Order that must hold: the lease is marked lost, so that [`crate::Files::lifetime`] says zero; then the copies are dropped here; then the lease is
/// returned. An answer that is under way to the kernel meanwhile carries no lifetime, whatever it had before.
///
/// The calls that drop only note what is to be done, and threads that serve no requests do it: they may have to wait for a page or
/// a directory that a request has locked, which in turn may wait for another machine. So no request is to wait for [`KernelCaches::wait`], nor to call
/// [`KernelCaches::drop_inodes`].
pub trait KernelCaches: Debug + Send + Sync {
    /// Drops what the kernel has of an inode: its attributes, and its pages too unless `attributes_only`.
    fn drop_inode(&self, ino: Ino, attributes_only: bool) -> Told;

    /// Drops what the kernel has of many inodes: their attributes, and the entries of directories among them where there are any (`names`), before this returns; their pages as
    /// [`KernelCaches::drop_inode`] does.
    fn drop_inodes(&self, inodes: &[Ino], names: bool) -> Told;

    /// Drops a directory's entries, missing ones too.
    fn drop_entries(&self, dir: Ino) -> Told;

    /// Returns once the kernel has dropped it, or has gone away. What was to be dropped before it may still be under way.
    fn wait(&self, told: Told);
}
