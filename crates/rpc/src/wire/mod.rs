//! The layouts of `docs/design/wire.md`, in bytes. Decoders take any bytes and never panic.

mod header;
mod preface;
mod refusal;

pub use header::{FrameType, HEADER_LEN, Header};
pub use preface::{MAGIC, PREFACE_LEN_MAX, Preface};
pub use refusal::{Class, Code, REFUSAL_LEN_MAX, Refusal};

/// The version that this release speaks.
pub const VERSION: u16 = 1;
/// The oldest version that it still speaks.
pub const VERSION_OLDEST: u16 = 1;
/// Feature bits that a peer must know if they are set.
pub const FEATURES_REQUIRED: u64 = 0xffff_ffff_0000_0000;
/// Feature bit: payloads have no checksum. Over a Unix socket alone, where they do not leave the machine's memory.
pub const UNCHECKED: u64 = 1;
/// Largest body that may be allowed, in bytes.
pub const BODY_MAX: u32 = 16 << 20;
/// Largest bulk that may be allowed, in bytes.
pub const BULK_MAX: u32 = 64 << 20;
/// Longest deadline of a request, in milliseconds.
pub const DEADLINE_MAX_MS: u32 = 3_600_000;

/// Takes numbers from the front of some bytes.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self, len: usize) -> Option<String> {
        self.take(len).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The beginning of a text that takes at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
