//! Bytes of types that belong to the crates below.

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_format::{
    Decoder, Encoder, FormatError,
    row::{DirectoryRow, Extent, InodeRow, ObjectRef, Row},
};
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{NewInode, Piece, PieceSource, RenameMode, SetAttr, SetTime, SetXattr, WriteAttr};
use forebay_types::{
    Compression, Durability, Encryption, Epoch, FileKind, Ino, ObjectId, PolicyId, SegmentId, Timespec,
    VolumeId,
};

use crate::word::{Word, choice, lists, number, record};

number!(Ino, PolicyId, SegmentId, ObjectId, Epoch, VolumeId, SessionId, SlotNumber);
record!(ObjectRef { epoch, id });
record!(Stamp { epoch, number });
record!(Grant { ino, lease, stamp });
record!(NewInode { kind, mode, uid, gid, rdev, target, xattrs });
record!(SetAttr { mode, uid, gid, size, atime, mtime, ctime, xattrs });
record!(WriteAttr { mode });
record!(Piece { offset, len, source });
record!(LockRange { start, end, kind, pid });
record!(LockRequest { space, owner, fh, range });

choice!(Lease { 1 => Read, 2 => Write });
choice!(SetTime { 1 => Now, 2 => To(time) });
choice!(SetXattr { 1 => Any, 2 => Create, 3 => Replace });
choice!(RenameMode { 1 => Replace, 2 => NoReplace, 3 => Exchange });
choice!(PieceSource { 1 => Hole, 2 => Inline(bytes), 3 => Extent(extent) });
choice!(LockKind { 1 => Shared, 2 => Exclusive });
choice!(LockSpace { 1 => Record, 2 => Flock });
choice!(Compression { 1 => Lz4, 2 => Zstd, 3 => None });
choice!(Encryption { 1 => None, 2 => Aes256Gcm });
choice!(Durability { 1 => Local, 2 => Object });
choice!(FileKind {
    1 => Regular,
    2 => Directory,
    3 => Symlink,
    4 => Fifo,
    5 => Socket,
    6 => CharDevice,
    7 => BlockDevice,
});

lists!(Ino, Piece, Grant, (Ino, Lease), (u64, Extent));

impl Word for Timespec {
    fn put(&self, to: &mut Encoder<'_>) {
        to.time(*self);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Timespec, FormatError> {
        from.time()
    }
}

/// Rows travel as they are stored.
macro_rules! rows {
    ($($row:ty),*) => {$(
        impl Word for $row {
            fn put(&self, to: &mut Encoder<'_>) {
                to.bytes(&self.encode());
            }

            fn take(from: &mut Decoder<'_>) -> Result<$row, FormatError> {
                <$row as Row>::decode(from.bytes()?)
            }
        }
    )*};
}

rows!(InodeRow, DirectoryRow, Extent);
