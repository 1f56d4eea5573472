//! Segments, the files and objects that have them, and what nothing refers to.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    footer::Footer,
    key::Key,
    row::{ObjectRef, Row, SegmentKind, SegmentRow, SegmentState},
};
use forebay_types::{Epoch, SegmentId};

use super::{
    Progress,
    found::{About, FileFix, Found},
    ground::{Ground, Named, Staged, list},
    report::Severity,
    tables::{Tables, Use},
};
use crate::error::VolumeError;

/// What is wrong with the place of a segment.
struct Trouble {
    severity: Severity,
    code: &'static str,
    message: String,
    /// What of the segment can still be read: bytes from its start.
    readable: u64,
    fix: Option<(&'static str, Fix)>,
}

enum Fix {
    Row(SegmentRow),
    Footer(u64),
}

impl Trouble {
    fn loss(code: &'static str, message: String, readable: u64) -> Trouble {
        Trouble { severity: Severity::Loss, code, message, readable, fix: None }
    }
}

/// The walk over segments and objects.
pub(super) struct Segments<'a> {
    ground: &'a Ground<'a>,
    tables: &'a Tables,
    /// `None` where the store cannot be asked.
    objects: Option<BTreeMap<ObjectRef, u64>>,
    /// What the footers name, of the objects whose footers were read.
    named: BTreeMap<SegmentId, Named>,
    footers: BTreeMap<ObjectRef, Result<(), String>>,
    /// Segments of which bytes are lost, and up to where they can be read.
    pub(super) lost: BTreeMap<SegmentId, u64>,
    rebuilt: BTreeSet<ObjectRef>,
}

impl<'a> Segments<'a> {
    pub(super) fn check(
        ground: &'a Ground<'a>,
        tables: &'a Tables,
        footers: bool,
        found: &mut Found,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<BTreeMap<SegmentId, u64>, VolumeError> {
        let mut walk = Segments {
            ground,
            tables,
            objects: None,
            named: BTreeMap::new(),
            footers: BTreeMap::new(),
            lost: BTreeMap::new(),
            rebuilt: BTreeSet::new(),
        };
        walk.list_objects(footers, found, progress)?;
        for (id, usage) in &tables.uses {
            if !tables.segments.contains_key(id) {
                walk.check_rowless(*id, usage, found)?;
            }
        }
        for (id, row) in &tables.segments {
            walk.check_segment(*id, row, found)?;
        }
        walk.check_garbage(found);
        walk.check_shares(found);
        walk.check_epoch(found)?;
        walk.check_leaked_objects(found);
        if ground.live.is_none() {
            walk.check_leaked_files(found)?;
        }
        Ok(walk.lost)
    }

    fn list_objects(
        &mut self,
        footers: bool,
        found: &mut Found,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), VolumeError> {
        let objects = match self.ground.objects() {
            Ok(objects) => objects,
            Err(error) => {
                let message = format!("the store cannot be asked ({error}); objects were not looked at");
                found.add(Severity::Damage, "store-unreachable", About::default(), message, None);
                return Ok(());
            }
        };
        found.counts.objects = objects.len() as u64;
        let rowless = self.tables.uses.keys().any(|id| !self.tables.segments.contains_key(id));
        if footers || rowless {
            for (done, (object, size)) in objects.iter().enumerate() {
                progress(Progress::Objects { done: done as u64, total: objects.len() as u64 });
                self.read_footer(*object, *size)?;
            }
        }
        self.objects = Some(objects);
        Ok(())
    }

    fn read_footer(&mut self, object: ObjectRef, size: u64) -> Result<(), VolumeError> {
        let footer = match self.ground.footer(object, size) {
            Ok(footer) => footer,
            // It may have been deleted since it was listed; whoever needs it asks again.
            Err(_) if self.ground.live.is_some() => return Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Ok(Footer { segments, .. }) = &footer {
            for entry in segments {
                let raw = entry.runs.iter().map(|run| u64::from(run.run_len)).sum();
                let (offset, len) = (entry.offset, entry.len);
                self.named.insert(entry.id, Named { object, offset, len, raw });
            }
        }
        self.footers.insert(object, footer.map(drop));
        Ok(())
    }

    /// Extents refer to a segment that has no row: the row is made again from what is found of it.
    fn check_rowless(&mut self, id: SegmentId, usage: &Use, found: &mut Found) -> Result<(), VolumeError> {
        let about = About::segment(id).with_files(usage.files.iter().copied().collect());
        if let Some(row) = self.rebuild(id, usage)? {
            let message = format!("it has no row, and {} extents refer to it", usage.extents);
            let what = "makes the row from what is found of the segment";
            found.add(Severity::Damage, "segment-row-missing", about, message, Some(what));
            found.rows.insert(Key::Segment(id).encode(), Some(row.encode()));
            self.rebuilt.extend(row.object);
        } else {
            let message = format!("it is nowhere, and {} extents refer to it", usage.extents);
            found.add(Severity::Loss, "segment-lost", about, message, None);
            self.lost.insert(id, 0);
        }
        Ok(())
    }

    fn rebuild(&self, id: SegmentId, usage: &Use) -> Result<Option<SegmentRow>, VolumeError> {
        let row = SegmentRow {
            kind: SegmentKind::Journal,
            state: SegmentState::Open,
            object: None,
            object_offset: 0,
            len: 0,
            raw: 0,
            live: usage.live,
            epoch: self.ground.epoch,
        };
        if self.ground.journal_len(id)?.is_some_and(|len| len >= usage.end) {
            return Ok(Some(row));
        }
        if let Some(Staged { body, sealed, stream, runs, .. }) = self.ground.staged(id)? {
            let kind = if stream { SegmentKind::Stream } else { SegmentKind::Packed };
            let raw = runs.iter().map(|run| u64::from(run.run_len)).sum();
            let made = match sealed {
                true => SegmentRow { kind, state: SegmentState::Sealed, len: body, raw, ..row },
                false => SegmentRow { kind: SegmentKind::Stream, ..row },
            };
            return Ok((body >= usage.end).then_some(made));
        }
        let named = self.named.get(&id).filter(|named| named.len >= usage.end);
        Ok(named.map(|Named { object, offset, len, raw }| SegmentRow {
            kind: SegmentKind::Packed,
            state: SegmentState::Stored,
            object: Some(*object),
            object_offset: *offset,
            len: *len,
            raw: *raw,
            ..row
        }))
    }

    fn check_segment(
        &mut self,
        id: SegmentId,
        row: &SegmentRow,
        found: &mut Found,
    ) -> Result<(), VolumeError> {
        let usage = self.tables.uses.get(&id).cloned().unwrap_or_default();
        let mut right = *row;
        if row.live != usage.live {
            let message = format!("{} bytes of it are in use, and it counts {}", usage.live, row.live);
            found.add(
                Severity::Damage,
                "live-bytes",
                About::segment(id),
                message,
                Some("corrects the count"),
            );
            right.live = usage.live;
        }
        self.check_state(id, &mut right, found)?;
        if usage.live > 0
            && let Some(trouble) = self.trouble(id, &right, &usage)?
        {
            let about = About::segment(id).in_object(row.object);
            let about = match trouble.severity {
                Severity::Loss => about.with_files(usage.files.iter().copied().collect()),
                _ => about,
            };
            let what = trouble.fix.as_ref().map(|(what, _)| *what);
            found.add(trouble.severity, trouble.code, about, trouble.message, what);
            if trouble.readable < usage.end {
                self.lost.insert(id, trouble.readable);
            }
            match trouble.fix {
                Some((_, Fix::Row(row))) => right = SegmentRow { live: usage.live, ..row },
                Some((_, Fix::Footer(len))) => found.files.push(FileFix::Footer(id, len)),
                None => {}
            }
        }
        if right != *row {
            found.rows.insert(Key::Segment(id).encode(), Some(right.encode()));
        }
        Ok(())
    }

    /// Kind, state and object have to go together.
    fn check_state(&self, id: SegmentId, row: &mut SegmentRow, found: &mut Found) -> Result<(), VolumeError> {
        let before = *row;
        match (row.kind, row.state, row.object) {
            (SegmentKind::Journal, SegmentState::Open, None)
            | (SegmentKind::Stream, SegmentState::Open, None)
            | (SegmentKind::Stream | SegmentKind::Packed, SegmentState::Sealed, None)
            | (SegmentKind::Stream | SegmentKind::Packed, SegmentState::Stored, Some(_)) => return Ok(()),
            (SegmentKind::Journal, ..) => (row.state, row.object) = (SegmentState::Open, None),
            (_, _, Some(object)) if self.size_of(object)?.is_some() => row.state = SegmentState::Stored,
            _ => {
                row.object = None;
                row.state = SegmentState::Sealed;
                if let Some(staged) = self.ground.staged(id)?.filter(|staged| staged.sealed) {
                    row.len = staged.body;
                }
            }
        }
        let message = format!(
            "a {:?} segment cannot be {:?} with object {:?}",
            before.kind, before.state, before.object
        );
        let what = "sets the state that files and objects show";
        found.add(Severity::Damage, "segment-state", About::segment(id), message, Some(what));
        Ok(())
    }

    /// What is wrong with where the segment is. Of an open volume only what the row of this moment says counts.
    fn trouble(
        &mut self,
        id: SegmentId,
        row: &SegmentRow,
        usage: &Use,
    ) -> Result<Option<Trouble>, VolumeError> {
        let mut row = *row;
        loop {
            let Some(trouble) = self.trouble_at(id, &row, usage)? else { return Ok(None) };
            let Some(volume) = self.ground.live else { return Ok(Some(trouble)) };
            match volume.ns.segment(id) {
                None => return Ok(None),
                Some(now) if (now.state, now.object) == (row.state, row.object) => return Ok(Some(trouble)),
                Some(now) => row = now,
            }
        }
    }

    fn trouble_at(
        &mut self,
        id: SegmentId,
        row: &SegmentRow,
        usage: &Use,
    ) -> Result<Option<Trouble>, VolumeError> {
        let short = |have: u64, place: &str| {
            let message = format!("{place} has {have} bytes of it, and extents refer to {}", usage.end);
            Some(Trouble::loss("segment-short", message, have))
        };
        if row.kind == SegmentKind::Journal {
            return Ok(match self.ground.journal_len(id)? {
                None => Some(Trouble::loss(
                    "segment-missing",
                    "its file of the journal is not there".to_owned(),
                    0,
                )),
                Some(len) if len < usage.end => short(len, "its file of the journal"),
                Some(_) => None,
            });
        }
        if row.state == SegmentState::Stored {
            return self.stored_trouble(id, row, usage);
        }
        let Some(staged) = self.ground.staged(id)? else {
            return Ok(Some(Trouble::loss(
                "segment-missing",
                "its file in staging is not there".to_owned(),
                0,
            )));
        };
        if row.state == SegmentState::Open {
            return Ok(if staged.body < usage.end {
                short(staged.body, "its file in staging")
            } else {
                None
            });
        }
        if usage.end > row.len {
            return Ok(short(row.len, "its row"));
        }
        if staged.sealed && staged.body == row.len {
            return Ok(None);
        }
        if staged.len < row.len {
            return Ok(short(staged.len, "its file in staging"));
        }
        let message = "its file in staging does not end in a footer that names its runs".to_owned();
        let fix = Some(("writes the footer again from the rows", Fix::Footer(row.len)));
        let (severity, code, readable) = (Severity::Damage, "segment-footer", row.len);
        Ok(Some(Trouble { severity, code, message, readable, fix }))
    }

    fn stored_trouble(
        &mut self,
        id: SegmentId,
        row: &SegmentRow,
        usage: &Use,
    ) -> Result<Option<Trouble>, VolumeError> {
        let (Some(object), Some(_)) = (row.object, &self.objects) else { return Ok(None) };
        let again = SegmentRow { state: SegmentState::Sealed, object: None, object_offset: 0, ..*row };
        let staged = self.ground.staged(id)?.is_some_and(|staged| staged.sealed && staged.body == row.len);
        let fix = || staged.then_some(("stores the copy in staging again", Fix::Row(again)));
        let severity = if staged { Severity::Damage } else { Severity::Loss };
        let trouble = |code, message, readable: u64| {
            let readable = if staged { row.len } else { readable };
            Some(Trouble { severity, code, message, readable, fix: fix() })
        };
        let Some(size) = self.size_of(object)? else {
            return Ok(trouble("object-missing", "its object is not in the store".to_owned(), 0));
        };
        let have = size.saturating_sub(row.object_offset);
        if have < row.len {
            let message = format!("its object has {have} bytes for it, and it has {}", row.len);
            return Ok(trouble("object-short", message, have));
        }
        if usage.end > row.len {
            let message = format!("it has {} bytes, and extents refer to {}", row.len, usage.end);
            return Ok(Some(Trouble::loss("segment-short", message, row.len)));
        }
        let footer = match self.footers.get(&object) {
            Some(Err(detail)) => Err(detail.clone()),
            Some(Ok(())) => match self.named.get(&id) {
                Some(named) if (named.offset, named.len) == (row.object_offset, row.len) => Ok(()),
                Some(named) => Err(format!("it says {} bytes from {}", named.len, named.offset)),
                None => Err("it does not name the segment".to_owned()),
            },
            None => Ok(()),
        };
        Ok(match footer {
            Ok(()) => None,
            Err(detail) => {
                let message = format!("the list at the end of its object is not right: {detail}");
                trouble("object-footer", message, row.len)
            }
        })
    }

    fn size_of(&self, object: ObjectRef) -> Result<Option<u64>, VolumeError> {
        match self.objects.as_ref().and_then(|objects| objects.get(&object)) {
            Some(size) if self.ground.live.is_none() => Ok(Some(*size)),
            _ => self.ground.object_size(object),
        }
    }

    fn in_use(&self) -> BTreeSet<ObjectRef> {
        let rows = self.tables.segments.values().filter_map(|row| row.object);
        rows.chain(self.rebuilt.iter().copied()).collect()
    }

    fn check_garbage(&self, found: &mut Found) {
        let in_use = self.in_use();
        for object in self.tables.garbage.intersection(&in_use) {
            let message = "it is listed to be deleted, and segments are in it".to_owned();
            let about = About::object(*object);
            found.add(Severity::Damage, "garbage-in-use", about, message, Some("takes it off the list"));
            found.rows.insert(Key::Garbage(object.epoch.0, object.id.0).encode(), None);
        }
    }

    fn check_shares(&self, found: &mut Found) {
        let stale = |id: &SegmentId| {
            !self.tables.segments.contains_key(id) && !found.rows.contains_key(&Key::Segment(*id).encode())
        };
        let stale: Vec<_> = self.tables.shares.iter().filter(|(id, _)| stale(id)).cloned().collect();
        for (id, key) in stale {
            let message = "blocks are listed to share it, and it is not there".to_owned();
            found.add(Severity::Untidy, "share-stale", About::segment(id), message, Some("removes the list"));
            found.rows.insert(key, None);
        }
    }

    fn check_epoch(&self, found: &mut Found) -> Result<(), VolumeError> {
        let rows =
            self.tables.segments.values().flat_map(|row| {
                [Some(row.epoch), row.object.map(|object| object.epoch)].into_iter().flatten()
            });
        let own = self.ground.config.store.is_none();
        let objects = self.objects.iter().flatten().map(|(object, _)| object.epoch).filter(|_| own);
        let highest = rows.chain(objects).max().unwrap_or_default().max(self.ground.journal_epoch()?);
        if highest > self.ground.epoch {
            let message =
                format!("the volume is in epoch {}, and epoch {highest} was there", self.ground.epoch);
            found.add(Severity::Damage, "epoch-behind", About::default(), message, Some("raises the epoch"));
            found.files.push(FileFix::Epoch(highest.0));
        }
        Ok(())
    }

    /// Objects that no row names. Those of a running epoch may be on their way; those of a later one are another machine's.
    fn check_leaked_objects(&self, found: &mut Found) {
        let mut in_use = self.in_use();
        in_use.extend(self.tables.garbage.iter().copied());
        let last = match self.ground.live {
            Some(volume) => Epoch(volume.epoch.0.saturating_sub(1)),
            None => self.ground.epoch,
        };
        let mut leaked: Vec<(ObjectRef, u64)> = self
            .objects
            .iter()
            .flatten()
            .filter(|(object, _)| !in_use.contains(object) && object.epoch <= last)
            .map(|(object, size)| (*object, *size))
            .collect();
        if let Some(volume) = self.ground.live {
            let now: BTreeSet<_> =
                volume.ns.segments().into_iter().filter_map(|(_, row)| row.object).collect();
            leaked.retain(|(object, _)| !now.contains(object));
        }
        for (object, size) in leaked {
            let message = format!("nothing refers to it; it takes {size} bytes");
            found.add(Severity::Untidy, "object-leaked", About::object(object), message, Some("deletes it"));
            found.files.push(FileFix::Delete(object));
        }
    }

    fn check_leaked_files(&self, found: &mut Found) -> Result<(), VolumeError> {
        let staging = self.ground.paths.staging();
        let kept =
            |id: &SegmentId| self.tables.segments.contains_key(id) || self.tables.uses.contains_key(id);
        let mut leaked: Vec<_> = list(&staging, "seg")?.into_iter().filter(|(id, _)| !kept(id)).collect();
        leaked.extend(list(&staging, "part")?);
        leaked.extend(list(&staging, "object")?);
        for (_, path) in leaked {
            let message = format!("nothing refers to '{}'", path.display());
            found.add(Severity::Untidy, "staging-leaked", About::default(), message, Some("removes it"));
            found.files.push(FileFix::Remove(path));
        }
        Ok(())
    }
}
