use std::{fmt, ops::Range, sync::Arc};

use forebay_env::buffers::Buffers;
use forebay_format::{FormatError, Keyring, row::Extent};
use forebay_types::{SegmentId, limits::FRAME_SIZE};

use crate::{
    Access, Buffer, Parts, SegmentSource, SourceError,
    fetch::{Attempt, Wanted},
    frame_cache::FrameCache,
};

/// Bytes of idle buffers that are kept of each size.
const IDLE_MAX: usize = 4 << 20;

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
    pub(crate) source: Arc<dyn SegmentSource>,
    pub(crate) keys: Arc<Keyring>,
    pub(crate) cache: FrameCache,
    pub(crate) buffers: Arc<Buffers>,
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunReader({} bytes cached)", self.cached_bytes())
    }
}

impl RunReader {
    /// A reader that keeps at most `cache_bytes` of tables and decoded frames.
    #[must_use]
    pub fn new(source: Arc<dyn SegmentSource>, keys: Arc<Keyring>, cache_bytes: u64) -> RunReader {
        RunReader { source, keys, cache: FrameCache::new(cache_bytes), buffers: Buffers::new(IDLE_MAX) }
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

    /// A buffer of `len` bytes for [`RunReader::read_into`], whose contents mean nothing until they are written.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        self.buffers.take(len)
    }

    /// Appends `len` bytes of `extent` from its byte `from` to `out`. Bytes that do not fit their checksum are fetched a second time, after the
    /// source was told to distrust them.
    ///
    /// # Errors
    /// [`ReadError`]; `out` is then as long as before.
    pub fn read(&self, extent: &Extent, from: u32, len: u32, out: &mut Vec<u8>) -> Result<(), ReadError> {
        check_range(extent, from, len)?;
        let at = out.len();
        out.resize(at + len as usize, 0);
        let read = self.read_into(extent, from, &mut out[at..], Access::Nearby);
        if read.is_err() {
            out.truncate(at);
        }
        read
    }

    /// Fills `out` with the bytes of `extent` from its byte `from`, otherwise as [`RunReader::read`].
    ///
    /// # Errors
    /// [`ReadError`]; `out` may then have bytes that mean nothing.
    pub fn read_into(
        &self,
        extent: &Extent,
        from: u32,
        out: &mut [u8],
        access: Access,
    ) -> Result<(), ReadError> {
        let len = u32::try_from(out.len()).unwrap_or(u32::MAX);
        check_range(extent, from, len)?;
        if len == 0 {
            return Ok(());
        }
        let wanted = wanted(extent, from, len, access);
        self.twice(extent, || self.fill(&wanted, out))
    }

    /// The same without a place to put them: what lies in one frame is not copied, but shared with the cache or the buffer that it was read to; nor are
    /// whole frames that are stored as they are, where the source has them in memory.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_bytes(
        &self,
        extent: &Extent,
        from: u32,
        len: u32,
        access: Access,
    ) -> Result<Parts, ReadError> {
        check_range(extent, from, len)?;
        if len == 0 {
            return Ok(Parts::new());
        }
        let wanted = wanted(extent, from, len, access);
        if wanted.frames().len() > 1 {
            if let Some(shared) = self.twice(extent, || self.shared(&wanted))? {
                return Ok(shared);
            }
            let mut out = self.buffer(len as usize);
            self.twice(extent, || self.fill(&wanted, &mut out))?;
            return Ok(Parts::from([out.freeze()]));
        }
        let at = wanted.range.start % FRAME_SIZE;
        self.twice(extent, || {
            let frame = self.one_frame(&wanted)?;
            if frame.len() < at + len as usize {
                return Err(wanted.short("a frame"));
            }
            Ok(Parts::from([frame.slice(at..at + len as usize)]))
        })
    }

    /// Which bytes of its segment a read of the first `len` bytes of `extent` fetches, its table included where that lies beside them; what the extent does not have is ignored. `None` where that
    /// is nothing.
    #[must_use]
    pub fn stored_of(&self, extent: &Extent, len: u32) -> Option<Range<u64>> {
        let len = len.min(extent.len);
        let sound = len > 0 && check_range(extent, 0, len).is_ok();
        sound.then(|| self.stored_range(&wanted(extent, 0, len, Access::Sequential))).flatten()
    }

    /// Attempts a read, and once more if what came was wrong.
    fn twice<T>(
        &self,
        extent: &Extent,
        mut attempt: impl FnMut() -> Result<T, Attempt>,
    ) -> Result<T, ReadError> {
        let (segment, offset) = (extent.segment, extent.run_offset);
        let mut again = true;
        loop {
            match attempt() {
                Ok(read) => return Ok(read),
                Err(Attempt::Source(error)) => return Err(error.into()),
                Err(Attempt::Format(source @ FormatError::Decrypt { .. }, ..)) => {
                    return Err(ReadError::Sealed { segment, offset, source });
                }
                Err(Attempt::Format(_, place, len)) if again => {
                    again = false;
                    self.source.distrust(segment, offset.saturating_add(u64::from(place)), len);
                }
                Err(Attempt::Format(source, ..)) => {
                    return Err(ReadError::Corrupt { segment, offset, source });
                }
            }
        }
    }
}

fn check_range(extent: &Extent, from: u32, len: u32) -> Result<(), ReadError> {
    let end = u64::from(from) + u64::from(len);
    if end > u64::from(extent.len) || u64::from(extent.skip) + end > u64::from(extent.run_len) {
        return Err(ReadError::OutOfRange { have: extent.len, from, len });
    }
    Ok(())
}

fn wanted(extent: &Extent, from: u32, len: u32, access: Access) -> Wanted<'_> {
    let start = extent.skip as usize + from as usize;
    Wanted { extent, range: start..start + len as usize, access }
}
