//! What a volume holds that nobody has open: from its rows as opening it would find them, without writing to it.

use std::{collections::BTreeSet, path::Path};

use forebay_format::{
    key::{self, Key},
    row::{ObjectRef, Row, SegmentKind, SegmentRow, SegmentState},
};
use forebay_object::Backend;
use forebay_types::ObjectId;
use serde::Serialize;

use super::{FsckOptions, found::Found, offline::Offline};
use crate::{Leaked, VolumeError, remote};

/// Sums over the segments of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Totals {
    /// Raw bytes in use, wherever they are.
    pub live_bytes: u64,
    /// Raw bytes in use that the store does not have yet.
    pub dirty_bytes: u64,
    /// Of these, bytes in the journal.
    pub journal_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Segments in use that the store does not have yet.
    pub dirty_segments: u64,
    /// Objects in the store that have them.
    pub objects: u64,
    /// Bytes of these objects' segments, as stored.
    pub stored_bytes: u64,
    /// Raw bytes in these objects that nothing refers to any more.
    pub garbage_bytes: u64,
}

impl Totals {
    /// Adds a segment; the caller counts objects.
    fn add(&mut self, row: &SegmentRow) {
        self.segments += 1;
        self.live_bytes += row.live;
        if row.kind == SegmentKind::Journal {
            self.journal_bytes += row.live;
        }
        if row.state == SegmentState::Stored {
            self.stored_bytes += row.len;
            self.garbage_bytes += row.raw.saturating_sub(row.live);
        } else {
            self.dirty_bytes += row.live;
            self.dirty_segments += u64::from(row.live > 0);
        }
    }
}

/// What a volume holds that nobody has open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Survey {
    /// Sums over its segments.
    #[serde(flatten)]
    pub totals: Totals,
    /// The last record of the journal.
    pub journal_last: u64,
    /// Whether the journal could be read. If not, these are the numbers of the last checkpoint.
    pub complete: bool,
    /// What the store has that nothing names; `None` where it was not asked.
    pub leaked: Option<Leaked>,
    /// The epoch of the machine that has taken the volume over from this one; only where the store was asked.
    pub taken_over_by: Option<u64>,
}

/// Looks at a volume that nobody has open, and changes nothing. Takes a copy of the metadata in the system's place for temporary files while it looks.
/// With `store`, the store is asked what it has.
///
/// # Errors
/// As [`check`](super::check); [`VolumeError::Damaged`] where the metadata cannot be read at all; [`VolumeError::Object`] where the store is
/// asked and does not answer.
pub fn survey(root: &Path, store: bool) -> Result<Survey, VolumeError> {
    let mut found = Found::default();
    let Some(offline) = Offline::open(root, &FsckOptions::default(), &mut found)? else {
        let detail = found.drafts.pop().map_or_else(String::new, |draft| draft.finding.message);
        return Err(VolumeError::Damaged { path: root.to_owned(), detail });
    };
    let mut totals = Totals::default();
    let mut named = BTreeSet::new();
    let mut rows = offline.image.rows(&key::segments());
    while let Some((_, value)) = rows.next_row()? {
        let row = SegmentRow::decode(&value)?;
        totals.add(&row);
        named.extend(row.object);
    }
    totals.objects = named.len() as u64;
    let mut rows = offline.image.rows(&key::garbage());
    while let Some((key, _)) = rows.next_row()? {
        if let Key::Garbage(epoch, id) = Key::decode(&key)? {
            named.insert(ObjectRef { epoch: forebay_types::Epoch(epoch), id: ObjectId(id) });
        }
    }
    let mut survey = Survey {
        totals,
        journal_last: offline.last.0,
        complete: offline.repairable,
        leaked: None,
        taken_over_by: None,
    };
    if store {
        survey.leaked = Some(leaked(&offline, &named)?);
        if let (Some(_), Ok(store)) = (&offline.ground.config.store, &offline.ground.store) {
            survey.taken_over_by = remote::taken_over(store, root)?.map(|epoch| epoch.0);
        }
    }
    Ok(survey)
}

fn leaked(offline: &Offline, named: &BTreeSet<ObjectRef>) -> Result<Leaked, VolumeError> {
    let ground = &offline.ground;
    let mut leaked = Leaked::default();
    for (object, size) in ground.objects()? {
        leaked.listed += 1;
        if object.epoch <= ground.epoch && !named.contains(&object) {
            leaked.objects += 1;
            leaked.bytes += size;
        }
    }
    if let Ok(store) = &ground.store {
        let swept = store.sweep(false)?;
        (leaked.files, leaked.file_bytes) = (swept.files, swept.bytes);
    }
    Ok(leaked)
}
