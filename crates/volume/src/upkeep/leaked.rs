//! Leaked objects: data in the store that no row names. The answer to a put was lost and the machine stopped before it was recorded, or a deposed
//! owner's put arrived late.
//!
//! Guarantee: what is deleted here is named by no row now, will be named by none, and is not needed by a recovery from the bucket. For that, in
//! this order:
//! 1. It was listed first, and the rows were looked at afterwards, in the turn of storing: in that turn lie the number, the put and the record
//!    of each object, so one that was on its way when it was listed has its row by then, or never gets it. No clock is asked.
//! 2. Its epoch is not above this opening's: a newer owner's objects are its own.
//! 3. It does not wait to be deleted as garbage: an older checkpoint in the bucket may name it until a newer one is there.
//! 4. Where the store is elsewhere, this opening has shipped its journal and no chunk of a former epoch is left: such a chunk may say
//!    of a segment that it is in an object of which the record was lost with the power.
//! 5. Its own list of runs is read: it is this volume's, and no extent refers to a segment in it that has no row. So a lost row, which `fsck`
//!    makes again from that list, costs no data.
//! 6. The owner is asked right before the delete, as before every other.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_format::row::ObjectRef;
use forebay_meta::Candidate;
use forebay_object::{Backend, ErrorKind};
use forebay_reading::{DATA, object_key, parse_key};
use serde::{Deserialize, Serialize};

use super::For;
use crate::{Volume, error::VolumeError};

/// When the first search of an opening begins by itself, and how long after one was complete the next does.
const FIRST_AFTER: Duration = Duration::from_mins(20);
const EVERY: Duration = Duration::from_hours(24);

/// What a search for leaked objects found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Leaked {
    /// Objects of data in the store.
    pub listed: u64,
    /// Those of them that no row names.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that were found not safe to delete, and stay.
    pub kept: u64,
    /// Files that interrupted puts left in a directory store.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
}

/// The background's search: one page of the listing a round, so that it never stands in the way of storing.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// When the next one begins; `None` before the first round.
    due: Option<Instant>,
    /// The last key of the page before, while a search goes on.
    after: Option<String>,
    so_far: Leaked,
}

impl Search {
    fn is_due(&mut self, now: Instant) -> bool {
        self.after.is_some() || *self.due.get_or_insert(now + FIRST_AFTER) <= now
    }

    /// Notes that a page was done, or, where there is no further one, that the search is over: then what it found.
    fn advance(&mut self, now: Instant, next: Option<String>) -> Option<Leaked> {
        self.after = next;
        if self.after.is_some() {
            return None;
        }
        self.due = Some(now + EVERY);
        Some(std::mem::take(&mut self.so_far))
    }
}

impl Volume {
    /// Counts leaked objects and files, and changes nothing.
    ///
    /// # Errors
    /// [`VolumeError`] where the store cannot be asked.
    pub fn leaked(&self) -> Result<Leaked, VolumeError> {
        let mut leaked = Leaked::default();
        let mut after = None;
        loop {
            (_, after) = self.leaked_page(after.as_deref(), &mut leaked)?;
            if after.is_none() {
                break;
            }
        }
        self.sweep(false, &mut leaked)?;
        Ok(leaked)
    }

    /// Deletes leaked objects and files. What is not safe to delete yet is counted and kept: after a drain nothing is but what is damaged or
    /// strange.
    ///
    /// # Errors
    /// [`VolumeError`]; what was deleted until then is gone.
    pub fn collect_leaked(&self) -> Result<Leaked, VolumeError> {
        self.may_write()?;
        let mut leaked = Leaked::default();
        let mut after = None;
        loop {
            after = self.collect_leaked_page(after.as_deref(), &mut leaked, For::Caller)?;
            if after.is_none() {
                break;
            }
        }
        self.sweep(true, &mut leaked)?;
        Ok(leaked)
    }

    /// Goes on with the background's search if one is due.
    pub(super) fn search_leaked(&self) -> Result<(), VolumeError> {
        let search = &mut *self.upkeep.search.lock();
        if self.read_only || !search.is_due(Instant::now()) {
            return Ok(());
        }
        let after = search.after.take();
        let next = match self.collect_leaked_page(after.as_deref(), &mut search.so_far, For::Background) {
            Ok(next) => next,
            Err(error) => {
                search.after = after;
                return Err(error);
            }
        };
        if let Some(mut leaked) = search.advance(Instant::now(), next) {
            self.sweep(true, &mut leaked)?;
            if leaked.objects + leaked.files > 0 {
                let Leaked { objects, bytes, kept, files, .. } = leaked;
                tracing::info!(objects, bytes, kept, files, "searched the store for what nothing refers to");
            }
        }
        Ok(())
    }

    fn sweep(&self, remove: bool, leaked: &mut Leaked) -> Result<(), VolumeError> {
        let swept = self.store.sweep(remove)?;
        leaked.files += swept.files;
        leaked.file_bytes += swept.bytes;
        Ok(())
    }

    /// The leaked objects on the page after a key, and the key after which the next page is.
    fn leaked_page(
        &self,
        after: Option<&str>,
        leaked: &mut Leaked,
    ) -> Result<(Vec<ObjectRef>, Option<String>), VolumeError> {
        let page = self.store.list(DATA, after)?;
        let mut found = Vec::new();
        let _turn = self.upkeep.store_turn.lock();
        for entry in page.entries {
            let Some(object) = parse_key(&entry.key) else { continue };
            leaked.listed += 1;
            if object.epoch <= self.epoch && !self.ns.object_is_named(object)? {
                leaked.objects += 1;
                leaked.bytes += entry.size;
                found.push(object);
            }
        }
        Ok((found, page.next))
    }

    fn collect_leaked_page(
        &self,
        after: Option<&str>,
        leaked: &mut Leaked,
        whom: For,
    ) -> Result<Option<String>, VolumeError> {
        let (found, next) = self.leaked_page(after, leaked)?;
        if found.is_empty() {
            return Ok(next);
        }
        let alone = match &self.remote {
            Some(remote) => remote.delete_late_chunks(&|| self.upkeep.go_on(whom))?,
            None => true,
        };
        for object in found {
            self.upkeep.go_on(whom)?;
            if alone && self.is_useless(object)? {
                if let Some(remote) = &self.remote {
                    remote.fence.check()?;
                }
                tracing::info!("deleting {}, which nothing refers to", object_key(object));
                self.store.delete(&object_key(object))?;
                self.source.objects().deleted(object);
                self.upkeep.done.deleted_objects.fetch_add(1, Ordering::Relaxed);
            } else {
                leaked.kept += 1;
            }
        }
        Ok(next)
    }

    /// Whether an object without rows is this volume's, and no extent refers to what it has.
    fn is_useless(&self, object: ObjectRef) -> Result<bool, VolumeError> {
        let footer = match self.footer(object) {
            Ok(footer) => footer,
            Err(VolumeError::Object(error)) if error.kind() == ErrorKind::NotFound => return Ok(true),
            Err(error @ VolumeError::Damaged { .. }) => {
                tracing::warn!("{} is named by no row, and stays: {error}", object_key(object));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if footer.volume != self.config.id {
            tracing::warn!("{} belongs to volume {}, and stays", object_key(object), footer.volume);
            return Ok(false);
        }
        for segment in footer.segments {
            // One with a row is elsewhere, and what refers to it is served from there.
            if self.ns.segment(segment.id).is_some() {
                continue;
            }
            let mut blocks: Vec<_> = segment
                .runs
                .iter()
                .map(|run| Candidate { subvolume: run.subvolume, ino: run.ino, block: run.block })
                .chain(self.ns.shares(segment.id)?)
                .collect();
            blocks.sort_unstable();
            blocks.dedup();
            for block in blocks {
                let (key, id) = (object_key(object), segment.id);
                let problem = match self.ns.plan_move(block, &|named| named == id) {
                    Ok(refers) if refers.rows.is_empty() => continue,
                    Ok(_) => "extents refer to it, and it has no row".to_owned(),
                    Err(error) => error.to_string(),
                };
                tracing::error!("{key} stays because of segment {id}: {problem}; run forebay fsck");
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_rare_and_goes_on_page_by_page() {
        let (mut search, start) = (Search::default(), Instant::now());
        assert!(!search.is_due(start), "an opening has better things to do");
        assert!(!search.is_due(start + FIRST_AFTER - Duration::from_secs(1)));
        let begun = start + FIRST_AFTER;
        assert!(search.is_due(begun));
        search.so_far.listed = 5;
        assert_eq!(search.advance(begun, Some("data/7f/x".to_owned())), None);
        assert!(search.is_due(begun), "the next page follows with the next round");
        assert_eq!(search.advance(begun, None), Some(Leaked { listed: 5, ..Leaked::default() }));
        assert_eq!(search.so_far, Leaked::default());
        assert!(!search.is_due(begun + EVERY - Duration::from_secs(1)));
        assert!(search.is_due(begun + EVERY));
    }
}
