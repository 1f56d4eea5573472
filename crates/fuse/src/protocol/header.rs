//! What all requests begin and end with: the header, and how fixed arguments, payload and extensions follow it.

use super::IN_HEADER;
use super::cursor::Cursor;
use super::opcode::Opcode;
use crate::flags::Capabilities;

const EXT_GROUPS: u32 = 32;

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than a header, or than the header says.
    #[error("the request is cut short: {got} bytes, its header or length needs {need}")]
    Short {
        /// Bytes there.
        got: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The operation is not known here.
    #[error("unknown operation {0}")]
    UnknownOpcode(u32),
    /// Arguments do not have the form that the operation needs.
    #[error("malformed arguments of {}", .0.name())]
    Malformed(Opcode),
}

/// A request's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole request.
    pub len: u32,
    /// The operation's code.
    pub opcode: u32,
    /// Names the request while it is in flight.
    pub unique: u64,
    /// The inode it is about.
    pub nodeid: u64,
    /// Caller's user id.
    pub uid: u32,
    /// Caller's group id.
    pub gid: u32,
    /// Caller's thread id.
    pub pid: u32,
    /// Bytes of extensions at the end of the request.
    pub extensions: usize,
}

impl Header {
    /// Decodes the first [`IN_HEADER`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        let short = DecodeError::Short { got: bytes.len(), need: IN_HEADER };
        let mut c = Cursor::new(bytes);
        let mut read = || {
            Some(Header {
                len: c.u32()?,
                opcode: c.u32()?,
                unique: c.u64()?,
                nodeid: c.u64()?,
                uid: c.u32()?,
                gid: c.u32()?,
                pid: c.u32()?,
                extensions: {
                    let words = c.u16()?;
                    c.u16()?;
                    usize::from(words) * 8
                },
            })
        };
        read().ok_or(short)
    }
}

/// What was agreed that changes the form of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dialect {
    /// SETXATTR carries flags (SETXATTR_EXT).
    pub setxattr_ext: bool,
}

impl Dialect {
    /// The dialect that these capabilities mean.
    pub fn of(agreed: Capabilities) -> Dialect {
        Dialect { setxattr_ext: agreed.contains(Capabilities::SETXATTR_EXT) }
    }

    /// Bytes of an operation's fixed arguments.
    pub(crate) fn fixed_len(self, op: Opcode) -> usize {
        match op {
            Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Mkdir
            | Opcode::Rename
            | Opcode::Link
            | Opcode::Open
            | Opcode::Opendir
            | Opcode::Getxattr
            | Opcode::Listxattr
            | Opcode::Access
            | Opcode::Interrupt
            | Opcode::Syncfs => 8,
            Opcode::Setxattr => {
                if self.setxattr_ext {
                    16
                } else {
                    8
                }
            }
            Opcode::Getattr
            | Opcode::Mknod
            | Opcode::Rename2
            | Opcode::Create
            | Opcode::Tmpfile
            | Opcode::Fsync
            | Opcode::Fsyncdir
            | Opcode::Bmap => 16,
            Opcode::Release
            | Opcode::Releasedir
            | Opcode::Flush
            | Opcode::Poll
            | Opcode::Lseek
            | Opcode::Statx => 24,
            Opcode::Ioctl | Opcode::Fallocate => 32,
            Opcode::Read | Opcode::Readdir | Opcode::Readdirplus | Opcode::Write => 40,
            Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => 48,
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => 56,
            Opcode::Init => 64,
            Opcode::Setattr => 88,
            _ => 0,
        }
    }
}

/// A contiguous request apart.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// The operation's fixed arguments.
    pub fixed: &'a [u8],
    /// Names, data: what varies in length.
    pub payload: &'a [u8],
    /// Extensions.
    pub extensions: &'a [u8],
}

/// Splits a contiguous request, as `/dev/fuse` gives it, by its header.
pub fn split<'a>(
    header: &Header,
    op: Opcode,
    bytes: &'a [u8],
    dialect: Dialect,
) -> Result<Parts<'a>, DecodeError> {
    let need = (header.len as usize).max(IN_HEADER);
    let short = DecodeError::Short { got: bytes.len(), need };
    let body = bytes.get(IN_HEADER..need).ok_or(short)?;
    let body_len = body.len().checked_sub(header.extensions).ok_or(DecodeError::Malformed(op))?;
    let (body, extensions) = body.split_at_checked(body_len).ok_or(short)?;
    // INIT's arguments grew over time: what there is of them is decoded.
    let fixed_len = if op == Opcode::Init { body.len() } else { dialect.fixed_len(op) };
    let (fixed, payload) = body.split_at_checked(fixed_len).ok_or(DecodeError::Malformed(op))?;
    Ok(Parts { fixed, payload, extensions })
}

/// The supplementary group in a creation's extensions, if one is told.
pub(crate) fn supplementary_group(extensions: &[u8]) -> Option<u32> {
    let mut rest = Cursor::new(extensions);
    loop {
        let mut c = rest;
        let size = c.u32()? as usize;
        let kind = c.u32()?;
        if kind == EXT_GROUPS {
            return if c.u32()? > 0 { c.u32() } else { None };
        }
        rest.take(size.max(8))?;
    }
}
