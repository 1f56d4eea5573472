//! What clients ask of a namespace.

use forebay_cluster::{Access, Need};
use forebay_meta::{Inode, MetaError, Namespace, NewInode, RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_types::{Ino, SubvolumeId};

use crate::answer::{Answer, InodeAnswer};

/// Entries of a directory that one request returns at most.
const ENTRIES_MAX: usize = 4096;

/// An operation on the names and inodes of one subvolume. Whether the caller may is not asked here.
#[derive(Clone, Debug)]
pub enum Operation {
    /// The inode that a name stands for.
    Lookup(Ino, Vec<u8>),
    /// An inode.
    Inode(Ino),
    /// At most so many entries of a directory (4096 at most), after a name.
    Entries(Ino, Option<Vec<u8>>, usize),
    /// The target of a symbolic link.
    ReadLink(Ino),
    /// The bytes of a tiny file.
    Inline(Ino),
    /// An extended attribute.
    Xattr(Ino, Vec<u8>),
    /// The names of all extended attributes.
    Xattrs(Ino),
    /// Makes an inode with a name.
    Make(Ino, Vec<u8>, NewInode),
    /// Gives an inode another name.
    Link(Ino, Ino, Vec<u8>),
    /// Removes a name that is not a directory's.
    Unlink(Ino, Vec<u8>),
    /// Removes an empty directory.
    Rmdir(Ino, Vec<u8>),
    /// Moves a name.
    Rename(Ino, Vec<u8>, Ino, Vec<u8>, RenameMode),
    /// Sets attributes.
    SetAttr(Ino, SetAttr),
    /// Sets an extended attribute.
    SetXattr(Ino, Vec<u8>, Vec<u8>, SetXattr),
    /// Removes an extended attribute.
    RemoveXattr(Ino, Vec<u8>),
    /// Makes these the bytes of a tiny file.
    WriteInline(Ino, Vec<u8>, WriteAttr),
}

impl Operation {
    /// Whether it may change something: then it comes in a slot.
    #[must_use]
    pub fn changes(&self) -> bool {
        use Operation::{Entries, Inline, Inode, Lookup, ReadLink, Xattr, Xattrs};
        !matches!(
            self,
            Lookup(..) | Inode(..) | Entries(..) | ReadLink(..) | Inline(..) | Xattr(..) | Xattrs(..)
        )
    }

    /// The inodes that it looks at and changes, as the namespace is now. While it runs with all of these, none can join them: names in a directory change only
    /// under a need to write it.
    pub(crate) fn needs(&self, ns: &Namespace, at: SubvolumeId) -> Vec<Need> {
        let (read, write) =
            (|ino| Need { ino, access: Access::Read }, |ino| Need { ino, access: Access::Write });
        // A name that is not there needs no inode; what else is wrong shows when the operation is carried out.
        let named = |parent, name: &[u8]| ns.lookup(at, parent, name).ok().map(|inode| inode.ino);
        match self {
            Operation::Lookup(parent, name) => {
                [read(*parent)].into_iter().chain(named(*parent, name).map(read)).collect()
            }
            Operation::Inode(ino)
            | Operation::Entries(ino, ..)
            | Operation::ReadLink(ino)
            | Operation::Inline(ino)
            | Operation::Xattr(ino, _)
            | Operation::Xattrs(ino) => vec![read(*ino)],
            Operation::Make(parent, ..) => vec![write(*parent)],
            Operation::Link(ino, parent, _) => vec![write(*ino), write(*parent)],
            Operation::Unlink(parent, name) | Operation::Rmdir(parent, name) => {
                [write(*parent)].into_iter().chain(named(*parent, name).map(write)).collect()
            }
            Operation::Rename(from, name, to, new_name, _) => {
                let inodes = named(*from, name).into_iter().chain(named(*to, new_name));
                [*from, *to].into_iter().chain(inodes).map(write).collect()
            }
            Operation::SetAttr(ino, _)
            | Operation::SetXattr(ino, ..)
            | Operation::RemoveXattr(ino, _)
            | Operation::WriteInline(ino, ..) => vec![write(*ino)],
        }
    }

    /// The inodes on which the client gets a lease along with the answer, as far as nobody is in the way.
    pub(crate) fn leases(&self, answer: &Answer) -> Vec<Ino> {
        let named = answer.inode().map(|inode| inode.ino);
        match self {
            Operation::Lookup(parent, _) | Operation::Make(parent, ..) | Operation::Link(_, parent, _) => {
                [*parent].into_iter().chain(named).collect()
            }
            Operation::Unlink(parent, _) | Operation::Rmdir(parent, _) => vec![*parent],
            Operation::Rename(from, _, to, ..) => vec![*from, *to],
            Operation::Inode(ino)
            | Operation::Entries(ino, ..)
            | Operation::ReadLink(ino)
            | Operation::Inline(ino)
            | Operation::Xattr(ino, _)
            | Operation::Xattrs(ino)
            | Operation::SetAttr(ino, _)
            | Operation::SetXattr(ino, ..)
            | Operation::RemoveXattr(ino, _)
            | Operation::WriteInline(ino, ..) => vec![*ino],
        }
    }

    /// Carries it out. `in_use` says of an inode that loses its last name whether a client still needs it.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed.
    pub(crate) fn carry_out(
        &self,
        ns: &Namespace,
        at: SubvolumeId,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Answer, MetaError> {
        let inode = |inode: &Inode| Answer::Inode(Box::new(InodeAnswer::of(inode)));
        Ok(match self {
            Operation::Lookup(parent, name) => inode(&*ns.lookup(at, *parent, name)?),
            Operation::Inode(ino) => inode(&*ns.inode(at, *ino)?),
            Operation::Entries(ino, after, limit) => {
                let limit = (*limit).clamp(1, ENTRIES_MAX);
                Answer::Entries(ns.entries(at, *ino, after.as_deref(), limit)?)
            }
            Operation::ReadLink(ino) => Answer::Bytes(ns.read_link(at, *ino)?),
            Operation::Inline(ino) => Answer::Bytes(ns.inline(at, *ino)?),
            Operation::Xattr(ino, name) => Answer::Bytes(ns.xattr(at, *ino, name)?),
            Operation::Xattrs(ino) => Answer::Names(ns.xattrs(at, *ino)?),
            Operation::Make(parent, name, new) => inode(&ns.make(at, *parent, name, new)?),
            Operation::Link(ino, parent, name) => inode(&ns.link(at, *ino, *parent, name)?),
            Operation::Unlink(parent, name) => inode(&ns.unlink(at, *parent, name, in_use)?.inode),
            Operation::Rmdir(parent, name) => inode(&ns.rmdir(at, *parent, name, in_use)?.inode),
            Operation::Rename(from, name, to, new_name, mode) => {
                ns.rename(at, (*from, name), (*to, new_name), *mode, in_use)?;
                Answer::Done
            }
            Operation::SetAttr(ino, set) => inode(&ns.set_attr(at, *ino, set)?),
            Operation::SetXattr(ino, name, value, how) => {
                ns.set_xattr(at, *ino, name, value, *how)?;
                Answer::Done
            }
            Operation::RemoveXattr(ino, name) => {
                ns.remove_xattr(at, *ino, name)?;
                Answer::Done
            }
            Operation::WriteInline(ino, bytes, attr) => {
                inode(&ns.write_inline(at, *ino, bytes, bytes.len() as u64, *attr)?)
            }
        })
    }
}
