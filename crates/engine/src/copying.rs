//! Rows of one engine into another, under a writer of the first.
//!
//! Guarantees: no batch into the target comes late over a newer row, since each changes the mark that it expects; a row that differs is never taken for one that
//! was changed meanwhile. Relies on [`crate::MovableEngine`] for which rows were.

use crate::{Batch, Engine, EngineError, Keys, Outcome, settle};

/// Rows that one batch of a copy has.
const PAGE: usize = 2000;
/// How often a batch is settled whose outcome nobody knows.
const SETTLE_TRIES: u32 = 20;

/// A row: key and value.
type Row = (Vec<u8>, Vec<u8>);

/// Why rows were not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// An engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Somebody else has changed the mark: the target is not this copy's any more.
    #[error("somebody else writes to the rows that are being copied")]
    Fenced,
    /// Nobody knows what became of a batch.
    #[error("nobody knows whether rows were written to {0}")]
    Unknown(String),
    /// Rows are not the same although nobody changed them.
    #[error("{0} rows are not the same after they were copied")]
    Differs(usize),
}

/// The mark of a copy: a row of the target that each batch expects and changes.
#[derive(Debug)]
pub struct CopyMark<F> {
    /// Its key, which is not copied.
    pub key: Vec<u8>,
    /// Its value after so many batches; each is another.
    pub value: F,
    /// Batches so far.
    pub batches: u64,
}

impl<F: Fn(u64) -> Vec<u8>> CopyMark<F> {
    /// Its value now.
    pub fn now(&self) -> Vec<u8> {
        (self.value)(self.batches)
    }

    /// Puts and deletes rows with the next mark. Returns once they are durable.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn put(&mut self, to: &dyn Engine, rows: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), CopyError> {
        let next = (self.value)(self.batches + 1);
        let mut batch = Batch::of(rows);
        batch.expect.push((self.key.clone(), Some(self.now())));
        batch.rows.push((&self.key, Some(&next)));
        batch.rows.sort_unstable_by_key(|(key, _)| *key);
        let mut outcome = to.commit(&batch)?;
        for _ in 0..SETTLE_TRIES {
            match outcome {
                Outcome::Committed => {
                    self.batches += 1;
                    return Ok(());
                }
                Outcome::Fenced => return Err(CopyError::Fenced),
                Outcome::Unknown => outcome = settle(to, &batch, &self.key)?,
            }
        }
        Err(CopyError::Unknown(format!("{to:?}")))
    }
}

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Copied {
    fn add(&mut self, rows: &[(Vec<u8>, Option<Vec<u8>>)]) {
        self.rows += rows.len() as u64;
        let bytes =
            |(key, value): &(Vec<u8>, Option<Vec<u8>>)| key.len() + value.as_ref().map_or(0, Vec::len);
        self.bytes += rows.iter().map(bytes).sum::<usize>() as u64;
    }
}

/// Copies the rows that there are, but the mark's. `told` hears after each page what was copied, and says whether to go on; `None` where not.
///
/// # Errors
/// [`CopyError`].
pub fn copy_all<F: Fn(u64) -> Vec<u8>>(
    from: &dyn Engine,
    to: &dyn Engine,
    mark: &mut CopyMark<F>,
    told: &mut dyn FnMut(Copied) -> bool,
) -> Result<Option<Copied>, CopyError> {
    let (mut at, mut copied) = (Vec::new(), Copied::default());
    loop {
        let page = from.scan(&at, None, PAGE)?;
        let last = page.rows.last().map(|(key, _)| [key.as_slice(), &[0]].concat());
        let rows = page.rows.into_iter().filter(|(key, _)| *key != mark.key);
        let rows: Vec<_> = rows.map(|(key, value)| (key, Some(value))).collect();
        mark.put(to, &rows)?;
        copied.add(&rows);
        if !told(copied) {
            return Ok(None);
        }
        match last {
            Some(last) if page.more => at = last,
            _ => return Ok(Some(copied)),
        }
    }
}

/// Copies these rows as they are now, those that are gone too; never the mark's.
///
/// # Errors
/// [`CopyError`].
pub fn copy_rows<F: Fn(u64) -> Vec<u8>>(
    from: &dyn Engine,
    to: &dyn Engine,
    keys: &Keys,
    mark: &mut CopyMark<F>,
) -> Result<(), CopyError> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(|key| *key != mark.key).collect();
    for keys in keys.chunks(PAGE) {
        let values = from.get_many(keys)?;
        let rows: Vec<_> = keys.iter().map(|key| key.to_vec()).zip(values).collect();
        mark.put(to, &rows)?;
    }
    Ok(())
}

/// Those of these rows that are not the same on both sides.
///
/// # Errors
/// [`EngineError`].
pub fn compare_rows(
    one: &dyn Engine,
    other: &dyn Engine,
    keys: &Keys,
    except: &[u8],
) -> Result<Keys, EngineError> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).filter(|key| *key != except).collect();
    let mut differ = Keys::new();
    for keys in keys.chunks(PAGE) {
        let (one, other) = (one.get_many(keys)?, other.get_many(keys)?);
        let pairs = keys.iter().zip(one.iter().zip(&other));
        differ.extend(pairs.filter(|(_, (one, other))| one != other).map(|(key, _)| key.to_vec()));
    }
    Ok(differ)
}

/// All rows but one that are not the same on both sides, and how many there are. `told` hears after each page how many were compared, and says whether to go
/// on; `None` where not.
///
/// # Errors
/// [`EngineError`].
pub fn compare_all(
    one: &dyn Engine,
    other: &dyn Engine,
    except: &[u8],
    told: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<(Keys, u64)>, EngineError> {
    let (mut at, mut differ, mut compared) = (Vec::new(), Keys::new(), 0);
    loop {
        let page = one.scan(&at, None, PAGE)?;
        let last = page.rows.last().filter(|_| page.more).map(|(key, _)| [key.as_slice(), &[0]].concat());
        let beside = rows_until(other, &at, last.as_deref())?;
        compared += page.rows.len() as u64;
        differ.extend(differences(page.rows, beside).filter(|key| *key != except));
        if !told(compared) {
            return Ok(None);
        }
        match last {
            Some(last) => at = last,
            None => return Ok(Some((differ, compared))),
        }
    }
}

fn rows_until(engine: &dyn Engine, from: &[u8], to: Option<&[u8]>) -> Result<Vec<Row>, EngineError> {
    let (mut from, mut rows) = (from.to_vec(), Vec::new());
    loop {
        let page = engine.scan(&from, to, PAGE)?;
        rows.extend(page.rows);
        match rows.last() {
            Some((last, _)) if page.more => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(rows),
        }
    }
}

/// Keys of rows that only one side has, or both with other values.
fn differences(one: Vec<Row>, other: Vec<Row>) -> impl Iterator<Item = Vec<u8>> {
    let mut other: std::collections::BTreeMap<_, _> = other.into_iter().collect();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (key, value) in one {
        if other.remove(&key).is_none_or(|found| found != value) {
            keys.push(key);
        }
    }
    keys.into_iter().chain(other.into_keys())
}
