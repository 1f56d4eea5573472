//! What clients ask of a namespace.

use forebay_locks::{LockRequest, LockSpace};
use forebay_meta::{NewInode, RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_types::{Ino, PolicyId, Timespec};

use crate::{
    ahead::Step,
    commit::Commit,
    policy::PolicyChange,
    sets::{FencedCopies, OfferCopies, OpenSegments, Reseat, Settle, StoreSegments},
    word::choice,
};

/// Pieces of a file that one answer to [`Operation::Map`] has at most.
pub const MAP_PIECES_MAX: usize = 1024;

/// An operation on the names, inodes and contents of one subvolume. Whether a process of the client may is asked by the client; what the session may, by the owner.
#[derive(Clone, Debug)]
pub enum Operation {
    /// The inode that a name stands for. `..` is the parent of a directory.
    Lookup(Ino, Vec<u8>),
    /// An inode.
    Inode(Ino),
    /// At most so many entries of a directory (4096 at most) after a name, and their inodes if wanted.
    Entries {
        /// The directory.
        directory: Ino,
        /// The name before; `None` from the start.
        after: Option<Vec<u8>>,
        /// How many.
        limit: u32,
        /// Whether the inodes are wanted, too.
        inodes: bool,
    },
    /// The target of a symbolic link.
    ReadLink(Ino),
    /// An extended attribute.
    Xattr(Ino, Vec<u8>),
    /// The names of all extended attributes.
    Xattrs(Ino),
    /// What a range of a file consists of: from an offset on, so many bytes. Long ones are answered in parts of [`MAP_PIECES_MAX`].
    Map(Ino, u64, u64),
    /// How much space the volume has and uses.
    Space,
    /// Which lock would be in this one's way.
    TestLock(Ino, LockRequest),
    /// Makes an inode with a name.
    Make(Ino, Vec<u8>, NewInode),
    /// Makes a file without a name, in the place of this directory, open at the session.
    MakeNameless(Ino, NewInode),
    /// Gives an inode another name.
    Link(Ino, Ino, Vec<u8>),
    /// Removes a name that is not a directory's. The last: whether the session has an inode open, asked of what loses its last name. Answered by
    /// [`crate::Answer::Orphaned`] where another session has it open.
    Unlink(Ino, Vec<u8>, Vec<Ino>),
    /// Removes an empty directory; the last as with [`Operation::Unlink`].
    Rmdir(Ino, Vec<u8>, Vec<Ino>),
    /// Moves a name.
    Rename {
        /// The directory that has it.
        from: Ino,
        /// The name.
        name: Vec<u8>,
        /// The directory that gets it.
        to: Ino,
        /// The new name.
        new_name: Vec<u8>,
        /// What becomes of what has the new name.
        mode: RenameMode,
        /// Of the inodes concerned, those that the session has open.
        open: Vec<Ino>,
    },
    /// Sets attributes.
    SetAttr(Ino, SetAttr),
    /// Sets the access time, where the inode has none that is later.
    SetAtime(Ino, Timespec),
    /// Sets an extended attribute.
    SetXattr(Ino, Vec<u8>, Vec<u8>, SetXattr),
    /// Removes an extended attribute.
    RemoveXattr(Ino, Vec<u8>),
    /// Asks for numbers of so many segments and objects.
    Numbers(u32, u32),
    /// Takes in what was put into the store.
    Commit(Box<Commit>),
    /// Makes a hole.
    Punch {
        /// The file.
        ino: Ino,
        /// The first byte.
        from: u64,
        /// The byte after the last.
        to: u64,
        /// The size that the file has at least; `None` leaves it.
        size: Option<u64>,
        /// What it changes besides.
        attr: WriteAttr,
    },
    /// Gives a file the same bytes as a range of another, by sharing them.
    Share {
        /// The file that has them.
        source: Ino,
        /// From which byte on.
        from: u64,
        /// The file that gets them.
        target: Ino,
        /// At which byte.
        to: u64,
        /// How many.
        len: u64,
        /// What it changes besides.
        attr: WriteAttr,
    },
    /// The session has these open no longer. Answered by [`crate::Answer::Committed`] with those that are gone, if any: they have no name, and nobody else has them
    /// open.
    Release(Vec<Ino>),
    /// Locks a file or a range of it; whether to be told when it is free, where it is not.
    Lock(Ino, LockRequest, bool),
    /// Gives up a range of an owner's locks, from the first byte to the last.
    Unlock(Ino, LockSpace, u64, (u64, u64)),
    /// Gives up all locks that were made through a handle of the session.
    UnlockHandle(Ino, u64),
    /// Asks for so many runs of numbers for inodes.
    Runs(u32),
    /// What the client has carried out by itself, in this order, under leases to write on all that it names. Refused whole where one of these is missing.
    Ahead(Vec<Step>),
    /// The session has these open: each lives without a name until [`Operation::Release`]. Answered by [`crate::Answer::Committed`] with those that are gone.
    Hold(Vec<Ino>),
    /// Makes the contents of these files of immutable trees final. Others are left as they are.
    Seal(Vec<Ino>),
    /// A member of a group says what it has, and asks what of it is wanted.
    Offer(OfferCopies),
    /// A member of a group has fenced segments, as it was asked to: what it has of them. It changes nothing but what the owner has in memory.
    Fenced(FencedCopies),
    /// What `fsync` of what goes by these policies waits for at least. Answered by [`crate::Answer::Classes`], or by
    /// [`crate::Answer::Rules`] where one of them says besides on which disks bytes may be.
    Classes(Vec<PolicyId>),
    /// The same of each of the volume's groups. Answered by [`crate::Answer::GroupRules`] with one of each policy.
    GroupRules(Vec<PolicyId>),
    /// Has room set aside for bytes that the session is about to commit: for `needs` bytes and for up to `spare` more, in place of what was set aside for it before. It changes
    /// nothing but what the owner has in memory, and is spent by commits. Answered by [`crate::Answer::Reserved`].
    Reserve {
        /// For how many bytes, where there is so much room.
        needs: u64,
        /// For how many more at most.
        spare: u64,
    },
    /// Opens segments over the logs of a group's members.
    OpenSegments(OpenSegments),
    /// Says that segments are in an object that is in the store.
    Store(StoreSegments),
    /// Says that a member has all of a segment that it was to be given.
    Reseat(Reseat),
    /// Says which segments of the session are sealed, and which no later request names.
    Settle(Settle),
    /// Changes policies.
    ChangePolicy(PolicyChange),
}

// 12 is never used again: a member answered push 6 with it, which no owner ever sent.
choice!(Operation {
    1 => Lookup(parent, name),
    2 => Inode(ino),
    3 => Entries { directory, after, limit, inodes },
    4 => ReadLink(ino),
    5 => Xattr(ino, name),
    6 => Xattrs(ino),
    7 => Map(ino, from, len),
    8 => Space,
    9 => TestLock(ino, request),
    10 => Offer(offer),
    11 => Fenced(fenced),
    13 => Classes(policies),
    14 => Reserve { needs, spare },
    15 => GroupRules(policies),
    32 => Make(parent, name, new),
    33 => MakeNameless(parent, new),
    34 => Link(ino, parent, name),
    35 => Unlink(parent, name, open),
    36 => Rmdir(parent, name, open),
    37 => Rename { from, name, to, new_name, mode, open },
    38 => SetAttr(ino, set),
    39 => SetAtime(ino, time),
    40 => SetXattr(ino, name, value, how),
    41 => RemoveXattr(ino, name),
    42 => Numbers(segments, objects),
    43 => Commit(commit),
    44 => Punch { ino, from, to, size, attr },
    45 => Share { source, from, target, to, len, attr },
    46 => Release(inos),
    47 => Lock(ino, request, wait),
    48 => Unlock(ino, space, owner, range),
    49 => UnlockHandle(ino, handle),
    50 => Runs(runs),
    51 => Ahead(steps),
    52 => Hold(inos),
    53 => Seal(inos),
    54 => OpenSegments(open),
    55 => Store(store),
    56 => Reseat(reseat),
    57 => Settle(settle),
    58 => ChangePolicy(change),
});

impl Operation {
    /// Whether it may change something: then it comes in a slot, and is carried out once.
    #[must_use]
    pub fn changes(&self) -> bool {
        use Operation::{
            Classes, Entries, Fenced, GroupRules, Inode, Lookup, Map, Offer, ReadLink, Reserve, Space,
            TestLock, Xattr, Xattrs,
        };
        !matches!(
            self,
            Lookup(..)
                | Inode(..)
                | Entries { .. }
                | ReadLink(..)
                | Xattr(..)
                | Xattrs(..)
                | Map(..)
                | Space
                | TestLock(..)
                | Offer(_)
                | Fenced(_)
                | Classes(_)
                | GroupRules(_)
                | Reserve { .. }
        )
    }
}
