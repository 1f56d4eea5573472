//! What clients are told. A slot keeps an answer's bytes in a row, and a later owner tells it again.

use forebay_format::row::{DirectoryRow, InodeRow, ObjectRef};
use forebay_group::NotTaken;
use forebay_locks::LockRange;
use forebay_meta::{DirEntry, Inode, LogError, MetaError, Piece};
use forebay_types::{FileKind, Ino, PolicyId, SegmentId, SyncClass};

use crate::{
    GroupRule, PolicyRule,
    commit::Numbers,
    sets::{Judged, OpenedSegment, SetPlace},
    word::{choice, lists, record},
};

/// Where a segment is in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentPlace {
    /// The object that has it.
    pub object: ObjectRef,
    /// Where it starts there, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// What comes with an inode, so that a small file is read without another request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// All bytes of a tiny file.
    Inline(Vec<u8>),
    /// Where the segment of its one extent is.
    Place(SegmentId, SegmentPlace),
}

/// An inode as a client is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeAnswer {
    /// Its number.
    pub ino: Ino,
    /// Its row.
    pub row: InodeRow,
    /// Times and counts, of a directory.
    pub directory: Option<DirectoryRow>,
    /// Contents, where they are small.
    pub contents: Option<Contents>,
}

impl InodeAnswer {
    /// An inode without its contents.
    #[must_use]
    pub fn of(inode: &Inode) -> InodeAnswer {
        InodeAnswer { ino: inode.ino, row: inode.row, directory: inode.directory, contents: None }
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub ino: Ino,
    /// What that is.
    pub kind: FileKind,
    /// The inode, where it was wanted and is still there.
    pub inode: Option<Box<InodeAnswer>>,
}

impl DirectoryEntry {
    /// An entry without its inode.
    #[must_use]
    pub fn of(entry: DirEntry) -> DirectoryEntry {
        DirectoryEntry { name: entry.name, ino: entry.ino, kind: entry.kind, inode: None }
    }
}

/// What a range of a file consists of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mapped {
    /// Its pieces in their order, without gaps.
    pub pieces: Vec<Piece>,
    /// Where the segments of the pieces are.
    pub places: Vec<(SegmentId, SegmentPlace)>,
    /// Where the pieces end: the end of the range or of the file, or less where there were too many.
    pub to: u64,
}

/// How much a volume has and uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceAnswer {
    /// Bytes of files, as they are stored.
    pub used: u64,
    /// Bytes that there may be; `None` where nobody has said.
    pub limit: Option<u64>,
    /// Inodes that there are.
    pub inodes: u64,
}

/// Why an operation did not take place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No such name.
    NotFound,
    /// The inode was removed.
    Stale,
    /// The name is taken.
    Exists,
    /// A directory is needed.
    NotDirectory,
    /// A directory is not allowed.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// A directory would be put inside itself.
    IntoItself,
    /// The name is too long.
    NameTooLong,
    /// The inode has as many names as it can.
    TooManyLinks,
    /// The file would be too large.
    FileTooLarge,
    /// No such extended attribute.
    NoAttribute,
    /// The extended attribute exists.
    AttributeExists,
    /// Too many extended attributes.
    TooManyAttributes,
    /// The operation does not fit the inode or contradicts itself.
    Invalid,
    /// No such subvolume.
    NoSubvolume,
    /// No space is left for metadata.
    NoSpace,
    /// The engine or the rows in it failed; the owner's log says how.
    Io,
    /// The session may not.
    NotPermitted,
    /// The session may only read.
    ReadOnly,
    /// Somebody else has a lock.
    WouldBlock,
    /// Whoever has the lock waits for the caller.
    Deadlock,
    /// The contents of the file are final.
    Sealed,
    /// The session has too many locks there.
    TooManyLocks,
    /// What was committed is not where a file's policy says that it is to be: it can be put into the store, and committed again.
    BelowClass,
}

choice!(Failure {
    1 => NotFound,
    2 => Stale,
    3 => Exists,
    4 => NotDirectory,
    5 => IsDirectory,
    6 => NotEmpty,
    7 => IntoItself,
    8 => NameTooLong,
    9 => TooManyLinks,
    10 => FileTooLarge,
    11 => NoAttribute,
    12 => AttributeExists,
    13 => TooManyAttributes,
    14 => Invalid,
    15 => NoSubvolume,
    16 => NoSpace,
    17 => Io,
    18 => NotPermitted,
    19 => ReadOnly,
    20 => WouldBlock,
    21 => Deadlock,
    22 => Sealed,
    23 => TooManyLocks,
    24 => BelowClass,
});

impl From<&MetaError> for Failure {
    fn from(error: &MetaError) -> Failure {
        match error {
            MetaError::NotFound => Failure::NotFound,
            MetaError::Stale(_) => Failure::Stale,
            MetaError::Exists => Failure::Exists,
            MetaError::NotDirectory(_) => Failure::NotDirectory,
            MetaError::IsDirectory(_) => Failure::IsDirectory,
            MetaError::NotEmpty(_) => Failure::NotEmpty,
            MetaError::IntoItself => Failure::IntoItself,
            MetaError::NameTooLong(_) => Failure::NameTooLong,
            MetaError::TooManyLinks(_) => Failure::TooManyLinks,
            MetaError::FileTooLarge(_) => Failure::FileTooLarge,
            MetaError::NoAttribute => Failure::NoAttribute,
            MetaError::AttributeExists => Failure::AttributeExists,
            MetaError::TooManyAttributes(_) => Failure::TooManyAttributes,
            MetaError::Invalid(_) => Failure::Invalid,
            MetaError::Sealed(_) => Failure::Sealed,
            MetaError::NoSubvolume(_) => Failure::NoSubvolume,
            MetaError::Log(LogError::NoSpace) => Failure::NoSpace,
            MetaError::Log(LogError::Failed(_)) | MetaError::Engine(_) | MetaError::Damaged { .. } => {
                Failure::Io
            }
        }
    }
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// The inode that was looked up, made or changed, as it is now.
    Inode(Box<InodeAnswer>),
    /// Entries of a directory; none at its end.
    Entries(Vec<DirectoryEntry>),
    /// Bytes: a target, the value of an attribute.
    Bytes(Vec<u8>),
    /// Names of attributes.
    Names(Vec<Vec<u8>>),
    /// Nothing was changed.
    Failed(Failure),
    /// What a range of a file consists of.
    Mapped(Mapped),
    /// Space.
    Space(SpaceAnswer),
    /// Numbers.
    Numbers(Numbers),
    /// It was taken in, except for these inodes, which are gone.
    Committed(Vec<Ino>),
    /// What a move did: the inode that was moved and the one that had the new name, as they are now.
    Renamed(Box<InodeAnswer>, Option<Box<InodeAnswer>>),
    /// The lock that is in the way, if any.
    Conflict(Option<LockRange>),
    /// The lock is not free; the session is told when it may be.
    Waits,
    /// Runs of numbers for inodes: the first, and how many.
    Runs(u64, u32),
    /// Everything was carried out as the client has done it, except for these: their place in the request, and why.
    Ahead(Vec<(u32, Failure)>),
    /// Segments were opened.
    Opened(Vec<OpenedSegment>),
    /// An object counts, but for these of its segments; it is garbage where these are all of them.
    Stored(Vec<(SegmentId, NotTaken)>),
    /// What becomes of copies.
    Judged(Vec<Judged>),
    /// What a range of a file consists of, where segments of it have no place in the store that is known: these say who has them.
    MappedSets(Mapped, Vec<SetPlace>),
    /// The inode has lost its last name, and stays: another session has it open, or may have. What is kept back of it is still to be told.
    Orphaned(Box<InodeAnswer>),
    /// What a move did where that is so of what had the new name: the inode that was moved, and that one.
    RenamedOver(Box<InodeAnswer>, Box<InodeAnswer>),
    /// What `fsync` waits for at least by these policies; of those that are not named, for what the volume says.
    Classes(Vec<(PolicyId, SyncClass)>),
    /// As [`Answer::Ahead`], where commits have named inodes that are gone: these.
    AheadGone(Vec<(u32, Failure)>, Vec<Ino>),
    /// As [`Answer::Classes`], where one of them says on which disks bytes may be.
    Rules(Vec<PolicyRule>),
    /// For how many bytes room is set aside for the session, all in all; `None`: the volume has no limit.
    Reserved(Option<u64>),
    /// What policies say, of each of the volume's groups.
    GroupRules(Vec<GroupRule>),
}

record!(SegmentPlace { object, offset, len });
record!(InodeAnswer { ino, row, directory, contents });
record!(DirectoryEntry { name, ino, kind, inode });
record!(Mapped { pieces, places, to });
record!(SpaceAnswer { used, limit, inodes });
lists!(DirectoryEntry, (SegmentId, SegmentPlace), (u32, Failure));
choice!(Contents { 1 => Inline(bytes), 2 => Place(segment, place) });
choice!(Answer {
    0 => Done,
    1 => Inode(inode),
    2 => Entries(entries),
    3 => Bytes(bytes),
    4 => Names(names),
    5 => Failed(failure),
    6 => Mapped(mapped),
    7 => Space(space),
    8 => Numbers(numbers),
    9 => Committed(gone),
    10 => Renamed(moved, replaced),
    11 => Conflict(range),
    12 => Waits,
    13 => Runs(first, runs),
    14 => Ahead(failed),
    15 => Opened(segments),
    16 => Stored(not_taken),
    17 => Judged(judged),
    18 => MappedSets(mapped, sets),
    19 => Orphaned(inode),
    20 => RenamedOver(moved, orphaned),
    21 => Classes(classes),
    22 => AheadGone(failed, gone),
    23 => Rules(rules),
    24 => Reserved(bytes),
    25 => GroupRules(rules),
});

impl Answer {
    /// The inode that it is about.
    #[must_use]
    pub fn inode(&self) -> Option<&InodeAnswer> {
        match self {
            Answer::Inode(inode) | Answer::Orphaned(inode) => Some(inode),
            _ => None,
        }
    }

    /// What a move did: the inode that was moved, and the one that had the new name.
    #[must_use]
    pub fn renamed(&self) -> Option<(&InodeAnswer, Option<&InodeAnswer>)> {
        match self {
            Answer::Renamed(moved, replaced) => Some((moved, replaced.as_deref())),
            Answer::RenamedOver(moved, orphaned) => Some((moved, Some(orphaned))),
            _ => None,
        }
    }

    /// Of what a client has done by itself, the steps that failed.
    #[must_use]
    pub fn failed_steps(&self) -> Option<&[(u32, Failure)]> {
        match self {
            Answer::Ahead(failed) | Answer::AheadGone(failed, _) => Some(failed),
            _ => None,
        }
    }

    /// Whether an inode has lost its last name and stays, as another session has it open or may have.
    #[must_use]
    pub fn leaves_orphan(&self) -> bool {
        matches!(self, Answer::Orphaned(_) | Answer::RenamedOver(..))
    }
}
