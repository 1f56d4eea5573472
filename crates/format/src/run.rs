//! Runs and frames: how data is stored.
//!
//! A *run* is a piece of a file's bytes inside one block, cut into *frames* of 64 KiB (the last one shorter). Stored it is
//!
//! ```text
//! [seal head: 48 bytes, only in a sealed run] [frame table: 8 bytes a frame] [frame] [frame] …
//! ```
//!
//! A table entry is the frame's stored length (30 bits) with its form above (2 bits: 0 as it is, 1 LZ4, 2 Zstandard), and the CRC32C of its
//! stored bytes, both little-endian. The extent row has the CRC32C of head and table, so each byte that is read is covered, and a 4 KiB read
//! fetches and checks one frame. A frame is compressed first, then sealed; its authenticated data is the seal head, the run's raw
//! length, the frame's number and its form, none of which changes when a run is copied elsewhere.

mod encode;

use std::cell::RefCell;

use forebay_types::limits::FRAME_SIZE;

pub use encode::{RunEncoder, StoredRun, Trial, encode};

use crate::{
    FormatError, Keyring,
    cipher::{SEAL_HEAD_LEN, SealHead, TAG_LEN},
};

const ENTRY_LEN: usize = 8;
const WHAT: &str = "a run";

/// The form of a run as an extent row names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunForm {
    /// Frames as they are or compressed.
    Plain,
    /// Frames encrypted, after a seal head.
    Sealed,
}

impl RunForm {
    /// The number for it in an extent row.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            RunForm::Plain => 0,
            RunForm::Sealed => 1,
        }
    }

    /// The form that an extent row's number names.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] where it names none.
    pub fn from_number(number: u8) -> Result<RunForm, FormatError> {
        match number {
            0 => Ok(RunForm::Plain),
            1 => Ok(RunForm::Sealed),
            other => Err(FormatError::invalid(WHAT, format!("form {other}"))),
        }
    }

    /// Bytes of head and frame table of a run of `run_len` raw bytes.
    #[must_use]
    pub const fn table_len(self, run_len: u32) -> usize {
        let head = match self {
            RunForm::Plain => 0,
            RunForm::Sealed => SEAL_HEAD_LEN,
        };
        head + ENTRY_LEN * (run_len as usize).div_ceil(FRAME_SIZE)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FrameForm {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// What an extent row needs to know of a run that was encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodedRun {
    /// Bytes as stored.
    pub stored_len: u32,
    /// The number of its [`RunForm`].
    pub form: u8,
    /// CRC32C of head and frame table.
    pub check: u32,
}

fn frame_context(run_len: u32, index: usize, form: FrameForm) -> [u8; 9] {
    let mut context = [0; 9];
    context[..4].copy_from_slice(&run_len.to_le_bytes());
    context[4..8].copy_from_slice(&(index as u32).to_le_bytes());
    context[8] = form as u8;
    context
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u32,
    stored_len: u32,
    crc: u32,
    form: FrameForm,
}

/// The head and frame table of a run, checked.
#[derive(Clone, Debug)]
pub struct RunTable {
    run_len: u32,
    seal: Option<SealHead>,
    frames: Vec<Frame>,
}

impl RunTable {
    /// Reads head and table: the first [`RunForm::table_len`] bytes of a run of `run_len` raw and `stored_len` stored bytes.
    ///
    /// # Errors
    /// [`FormatError`] where `check` does not fit, or the table contradicts itself.
    pub fn decode(
        bytes: &[u8],
        form: u8,
        run_len: u32,
        stored_len: u32,
        check: u32,
    ) -> Result<RunTable, FormatError> {
        let form = RunForm::from_number(form)?;
        let table_len = form.table_len(run_len);
        let table = bytes.get(..table_len).ok_or(FormatError::Truncated { what: "a frame table" })?;
        let found = crc32c::crc32c(table);
        if found != check {
            return Err(FormatError::Checksum { what: "a frame table", expected: check, found });
        }
        let (seal, entries) = match form {
            RunForm::Plain => (None, table),
            RunForm::Sealed => {
                let (head, entries) = table.split_at(SEAL_HEAD_LEN);
                (Some(SealHead::decode(head)?), entries)
            }
        };
        let mut offset = table_len as u32;
        let mut frames = Vec::with_capacity(entries.len() / ENTRY_LEN);
        for entry in entries.chunks_exact(ENTRY_LEN) {
            let word = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let crc = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let form = match word >> 30 {
                0 => FrameForm::Raw,
                1 => FrameForm::Lz4,
                2 => FrameForm::Zstd,
                other => return Err(FormatError::invalid("a frame table", format!("frame form {other}"))),
            };
            let frame = Frame { offset, stored_len: word & 0x3fff_ffff, crc, form };
            offset = offset
                .checked_add(frame.stored_len)
                .filter(|end| *end <= stored_len)
                .ok_or_else(|| FormatError::invalid("a frame table", "its frames are longer than the run"))?;
            frames.push(frame);
        }
        if offset != stored_len {
            return Err(FormatError::invalid("a frame table", "its frames are shorter than the run"));
        }
        Ok(RunTable { run_len, seal, frames })
    }

    /// How many frames there are.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Where the stored bytes of frames `first..=last` are: offset in the run and length.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] where the run has no such frames.
    pub fn stored(&self, first: usize, last: usize) -> Result<(u32, u32), FormatError> {
        match (self.frames.get(first), self.frames.get(last)) {
            (Some(from), Some(to)) if first <= last => {
                Ok((from.offset, to.offset + to.stored_len - from.offset))
            }
            _ => Err(FormatError::invalid(WHAT, format!("it has no frames {first} to {last}"))),
        }
    }

    /// Raw bytes of frame `index`; 0 where the run has no such frame.
    #[must_use]
    pub fn raw_len(&self, index: usize) -> usize {
        if index < self.frames.len() { FRAME_SIZE.min(self.run_len as usize - index * FRAME_SIZE) } else { 0 }
    }

    /// Whether the stored bytes of frame `index` are its raw bytes: neither compressed nor sealed.
    #[must_use]
    pub fn is_stored_raw(&self, index: usize) -> bool {
        self.seal.is_none()
            && self.frames.get(index).is_some_and(|frame| {
                frame.form == FrameForm::Raw && frame.stored_len as usize == self.raw_len(index)
            })
    }

    /// Checks the stored bytes of frame `index`.
    ///
    /// # Errors
    /// [`FormatError`] where they are not what was written.
    pub fn verify_frame(&self, index: usize, stored: &[u8]) -> Result<(), FormatError> {
        self.verify_frame_parts(index, std::iter::once(stored))
    }

    /// The same of bytes that lie in several places, one behind the other.
    ///
    /// # Errors
    /// [`FormatError`] where they are not what was written.
    pub fn verify_frame_parts<'a>(
        &self,
        index: usize,
        stored: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), FormatError> {
        let frame = self.frames.get(index).ok_or(FormatError::Truncated { what: "a frame" })?;
        let (found, len) =
            stored.fold((0, 0), |(crc, len), part| (crc32c::crc32c_append(crc, part), len + part.len()));
        if len != frame.stored_len as usize {
            return Err(FormatError::Truncated { what: "a frame" });
        }
        if found != frame.crc {
            return Err(FormatError::Checksum { what: "a frame", expected: frame.crc, found });
        }
        Ok(())
    }

    /// Checks, opens and decompresses frame `index` from its stored bytes into `out`, which has [`RunTable::raw_len`] bytes.
    ///
    /// # Errors
    /// [`FormatError`]; `out` may then have bytes that mean nothing.
    pub fn decode_frame_into(
        &self,
        index: usize,
        stored: &[u8],
        keys: &Keyring,
        out: &mut [u8],
    ) -> Result<(), FormatError> {
        self.verify_frame(index, stored)?;
        let frame = self.frames.get(index).ok_or(FormatError::Truncated { what: "a frame" })?;
        if out.len() != self.raw_len(index) {
            return Err(FormatError::invalid("a frame", format!("it has no {} bytes", out.len())));
        }
        match &self.seal {
            None => decompress(frame.form, stored, out),
            Some(head) => {
                let context = frame_context(self.run_len, index, frame.form);
                let opened = keys.open(head, index as u32, &context, stored)?;
                decompress(frame.form, &opened, out)
            }
        }
    }

    /// Checks, opens and decompresses frame `index` from its stored bytes, and appends the raw bytes to `out`.
    ///
    /// # Errors
    /// [`FormatError`]; `out` may then have grown by bytes that mean nothing.
    pub fn decode_frame(
        &self,
        index: usize,
        stored: &[u8],
        keys: &Keyring,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let at = out.len();
        out.resize(at + self.raw_len(index), 0);
        self.decode_frame_into(index, stored, keys, &mut out[at..])
    }
}

thread_local! {
    /// What Zstandard needs to decompress, made once a thread: making it costs more than a frame.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompress_zstd(stored: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    ZSTD.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(zstd::bulk::Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(stored, out)
    })
}

fn decompress(form: FrameForm, stored: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
    let wrong = |detail: String| FormatError::Invalid { what: "a frame", detail };
    let len = match form {
        FrameForm::Raw => {
            if stored.len() == out.len() {
                out.copy_from_slice(stored);
            }
            stored.len()
        }
        FrameForm::Lz4 => {
            lz4_flex::block::decompress_into(stored, out).map_err(|error| wrong(error.to_string()))?
        }
        FrameForm::Zstd => decompress_zstd(stored, out).map_err(|error| wrong(error.to_string()))?,
    };
    if len != out.len() {
        return Err(wrong(format!("it has {len} bytes, not {}", out.len())));
    }
    Ok(())
}

/// Checks a whole stored run: its table and every frame's checksum, without opening or decompressing.
///
/// # Errors
/// [`FormatError`] where anything does not fit.
pub fn verify(stored: &[u8], form: u8, run_len: u32, check: u32) -> Result<(), FormatError> {
    let stored_len =
        u32::try_from(stored.len()).map_err(|_| FormatError::invalid(WHAT, "more than 4 GiB"))?;
    let table = RunTable::decode(stored, form, run_len, stored_len, check)?;
    for frame in &table.frames {
        let bytes = &stored[frame.offset as usize..(frame.offset + frame.stored_len) as usize];
        let found = crc32c::crc32c(bytes);
        if found != frame.crc {
            return Err(FormatError::Checksum { what: "a frame", expected: frame.crc, found });
        }
    }
    Ok(())
}

const _: () = assert!(FRAME_SIZE + TAG_LEN < 1 << 30);
