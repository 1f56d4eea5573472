use forebay_format::row::{Cut, DirectoryRow, InodeRow};
use forebay_types::{Attr, FileKind, Ino};

/// An inode as the namespace knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Its row.
    pub row: InodeRow,
    /// Times and counts, of a directory.
    pub directory: Option<DirectoryRow>,
    /// Blocks whose rows of extents are not shown. A file that is not laid out in extents has such rows only there.
    pub(crate) cuts: Vec<Cut>,
    /// Whether the row is one of the head's generation, so that the next change replaces it.
    pub(crate) row_at_head: bool,
}

/// Size that a directory reports, in bytes.
const DIRECTORY_SIZE: u64 = 4096;

impl Inode {
    /// One of which nothing but what it was is left.
    #[must_use]
    pub fn removed(ino: Ino, row: InodeRow, directory: Option<DirectoryRow>) -> Inode {
        Inode { ino, row, directory, cuts: Vec::new(), row_at_head: false }
    }

    /// The attributes as `stat` gives them.
    #[must_use]
    pub fn attr(&self) -> Attr {
        let row = &self.row;
        let mut attr = Attr {
            ino: self.ino,
            kind: row.kind,
            mode: row.mode,
            nlink: row.nlink,
            uid: row.uid,
            gid: row.gid,
            rdev: row.rdev,
            size: row.size,
            // What is cut off is stored until it is removed, but no file has more data than bytes.
            allocated: if row.has_cuts { row.allocated.min(row.size) } else { row.allocated },
            atime: row.atime,
            mtime: row.mtime,
            ctime: row.ctime,
            btime: row.btime,
        };
        if let Some(directory) = &self.directory {
            attr.nlink = if row.nlink == 0 { 0 } else { 2 + directory.directories };
            attr.size = DIRECTORY_SIZE;
            attr.allocated = DIRECTORY_SIZE;
            attr.mtime = directory.mtime;
            attr.ctime = row.ctime.max(directory.ctime);
        }
        attr
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.row.kind == FileKind::Directory
    }
}

/// What a new inode is to be. Its times are the operation's.
#[derive(Clone, Debug)]
pub struct NewInode {
    /// What it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device; else 0.
    pub rdev: u32,
    /// Target of a symbolic link; else empty.
    pub target: Vec<u8>,
    /// Extended attributes that it has from the start (inherited ACLs).
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}
