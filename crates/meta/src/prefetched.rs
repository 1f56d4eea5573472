//! Rows of the engine that were read before they are needed.
//!
//! Guarantees: what is taken from here is what the engine has, as long as who takes has looked at the pending and frozen rows before, in turn. Relies on: only
//! [`Prefetched::stored`], in turn, says that the engine's rows have changed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::rows::RowMap;

/// Rows that wait here at most. Most are taken at once.
const MOST: usize = 16_384;
/// Changes of the engine's rows that a read may take: what was read before more of them is not kept.
const CHANGES: usize = 16;

#[derive(Debug, Default)]
struct Waiting {
    rows: FxHashMap<Vec<u8>, Option<Vec<u8>>>,
    /// How often the engine's rows have changed, and the rows of the last times, the latest at the end.
    stores: u64,
    last: VecDeque<Arc<RowMap>>,
}

#[derive(Debug, Default)]
pub(crate) struct Prefetched {
    /// Whether anybody reads ahead: else nothing here costs anything.
    used: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Prefetched {
    /// To be called before rows are read: returns what [`Prefetched::put`] is given.
    pub(crate) fn begin(&self) -> u64 {
        let waiting = self.waiting.lock();
        self.used.store(true, Ordering::Release);
        waiting.stores
    }

    /// Keeps rows that were read, but for those that may have changed since.
    pub(crate) fn put<'a>(
        &self,
        since: u64,
        rows: impl Iterator<Item = (&'a &'a [u8], &'a Option<Vec<u8>>)>,
    ) {
        let mut waiting = self.waiting.lock();
        let Waiting { rows: kept, stores, last } = &mut *waiting;
        let Some(first) =
            usize::try_from(*stores - since).ok().and_then(|missed| last.len().checked_sub(missed))
        else {
            return;
        };
        for (key, value) in rows {
            if !last.range(first..).any(|changed| changed.contains_key(*key)) && kept.len() < MOST {
                kept.insert(key.to_vec(), value.clone());
            }
        }
    }

    /// Takes what was read of a row; the caches have it from then on.
    pub(crate) fn take(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if !self.used.load(Ordering::Acquire) {
            return None;
        }
        self.waiting.lock().rows.remove(key)
    }

    /// The engine has these rows now. In turn.
    pub(crate) fn stored(&self, rows: Arc<RowMap>) {
        let mut waiting = self.waiting.lock();
        waiting.stores += 1;
        if !self.used.load(Ordering::Acquire) {
            return;
        }
        if waiting.rows.len() >= MOST {
            // Nobody came for most of these.
            waiting.rows.clear();
        }
        if !waiting.rows.is_empty() {
            for key in rows.keys() {
                waiting.rows.remove(key.as_slice());
            }
        }
        if waiting.last.len() == CHANGES {
            waiting.last.pop_front();
        }
        waiting.last.push_back(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &[&str]) -> Arc<RowMap> {
        Arc::new(keys.iter().map(|key| (key.as_bytes().to_vec().into(), Some(vec![2]))).collect())
    }

    fn put(prefetched: &Prefetched, since: u64, keys: &[&str]) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let values = vec![Some(vec![1]); keys.len()];
        prefetched.put(since, keys.iter().zip(&values));
    }

    #[test]
    fn what_changed_while_it_was_read_is_not_kept() {
        let prefetched = Prefetched::default();
        let since = prefetched.begin();
        put(&prefetched, since, &["a", "b"]);
        assert_eq!(prefetched.take(b"a"), Some(Some(vec![1])));
        assert_eq!(prefetched.take(b"a"), None, "once");
        prefetched.stored(rows(&["b"]));
        assert_eq!(prefetched.take(b"b"), None, "it has changed since");
        put(&prefetched, since, &["b", "c"]);
        assert_eq!((prefetched.take(b"b"), prefetched.take(b"c")), (None, Some(Some(vec![1]))));
        prefetched.stored(rows(&["d"]));
        put(&prefetched, since, &["b", "d", "e"]);
        assert_eq!((prefetched.take(b"b"), prefetched.take(b"d")), (None, None), "both have changed since");
        assert_eq!(prefetched.take(b"e"), Some(Some(vec![1])));
        (0..CHANGES).for_each(|_| prefetched.stored(rows(&["d"])));
        put(&prefetched, since, &["e"]);
        assert_eq!(prefetched.take(b"e"), None, "nobody knows any more what changed first");
    }
}
