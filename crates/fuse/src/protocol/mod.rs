//! The wire format, protocol 7.31 to 7.45: bytes in, values out, and back.
//!
//! Guarantees: decoding never panics and never looks outside what it is given, whatever the bytes; everything it
//! yields borrows from the request. Integers have the machine's byte order. No input or output happens here, so that
//! any transport can use it: one whose requests are contiguous splits them with [`split`], one that delivers header,
//! fixed arguments and payload apart calls [`decode`] at once.

mod cursor;
mod decode;
mod encode;
mod header;
mod opcode;

#[cfg(test)]
mod tests;

pub use decode::{Forgets, InitIn, Operation, decode};
pub use header::{DecodeError, Dialect, Header, Parts, split};
pub use opcode::Opcode;

pub(crate) use cursor::Cursor;
pub(crate) use header::supplementary_group;

pub(crate) use encode::{
    InitOut, align8, put_attr_out, put_dirent, put_entry, put_init, put_lock, put_open, put_statfs,
    put_statx, put_u32, put_u64,
};

/// Major version.
pub const MAJOR: u32 = 7;
/// Newest minor version whose structures are known here.
pub const MINOR: u32 = 45;
/// Oldest minor version accepted (Linux 5.4).
pub const OLDEST_MINOR: u32 = 31;
/// Bytes of a request's header.
pub const IN_HEADER: usize = 40;
/// Bytes of a reply's header.
pub const OUT_HEADER: usize = 16;
/// Bytes of an encoded entry.
pub const ENTRY_OUT: usize = 128;
/// Bytes of a directory entry before its name.
pub const DIRENT: usize = 24;
