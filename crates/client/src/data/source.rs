//! Where segments are, as the owner has said, and their bytes.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use bytes::Bytes;
use forebay_data::{Access, Parts, SegmentSource, SourceError};
use forebay_format::row::ObjectRef;
use forebay_group::MemberId;
use forebay_meta::{Piece, PieceSource};
use forebay_protocol::{SegmentPlace, SetPlace};
use forebay_reading::{ObjectReader, Stored};
use forebay_types::{Ino, SegmentId};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{SharedMembers, Within, apart::Apart};
use crate::{LostBytes, group::VolumeGroup};

/// Segments of the volume in the store.
pub(super) struct Source {
    objects: ObjectReader,
    apart: Apart,
    group: Option<Arc<VolumeGroup>>,
    places: RwLock<FxHashMap<SegmentId, SegmentPlace>>,
    members: SharedMembers,
    /// Who has those that had no place in the store when the owner was asked.
    sets: RwLock<FxHashMap<SegmentId, Arc<[MemberId]>>>,
}

/// By whom a segment is read.
enum By<'a> {
    Usual(&'a ObjectReader),
    Apart(Arc<ObjectReader>),
}

impl Deref for By<'_> {
    type Target = ObjectReader;

    fn deref(&self) -> &ObjectReader {
        match self {
            By::Usual(reader) => reader,
            By::Apart(reader) => reader,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} segments known)", self.places.read().len())
    }
}

impl Source {
    pub(super) fn new(
        (objects, apart): (ObjectReader, Apart),
        group: Option<Arc<VolumeGroup>>,
        members: SharedMembers,
    ) -> Source {
        Source { objects, apart, group, places: RwLock::default(), members, sets: RwLock::default() }
    }

    pub(super) fn objects(&self) -> &ObjectReader {
        &self.objects
    }

    /// What is read apart.
    pub(super) fn apart(&self) -> &Apart {
        &self.apart
    }

    /// Takes note that these bytes of a file may be there alone; what this machine has of them on its disk goes.
    pub(super) fn confine(&self, pieces: &[Piece], within: Within) {
        for piece in pieces.iter().filter(|_| within != Within::Any) {
            let PieceSource::Extent(extent) = &piece.source else { continue };
            if self.apart.name(extent.segment, within)
                && let Some(place) = self.places.read().get(&extent.segment)
            {
                self.objects.deleted(place.object);
            }
        }
    }

    /// Who reads a segment.
    fn reader(&self, segment: SegmentId) -> By<'_> {
        self.apart.reader(segment).map_or(By::Usual(&self.objects), By::Apart)
    }

    /// Takes note of where segments are.
    pub(super) fn learn(&self, places: impl Iterator<Item = (SegmentId, SegmentPlace)>) {
        let unknown: Vec<_> = {
            let known = self.places.read();
            places.filter(|(id, place)| known.get(id) != Some(place)).collect()
        };
        if !unknown.is_empty() {
            if let Some(group) = &self.group {
                unknown.iter().for_each(|(segment, place)| group.learn(*segment, place));
            }
            self.places.write().extend(unknown);
        }
    }

    /// Takes note of who has segments that have no place in the store.
    pub(super) fn learn_sets(&self, sets: impl Iterator<Item = SetPlace>) {
        self.sets.write().extend(sets.map(|place| (place.segment, place.set.into())));
    }

    /// Whether only members have a segment, as far as is known.
    pub(super) fn is_with_members(&self, segment: SegmentId) -> bool {
        self.sets.read().contains_key(&segment) && !self.places.read().contains_key(&segment)
    }

    /// Whether nobody has a segment any more, as the owner has said.
    fn is_lost(&self, segment: SegmentId) -> bool {
        self.sets.read().get(&segment).is_some_and(|set| set.is_empty())
            && !self.places.read().contains_key(&segment)
    }

    /// What of these pieces of a file is lost for good, as the owner has said.
    pub(super) fn lost_of(&self, ino: Ino, pieces: &[Piece]) -> Option<LostBytes> {
        let lost = pieces.iter().filter(|piece| match &piece.source {
            PieceSource::Extent(extent) => self.is_lost(extent.segment),
            PieceSource::Hole | PieceSource::Inline(_) => false,
        });
        lost.fold(None, |found, Piece { offset, len, .. }| {
            let (from, bytes) = found.map_or((*offset, 0), |found: LostBytes| (found.from, found.bytes));
            Some(LostBytes { ino, from, to: offset + len, bytes: bytes + len })
        })
    }

    /// Where in the store the bytes of a segment are; within, `None` where only members have them. `None` where nothing is known of it, or nobody has it any more.
    pub(super) fn in_store(&self, (segment, run): &(SegmentId, Range<u64>)) -> Option<Option<Stored>> {
        let Some(place) = self.places.read().get(segment).copied() else {
            return self.sets.read().get(segment).filter(|set| !set.is_empty()).map(|_| None);
        };
        let range = place.offset.saturating_add(run.start)..place.offset.saturating_add(run.end);
        Some(Some(Stored { segment: *segment, object: place.object, range }))
    }

    /// Bytes of a segment that has no place in the store, from whoever has them.
    fn read_from_members(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
    ) -> Option<Result<Bytes, SourceError>> {
        let set = {
            let (places, sets) = (self.places.read(), self.sets.read());
            sets.get(&segment).filter(|_| !places.contains_key(&segment)).cloned()
        }?;
        let unavailable = |detail: String| SourceError::NotStored { segment, detail };
        if set.is_empty() {
            return Some(Err(SourceError::Lost { segment }));
        }
        let names = || set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(match &self.members {
            Some(members) => members.read(&set, segment, offset, len).map_err(|error| {
                unavailable(format!(
                    "it is not in the store yet, and of its members ({}) none gives it: {error}",
                    names()
                ))
            }),
            None => {
                Err(unavailable(format!("it is not in the store yet, only its members have it: {}", names())))
            }
        })
    }

    /// Forgets where a segment was.
    pub(super) fn forget(&self, segment: SegmentId) {
        self.sets.write().remove(&segment);
        let was = self.places.write().remove(&segment);
        if let Some(place) = was {
            self.objects.deleted(place.object);
            self.apart.each(|reader| reader.deleted(place.object));
            if let Some(group) = &self.group {
                group.forget(place.object);
            }
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
        if let Some(read) = self.read_from_members(segment, offset, out.len() as u32) {
            let bytes = read?;
            let len = bytes.len().min(out.len());
            out[..len].copy_from_slice(&bytes[..len]);
            return Ok(len);
        }
        let (object, offset) = self.place(segment, offset)?;
        self.reader(segment).read(segment, object, offset, out, access)
    }

    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Parts>, SourceError> {
        let reader = self.reader(segment);
        if !reader.shares() || self.is_with_members(segment) {
            return Ok(None);
        }
        let (object, offset) = self.place(segment, offset)?;
        reader.share(segment, object, offset, len, access)
    }

    fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) {
        if let Ok((object, offset)) = self.place(segment, offset) {
            self.reader(segment).prefetch(object, offset, u64::from(len));
        }
    }

    fn distrust(&self, segment: SegmentId, offset: u64, len: u32) {
        if let Ok((object, offset)) = self.place(segment, offset) {
            self.reader(segment).distrust(object, offset, len);
            if let Some(group) = &self.group {
                group.distrust(object, offset, len);
            }
        }
    }
}
