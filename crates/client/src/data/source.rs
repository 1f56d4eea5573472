//! Where segments are, as the owner has said, and their bytes.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use forebay_data::{Access, SegmentSource, SourceError};
use forebay_format::row::ObjectRef;
use forebay_group::MemberId;
use forebay_protocol::{SegmentPlace, SetPlace};
use forebay_reading::ObjectReader;
use forebay_types::SegmentId;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::SharedMembers;
use crate::group::VolumeGroup;

/// Segments of the volume in the store.
pub(super) struct Source {
    objects: ObjectReader,
    group: Option<Arc<VolumeGroup>>,
    places: RwLock<FxHashMap<SegmentId, SegmentPlace>>,
    members: SharedMembers,
    /// Who has those that had no place in the store when the owner was asked.
    sets: RwLock<FxHashMap<SegmentId, Arc<[MemberId]>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} segments known)", self.places.read().len())
    }
}

impl Source {
    pub(super) fn new(
        objects: ObjectReader,
        group: Option<Arc<VolumeGroup>>,
        members: SharedMembers,
    ) -> Source {
        Source { objects, group, places: RwLock::default(), members, sets: RwLock::default() }
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
        let unavailable = |detail: String| SourceError::Unavailable { segment, detail };
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
        self.objects.read(segment, object, offset, out, access)
    }

    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Bytes>, SourceError> {
        if !self.objects.shares() || self.is_with_members(segment) {
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
            if let Some(group) = &self.group {
                group.distrust(object, offset, len);
            }
        }
    }
}
