//! Storing: sealed segments become objects, and objects that nothing refers to are deleted.

use std::{path::Path, sync::atomic::Ordering, time::Instant};

use forebay_data::{DataError, SealedSegment, combine};
use forebay_env::durable::Point;
use forebay_format::row::{ObjectRef, SegmentKind, SegmentRow, SegmentState};
use forebay_object::Backend;
use forebay_reading::object_key;
use forebay_types::SegmentId;

use super::For;
use crate::{
    Volume,
    error::{VolumeError, io_error},
};

/// Bytes of segments that are worth an object.
const OBJECT_MIN: u64 = 16 << 20;
/// How long a sealed segment waits for company before it is put into a store elsewhere.
const COMPANY_S: u64 = 10;

impl Volume {
    pub(super) fn store_round(&self) -> Result<(), VolumeError> {
        {
            let _turn = self.upkeep.store_turn.lock();
            self.store_sealed(For::Background)?;
        }
        self.publish_for(For::Background)?;
        self.delete_garbage(For::Background)?;
        self.search_leaked()
    }

    /// Puts all sealed segments into the store.
    ///
    /// # Errors
    /// [`VolumeError`]; what was not stored stays on the local disk.
    pub fn store_all(&self) -> Result<(), VolumeError> {
        let _turn = self.upkeep.store_turn.lock();
        self.store_sealed(For::Caller)
    }

    /// For a caller everything; in the background not what is worth no object yet.
    fn store_sealed(&self, whom: For) -> Result<(), VolumeError> {
        let mut sealed: Vec<(SegmentId, u64)> = self
            .ns
            .segments()
            .into_iter()
            .filter(|(_, row)| row.state == SegmentState::Sealed && row.live > 0)
            .map(|(id, row)| (id, row.len))
            .collect();
        sealed.sort_unstable();
        let mut group = Vec::new();
        let mut bytes = 0;
        for (id, len) in sealed {
            group.push(id);
            bytes += len;
            if bytes >= OBJECT_MIN {
                self.upkeep.go_on(whom)?;
                self.store_group(&group)?;
                group.clear();
                bytes = 0;
            }
        }
        let mut since = self.upkeep.unstored_since.lock();
        if group.is_empty() {
            *since = None;
            return Ok(());
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed().as_secs() >= COMPANY_S;
        if whom == For::Caller || (waited && self.config.store.is_some()) {
            self.upkeep.go_on(whom)?;
            *since = None;
            drop(since);
            self.store_group(&group)?;
        }
        Ok(())
    }

    /// Puts all packed segments into a store elsewhere, so that a chunk of the journal may name them.
    pub(crate) fn store_packed(&self, whom: For) -> Result<(), VolumeError> {
        let waits = |row: &SegmentRow| row.kind == SegmentKind::Packed && row.state == SegmentState::Sealed;
        if !self.ns.segments().iter().any(|(_, row)| waits(row)) {
            return Ok(());
        }
        let _turn = self.upkeep.store_turn.lock();
        let mut packed: Vec<_> = self.ns.segments();
        packed.retain(|(_, row)| waits(row));
        packed.sort_unstable_by_key(|(id, _)| *id);
        let mut group = Vec::new();
        let mut bytes = 0;
        for (id, row) in packed {
            group.push(id);
            bytes += row.len;
            if bytes >= OBJECT_MIN {
                self.upkeep.go_on(whom)?;
                self.store_group(&group)?;
                group.clear();
                bytes = 0;
            }
        }
        self.upkeep.go_on(whom)?;
        self.store_group(&group)
    }

    /// Puts segments into one object. The order is: bytes in the store, then the record; from the number to the record the caller has the turn of
    /// storing, by which objects on their way are told from leaked ones.
    fn store_group(&self, group: &[SegmentId]) -> Result<(), VolumeError> {
        if group.is_empty() {
            return Ok(());
        }
        let object = self.ns.new_object();
        let mut sealed: Vec<SealedSegment> = Vec::with_capacity(group.len());
        for id in group {
            match self.streams.seal(*id) {
                Ok(segment) => sealed.push(segment),
                // It died, and was removed, since the group was chosen.
                Err(DataError::NoSegment { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match sealed.as_slice() {
            [] => Ok(()),
            [only] => self.put_and_record(object, &only.path, &[(only.segment, 0)]),
            several => {
                let path = self.paths.staging().join(format!("{:016x}.object", object.id.0));
                let footer = combine(self.config.id, several, &path)?;
                let places: Vec<_> =
                    footer.segments.iter().map(|segment| (segment.id, segment.offset)).collect();
                let stored = self.put_and_record(object, &path, &places);
                std::fs::remove_file(&path).map_err(io_error("remove", &path))?;
                stored
            }
        }
    }

    fn put_and_record(
        &self,
        object: ObjectRef,
        path: &Path,
        places: &[(SegmentId, u64)],
    ) -> Result<(), VolumeError> {
        if Point::OBJECT_RECORD.skipped() {
            self.ns.segments_stored(object, places)?;
            return self.put(object, path);
        }
        self.put(object, path)?;
        Ok(self.ns.segments_stored(object, places)?)
    }

    fn put(&self, object: ObjectRef, path: &Path) -> Result<(), VolumeError> {
        if let Some(remote) = &self.remote {
            remote.fence.check_recent()?;
        }
        self.store.put_new_file(&object_key(object), path)?;
        self.source.objects().uploaded(object, path);
        Ok(())
    }

    /// Deletes objects whose deletion is in a stored checkpoint.
    pub(super) fn delete_garbage(&self, whom: For) -> Result<(), VolumeError> {
        loop {
            let Some(object) = self.upkeep.deletable.lock().first().copied() else { return Ok(()) };
            self.upkeep.go_on(whom)?;
            if let Some(remote) = &self.remote {
                remote.fence.check()?;
            }
            self.store.delete(&object_key(object))?;
            self.source.objects().deleted(object);
            self.ns.garbage_deleted(&[object])?;
            self.upkeep.done.deleted_objects.fetch_add(1, Ordering::Relaxed);
            self.upkeep.deletable.lock().remove(&object);
        }
    }
}
