//! The first walk: every row is decoded, what belongs to the volume as a whole is kept, and references to segments are counted.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    FormatError,
    key::{Item, Key},
    policy_row::PolicyRow,
    row::{
        AppliedRow, BytesRow, CountersRow, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Layout,
        ObjectRef, Row, SegmentRow, SubvolumeRow, TOMBSTONE,
    },
    run::RunForm,
    set_row::SegmentSetRow,
    shared_row::{FenceRow, LocksRow, NumbersRow, RetryRow, SessionRow},
};
use forebay_types::{Epoch, Generation, Ino, ObjectId, SegmentId, SubvolumeId};

use super::{
    Progress,
    found::{About, Found},
    image::{Image, View},
    report::{Finding, Severity},
};
use crate::error::VolumeError;

/// Rows between two tellings of progress.
const STEP: u64 = 1 << 16;

/// How a segment is used by the extents of all generations.
#[derive(Clone, Debug, Default)]
pub(super) struct Use {
    /// Raw bytes, as [`SegmentRow::live`] counts them.
    pub(super) live: u64,
    /// Where the last run ends.
    pub(super) end: u64,
    pub(super) extents: u64,
    /// Files that have the extents, some of them if they are many.
    pub(super) files: BTreeSet<(SubvolumeId, Ino)>,
}

/// What the volume's own rows say.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) segments: BTreeMap<SegmentId, SegmentRow>,
    pub(super) subvolumes: BTreeMap<SubvolumeId, SubvolumeRow>,
    pub(super) counters: Option<CountersRow>,
    pub(super) orphans: BTreeSet<(SubvolumeId, Ino)>,
    pub(super) garbage: BTreeSet<ObjectRef>,
    /// Segments that shares are for, and the keys of these rows.
    pub(super) shares: Vec<(SegmentId, Vec<u8>)>,
    pub(super) uses: BTreeMap<SegmentId, Use>,
    /// The newest generation that a subvolume has rows of.
    pub(super) newest: BTreeMap<SubvolumeId, Generation>,
    /// The highest run of inode numbers in use.
    pub(super) highest_run: u64,
}

impl Tables {
    pub(super) fn load(
        image: &Image,
        found: &mut Found,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tables, VolumeError> {
        let mut tables = Tables::default();
        let mut rows = image.rows(&[]);
        while let Some((key, value)) = rows.next_row()? {
            found.counts.rows += 1;
            if found.counts.rows.is_multiple_of(STEP) {
                progress(Progress::Rows(found.counts.rows));
            }
            match Key::decode(&key) {
                Ok(decoded) => tables.take(&key, decoded, &value, found),
                Err(error) => {
                    let message = format!("the key {} is none ({error})", hex(&key));
                    let what = Some("removes the row");
                    found.add(Severity::Loss, "row-undecodable", About::default(), message, what);
                    found.rows.insert(key, None);
                }
            }
        }
        found.counts.segments = tables.segments.len() as u64;
        found.counts.subvolumes = tables.subvolumes.len() as u64;
        found.counts.snapshots = tables.subvolumes.values().map(|row| row.snapshots.len() as u64).sum();
        tables.check_subvolumes(found);
        tables.check_counters(found);
        Ok(tables)
    }

    fn take(&mut self, bytes: &[u8], key: Key, value: &[u8], found: &mut Found) {
        let wrong = match key {
            Key::Versioned(subvolume, item, generation) => {
                let newest = self.newest.entry(subvolume).or_default();
                *newest = generation.max(*newest);
                return self.take_item(bytes, subvolume, &item, value, found);
            }
            Key::Segment(id) => SegmentRow::decode(value).map(|row| {
                self.segments.insert(id, row);
            }),
            Key::Share(id, ..) => {
                self.shares.push((id, bytes.to_vec()));
                Ok(())
            }
            Key::Counters => CountersRow::decode(value).map(|row| self.counters = Some(row)),
            Key::Subvolume(id) => SubvolumeRow::decode(value).map(|row| {
                self.subvolumes.insert(id, row);
            }),
            Key::Applied => AppliedRow::decode(value).map(drop),
            Key::Orphan(subvolume, ino) => {
                self.orphans.insert((subvolume, ino));
                Ok(())
            }
            Key::Garbage(epoch, id) => {
                self.garbage.insert(ObjectRef { epoch: Epoch(epoch), id: ObjectId(id) });
                Ok(())
            }
            Key::Fence => FenceRow::decode(value).map(drop),
            Key::Session(_) => SessionRow::decode(value).map(drop),
            Key::Retry(..) => RetryRow::decode(value).map(drop),
            Key::WriteLease(..) | Key::Open(..) => Ok(()),
            Key::Numbers(_) => NumbersRow::decode(value).map(drop),
            Key::Locks(..) => LocksRow::decode(value).map(drop),
            Key::Set(id) => {
                // Without its row, members are told that nobody needs what they have: it stays as it is.
                if let Err(error) = SegmentSetRow::decode(value) {
                    let message = format!("the set of segment {id} cannot be read ({error})");
                    found.add(Severity::Loss, "row-undecodable", About::default(), message, None);
                }
                Ok(())
            }
            Key::Policy(id) => {
                // What goes by it is kept as if it said the most: nothing is lost, and nobody can tell what it said.
                if let Err(error) = PolicyRow::decode(value) {
                    let message = format!("the policy {id} cannot be read ({error})");
                    found.add(Severity::Damage, "row-undecodable", About::default(), message, None);
                }
                Ok(())
            }
        };
        if let Err(error) = wrong {
            let message = format!("a row of the volume cannot be read ({error})");
            found.add(Severity::Damage, "row-undecodable", About::default(), message, Some("makes it anew"));
            found.rows.insert(bytes.to_vec(), None);
        }
    }

    fn take_item(
        &mut self,
        bytes: &[u8],
        subvolume: SubvolumeId,
        item: &Item,
        value: &[u8],
        found: &mut Found,
    ) {
        let (Item::Inode(ino)
        | Item::Inline(ino)
        | Item::Cuts(ino)
        | Item::Directory(ino)
        | Item::Dentry(ino, _)
        | Item::Extent(ino, ..)
        | Item::Xattr(ino, _)) = item;
        self.highest_run = self.highest_run.max(ino.run());
        if value == TOMBSTONE {
            return;
        }
        match extent_of(item, value) {
            Ok(Some((block, offset, extent))) => {
                found.counts.extents += 1;
                self.count(subvolume, *ino, &extent);
                let form = RunForm::from_number(extent.form);
                if !form
                    .is_ok_and(|form| u64::from(extent.stored_len) >= form.table_len(extent.run_len) as u64)
                {
                    let message =
                        format!("the extent at {offset} of block {block} is of a run that cannot be");
                    found.add(Severity::Loss, "extent-run", About::row(subvolume, *ino), message, None);
                }
            }
            Ok(None) => {}
            Err(error) => {
                let (what, hides) = match item {
                    Item::Inode(_) => ("attributes", false),
                    Item::Inline(_) => ("inline data", true),
                    Item::Cuts(_) => ("what was cut off", true),
                    Item::Directory(_) => ("times and counts", false),
                    Item::Dentry(..) => ("an entry", false),
                    Item::Extent(..) => ("an extent", true),
                    Item::Xattr(..) => ("an extended attribute", false),
                };
                let message = format!("its row with {what} cannot be read ({error})");
                let about = About::row(subvolume, *ino);
                found.add(Severity::Loss, "row-undecodable", about, message, Some("removes the row"));
                found.rows.insert(bytes.to_vec(), hides.then(|| TOMBSTONE.to_vec()));
            }
        }
    }

    fn count(&mut self, subvolume: SubvolumeId, ino: Ino, extent: &Extent) {
        let usage = self.uses.entry(extent.segment).or_default();
        usage.live += u64::from(extent.len);
        usage.end = usage.end.max(extent.run_offset.saturating_add(u64::from(extent.stored_len)));
        usage.extents += 1;
        if usage.files.len() < Finding::FILES_MAX {
            usage.files.insert((subvolume, ino));
        }
    }

    fn check_subvolumes(&mut self, found: &mut Found) {
        self.newest.entry(SubvolumeId::FIRST).or_insert(Generation::FIRST);
        for (id, newest) in &self.newest {
            let Some(row) = self.subvolumes.get_mut(id) else {
                let about = About::subvolume(*id);
                let message = "its own row is not there, although it has rows".to_owned();
                let what = "makes one, without snapshots and origin";
                found.add(Severity::Damage, "subvolume-missing", about, message, Some(what));
                let generation = (*newest).max(Generation::FIRST);
                let row = SubvolumeRow { generation, origin: None, snapshots: Vec::new() };
                found.rows.insert(Key::Subvolume(*id).encode(), Some(row.encode()));
                self.subvolumes.insert(*id, row);
                continue;
            };
            if row.generation < *newest {
                let message = format!("it writes generation {}, and has rows of {newest}", row.generation);
                let what = "goes on with the later generation";
                found.add(Severity::Damage, "generation", About::subvolume(*id), message, Some(what));
                row.generation = *newest;
                found.rows.insert(Key::Subvolume(*id).encode(), Some(row.encode()));
            }
        }
        for (id, row) in &self.subvolumes {
            let Some((origin, at)) = row.origin else { continue };
            let parent = self.subvolumes.get(&origin).filter(|_| origin < *id);
            if parent.is_some_and(|parent| parent.snapshots.contains(&at)) {
                continue;
            }
            let about = About::subvolume(*id);
            let message = format!("it is a clone of snapshot {at} of subvolume {origin}, which is not there");
            match parent.filter(|parent| at < parent.generation) {
                Some(parent) => {
                    let what = "lists the snapshot again";
                    found.add(Severity::Damage, "origin", about, message, Some(what));
                    let mut snapshots = parent.snapshots.clone();
                    snapshots.push(at);
                    snapshots.sort_unstable();
                    let parent = SubvolumeRow { snapshots, ..parent.clone() };
                    found.rows.insert(Key::Subvolume(origin).encode(), Some(parent.encode()));
                }
                None => {
                    let what = "keeps what is its own";
                    found.add(Severity::Loss, "origin", about, message, Some(what));
                    let row = SubvolumeRow { origin: None, ..row.clone() };
                    found.rows.insert(Key::Subvolume(*id).encode(), Some(row.encode()));
                }
            }
        }
    }

    fn check_counters(&mut self, found: &mut Found) {
        let objects = self.segments.values().filter_map(|row| row.object).chain(self.garbage.iter().copied());
        let least = CountersRow {
            run: self.highest_run + 1,
            segment: self.segments.keys().chain(self.uses.keys()).max().map_or(1, |id| id.0 + 1),
            object: objects.map(|object| object.id.0 + 1).max().unwrap_or(1),
            subvolume: self.subvolumes.keys().chain(self.newest.keys()).max().map_or(2, |id| id.0 + 1),
            inodes: None,
        };
        let now = self.counters.unwrap_or(CountersRow {
            run: 0,
            segment: 0,
            object: 0,
            subvolume: 0,
            inodes: None,
        });
        let right = CountersRow {
            run: now.run.max(least.run),
            segment: now.segment.max(least.segment),
            object: now.object.max(least.object),
            subvolume: now.subvolume.max(least.subvolume),
            inodes: now.inodes,
        };
        if right == now {
            return;
        }
        let behind = |name: &'static str, now: u64, right: u64| {
            (now < right).then(|| format!("the next {name} is {now}, and {} is in use", right - 1))
        };
        let message: Vec<String> = [
            behind("run of inode numbers", now.run, right.run),
            behind("segment", now.segment, right.segment),
            behind("object", now.object, right.object),
            behind("subvolume", now.subvolume.into(), right.subvolume.into()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let what = "raises the counters";
        found.add(Severity::Damage, "counter-behind", About::default(), message.join("; "), Some(what));
        found.rows.insert(Key::Counters.encode(), Some(right.encode()));
        self.counters = Some(right);
    }

    /// The head of each subvolume and each snapshot; older ones first.
    pub(super) fn views(&self) -> Vec<View> {
        let mut views = Vec::new();
        for (id, row) in &self.subvolumes {
            for generation in &row.snapshots {
                views.push(View::new(self.lineage(*id, *generation), true));
            }
            views.push(View::new(self.lineage(*id, row.generation), false));
        }
        views
    }

    fn lineage(&self, id: SubvolumeId, generation: Generation) -> Vec<(SubvolumeId, Generation)> {
        let mut levels = vec![(id, generation)];
        let mut at = id;
        while let Some((origin, generation)) = self.subvolumes.get(&at).and_then(|row| row.origin) {
            if origin >= at {
                break;
            }
            levels.push((origin, generation));
            at = origin;
        }
        levels
    }
}

/// The extent that a row refers to, with its block and its offset there. Decodes every kind of row.
pub(super) fn extent_of(item: &Item, value: &[u8]) -> Result<Option<(u32, u32, Extent)>, FormatError> {
    Ok(match item {
        Item::Inode(_) => match InodeRow::decode(value)?.layout {
            Layout::Single(block, offset, extent) => Some((block, offset, extent)),
            _ => None,
        },
        Item::Extent(_, block, offset) => Some((*block, *offset, Extent::decode(value)?)),
        Item::Inline(_) | Item::Xattr(..) => {
            BytesRow::decode(value)?;
            None
        }
        Item::Cuts(_) => {
            CutsRow::decode(value)?;
            None
        }
        Item::Directory(_) => {
            DirectoryRow::decode(value)?;
            None
        }
        Item::Dentry(..) => {
            DentryRow::decode(value)?;
            None
        }
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
