//! Shipping: the journal's bytes, and those of the streams that it names, go to the bucket as chunks.
//!
//! A chunk has what was appended since the last one. What it names and does not have is in the store: packed segments are stored first, and streams
//! that were stored meanwhile are named with their objects. After an opening everything that is still in local files is shipped again, so that an
//! opening's chunks need none of those before it.

use std::sync::atomic::Ordering;

use forebay_data::{DataError, JournalFile};
use forebay_env::durable::Point;
use forebay_format::row::{SegmentKind, SegmentState};
use forebay_object::ObjectError;
use forebay_types::{Durability, SegmentId, Sequence};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Kind, Remote,
    chunk::{Item, StoredAt},
    list,
    names::{CHUNKS, ChunkName},
};
use crate::{Volume, error::VolumeError, upkeep::For};

/// Bytes at which a chunk is put although there is more.
const CHUNK_LEN: usize = 16 << 20;
/// Bytes that are read at once.
const PIECE_LEN: u64 = 4 << 20;

/// A chunk that is in the bucket, or may be.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) key: String,
    pub(super) segments: FxHashSet<SegmentId>,
}

/// How far shipping has come. Whoever has it is the one who ships.
#[derive(Debug, Default)]
pub(super) struct Ship {
    /// Bytes of each segment that are in chunks of this opening.
    positions: FxHashMap<SegmentId, u64>,
    /// Segments that were named with their objects.
    named: FxHashSet<SegmentId>,
    number: u64,
    /// Chunks of former epochs. They are not needed once everything was shipped again.
    older: Vec<String>,
    complete: bool,
    /// The last round that failed, and why: for those who came before it began.
    failure: Option<(u64, ObjectError)>,
}

impl Ship {
    pub(super) fn new(older: Vec<String>) -> Ship {
        Ship { older, ..Ship::default() }
    }
}

/// A chunk being filled.
struct Filling<'a> {
    volume: &'a Volume,
    remote: &'a Remote,
    ship: &'a mut Ship,
    whom: For,
    first: Sequence,
    last: Sequence,
    payload: Vec<u8>,
    segments: FxHashSet<SegmentId>,
    reached: Vec<(SegmentId, u64)>,
    named: Vec<SegmentId>,
}

impl Volume {
    /// Puts into the bucket what the journal has got since the last time. Does nothing for a volume with its own directory store.
    ///
    /// # Errors
    /// [`VolumeError`]; what was not put is put the next time.
    pub fn ship(&self) -> Result<(), VolumeError> {
        self.ship_for(For::Caller)
    }

    pub(crate) fn ship_for(&self, whom: For) -> Result<(), VolumeError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        self.ship_as(remote, &mut remote.ship.lock(), whom)
    }

    /// Returns once the records up to `target` are in the bucket and this machine was still the owner then. Many callers share one round.
    pub(crate) fn ship_and_acknowledge(&self, remote: &Remote, target: Sequence) -> Result<(), VolumeError> {
        let done = || remote.acknowledged.load(Ordering::Acquire) >= target.0;
        remote.fence.intact()?;
        if done() || Point::BUCKET_CHUNK.skipped() {
            return Ok(());
        }
        let before = remote.rounds_begun.load(Ordering::Acquire);
        let mut ship = remote.ship.lock();
        if done() {
            return Ok(());
        }
        if let Some((round, error)) = &ship.failure
            && *round > before
        {
            return Err(error.clone().into());
        }
        let round = remote.rounds_begun.fetch_add(1, Ordering::AcqRel) + 1;
        let result = self.ship_as(remote, &mut ship, For::Caller).and_then(|()| remote.fence.check());
        match &result {
            Ok(()) => {
                ship.failure = None;
                remote.acknowledged.fetch_max(remote.shipped().0, Ordering::AcqRel);
            }
            Err(VolumeError::Object(error)) => ship.failure = Some((round, error.clone())),
            Err(_) => ship.failure = None,
        }
        result
    }

    fn ship_as(&self, remote: &Remote, ship: &mut Ship, whom: For) -> Result<(), VolumeError> {
        remote.fence.intact()?;
        let files = self.journal.files();
        self.streams.sync()?;
        self.journal.sync_behind(self.journal.last())?;
        let last = files.iter().map(|file| file.last).max().unwrap_or_default();
        // From here on nothing that the records of `files` name can be missed: it was there before they were.
        self.store_packed(whom)?;
        let first = remote.shipped().next();
        let mut filling = Filling {
            volume: self,
            remote,
            ship,
            whom,
            first,
            last,
            payload: Vec::new(),
            segments: FxHashSet::default(),
            reached: Vec::new(),
            named: Vec::new(),
        };
        for segment in self.streams.segments() {
            filling.staged(segment)?;
        }
        for file in files.iter().filter(|file| file.last >= file.first) {
            filling.journal(file)?;
        }
        filling.put()?;
        ship.complete = true;
        remote.shipped.fetch_max(last.0, Ordering::AcqRel);
        Ok(())
    }

    /// Bytes of a staged segment's body.
    fn staged_len(&self, segment: SegmentId) -> Result<Option<u64>, VolumeError> {
        match self.streams.read(segment, u64::MAX - 1, 1) {
            Err(DataError::OutOfRange { have, .. }) => Ok(Some(have)),
            Err(DataError::NoSegment { .. }) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    }
}

impl Filling<'_> {
    /// A segment in the staging directory. One without a row is named by no record yet; a packed one that is not stored is not named by any that is
    /// being shipped.
    fn staged(&mut self, segment: SegmentId) -> Result<(), VolumeError> {
        let Some(row) = self.volume.ns.segment(segment) else { return Ok(()) };
        if let (SegmentState::Stored, Some(object)) = (row.state, row.object) {
            if !self.ship.named.contains(&segment) {
                self.segments.insert(segment);
                self.named.push(segment);
                let at = StoredAt { object, offset: row.object_offset, len: row.len, raw: row.raw };
                Item::Stored { segment, at }.encode_to(&mut self.payload);
            }
            return Ok(());
        }
        if row.kind != SegmentKind::Stream {
            return Ok(());
        }
        let Some(len) = self.volume.staged_len(segment)? else { return Ok(()) };
        self.range(
            segment,
            len,
            |volume, from, len| volume.streams.read(segment, from, len),
            |from, bytes| Item::Stream { segment, from, bytes },
        )
    }

    fn journal(&mut self, file: &JournalFile) -> Result<(), VolumeError> {
        let segment = file.segment;
        self.range(
            segment,
            file.len,
            |volume, from, len| volume.journal.read(segment, from, len),
            |from, bytes| Item::Journal { segment, from, bytes },
        )
    }

    /// What a segment has up to `len` and the bucket does not.
    fn range(
        &mut self,
        segment: SegmentId,
        len: u64,
        read: impl Fn(&Volume, u64, u32) -> Result<bytes::Bytes, DataError>,
        item: impl for<'b> Fn(u64, &'b [u8]) -> Item<'b>,
    ) -> Result<(), VolumeError> {
        let mut from = self.ship.positions.get(&segment).copied().unwrap_or(0);
        while from < len {
            let part = (len - from).min(PIECE_LEN);
            let bytes = match read(self.volume, from, part as u32) {
                Err(DataError::NoSegment { .. }) => return Ok(()),
                bytes => bytes?,
            };
            item(from, &bytes).encode_to(&mut self.payload);
            from += part;
            self.segments.insert(segment);
            self.reached.push((segment, from));
            if self.payload.len() >= CHUNK_LEN {
                self.put()?;
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), VolumeError> {
        if self.payload.is_empty() {
            return Ok(());
        }
        self.volume.upkeep.go_on(self.whom)?;
        let (remote, first, last) = (self.remote, self.first, self.last);
        let bytes = remote.encode(&remote.head(Kind::Chunk, first, last), &self.payload)?;
        let name = ChunkName { epoch: remote.fence.epoch(), number: self.ship.number, first, last };
        self.ship.number += 1;
        let chunk = Chunk { key: name.key(), segments: std::mem::take(&mut self.segments) };
        remote.chunks.lock().push(chunk);
        remote.put(&name.key(), bytes)?;
        self.payload.clear();
        self.ship.positions.extend(self.reached.drain(..));
        self.ship.named.extend(self.named.drain(..));
        Ok(())
    }
}

impl Remote {
    /// The chunks all of whose segments are `settled`: nothing in a checkpoint that is taken from now on needs their bytes.
    pub(crate) fn settled_chunks(&self, settled: impl Fn(SegmentId) -> bool) -> Vec<String> {
        let chunks = self.chunks.lock();
        let done = chunks.iter().filter(|chunk| chunk.segments.iter().all(|segment| settled(*segment)));
        done.map(|chunk| chunk.key.clone()).collect()
    }

    /// Deletes chunks, and forgets them, for as long as it may go on.
    pub(super) fn delete_chunks(
        &self,
        keys: &[String],
        go_on: &dyn Fn() -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        for key in keys {
            go_on()?;
            self.delete(key)?;
            self.chunks.lock().retain(|chunk| chunk.key != *key);
        }
        Ok(())
    }

    /// Deletes the chunks of former epochs, once none is needed, for as long as it may go on.
    pub(super) fn delete_older_chunks(
        &self,
        go_on: &dyn Fn() -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        let older = {
            let mut ship = self.ship.lock();
            if !ship.complete {
                return Ok(());
            }
            std::mem::take(&mut ship.older)
        };
        for (done, key) in older.iter().enumerate() {
            if let Err(error) = go_on().and_then(|()| self.delete(key)) {
                self.ship.lock().older.extend(older.iter().skip(done).cloned());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Deletes chunks of former epochs that arrived after this opening had listed them. Whether none is needed any more: whether this opening has
    /// shipped everything itself, and what it found when it began is deleted.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub(crate) fn delete_late_chunks(
        &self,
        go_on: &dyn Fn() -> Result<(), VolumeError>,
    ) -> Result<bool, VolumeError> {
        {
            let ship = self.ship.lock();
            if !ship.complete || !ship.older.is_empty() {
                return Ok(false);
            }
        }
        let former = |key: &String| ChunkName::parse(key).is_some_and(|name| name.epoch < self.fence.epoch());
        for key in list(&self.store, CHUNKS)?.into_iter().map(|meta| meta.key).filter(former) {
            go_on()?;
            self.delete(&key)?;
        }
        Ok(true)
    }

    /// The class of fsync.
    pub(crate) fn is_class_object(&self) -> bool {
        self.class == Durability::Object
    }
}
