//! Versions: what a subvolume shows at a generation.

use std::collections::BTreeMap;

use forebay_engine::EngineError;
use forebay_format::{
    key::{self, Item, VERSION_LEN},
    row::TOMBSTONE,
};
use forebay_types::{Generation, SubvolumeId};

use crate::rows::{Rows, successor};

/// The subvolumes and generations that a view consists of, its own first, then what it was cloned from, and so on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lineage(pub(crate) Vec<(SubvolumeId, Generation)>);

/// A version that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) value: Vec<u8>,
    /// Whether it is a row of the view's own subvolume and generation, so that the next change replaces it.
    pub(crate) at_head: bool,
}

impl Lineage {
    pub(crate) fn head(&self) -> (SubvolumeId, Generation) {
        self.0.first().copied().unwrap_or((SubvolumeId::FIRST, Generation::FIRST))
    }

    /// Whether the subvolume shows rows of another one.
    pub(crate) fn is_clone(&self) -> bool {
        self.0.len() > 1
    }

    /// Whether there can be versions other than the head's.
    pub(crate) fn has_history(&self) -> bool {
        self.is_clone() || self.head().1 > Generation::FIRST
    }

    /// The version of `item` that this view shows.
    pub(crate) fn get(&self, rows: &Rows, item: &Item) -> Result<Option<Version>, EngineError> {
        let (subvolume, generation) = self.head();
        if let Some(value) = rows.get(&item.key(subvolume, generation))? {
            return Ok((value != TOMBSTONE).then_some(Version { value, at_head: true }));
        }
        if !self.has_history() {
            return Ok(None);
        }
        self.older(rows, item).map(|found| found.map(|value| Version { value, at_head: false }))
    }

    /// What would be shown if the head had no row: the newest older version, if it is not a tombstone.
    pub(crate) fn older(&self, rows: &Rows, item: &Item) -> Result<Option<Vec<u8>>, EngineError> {
        let head = self.head();
        for (subvolume, generation) in &self.0 {
            let mut from = item.key(*subvolume, *generation);
            if (*subvolume, *generation) == head {
                from = successor(&from);
            }
            let to = key::after_prefix(&item.prefix(*subvolume));
            let mut found = None;
            let mut next = Some(from);
            while let (None, Some(from)) = (&found, next) {
                let page = rows.page(&from, to.as_deref(), 1)?;
                found = page.rows.into_iter().next();
                next = page.next;
            }
            if let Some((_, value)) = found {
                return Ok((value != TOMBSTONE).then_some(value));
            }
        }
        Ok(None)
    }

    /// About `limit` items whose keys begin with the prefix that `prefix` gives for a subvolume, in the order of their keys, from the suffix
    /// `from` on. Returned are the suffixes of the items after that prefix (without the generation) and their versions, and the
    /// suffix from which to go on.
    pub(crate) fn scan(
        &self,
        rows: &Rows,
        prefix: &dyn Fn(SubvolumeId) -> Vec<u8>,
        from: &[u8],
        limit: usize,
    ) -> Result<Items, EngineError> {
        let head = self.head();
        let mut merged: Vec<(Vec<u8>, Version)> = Vec::new();
        let mut bound: Option<Vec<u8>> = None;
        for (subvolume, generation) in &self.0 {
            let prefix = prefix(*subvolume);
            let start = [prefix.as_slice(), from].concat();
            let end = match &bound {
                Some(bound) => Some([prefix.as_slice(), bound].concat()),
                None => key::after_prefix(&prefix),
            };
            let mut wanted = limit.max(2);
            let page = loop {
                let page = rows.page(&start, end.as_deref(), wanted)?;
                let Some(next) = &page.next else { break page };
                let cut = item_of(next, prefix.len());
                if cut.as_slice() > from {
                    bound = Some(cut);
                    break page;
                }
                wanted *= 4;
            };
            let mut level: Vec<(Vec<u8>, Version)> = Vec::new();
            for (key, value) in page.rows {
                let Some((item, version)) = key.split_last_chunk::<VERSION_LEN>() else { continue };
                let version = Generation(!u32::from_be_bytes(*version));
                let suffix = item.get(prefix.len()..).unwrap_or_default();
                let beyond = bound.as_deref().is_some_and(|bound| suffix >= bound);
                let older = level.last().is_some_and(|(newer, _)| newer == suffix);
                if version <= *generation && !beyond && !older {
                    let at_head = (*subvolume, version) == head;
                    level.push((suffix.to_vec(), Version { value, at_head }));
                }
            }
            if merged.is_empty() {
                merged = level;
            } else {
                let mut both: BTreeMap<_, _> = level.into_iter().collect();
                both.extend(merged);
                merged = both.into_iter().collect();
            }
        }
        if let Some(bound) = &bound {
            merged.retain(|(suffix, _)| suffix < bound);
        }
        merged.retain(|(_, version)| version.value != TOMBSTONE);
        Ok(Items { items: merged, next: bound })
    }
}

/// The suffix of the item that the row before a continuation key belongs to. Its versions may go on in the next page, so this page ends before it.
fn item_of(next: &[u8], prefix: usize) -> Vec<u8> {
    let end = next.len().saturating_sub(1 + VERSION_LEN);
    next.get(prefix..end).unwrap_or_default().to_vec()
}

/// Items of a scan.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) items: Vec<(Vec<u8>, Version)>,
    pub(crate) next: Option<Vec<u8>>,
}
