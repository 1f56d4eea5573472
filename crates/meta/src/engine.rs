use std::fmt::Debug;

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
    /// It may or may not be there: the caller reads a row that only this batch writes before it answers anybody.
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

/// An engine that could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Another process has it open.
    #[error("the metadata engine in {place} is in use by another process")]
    Locked {
        /// Where it is.
        place: String,
    },
    /// Its files are not what it wrote.
    #[error("the metadata engine in {place} is damaged: {detail}; `forebay fsck` tells more")]
    Damaged {
        /// Where it is.
        place: String,
        /// What it found.
        detail: String,
    },
    /// No space is left for it.
    #[error("no space is left for the metadata engine in {place}")]
    NoSpace {
        /// Where it is.
        place: String,
    },
    /// Anything else.
    #[error("the metadata engine in {place} failed: {detail}")]
    Failed {
        /// Where it is.
        place: String,
        /// What it said.
        detail: String,
    },
}

/// Rows of a scan, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct RowPage {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether rows may follow the last one.
    pub more: bool,
}

/// An ordered store of rows. It knows nothing of what they mean.
pub trait Engine: Send + Sync + Debug {
    /// The value of a row.
    ///
    /// # Errors
    /// [`EngineError`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

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

    /// Bytes that it takes on disk.
    fn size_on_disk(&self) -> u64;
}
