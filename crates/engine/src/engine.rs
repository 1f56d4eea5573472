use std::{fmt::Debug, time::Duration};

use crate::EngineError;

/// A change of an engine's rows that takes effect whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    /// Fences: rows that must have this value (`None`: be absent) for the batch to be committed. An engine with many writers locks them
    /// in the same transaction.
    pub expect: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Rows to put (`Some`) or delete (`None`); each key at most once. Many rows are taken fastest in the order of their keys.
    pub rows: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Batch<'a> {
    /// A batch of these rows, under no condition.
    #[must_use]
    pub fn of(rows: &'a [(Vec<u8>, Option<Vec<u8>>)]) -> Batch<'a> {
        let rows = rows.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        Batch { expect: Vec::new(), rows }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is durable.
    Committed,
    /// A fence did not hold; nothing was changed.
    Fenced,
    /// It may be there, not be there, or still come: before the caller answers anybody it calls [`settle`](crate::settle).
    Unknown,
}

/// How many processes may write through an engine at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// One: the engine itself keeps others out.
    One,
    /// Many, kept apart by fences.
    Many,
}

/// Rows of a scan, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct RowPage {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether rows may follow the last one.
    pub more: bool,
}

/// Bytes that a key has at most: what the index of every engine takes.
pub const KEY_MAX: usize = 1024;

/// An ordered store of rows. It knows nothing of what they mean.
///
/// Keys are at most [`KEY_MAX`] bytes, any bytes, ordered as `memcmp` orders them; values are up to some MiB. Calls may be made from any
/// number of threads and block; none may be made from inside an asynchronous runtime. A read sees every batch that was committed before it
/// began, through whichever process.
pub trait Engine: Send + Sync + Debug {
    /// The value of a row.
    ///
    /// # Errors
    /// [`EngineError`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// The values of several rows, in the order asked for: one round trip, one snapshot. A key may be asked for twice.
    ///
    /// # Errors
    /// [`EngineError`].
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError>;

    /// At most `limit` rows from `from` on, below `to` (`None`: to the end). A page is one snapshot.
    ///
    /// # Errors
    /// [`EngineError`].
    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError>;

    /// Changes rows. When it returns [`Outcome::Committed`], a power cut does not undo it.
    ///
    /// # Errors
    /// [`EngineError`]; nothing was changed.
    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError>;

    /// How many may write at a time.
    fn writers(&self) -> Writers;

    /// For how long, at least, no other process has committed anything: nothing that another one handed over later than that was, or will be, committed. `None` where others may commit
    /// at any time. An engine with one writer says so, as that one is this process.
    fn alone_for(&self) -> Option<Duration> {
        None
    }

    /// Bytes that it takes on disk; 0 where that cannot be told.
    fn size_on_disk(&self) -> u64;
}
