use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_format::{
    FormatError, Keyring,
    row::Extent,
    run::{RunForm, RunTable},
};
use forebay_types::{SegmentId, limits::FRAME_SIZE};

use crate::{SegmentSource, SourceError, frame_cache::FrameCache};

/// Runs of at most this many stored bytes are fetched whole, in one read.
const WHOLE_RUN_MAX: u32 = 128 << 10;

/// Why the bytes of an extent cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The segment's bytes cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// They can, and they are not the ones that were written, also after they were fetched a second time.
    #[error("segment {segment} is damaged in the run at {offset}: {source}")]
    Corrupt {
        /// Which one.
        segment: SegmentId,
        /// Where its run starts.
        offset: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// They are whole and cannot be decrypted.
    #[error(
        "segment {segment} cannot be decrypted in the run at {offset}: {source}; mount with the key that it was written with"
    )]
    Sealed {
        /// Which one.
        segment: SegmentId,
        /// Where its run starts.
        offset: u64,
        /// Why not.
        source: FormatError,
    },
    /// The extent has no such bytes.
    #[error("an extent of {have} bytes has no {len} bytes from {from}")]
    OutOfRange {
        /// Bytes of the extent.
        have: u32,
        /// The first byte asked for.
        from: u32,
        /// How many were.
        len: u32,
    },
}

/// Reads the bytes of extents, verified. Shared by all threads; holds no lock while it reads.
pub struct RunReader {
    source: Arc<dyn SegmentSource>,
    keys: Arc<Keyring>,
    cache: FrameCache,
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunReader({} bytes cached)", self.cached_bytes())
    }
}

/// Bytes of a run: raw offsets in it.
struct Wanted<'a> {
    extent: &'a Extent,
    range: Range<usize>,
}

impl Wanted<'_> {
    fn frames(&self) -> Range<usize> {
        self.range.start / FRAME_SIZE..(self.range.end - 1) / FRAME_SIZE + 1
    }

    /// Appends what frame `index` has of the range; `false` where the frame is too short for it.
    fn append_part(&self, frame: &[u8], index: usize, out: &mut Vec<u8>) -> bool {
        let start = index * FRAME_SIZE;
        let from = self.range.start.saturating_sub(start);
        let to = (self.range.end - start).min(FRAME_SIZE);
        match frame.get(from..to) {
            Some(part) => {
                out.extend_from_slice(part);
                true
            }
            None => false,
        }
    }
}

/// What went wrong in one attempt.
enum Attempt {
    Source(SourceError),
    /// These bytes (offset in the run, length) are not what was written.
    Format(FormatError, u32, u32),
}

impl From<SourceError> for Attempt {
    fn from(error: SourceError) -> Self {
        Attempt::Source(error)
    }
}

impl RunReader {
    /// A reader that keeps at most `cache_bytes` of tables and decoded frames.
    #[must_use]
    pub fn new(source: Arc<dyn SegmentSource>, keys: Arc<Keyring>, cache_bytes: u64) -> RunReader {
        RunReader { source, keys, cache: FrameCache::new(cache_bytes) }
    }

    /// Bytes that the cache holds.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// How often a frame was found in the cache, and how often a frame or a run's table was not, since the beginning.
    #[must_use]
    pub fn cache_lookups(&self) -> (u64, u64) {
        self.cache.lookups()
    }

    /// Drops everything cached. Reads that run meanwhile may put something in again.
    pub fn empty_cache(&self) {
        self.cache.clear();
    }

    /// Appends `len` bytes of `extent` from its byte `from` to `out`. Bytes that do not fit their checksum are fetched a second time, after the
    /// source was told to distrust them.
    ///
    /// # Errors
    /// [`ReadError`]; `out` is then as long as before.
    pub fn read(&self, extent: &Extent, from: u32, len: u32, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let end = u64::from(from) + u64::from(len);
        if end > u64::from(extent.len) || u64::from(extent.skip) + end > u64::from(extent.run_len) {
            return Err(ReadError::OutOfRange { have: extent.len, from, len });
        }
        if len == 0 {
            return Ok(());
        }
        let start = extent.skip as usize + from as usize;
        let (wanted, at) = (Wanted { extent, range: start..start + len as usize }, out.len());
        let mut again = true;
        loop {
            let error = match self.attempt(&wanted, out) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            out.truncate(at);
            let (segment, offset) = (extent.segment, extent.run_offset);
            match error {
                Attempt::Source(error) => return Err(error.into()),
                Attempt::Format(source @ FormatError::Decrypt { .. }, ..) => {
                    return Err(ReadError::Sealed { segment, offset, source });
                }
                Attempt::Format(_, place, len) if again => {
                    again = false;
                    self.source.distrust(segment, offset.saturating_add(u64::from(place)), len);
                }
                Attempt::Format(source, ..) => return Err(ReadError::Corrupt { segment, offset, source }),
            }
        }
    }

    fn attempt(&self, wanted: &Wanted<'_>, out: &mut Vec<u8>) -> Result<(), Attempt> {
        let extent = wanted.extent;
        let table = self.cache.table(extent);
        if extent.stored_len <= WHOLE_RUN_MAX {
            if let Some(table) = &table
                && self.all_cached(wanted, table, out)
            {
                return Ok(());
            }
            return self.whole_run(wanted, out);
        }
        let table = match table {
            Some(table) => table,
            None => self.fetch_table(extent)?,
        };
        self.parts(wanted, &table, out)
    }

    /// Whether all of it was cached.
    fn all_cached(&self, wanted: &Wanted<'_>, table: &RunTable, out: &mut Vec<u8>) -> bool {
        let at = out.len();
        for index in wanted.frames().take(table.frames()) {
            match self.cache.frame(wanted.extent, index) {
                Some(frame) if wanted.append_part(&frame, index, out) => {}
                _ => {
                    out.truncate(at);
                    return false;
                }
            }
        }
        out.len() - at == wanted.range.len()
    }

    fn fetch(&self, extent: &Extent, place: u32, len: u32) -> Result<Bytes, Attempt> {
        let offset = extent.run_offset.checked_add(u64::from(place));
        let offset = offset.ok_or(Attempt::Format(FormatError::Truncated { what: "a run" }, place, len))?;
        let bytes = self.source.read(extent.segment, offset, len)?;
        if bytes.len() != len as usize {
            return Err(Attempt::Format(FormatError::Truncated { what: "a run" }, place, len));
        }
        Ok(bytes)
    }

    fn decode_table(extent: &Extent, bytes: &[u8]) -> Result<RunTable, Attempt> {
        let Extent { form, run_len, stored_len, check, .. } = *extent;
        RunTable::decode(bytes, form, run_len, stored_len, check)
            .map_err(|error| Attempt::Format(error, 0, bytes.len() as u32))
    }

    fn fetch_table(&self, extent: &Extent) -> Result<Arc<RunTable>, Attempt> {
        let form = RunForm::from_number(extent.form).map_err(|error| Attempt::Format(error, 0, 0))?;
        let len = (form.table_len(extent.run_len) as u32).min(extent.stored_len);
        let bytes = self.fetch(extent, 0, len)?;
        let table = Arc::new(Self::decode_table(extent, &bytes)?);
        self.cache.put_table(extent, Arc::clone(&table));
        Ok(table)
    }

    /// A small run: everything in one read. Only what costs more than a copy to decode is cached.
    fn whole_run(&self, wanted: &Wanted<'_>, out: &mut Vec<u8>) -> Result<(), Attempt> {
        let extent = wanted.extent;
        let stored = self.fetch(extent, 0, extent.stored_len)?;
        let table = Arc::new(Self::decode_table(extent, &stored)?);
        let cached = table.frames() > 1 || !is_raw(extent);
        if cached {
            self.cache.put_table(extent, Arc::clone(&table));
        }
        let fetched = Fetched { table: &table, place: 0, stored: &stored, cached };
        wanted.frames().try_for_each(|index| self.frame(wanted, &fetched, index, out))
    }

    /// A large run: the frames that are not cached, neighbours in one read.
    fn parts(&self, wanted: &Wanted<'_>, table: &RunTable, out: &mut Vec<u8>) -> Result<(), Attempt> {
        let (extent, frames) = (wanted.extent, wanted.frames());
        let mut index = frames.start;
        while index < frames.end {
            if let Some(frame) = self.cache.frame(extent, index)
                && wanted.append_part(&frame, index, out)
            {
                index += 1;
                continue;
            }
            let mut next = index + 1;
            while next < frames.end && self.cache.frame(extent, next).is_none() {
                next += 1;
            }
            let (place, len) = stored_at(extent, table, index, next - 1)?;
            let stored = self.fetch(extent, place, len)?;
            let fetched = Fetched { table, place, stored: &stored, cached: true };
            (index..next).try_for_each(|index| self.frame(wanted, &fetched, index, out))?;
            index = next;
        }
        Ok(())
    }

    /// Decodes a frame and appends what is wanted of it. A raw frame that is used whole is not cached: nobody is likely to come back for the
    /// rest of it.
    fn frame(
        &self,
        wanted: &Wanted<'_>,
        fetched: &Fetched<'_>,
        index: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Attempt> {
        let (extent, table) = (wanted.extent, fetched.table);
        let (at, len) = stored_at(extent, table, index, index)?;
        let wrong = |error| Attempt::Format(error, at, len);
        let from = (at - fetched.place) as usize;
        let bytes = fetched.stored.get(from..from + len as usize);
        let bytes = bytes.ok_or_else(|| wrong(FormatError::Truncated { what: "a frame" }))?;
        let raw_start = index * FRAME_SIZE;
        let raw_end = (raw_start + FRAME_SIZE).min(extent.run_len as usize);
        let whole = wanted.range.start <= raw_start && raw_end <= wanted.range.end;
        if whole && (!fetched.cached || is_raw(extent)) {
            return table.decode_frame(index, bytes, &self.keys, out).map_err(wrong);
        }
        let mut frame = Vec::with_capacity(raw_end - raw_start);
        table.decode_frame(index, bytes, &self.keys, &mut frame).map_err(wrong)?;
        if !wanted.append_part(&frame, index, out) {
            return Err(wrong(FormatError::Truncated { what: "a frame" }));
        }
        if fetched.cached {
            self.cache.put_frame(extent, index, frame.into());
        }
        Ok(())
    }
}

/// Stored bytes of a run, from `place` in it, and whether its frames are worth caching.
struct Fetched<'a> {
    table: &'a RunTable,
    place: u32,
    stored: &'a Bytes,
    cached: bool,
}

fn stored_at(extent: &Extent, table: &RunTable, first: usize, last: usize) -> Result<(u32, u32), Attempt> {
    table.stored(first, last).map_err(|error| Attempt::Format(error, 0, extent.stored_len))
}

/// Whether all frames of the run are stored as they are.
fn is_raw(extent: &Extent) -> bool {
    let plain = extent.form == RunForm::Plain.number();
    plain && extent.stored_len as usize == RunForm::Plain.table_len(extent.run_len) + extent.run_len as usize
}
