//! Rows as they are now: what the engine has, under what it does not have yet.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use forebay_engine::{Engine, EngineError, RowPage};
use parking_lot::RwLock;

use crate::{error::MetaError, prefetched::Prefetched, row_key::RowKey};

/// A key and its value.
pub(crate) type KeyedRow = (Vec<u8>, Vec<u8>);

pub(crate) type RowMap = BTreeMap<RowKey, Option<Vec<u8>>>;

#[derive(Debug, Default)]
struct Overlay {
    pending: RowMap,
    pending_bytes: usize,
    frozen: Option<Arc<RowMap>>,
}

/// The engine's rows with those on top that it is still to get: `pending` ones, and `frozen` ones that a checkpoint is writing.
#[derive(Debug)]
pub(crate) struct Rows {
    engine: Arc<dyn Engine>,
    overlay: RwLock<Overlay>,
    prefetched: Prefetched,
}

impl Rows {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Rows {
        Rows { engine, overlay: RwLock::default(), prefetched: Prefetched::default() }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Bytes of rows that no checkpoint has taken yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.overlay.read().pending_bytes
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        {
            let overlay = self.overlay.read();
            if let Some(value) = overlay.pending.get(key) {
                return Ok(value.clone());
            }
            if let Some(value) = overlay.frozen.as_ref().and_then(|frozen| frozen.get(key)) {
                return Ok(value.clone());
            }
        }
        match self.prefetched.take(key) {
            Some(value) => Ok(value),
            None => self.engine.get(key),
        }
    }

    /// Reads rows in one call, for [`Rows::get`] to have them in turn; needs no turn itself. Returns what is known of each.
    pub(crate) fn read_ahead(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let since = self.prefetched.begin();
        let mut found: Vec<Option<Option<Vec<u8>>>> = {
            let overlay = self.overlay.read();
            let known = |key: &Vec<u8>| {
                let pending = overlay.pending.get(key.as_slice());
                pending.or_else(|| overlay.frozen.as_ref()?.get(key.as_slice())).cloned()
            };
            keys.iter().map(known).collect()
        };
        let missing: Vec<usize> = (0..keys.len()).filter(|at| found[*at].is_none()).collect();
        if !missing.is_empty() {
            let wanted: Vec<&[u8]> = missing.iter().map(|at| keys[*at].as_slice()).collect();
            let values = self.engine.get_many(&wanted)?;
            self.prefetched.put(since, wanted.iter().zip(&values));
            for (at, value) in missing.into_iter().zip(values) {
                found[at] = Some(value);
            }
        }
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    /// A page of at most `limit` rows from `from` on, below `to`. It may have fewer rows, even none, while more follow: `next` says where.
    pub(crate) fn page(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<Page, EngineError> {
        if to.is_some_and(|to| from >= to) {
            return Ok(Page { rows: Vec::new(), next: None });
        }
        let overlay = self.overlay.read();
        let RowPage { rows, more } = self.engine.scan(from, to, limit)?;
        let next = more.then(|| rows.last().map(|(key, _)| successor(key))).flatten();
        let bound = next.as_deref().or(to).map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(from), bound);
        let mut frozen = overlay.frozen.iter().flat_map(|map| map.range::<[u8], _>(range)).peekable();
        let mut pending = overlay.pending.range::<[u8], _>(range).peekable();
        if frozen.peek().is_none() && pending.peek().is_none() {
            return Ok(Page { rows, next });
        }
        let mut merged: Vec<KeyedRow> = Vec::with_capacity(rows.len() + 1);
        let mut below = rows.into_iter().peekable();
        loop {
            let heads = [
                pending.peek().map(|(key, _)| key.as_slice()),
                frozen.peek().map(|(key, _)| key.as_slice()),
                below.peek().map(|(key, _)| key.as_slice()),
            ];
            let Some(first) = heads.iter().flatten().min().copied() else {
                return Ok(Page { rows: merged, next });
            };
            if merged.len() >= limit {
                let next = merged.last().map(|(key, _)| successor(key));
                return Ok(Page { rows: merged, next });
            }
            let [on_top, in_frozen, in_engine] = heads.map(|key| key == Some(first));
            let newest = if on_top { pending.next() } else { None };
            let older = if in_frozen { frozen.next() } else { None };
            let oldest = if in_engine { below.next() } else { None };
            match newest.or(older) {
                Some((key, Some(value))) => merged.push((key.as_slice().to_vec(), value.clone())),
                Some((_, None)) => {}
                None => merged.extend(oldest),
            }
        }
    }

    /// All rows whose keys begin with `prefix`.
    pub(crate) fn with_prefix(&self, prefix: &[u8]) -> Result<Vec<KeyedRow>, EngineError> {
        let to = forebay_format::key::after_prefix(prefix);
        let mut from = prefix.to_vec();
        let mut all = Vec::new();
        loop {
            let page = self.page(&from, to.as_deref(), 1024)?;
            all.extend(page.rows);
            match page.next {
                Some(next) => from = next,
                None => return Ok(all),
            }
        }
    }

    pub(crate) fn apply(&self, rows: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        let mut overlay = self.overlay.write();
        for (key, value) in rows {
            overlay.pending_bytes += bytes_of(&key, value.as_ref());
            overlay.pending.insert(key.into(), value);
        }
    }

    /// Makes the pending rows the frozen ones. There must be none frozen.
    pub(crate) fn freeze(&self) -> Result<Arc<RowMap>, MetaError> {
        let mut overlay = self.overlay.write();
        if overlay.frozen.is_some() {
            return Err(MetaError::Invalid("a checkpoint is being written already"));
        }
        let frozen = Arc::new(std::mem::take(&mut overlay.pending));
        overlay.pending_bytes = 0;
        overlay.frozen = Some(Arc::clone(&frozen));
        Ok(frozen)
    }

    /// Forgets the frozen rows: the engine has them.
    pub(crate) fn frozen_is_stored(&self) {
        let frozen = self.overlay.write().frozen.take();
        if let Some(frozen) = frozen {
            self.prefetched.stored(frozen);
        }
    }

    /// Puts the frozen rows back under the pending ones: the engine could not take them.
    pub(crate) fn unfreeze(&self) {
        let mut overlay = self.overlay.write();
        if let Some(frozen) = overlay.frozen.take() {
            for (key, value) in frozen.iter() {
                if !overlay.pending.contains_key(key) {
                    overlay.pending_bytes += bytes_of(key.as_slice(), value.as_ref());
                    overlay.pending.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

/// What a row counts while it waits: more than its bytes, for it is in a map.
fn bytes_of(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    key.len() + value.map_or(0, Vec::len) + 64
}

/// Rows in the order of their keys.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<KeyedRow>,
    /// Where the next page begins; `None` after the last row.
    pub(crate) next: Option<Vec<u8>>,
}

pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
