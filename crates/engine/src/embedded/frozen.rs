use std::{
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use fjall::{Keyspace, Readable, Snapshot};

use super::explain::explain;
use crate::{Batch, Engine, EngineError, Outcome, RowPage, Writers};

/// The rows of an [`EmbeddedEngine`] at one moment. Takes no batches.
pub struct FrozenEngine {
    pub(super) place: PathBuf,
    pub(super) rows: Keyspace,
    pub(super) snapshot: Snapshot,
    /// Keeps the engine from being opened again meanwhile.
    pub(super) _reader: Arc<()>,
}

impl std::fmt::Debug for FrozenEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrozenEngine({})", self.place.display())
    }
}

impl Engine for FrozenEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        value(&self.place, &self.rows, &self.snapshot, key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        values(&self.place, &self.rows, &self.snapshot, keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        page(&self.place, &self.rows, &self.snapshot, (from, to), limit)
    }

    fn commit(&self, _: &Batch<'_>) -> Result<Outcome, EngineError> {
        let detail = "rows of one moment do not change".to_owned();
        Err(EngineError::Failed { place: self.place.display().to_string(), detail })
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn size_on_disk(&self) -> u64 {
        self.rows.disk_space()
    }
}

/// At most `limit` rows of a range of a snapshot.
pub(super) fn page(
    place: &Path,
    rows: &Keyspace,
    snapshot: &Snapshot,
    (from, to): (&[u8], Option<&[u8]>),
    limit: usize,
) -> Result<RowPage, EngineError> {
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    let mut page = RowPage::default();
    for guard in snapshot.range::<&[u8], _>(rows, (Bound::Included(from), end)) {
        if page.rows.len() == limit {
            page.more = true;
            break;
        }
        let (key, value) = guard.into_inner().map_err(|error| explain(place, error))?;
        page.rows.push((key.to_vec(), value.to_vec()));
    }
    Ok(page)
}

/// The value of a row of a snapshot.
pub(super) fn value(
    place: &Path,
    rows: &Keyspace,
    snapshot: &Snapshot,
    key: &[u8],
) -> Result<Option<Vec<u8>>, EngineError> {
    let value = snapshot.get(rows, key).map_err(|error| explain(place, error))?;
    Ok(value.map(|value| value.to_vec()))
}

/// The values of rows of a snapshot.
pub(super) fn values(
    place: &Path,
    rows: &Keyspace,
    snapshot: &Snapshot,
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
    keys.iter().map(|key| value(place, rows, snapshot, key)).collect()
}
