//! From stored bytes to raw ones: what of a run is fetched, how it is verified, where it is put.
//!
//! Guarantees: nothing is put where a caller sees it as bytes of the run before its frame, and the table that has the frame's checksum, were
//! verified in this attempt or came from the cache, where only verified ones are. A frame that is stored as it is and wanted whole is read to
//! where the caller wants it and verified there; the caller throws the buffer away if that fails.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_format::{
    FormatError,
    row::Extent,
    run::{RunForm, RunTable},
};
use forebay_types::limits::FRAME_SIZE;

use crate::{
    Access, Parts, RunReader, SourceError,
    frame_cache::{Frame, FrameCache},
    pieces::{parts_len, take_parts},
};

/// Runs of at most this many stored bytes are fetched with their table in one read, if they are wanted whole or have one frame.
const WHOLE_RUN_MAX: u32 = 128 << 10;
/// A run that is stored as it is and longer than this has its table read first, and then its frames to where they are wanted, because a copy
/// would cost more than the second read.
const COPY_MAX: u32 = 16 << 10;

/// No run of one frame has more stored bytes beyond its raw ones: table, head and tag.
const OVERHEAD_MAX: u32 = 256;

/// Bytes of a run that are wanted: raw offsets in it. Not empty.
pub(crate) struct Wanted<'a> {
    pub(crate) extent: &'a Extent,
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

impl Wanted<'_> {
    pub(crate) fn frames(&self) -> Range<usize> {
        self.range.start / FRAME_SIZE..(self.range.end - 1) / FRAME_SIZE + 1
    }

    /// What of frame `index` is wanted, and where in the answer it goes.
    fn part(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let start = index * FRAME_SIZE;
        let from = self.range.start.max(start);
        let to = self.range.end.min(start + FRAME_SIZE);
        (from - start..to - start, from - self.range.start..to - self.range.start)
    }

    fn is_whole(&self, index: usize) -> bool {
        let start = index * FRAME_SIZE;
        let end = (start + FRAME_SIZE).min(self.extent.run_len as usize);
        self.range.start <= start && end <= self.range.end
    }

    /// Puts what is wanted of a frame where it goes in the answer.
    fn put(&self, index: usize, frame: &[u8], out: &mut [u8]) -> Result<(), Attempt> {
        let (part, place) = self.part(index);
        match (frame.get(part), out.get_mut(place)) {
            (Some(part), Some(place)) => {
                place.copy_from_slice(part);
                Ok(())
            }
            _ => Err(self.short("a frame")),
        }
    }

    /// The run is shorter than its extent says.
    pub(crate) fn short(&self, what: &'static str) -> Attempt {
        Attempt::Format(FormatError::Truncated { what }, 0, self.extent.stored_len)
    }
}

/// What went wrong in one attempt.
pub(crate) enum Attempt {
    Source(SourceError),
    /// These bytes (offset in the run, length) are not what was written.
    Format(FormatError, u32, u32),
}

impl From<SourceError> for Attempt {
    fn from(error: SourceError) -> Self {
        Attempt::Source(error)
    }
}

/// Whether all frames of the run are stored as they are.
pub(crate) fn is_raw(extent: &Extent) -> bool {
    let plain = extent.form == RunForm::Plain.number();
    plain && extent.stored_len as usize == RunForm::Plain.table_len(extent.run_len) + extent.run_len as usize
}

fn stored_at(extent: &Extent, table: &RunTable, first: usize, last: usize) -> Result<(u32, u32), Attempt> {
    table.stored(first, last).map_err(|error| Attempt::Format(error, 0, extent.stored_len))
}

fn decode_table(extent: &Extent, bytes: &[u8]) -> Result<RunTable, Attempt> {
    let Extent { form, run_len, stored_len, check, .. } = *extent;
    RunTable::decode(bytes, form, run_len, stored_len, check)
        .map_err(|error| Attempt::Format(error, 0, bytes.len() as u32))
}

impl RunReader {
    fn cache(&self) -> &FrameCache {
        &self.cache
    }

    /// Fills `out` with stored bytes of the run, from `place` in it.
    fn fetch(&self, wanted: &Wanted<'_>, place: u32, out: &mut [u8]) -> Result<(), Attempt> {
        let extent = wanted.extent;
        let len = out.len() as u32;
        let truncated = || Attempt::Format(FormatError::Truncated { what: "a run" }, place, len);
        let offset = extent.run_offset.checked_add(u64::from(place)).ok_or_else(truncated)?;
        match self.source.read_into(extent.segment, offset, out, wanted.access)? {
            got if got == out.len() => Ok(()),
            _ => Err(truncated()),
        }
    }

    /// The table where it is known or not to be fetched along with the frames; then it is cached.
    fn table(&self, wanted: &Wanted<'_>) -> Result<Arc<RunTable>, Attempt> {
        let extent = wanted.extent;
        if let Some(table) = self.known_table(extent) {
            return Ok(table);
        }
        let form = RunForm::from_number(extent.form).map_err(|error| Attempt::Format(error, 0, 0))?;
        let len = (form.table_len(extent.run_len) as u32).min(extent.stored_len);
        let mut bytes = self.buffers.take(len as usize);
        self.fetch(wanted, 0, &mut bytes)?;
        self.keep_table(extent, decode_table(extent, &bytes)?)
    }

    /// The table from the cache. That of a raw run of one frame is never there.
    fn known_table(&self, extent: &Extent) -> Option<Arc<RunTable>> {
        let single = extent.run_len as usize <= FRAME_SIZE && is_raw(extent);
        if single { None } else { self.cache().table(extent) }
    }

    fn keep_table(&self, extent: &Extent, table: RunTable) -> Result<Arc<RunTable>, Attempt> {
        let table = Arc::new(table);
        if table.frames() > 1 || !is_raw(extent) {
            self.cache().put_table(extent, Arc::clone(&table));
        }
        Ok(table)
    }

    /// The frame in which all of what is wanted lies.
    pub(crate) fn one_frame(&self, wanted: &Wanted<'_>) -> Result<Bytes, Attempt> {
        let (extent, index) = (wanted.extent, wanted.frames().start);
        if let Some(frame) = self.cached_frame(wanted, index) {
            return Ok(frame.bytes);
        }
        if extent.run_len as usize > FRAME_SIZE {
            let table = self.table(wanted)?;
            return self.fetch_frame(wanted, &table, index);
        }
        if extent.stored_len > extent.run_len + OVERHEAD_MAX {
            return Err(wanted.short("a run"));
        }
        let mut stored = self.buffers.take(extent.stored_len as usize);
        self.fetch(wanted, 0, &mut stored)?;
        let table = decode_table(extent, &stored)?;
        let (at, len) = stored_at(extent, &table, 0, 0)?;
        let place = at as usize..(at + len) as usize;
        if !table.is_stored_raw(0) {
            let frame = self.decode(wanted, &table, 0, &stored[place])?;
            self.keep_table(extent, table)?;
            self.keep_frame(wanted, 0, &frame, true);
            return Ok(frame.bytes);
        }
        table.verify_frame(0, &stored[place.clone()]).map_err(|error| Attempt::Format(error, at, len))?;
        let held = stored.capacity();
        let frame = Frame { bytes: stored.freeze().slice(place), held };
        self.keep_frame(wanted, 0, &frame, false);
        Ok(frame.bytes)
    }

    /// A frame from the cache. A raw one that is wanted whole is not looked for: it is not put there.
    fn cached_frame(&self, wanted: &Wanted<'_>, index: usize) -> Option<Frame> {
        let never = wanted.is_whole(index) && is_raw(wanted.extent);
        if never { None } else { self.cache().frame(wanted.extent, index) }
    }

    /// Caches a frame if it is likely to be wanted again: one that was `costly` to decode, unless its reader is done with it; one that is stored
    /// as it is and was wanted in part, if its reader goes on to the rest, or somebody has come back for it.
    fn keep_frame(&self, wanted: &Wanted<'_>, index: usize, frame: &Frame, costly: bool) {
        let (whole, sequential) = (wanted.is_whole(index), wanted.access == Access::Sequential);
        let keep = match (costly, whole) {
            (true, whole) => !(whole && sequential),
            (false, true) => false,
            (false, false) => sequential || self.cache().comes_back(wanted.extent, index),
        };
        if keep {
            self.cache().put_frame(wanted.extent, index, frame.clone());
        }
    }

    /// Fetches one frame by itself.
    fn fetch_frame(&self, wanted: &Wanted<'_>, table: &RunTable, index: usize) -> Result<Bytes, Attempt> {
        let (at, len) = stored_at(wanted.extent, table, index, index)?;
        let mut stored = self.buffers.take(len as usize);
        self.fetch(wanted, at, &mut stored)?;
        let raw = table.is_stored_raw(index);
        let frame = if raw {
            table.verify_frame(index, &stored).map_err(|error| Attempt::Format(error, at, len))?;
            let held = stored.capacity();
            Frame { bytes: stored.freeze(), held }
        } else {
            self.decode(wanted, table, index, &stored)?
        };
        self.keep_frame(wanted, index, &frame, !raw);
        Ok(frame.bytes)
    }

    fn decode(
        &self,
        wanted: &Wanted<'_>,
        table: &RunTable,
        index: usize,
        stored: &[u8],
    ) -> Result<Frame, Attempt> {
        let mut raw = self.buffers.take(table.raw_len(index));
        self.decode_into(wanted, table, index, stored, &mut raw)?;
        let held = raw.capacity();
        Ok(Frame { bytes: raw.freeze(), held })
    }

    fn decode_into(
        &self,
        wanted: &Wanted<'_>,
        table: &RunTable,
        index: usize,
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), Attempt> {
        let (at, len) = stored_at(wanted.extent, table, index, index)?;
        table
            .decode_frame_into(index, stored, &self.keys, out)
            .map_err(|error| Attempt::Format(error, at, len))
    }

    /// Fills `out` with what is wanted.
    pub(crate) fn fill(&self, wanted: &Wanted<'_>, out: &mut [u8]) -> Result<(), Attempt> {
        let (extent, frames) = (wanted.extent, wanted.frames());
        let raw = is_raw(extent);
        if frames.len() == 1 && (!raw || !wanted.is_whole(frames.start) || extent.run_len <= COPY_MAX) {
            let frame = self.one_frame(wanted)?;
            return wanted.put(frames.start, &frame, out);
        }
        let all = wanted.range.len() == extent.run_len as usize;
        if all && !raw && extent.stored_len <= WHOLE_RUN_MAX && self.known_table(extent).is_none() {
            let mut stored = self.buffers.take(extent.stored_len as usize);
            self.fetch(wanted, 0, &mut stored)?;
            let table = self.keep_table(extent, decode_table(extent, &stored)?)?;
            return self.decode_all(wanted, &table, frames, (0, &stored), out);
        }
        let table = self.table(wanted)?;
        self.parts(wanted, &table, out)
    }

    /// Whole frames that are stored as they are, verified, in the source's own memory, if it shares that. The table comes along where it lies
    /// before them and is not known.
    pub(crate) fn shared(&self, wanted: &Wanted<'_>) -> Result<Option<Parts>, Attempt> {
        let (extent, frames) = (wanted.extent, wanted.frames());
        if !is_raw(extent) || !wanted.is_whole(frames.start) || !wanted.is_whole(frames.end - 1) {
            return Ok(None);
        }
        let table_len = RunForm::Plain.table_len(extent.run_len);
        let known = self.known_table(extent);
        let with_table = known.is_none() && wanted.range.start == 0;
        let place = if with_table { 0 } else { (table_len + wanted.range.start) as u32 };
        let before = if with_table { table_len } else { 0 };
        let len = (before + wanted.range.len()) as u32;
        let truncated = || Attempt::Format(FormatError::Truncated { what: "a run" }, place, len);
        let offset = extent.run_offset.checked_add(u64::from(place)).ok_or_else(truncated)?;
        let Some(mut parts) = self.source.share(extent.segment, offset, len, wanted.access)? else {
            return Ok(None);
        };
        if parts_len(&parts) != len as usize {
            return Err(truncated());
        }
        let table = match known {
            Some(table) => table,
            None if with_table => {
                let table = decode_table(extent, &take_parts(&mut parts, table_len).concat())?;
                self.keep_table(extent, table)?
            }
            None => self.table(wanted)?,
        };
        let mut rest = parts.clone();
        for index in frames {
            let frame = take_parts(&mut rest, FRAME_SIZE);
            let (at, len) = stored_at(extent, &table, index, index)?;
            let verified = table.verify_frame_parts(index, frame.iter().map(AsRef::as_ref));
            verified.map_err(|error| Attempt::Format(error, at, len))?;
        }
        Ok(Some(parts))
    }

    /// What is wanted, the frames that are not cached in as few reads as that takes.
    fn parts(&self, wanted: &Wanted<'_>, table: &RunTable, out: &mut [u8]) -> Result<(), Attempt> {
        let frames = wanted.frames();
        if frames.end > table.frames() {
            return Err(wanted.short("a run"));
        }
        let mut index = frames.start;
        while index < frames.end {
            if let Some(frame) = self.cached_frame(wanted, index) {
                wanted.put(index, &frame.bytes, out)?;
                index += 1;
                continue;
            }
            let direct = |index: usize| wanted.is_whole(index) && table.is_stored_raw(index);
            let kind = direct(index);
            let mut next = index + 1;
            while next < frames.end && direct(next) == kind && self.cached_frame(wanted, next).is_none() {
                next += 1;
            }
            if kind {
                self.fetch_in_place(wanted, table, index..next, out)?;
            } else if next == index + 1 {
                let frame = self.fetch_frame(wanted, table, index)?;
                wanted.put(index, &frame, out)?;
            } else {
                let (place, len) = stored_at(wanted.extent, table, index, next - 1)?;
                let mut stored = self.buffers.take(len as usize);
                self.fetch(wanted, place, &mut stored)?;
                self.decode_all(wanted, table, index..next, (place, &stored), out)?;
            }
            index = next;
        }
        Ok(())
    }

    /// Frames that are stored as they are and wanted whole: read to where they belong, and verified there.
    fn fetch_in_place(
        &self,
        wanted: &Wanted<'_>,
        table: &RunTable,
        frames: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), Attempt> {
        let (place, _) = stored_at(wanted.extent, table, frames.start, frames.end - 1)?;
        let (_, first) = wanted.part(frames.start);
        let (_, last) = wanted.part(frames.end - 1);
        let out = out.get_mut(first.start..last.end).ok_or_else(|| wanted.short("a run"))?;
        self.fetch(wanted, place, out)?;
        for (index, frame) in frames.zip(out.chunks(FRAME_SIZE)) {
            let (at, len) = stored_at(wanted.extent, table, index, index)?;
            table.verify_frame(index, frame).map_err(|error| Attempt::Format(error, at, len))?;
        }
        Ok(())
    }

    /// Frames whose stored bytes, from `place` in the run, were fetched together.
    fn decode_all(
        &self,
        wanted: &Wanted<'_>,
        table: &RunTable,
        frames: Range<usize>,
        (place, stored): (u32, &[u8]),
        out: &mut [u8],
    ) -> Result<(), Attempt> {
        for index in frames {
            let (at, len) = stored_at(wanted.extent, table, index, index)?;
            let from = (at - place) as usize;
            let bytes = stored.get(from..from + len as usize).ok_or_else(|| wanted.short("a frame"))?;
            if wanted.is_whole(index) && wanted.access == Access::Sequential {
                let (_, to) = wanted.part(index);
                let out = out.get_mut(to).ok_or_else(|| wanted.short("a run"))?;
                self.decode_into(wanted, table, index, bytes, out)?;
                continue;
            }
            let frame = self.decode(wanted, table, index, bytes)?;
            self.keep_frame(wanted, index, &frame, !table.is_stored_raw(index));
            wanted.put(index, &frame.bytes, out)?;
        }
        Ok(())
    }

    /// Where in its segment lies what is fetched of what is wanted.
    pub(crate) fn stored_range(&self, wanted: &Wanted<'_>) -> Option<Range<u64>> {
        let extent = wanted.extent;
        let frames = wanted.frames();
        let known =
            self.known_table(extent).and_then(|table| table.stored(frames.start, frames.end - 1).ok());
        let (place, len) = match known {
            Some(found) => found,
            None if is_raw(extent) => {
                let table = RunForm::Plain.table_len(extent.run_len) as u32;
                let (from, to) = (wanted.range.start as u32, wanted.range.end as u32);
                let place = if from == 0 { 0 } else { table + from };
                (place, table + to - place)
            }
            None => (0, extent.stored_len),
        };
        let start = extent.run_offset.checked_add(u64::from(place))?;
        Some(start..start.checked_add(u64::from(len))?)
    }
}
