//! Limits of a volume. The ones that formats depend on can only grow with a new format version.

/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Longest name of an extended attribute, in bytes (the kernel's own limit).
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value of an extended attribute, in bytes (the kernel's own limit).
pub const XATTR_VALUE_MAX: usize = 65536;
/// All names of one inode's extended attributes together, as `listxattr` gives them, in bytes (the kernel's own limit).
pub const XATTR_LIST_MAX: usize = 65536;
/// Most names that one inode can have.
pub const LINK_MAX: u32 = 65_000;
/// A file of at most this many bytes has them in its own row of the metadata.
pub const INLINE_MAX: usize = 1024;
/// Raw bytes in one frame: the unit of compression, encryption and checksum.
pub const FRAME_SIZE: usize = 64 << 10;
/// Smallest block of a volume, in bytes.
pub const BLOCK_SIZE_MIN: u32 = 256 << 10;
/// The block size of a volume that did not choose, in bytes.
pub const BLOCK_SIZE_DEFAULT: u32 = 4 << 20;
/// Largest block of a volume, in bytes.
pub const BLOCK_SIZE_MAX: u32 = 8 << 20;
/// Bytes of a segment over the logs of a group's members at most: it is placed as a whole.
pub const LANE_SEGMENT_MAX: u64 = 4 << 20;
/// Blocks that one file can have: a block's index is 32 bits wide in a key.
pub const BLOCKS_MAX: u64 = 1 << 32;
/// A write of at least this many bytes goes to a stream; a smaller one travels inside its journal record.
pub const STREAM_WRITE_MIN: usize = 128 << 10;

/// Largest size of a file in a volume with this block size, in bytes: 16 PiB with the default block.
#[must_use]
pub const fn file_size_max(block_size: u32) -> u64 {
    BLOCKS_MAX * block_size as u64
}
