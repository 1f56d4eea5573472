//! What goes with bytes on their way in and out.

use forebay_meta::WriteAttr;

/// Where bytes are to be written, and who wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteAt {
    /// At this offset, because an application asked for it.
    Offset(u64),
    /// At the end of the file as it is when the write takes place (`O_APPEND`). The kernel takes the end to be at this offset, which is so where only
    /// this machine writes.
    End(u64),
    /// At this offset: pages of a shared mapping that the kernel writes back, on a shared volume perhaps because it was told to drop them.
    /// **Must not wait for a lease**: a recall waits until the kernel has dropped its pages, and the kernel until they are written back. So
    /// the bytes are taken first, and the lease is sought afterwards.
    Pages(u64),
}

impl WriteAt {
    /// The offset that the kernel goes by.
    #[must_use]
    pub fn expected(self) -> u64 {
        match self {
            WriteAt::Offset(offset) | WriteAt::End(offset) | WriteAt::Pages(offset) => offset,
        }
    }
}

/// Through which open file something is asked, and by whom. Who locked the file through it, or as this owner, and has lost the lock without giving it up, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Through {
    /// The handle.
    pub fh: u64,
    /// The owner of record locks who asks, where the kernel says it.
    pub lock_owner: Option<u64>,
}

/// What goes with a change of contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct By {
    /// What becomes of the attributes along with it.
    pub attr: WriteAttr,
    /// Through what it is asked; `None` where no lock of anybody is concerned.
    pub through: Option<Through>,
}

impl From<WriteAttr> for By {
    fn from(attr: WriteAttr) -> By {
        By { attr, through: None }
    }
}

/// Bytes to be written.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Where.
    pub at: WriteAt,
    /// All of these, or none.
    pub data: &'a [u8],
    /// What goes with it.
    pub by: By,
}

/// What a seek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// Data (`SEEK_DATA`).
    Data,
    /// A hole; the end of the file is one (`SEEK_HOLE`).
    Hole,
}

/// Room in a volume, as statvfs(3) gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes of a block of this account.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Free ones for anybody but root.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}
