//! Bytes that a client has put into the store, told to the owner.

use forebay_format::row::{Extent, ObjectRef};
use forebay_meta::WriteAttr;
use forebay_types::{Ino, SegmentId};

use crate::word::{lists, record};

/// Numbers that a session may use: `segments` from `first_segment` on and `objects` from `first_object` on, none used before or by anybody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The first segment.
    pub first_segment: SegmentId,
    /// How many segments.
    pub segments: u32,
    /// The first object; its epoch is that of all of them.
    pub first_object: ObjectRef,
    /// How many objects.
    pub objects: u32,
}

record!(Numbers { first_segment, segments, first_object, objects });

/// What a client wrote. All of it becomes visible at once, except files that are gone by then.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Commit {
    /// Objects that are in the store.
    pub objects: Vec<ObjectCommit>,
    /// What files consist of now, where that has changed.
    pub files: Vec<FileCommit>,
}

/// An object, and the segments in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectCommit {
    /// Its name, of the session's numbers.
    pub object: ObjectRef,
    /// What it has.
    pub segments: Vec<SegmentCommit>,
}

/// A segment in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentCommit {
    /// Its number, of the session's.
    pub id: SegmentId,
    /// Where it starts in the object, in bytes.
    pub offset: u64,
    /// How long it is there, in bytes.
    pub len: u64,
    /// How many raw bytes its runs have.
    pub raw: u64,
}

/// What a file consists of now.
#[derive(Clone, Debug, Default)]
pub struct FileCommit {
    /// The file.
    pub ino: Ino,
    /// All of its bytes, of a tiny file; there are no extents then.
    pub inline: Option<Vec<u8>>,
    /// Extents by their offset in the file, over what was there. Each lies inside one block.
    pub extents: Vec<(u64, Extent)>,
    /// The size that it has at least.
    pub size: u64,
    /// What the writes change besides.
    pub attr: WriteAttr,
    /// The time of the last write.
    pub mtime: forebay_types::Timespec,
}

impl PartialEq for FileCommit {
    fn eq(&self, other: &FileCommit) -> bool {
        (self.ino, &self.inline, &self.extents, self.size, self.attr.mode, self.mtime)
            == (other.ino, &other.inline, &other.extents, other.size, other.attr.mode, other.mtime)
    }
}

record!(Commit { objects, files });
record!(ObjectCommit { object, segments });
record!(SegmentCommit { id, offset, len, raw });
record!(FileCommit { ino, inline, extents, size, attr, mtime });
lists!(ObjectCommit, SegmentCommit, FileCommit);
