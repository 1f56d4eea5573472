use forebay_format::record::Changes;
use forebay_types::{SegmentId, Sequence};

/// Whether an operation needs new space or may free some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Refused when the disk is full.
    Normal,
    /// Frees space, or is needed to: may use what is held back for it.
    Reclaim,
}

/// Why the log could not take a record.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The local disk is full.
    #[error("no space is left on the local disk for the journal")]
    NoSpace,
    /// An earlier write or sync failed: nothing more is taken until the volume is mounted again.
    #[error("the journal failed: {0}; unmount the volume and mount it again")]
    Failed(String),
}

/// Where a record's data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment that the log's current file is.
    pub segment: SegmentId,
    /// The place of the first byte of the data.
    pub offset: u64,
}

/// A record about to be appended. No other can come before it; dropped, nothing is appended.
pub trait Append {
    /// Where its data will be.
    fn place(&self) -> Place;

    /// Appends it, and returns its place in the order.
    fn commit(self: Box<Self>, changes: &Changes) -> Sequence;
}

/// The ordered log that every operation goes through.
pub trait Log: Send + Sync {
    /// Begins a record with `data` (may be empty).
    ///
    /// # Errors
    /// [`LogError`].
    fn begin<'a>(&'a self, data: &'a [u8], urgency: Urgency) -> Result<Box<dyn Append + 'a>, LogError>;

    /// Hands what was appended to the operating system. Called after locks are released; failures show at the next `begin`.
    fn write_out(&self);
}
