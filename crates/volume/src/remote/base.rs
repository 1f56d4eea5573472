//! Bases: all rows of the engine, in parts, so that deltas need not be kept for ever.
//!
//! A base is read page by page while checkpoints go on, so its rows are of different moments between its records `from` and `to`. That does no harm: every row
//! that changed after `from` is in a delta after `from`, and these are all applied on top of it. It counts once `whole` is put, which is done only after
//! the deltas up to `to` are in the bucket; until then, and for ever if it is interrupted, the base before it counts.

use std::collections::BTreeMap;

use forebay_format::{Decoder, Encoder, FormatError, RunSealer};
use forebay_meta::{Engine, Namespace};
use forebay_object::ObjectStore;
use forebay_types::{Compression, Epoch, Sequence, VolumeId};

use super::{
    Head, Kind, Remote, container,
    container::put_row,
    list,
    names::{BASES, BaseName, DELTAS, DeltaName},
    publish::{Delta, Publish},
    put_same,
};
use crate::{Volume, error::VolumeError, upkeep::For};

/// Bytes of rows in one part.
const PART_LEN: usize = 8 << 20;
const PAGE_ROWS: usize = 4096;

/// A base that is whole.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(super) name: BaseName,
    /// The last record that any of its rows may be of.
    pub(super) to: Sequence,
    pub(super) parts: u64,
    /// Bytes of all parts as stored.
    pub(super) bytes: u64,
}

/// What a bucket has of the metadata.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By the record that they are of.
    pub(super) bases: Vec<Base>,
    /// By their last record.
    pub(super) deltas: Vec<Delta>,
}

/// What `whole` says: parts, and the last record.
pub(super) fn whole_payload(parts: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder(&mut payload).varint(parts);
    payload
}

pub(super) fn parts_of(payload: &[u8]) -> Result<u64, FormatError> {
    let mut from = Decoder::new(payload, "what says that a base is whole");
    let parts = from.varint()?;
    from.end()?;
    Ok(parts)
}

impl Found {
    /// Lists bases and deltas. Of a base only the names are looked at: `to` and `parts` are those that it must have if it is whole.
    ///
    /// # Errors
    /// [`VolumeError::Object`].
    pub(crate) fn look(store: &ObjectStore) -> Result<Found, VolumeError> {
        let mut found = Found::default();
        let mut bases: BTreeMap<BaseName, (bool, Base)> = BTreeMap::new();
        for meta in list(store, BASES)? {
            let Some((name, whole)) = BaseName::parse(&meta.key) else { continue };
            let fresh = Base { name, to: name.from, parts: 0, bytes: 0 };
            let (is_whole, base) = bases.entry(name).or_insert((false, fresh));
            *is_whole |= whole;
            base.bytes += meta.size;
            base.parts += u64::from(!whole);
        }
        found.bases = bases.into_values().filter(|(whole, _)| *whole).map(|(_, base)| base).collect();
        for meta in list(store, DELTAS)? {
            let Some(name) = DeltaName::parse(&meta.key) else { continue };
            found.deltas.push(Delta { name, bytes: meta.size });
        }
        found.deltas.sort_by_key(|delta| delta.name);
        Ok(found)
    }
}

/// Reads all rows of an engine in parts of some megabytes.
fn each_part(
    engine: &dyn Engine,
    put: &mut dyn FnMut(&[u8]) -> Result<(), VolumeError>,
) -> Result<(), VolumeError> {
    let mut from = Vec::new();
    let mut payload = Vec::new();
    loop {
        let page = engine.scan(&from, None, PAGE_ROWS)?;
        for (key, value) in &page.rows {
            put_row(&mut payload, key, Some(value));
        }
        if let Some((key, _)) = page.rows.last() {
            from.clone_from(key);
            from.push(0);
        }
        if payload.len() >= PART_LEN || !page.more {
            put(&payload)?;
            payload.clear();
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// Puts the rows of a volume that was just made.
///
/// # Errors
/// [`VolumeError`].
pub(crate) fn put_first_base(
    store: &ObjectStore,
    volume: VolumeId,
    engine: &dyn Engine,
    sealer: Option<&RunSealer>,
) -> Result<(), VolumeError> {
    let name = BaseName { from: Sequence(0), epoch: Epoch(0), attempt: 0 };
    let (start, first, last) = (Sequence(1), Sequence(0), Sequence(0));
    let head = Head { kind: Kind::BasePart, volume, epoch: Epoch(0), start, first, last };
    let mut parts = 0;
    each_part(engine, &mut |payload| {
        let bytes = container::encode(&head, payload, Compression::Zstd, sealer)?;
        put_same(store, &name.part(parts), bytes.into())?;
        parts += 1;
        Ok(())
    })?;
    let whole = Head { kind: Kind::BaseWhole, ..head };
    let bytes = container::encode(&whole, &whole_payload(parts), Compression::Zstd, sealer)?;
    put_same(store, &name.whole(), bytes.into())
}

impl Volume {
    /// Writes a new base, and then deletes the deltas and bases before it.
    pub(super) fn put_base(
        &self,
        remote: &Remote,
        publish: &mut Publish,
        whom: For,
    ) -> Result<(), VolumeError> {
        let from = remote.covered();
        let name = BaseName { from, epoch: remote.fence.epoch(), attempt: publish.attempts };
        publish.attempts += 1;
        let mut base = Base { name, to: from, parts: 0, bytes: 0 };
        each_part(self.engine.as_ref(), &mut |payload| {
            self.upkeep.go_on(whom)?;
            let bytes = remote.encode(&remote.head(Kind::BasePart, from, from), payload)?;
            base.bytes += bytes.len() as u64;
            remote.put(&name.part(base.parts), bytes)?;
            base.parts += 1;
            Ok(())
        })?;
        base.to = Namespace::applied(self.engine.as_ref())?.sequence;
        self.put_deltas(remote, publish, whom)?;
        let bytes =
            remote.encode(&remote.head(Kind::BaseWhole, from, base.to), &whole_payload(base.parts))?;
        remote.put(&name.whole(), bytes)?;
        publish.base = Some(base);
        self.delete_before(remote, publish, name, whom)
    }

    /// Deletes deltas and bases that `name` makes superfluous, and those that were put by an owner after it had been deposed.
    fn delete_before(
        &self,
        remote: &Remote,
        publish: &mut Publish,
        name: BaseName,
        whom: For,
    ) -> Result<(), VolumeError> {
        let late = |delta: &DeltaName| delta.epoch < name.epoch && delta.last >= remote.start;
        for meta in list(&remote.store, DELTAS)? {
            if DeltaName::parse(&meta.key).is_some_and(|delta| delta.last <= name.from || late(&delta)) {
                self.upkeep.go_on(whom)?;
                remote.delete(&meta.key)?;
            }
        }
        publish.deltas.retain(|delta| delta.name.last > name.from);
        for meta in list(&remote.store, BASES)?.into_iter().rev() {
            if BaseName::parse(&meta.key).is_some_and(|(other, _)| other != name) {
                self.upkeep.go_on(whom)?;
                remote.delete(&meta.key)?;
            }
        }
        Ok(())
    }
}
