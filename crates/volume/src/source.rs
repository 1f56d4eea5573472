//! Where the bytes of segments are: the journal, the staging directory, the store.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_data::{Access, DataError, Journal, Parts, SegmentSource, SourceError, Streams};
use forebay_format::row::ObjectRef;
use forebay_meta::Namespace;
use forebay_reading::{ObjectReader, Stored as ObjectRange};
use forebay_types::SegmentId;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Where a stored segment is: the object, its length, and where in it the segment starts.
#[derive(Clone, Copy, Debug)]
struct Stored {
    object: ObjectRef,
    offset: u64,
}

/// All segments of a volume, wherever they are.
pub(crate) struct Source {
    ns: Arc<Namespace>,
    journal: Arc<Journal>,
    streams: Arc<Streams>,
    objects: Arc<ObjectReader>,
    stored: RwLock<FxHashMap<SegmentId, Stored>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} stored segments known)", self.stored.read().len())
    }
}

impl Source {
    pub(crate) fn new(
        ns: Arc<Namespace>,
        journal: Arc<Journal>,
        streams: Arc<Streams>,
        objects: Arc<ObjectReader>,
    ) -> Source {
        Source { ns, journal, streams, objects, stored: RwLock::default() }
    }

    /// The objects in the store.
    pub(crate) fn objects(&self) -> &ObjectReader {
        &self.objects
    }

    /// Forgets where a segment was in the store.
    pub(crate) fn forget(&self, segment: SegmentId) {
        self.stored.write().remove(&segment);
    }

    /// Where in the store the bytes of a segment are; `None` where they are on this machine's disk, not yet or not any more in the store.
    pub(crate) fn in_store(&self, (segment, run): &(SegmentId, Range<u64>)) -> Option<ObjectRange> {
        if self.journal.has(*segment) || self.streams.has(*segment) {
            return None;
        }
        let Stored { object, offset } = self.stored(*segment).ok()?;
        let range = offset.saturating_add(run.start)..offset.saturating_add(run.end);
        Some(ObjectRange { segment: *segment, object, range })
    }

    fn stored(&self, segment: SegmentId) -> Result<Stored, SourceError> {
        if let Some(stored) = self.stored.read().get(&segment) {
            return Ok(*stored);
        }
        let row = self.ns.segment(segment);
        let object =
            row.and_then(|row| row.object.map(|object| Stored { object, offset: row.object_offset }));
        let stored = object.ok_or_else(|| {
            let detail = "neither in the journal, nor in staging, nor in the store".to_owned();
            SourceError::NotFound { segment, detail }
        })?;
        self.stored.write().insert(segment, stored);
        Ok(stored)
    }
}

fn explain(segment: SegmentId, error: DataError) -> SourceError {
    match error {
        DataError::NoSegment { .. } => SourceError::NotFound { segment, detail: error.to_string() },
        DataError::OutOfRange { offset, .. } => {
            SourceError::Corrupt { segment, offset, detail: error.to_string() }
        }
        DataError::Io { source, .. } => SourceError::Io { segment, source },
        other => SourceError::Unavailable { segment, detail: other.to_string() },
    }
}

impl SegmentSource for Source {
    fn read(&self, segment: SegmentId, offset: u64, len: u32) -> Result<Bytes, SourceError> {
        let mut bytes = vec![0; len as usize];
        let got = self.read_into(segment, offset, &mut bytes, Access::Nearby)?;
        bytes.truncate(got);
        Ok(bytes.into())
    }

    fn read_into(
        &self,
        segment: SegmentId,
        offset: u64,
        out: &mut [u8],
        access: Access,
    ) -> Result<usize, SourceError> {
        match self.journal.read_into(segment, offset, out) {
            Err(DataError::NoSegment { .. }) => {}
            read => return read.map(|()| out.len()).map_err(|error| explain(segment, error)),
        }
        match self.streams.read_into(segment, offset, out) {
            Err(DataError::NoSegment { .. }) => {}
            read => return read.map(|()| out.len()).map_err(|error| explain(segment, error)),
        }
        let stored = self.stored(segment)?;
        self.objects.read(segment, stored.object, stored.offset.saturating_add(offset), out, access)
    }

    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Parts>, SourceError> {
        if !self.objects.shares() || self.journal.has(segment) || self.streams.has(segment) {
            return Ok(None);
        }
        let stored = self.stored(segment)?;
        self.objects.share(segment, stored.object, stored.offset.saturating_add(offset), len, access)
    }

    fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) {
        // What is in the journal was written lately: the kernel has its pages.
        if self.journal.has(segment) || self.streams.prefetch(segment, offset, len) {
            return;
        }
        if let Ok(stored) = self.stored(segment) {
            self.objects.prefetch(stored.object, stored.offset.saturating_add(offset), u64::from(len));
        }
    }

    fn distrust(&self, segment: SegmentId, offset: u64, len: u32) {
        let known = self.stored.read().get(&segment).copied();
        if let Some(stored) = known {
            self.objects.distrust(stored.object, stored.offset + offset, len);
        }
    }
}
