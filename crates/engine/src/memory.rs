use std::collections::BTreeMap;

use parking_lot::RwLock;

use crate::{Batch, Engine, EngineError, Outcome, RowPage, Writers};

/// An engine whose rows are gone with the process: for tests and for looking into a volume that was read from a bucket.
#[derive(Debug, Default)]
pub struct MemoryEngine(RwLock<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.0.read().get(key).cloned())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let rows = self.0.read();
        Ok(keys.iter().map(|key| rows.get(*key).cloned()).collect())
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        let rows = self.0.read();
        if to.is_some_and(|to| from >= to) {
            return Ok(RowPage::default());
        }
        let mut found =
            rows.range(from.to_vec()..).take_while(|(key, _)| to.is_none_or(|to| key.as_slice() < to));
        let page = found.by_ref().take(limit).map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(RowPage { rows: page, more: found.next().is_some() })
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let mut rows = self.0.write();
        if batch.expect.iter().any(|(key, value)| rows.get(key) != value.as_ref()) {
            return Ok(Outcome::Fenced);
        }
        for (key, value) in &batch.rows {
            match value {
                Some(value) => rows.insert(key.to_vec(), value.to_vec()),
                None => rows.remove(*key),
            };
        }
        Ok(Outcome::Committed)
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}
