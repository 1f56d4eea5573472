//! Encoding of runs: which frames are compressed, and no copy of those that are not.

use std::fmt;

use forebay_types::{Compression, limits::FRAME_SIZE};

use super::{EncodedRun, FrameForm, RunForm, WHAT, frame_context};
use crate::{FormatError, RunSealer};

/// A frame that loses less than this part of itself is stored as it is: reading it back is a copy then.
const WORTH: usize = 16;
const ZSTD_LEVEL: i32 = 3;

/// Appends `raw` (1 byte to 8 MiB) as a run to `out`.
///
/// # Errors
/// [`FormatError`] where sealing or compressing fails; `out` is then as long as before.
pub fn encode(
    raw: &[u8],
    compression: Compression,
    sealer: Option<&RunSealer>,
    out: &mut Vec<u8>,
) -> Result<EncodedRun, FormatError> {
    let mut encoder = RunEncoder::default();
    let run = encoder.encode(raw, compression, sealer, &mut Trial::default())?;
    run.parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(run.about)
}

/// Says which frames are worth an attempt at compressing them.
///
/// After a frame that did not shrink the next attempt leaves out 1 frame, then 3, 7, and 15 from there on: bytes that do not compress cost
/// one attempt in sixteen. After one that shrank every frame is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    misses: u8,
    skip: u8,
}

impl Trial {
    const MISSES_MAX: u8 = 4;

    /// Whether the next frame is to be tried; one that is not counts as left out.
    fn is_due(&mut self) -> bool {
        if self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    fn ended(&mut self, shrank: bool) {
        if shrank {
            *self = Trial::default();
        } else {
            self.misses = (self.misses + 1).min(Self::MISSES_MAX);
            self.skip = (1 << self.misses) - 1;
        }
    }
}

/// A run as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredRun<'a> {
    /// What an extent row needs to know.
    pub about: EncodedRun,
    /// Its bytes, in two parts that follow each other: head and table, and the frames. Where every frame stays as it is, the second part is the
    /// raw bytes themselves.
    pub parts: [&'a [u8]; 2],
}

/// Encodes one run after the other, and keeps its buffers for the next.
#[derive(Default)]
pub struct RunEncoder {
    table: Vec<u8>,
    frames: Vec<u8>,
    compressor: Compressor,
}

impl fmt::Debug for RunEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunEncoder({} bytes kept)", self.frames.capacity())
    }
}

impl RunEncoder {
    /// Encodes `raw` (1 byte to 8 MiB) as a run. `trial` is what the bytes before have shown, where there are such that are likely to be alike.
    ///
    /// # Errors
    /// [`FormatError`] where sealing or compressing fails.
    pub fn encode<'a>(
        &'a mut self,
        raw: &'a [u8],
        compression: Compression,
        sealer: Option<&RunSealer>,
        trial: &mut Trial,
    ) -> Result<StoredRun<'a>, FormatError> {
        let too_long = |_| FormatError::invalid(WHAT, "more than 4 GiB");
        let run_len = u32::try_from(raw.len()).map_err(too_long)?;
        let form = if sealer.is_some() { RunForm::Sealed } else { RunForm::Plain };
        let seal = sealer.map(RunSealer::next_run).transpose()?;
        self.table.clear();
        self.table.reserve(form.table_len(run_len));
        self.frames.clear();
        if let Some(seal) = &seal {
            self.table.extend_from_slice(&seal.head.encode());
        }
        // Frames that stay as they are are copied only where another one of their run does not.
        let mut copied = seal.is_some();
        for (index, raw_frame) in raw.chunks(FRAME_SIZE).enumerate() {
            let compressed = self.compressor.try_frame(raw_frame, compression, trial)?;
            if compressed.is_some() && !copied {
                copied = true;
                self.frames.extend_from_slice(&raw[..index * FRAME_SIZE]);
            }
            let (frame_form, stored) = compressed.unwrap_or((FrameForm::Raw, raw_frame));
            let at = self.frames.len();
            if copied {
                self.frames.extend_from_slice(stored);
            }
            if let Some(seal) = &seal {
                let context = frame_context(run_len, index, frame_form);
                seal.seal(index as u32, &context, at, &mut self.frames)?;
            }
            let stored = if copied { &self.frames[at..] } else { raw_frame };
            let word = stored.len() as u32 | (frame_form as u32) << 30;
            self.table.extend_from_slice(&word.to_le_bytes());
            self.table.extend_from_slice(&crc32c::crc32c(stored).to_le_bytes());
        }
        let frames: &[u8] = if copied { &self.frames } else { raw };
        let stored_len = u32::try_from(self.table.len() + frames.len()).map_err(too_long)?;
        let about = EncodedRun { stored_len, form: form.number(), check: crc32c::crc32c(&self.table) };
        Ok(StoredRun { about, parts: [&self.table, frames] })
    }
}

/// The codecs' own tables, which are costly to make, and room for one compressed frame.
#[derive(Default)]
struct Compressor {
    lz4: Option<lz4_flex::block::CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    frame: Vec<u8>,
}

impl Compressor {
    /// The frame compressed; `None` where that is not worth it or was not tried.
    fn try_frame(
        &mut self,
        raw: &[u8],
        compression: Compression,
        trial: &mut Trial,
    ) -> Result<Option<(FrameForm, &[u8])>, FormatError> {
        if compression == Compression::None || !trial.is_due() {
            return Ok(None);
        }
        let wrong = |error: &dyn fmt::Display| FormatError::invalid(WHAT, error.to_string());
        let (form, len) = match compression {
            Compression::None => return Ok(None),
            Compression::Lz4 => {
                self.make_room(lz4_flex::block::get_maximum_output_size(raw.len()));
                let table = self.lz4.get_or_insert_default();
                let len = lz4_flex::block::compress_into_with_table(raw, &mut self.frame, table);
                (FrameForm::Lz4, len.map_err(|error| wrong(&error))?)
            }
            Compression::Zstd => {
                self.make_room(zstd::zstd_safe::compress_bound(raw.len()));
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => {
                        none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|error| wrong(&error))?)
                    }
                };
                let len = zstd.compress_to_buffer(raw, &mut self.frame[..]);
                (FrameForm::Zstd, len.map_err(|error| wrong(&error))?)
            }
        };
        let shrank = len <= raw.len() - raw.len().div_ceil(WORTH);
        trial.ended(shrank);
        Ok(shrank.then(|| (form, &self.frame[..len])))
    }

    fn make_room(&mut self, len: usize) {
        if self.frame.len() < len {
            self.frame.resize(len, 0);
        }
    }
}
