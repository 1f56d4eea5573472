//! Where segments are, as the owner has said, and their bytes.

use std::fmt;

use bytes::Bytes;
use forebay_data::{Access, SegmentSource, SourceError};
use forebay_format::row::ObjectRef;
use forebay_protocol::SegmentPlace;
use forebay_reading::ObjectReader;
use forebay_types::SegmentId;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Segments of the volume in the store.
pub(super) struct Source {
    objects: ObjectReader,
    places: RwLock<FxHashMap<SegmentId, SegmentPlace>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} segments known)", self.places.read().len())
    }
}

impl Source {
    pub(super) fn new(objects: ObjectReader) -> Source {
        Source { objects, places: RwLock::default() }
    }

    pub(super) fn objects(&self) -> &ObjectReader {
        &self.objects
    }

    /// Takes note of where segments are.
    pub(super) fn learn(&self, places: impl Iterator<Item = (SegmentId, SegmentPlace)>) {
        let unknown: Vec<_> = {
            let known = self.places.read();
            places.filter(|(id, place)| known.get(id) != Some(place)).collect()
        };
        if !unknown.is_empty() {
            self.places.write().extend(unknown);
        }
    }

    /// Forgets where a segment was.
    pub(super) fn forget(&self, segment: SegmentId) {
        let was = self.places.write().remove(&segment);
        if let Some(place) = was {
            self.objects.deleted(place.object);
        }
    }

    /// The object that has a byte of a segment, and where there.
    fn place(&self, segment: SegmentId, offset: u64) -> Result<(ObjectRef, u64), SourceError> {
        let place = self.places.read().get(&segment).copied();
        let place = place.ok_or_else(|| SourceError::NotFound {
            segment,
            detail: "the owner has not said where it is".to_owned(),
        })?;
        Ok((place.object, place.offset.saturating_add(offset)))
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
        let (object, offset) = self.place(segment, offset)?;
        self.objects.read(segment, object, offset, out, access)
    }

    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Bytes>, SourceError> {
        if !self.objects.shares() {
            return Ok(None);
        }
        let (object, offset) = self.place(segment, offset)?;
        self.objects.share(segment, object, offset, len, access)
    }

    fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) {
        if let Ok((object, offset)) = self.place(segment, offset) {
            self.objects.prefetch(object, offset, u64::from(len));
        }
    }

    fn distrust(&self, segment: SegmentId, offset: u64, len: u32) {
        if let Ok((object, offset)) = self.place(segment, offset) {
            self.objects.distrust(object, offset, len);
        }
    }
}
