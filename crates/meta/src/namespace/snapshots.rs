//! Snapshots and clones: a counter each, and the versions that they keep alive.

use std::sync::Arc;

use forebay_format::{
    key::{self, Item, Key, VERSION_LEN},
    row::{Row, SubvolumeRow, TOMBSTONE},
};
use forebay_types::{Generation, Ino, SubvolumeId};

use super::{DirEntry, Namespace, Piece};
use crate::{
    error::MetaError,
    inode::Inode,
    log::Urgency,
    rows::KeyedRow,
    tree::Lineage,
    txn::{Txn, decode_key},
};

/// Rows that one step of the collection looks at.
const COLLECT_STEP: usize = 4096;

/// A subvolume as it was at a generation. Reads only.
#[derive(Clone, Debug)]
pub struct Snapshot {
    ns: Arc<Namespace>,
    lineage: Lineage,
}

impl Namespace {
    /// Freezes a subvolume as it is now, and returns the generation by which it is then known. Takes the same time whatever it holds.
    ///
    /// # Errors
    /// [`MetaError::NoSubvolume`].
    pub fn take_snapshot(&self, at: SubvolumeId) -> Result<Generation, MetaError> {
        self.change_subvolume(at, |row| {
            let frozen = row.generation;
            row.snapshots.push(frozen);
            row.generation = frozen.next();
            Ok(frozen)
        })
    }

    /// Gives a snapshot up. Versions that only it showed are then removed by [`Namespace::collect_versions`].
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is none of that generation, [`MetaError::Invalid`] while a clone is based on it.
    pub fn drop_snapshot(&self, at: SubvolumeId, generation: Generation) -> Result<(), MetaError> {
        let based = self.lock().subvolumes.values().any(|row| row.origin == Some((at, generation)));
        if based {
            return Err(MetaError::Invalid("a clone is based on this snapshot"));
        }
        self.change_subvolume(at, |row| {
            let found = row.snapshots.iter().position(|held| *held == generation);
            row.snapshots.remove(found.ok_or(MetaError::NotFound)?);
            Ok(())
        })
    }

    /// Makes a subvolume that begins as a snapshot and is then written on its own.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is no such snapshot.
    pub fn clone_snapshot(&self, at: SubvolumeId, generation: Generation) -> Result<SubvolumeId, MetaError> {
        let row = self.change(at, Urgency::Normal, &[], |txn| {
            let held = txn.owner.subvolumes.get(&at).is_some_and(|row| row.snapshots.contains(&generation));
            if !held {
                return Err(MetaError::NotFound);
            }
            let id = SubvolumeId(txn.owner.counters.subvolume);
            txn.owner.counters.subvolume += 1;
            txn.owner.counters_changed = true;
            let row = SubvolumeRow {
                generation: Generation::FIRST,
                origin: Some((at, generation)),
                snapshots: Vec::new(),
            };
            txn.put_plain(&Key::Subvolume(id), Some(row.encode()));
            Ok((id, row))
        })?;
        self.lock().subvolumes.insert(row.0, row.1);
        Ok(row.0)
    }

    /// A view of a snapshot.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is none of that generation.
    pub fn snapshot(
        self: &Arc<Self>,
        at: SubvolumeId,
        generation: Generation,
    ) -> Result<Snapshot, MetaError> {
        let owner = self.lock();
        let held = owner.subvolumes.get(&at).is_some_and(|row| row.snapshots.contains(&generation));
        if !held {
            return Err(MetaError::NotFound);
        }
        let lineage = owner.lineage(at, Some(generation))?;
        drop(owner);
        Ok(Snapshot { ns: Arc::clone(self), lineage })
    }

    fn change_subvolume<R>(
        &self,
        at: SubvolumeId,
        work: impl FnOnce(&mut SubvolumeRow) -> Result<R, MetaError>,
    ) -> Result<R, MetaError> {
        let (result, row) = self.change(at, Urgency::Normal, &[], |txn| {
            let mut row = txn.owner.subvolumes.get(&at).cloned().ok_or(MetaError::NoSubvolume(at))?;
            let result = work(&mut row)?;
            txn.put_plain(&Key::Subvolume(at), Some(row.encode()));
            txn.owner.subvolumes.insert(at, row.clone());
            Ok((result, row))
        })?;
        // What was at the head's generation is an older version from now on.
        let mut owner = self.lock();
        owner.subvolumes.insert(at, row);
        self.inodes.clear();
        self.blocks.clear();
        drop(owner);
        Ok(result)
    }

    /// Removes versions of a subvolume that neither its head nor a snapshot shows, a step at a time from the key `from` on. Returns where the next
    /// step begins; `None` at the end.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn collect_versions(
        &self,
        at: SubvolumeId,
        from: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, MetaError> {
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let row = txn.owner.subvolumes.get(&at).cloned().ok_or(MetaError::NoSubvolume(at))?;
            let prefix = key::subvolume_rows(at);
            let start = from.unwrap_or_else(|| prefix.clone());
            let page = self.rows.page(&start, key::after_prefix(&prefix).as_deref(), COLLECT_STEP)?;
            let (whole, next) = whole_items(page.rows, page.next);
            for versions in whole.chunk_by(|a, b| item_bytes(&a.0) == item_bytes(&b.0)) {
                collect_item(txn, &row, versions)?;
            }
            Ok(next)
        })
    }
}

fn item_bytes(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(VERSION_LEN)]
}

/// Leaves the last item to the next step where its versions may go on there.
fn whole_items(mut rows: Vec<KeyedRow>, next: Option<Vec<u8>>) -> (Vec<KeyedRow>, Option<Vec<u8>>) {
    let Some(next) = next else { return (rows, None) };
    let Some((last, _)) = rows.last() else { return (rows, Some(next)) };
    let item = item_bytes(last).to_vec();
    let keep = rows.partition_point(|(key, _)| item_bytes(key) < item.as_slice());
    if keep == 0 {
        return (rows, Some(next));
    }
    let from = rows[keep].0.clone();
    rows.truncate(keep);
    (rows, Some(from))
}

/// Of one item's versions, newest first, removes those that nobody sees.
fn collect_item(txn: &mut Txn<'_>, row: &SubvolumeRow, versions: &[KeyedRow]) -> Result<(), MetaError> {
    let mut shown_to = None::<Generation>;
    let mut kept = Vec::new();
    for (key, value) in versions {
        let Key::Versioned(_, item, generation) = decode_key(key)? else { continue };
        let needed = match shown_to {
            None => true,
            Some(newer) => row.snapshots.iter().any(|held| (generation..newer).contains(held)),
        };
        if needed {
            shown_to = Some(generation);
            kept.push((key, value));
        } else {
            txn.drop_row_extent(&item, value)?;
            txn.put_raw(key.clone(), None);
        }
    }
    // A tombstone hides nothing once no older version, and nothing that the subvolume was cloned from, is below it.
    while let Some((key, value)) = kept.pop() {
        if value.as_slice() != TOMBSTONE || row.origin.is_some() {
            break;
        }
        txn.put_raw(key.clone(), None);
    }
    Ok(())
}

impl Snapshot {
    /// The inode that a name in `parent` stood for.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] and others.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode, MetaError> {
        let _turn = self.ns.lock();
        let dentry = self.ns.dentry(&self.lineage, parent, name)?.ok_or(MetaError::NotFound)?;
        self.ns.read_inode(&self.lineage, dentry.ino)
    }

    /// An inode as it was.
    ///
    /// # Errors
    /// [`MetaError::Stale`] where there was none.
    pub fn inode(&self, ino: Ino) -> Result<Inode, MetaError> {
        let _turn = self.ns.lock();
        self.ns.read_inode(&self.lineage, ino)
    }

    /// About `limit` entries after the name `after`, in the order of their names; none at the end.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn entries(
        &self,
        parent: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirEntry>, MetaError> {
        let _turn = self.ns.lock();
        self.ns.entries_of(&self.lineage, parent, after, limit)
    }

    /// What `len` bytes from `from` on consisted of.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn map(&self, ino: Ino, from: u64, len: u64) -> Result<Vec<Piece>, MetaError> {
        let _turn = self.ns.lock();
        let inode = self.ns.read_inode(&self.lineage, ino)?;
        self.ns.map_inode(&self.lineage, &inode, from, len, false)
    }

    /// The value of an extended attribute, if it had it.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        let _turn = self.ns.lock();
        let version = self.lineage.get(&self.ns.rows, &Item::Xattr(ino, name.to_vec()))?;
        Ok(version.map(|version| version.value[1..].to_vec()))
    }
}
