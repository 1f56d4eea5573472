//! The owner's log: it numbers records and keeps none, since the engine itself gets their rows before anybody is answered.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use forebay_format::record::Changes;
use forebay_meta::{Append, Log, LogError, Place, Urgency};
use forebay_types::{SegmentId, Sequence};

thread_local! {
    /// Records that this thread has made since it was set to 0.
    static RECORDS: Cell<u64> = const { Cell::new(0) };
}

/// Numbers records. A record's rows are pending in the namespace until a batch takes them.
#[derive(Debug)]
pub(crate) struct CommitLog {
    last: AtomicU64,
    /// Another server owns the volume.
    over: AtomicBool,
}

impl CommitLog {
    pub(crate) fn new(last: Sequence) -> CommitLog {
        CommitLog { last: AtomicU64::new(last.0), over: AtomicBool::new(false) }
    }

    /// Takes nothing more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Runs `work`, and tells whether this thread made records in it.
    pub(crate) fn watch<R>(work: impl FnOnce() -> R) -> (R, bool) {
        RECORDS.set(0);
        let result = work();
        (result, RECORDS.get() > 0)
    }
}

impl Log for CommitLog {
    fn begin<'a>(&'a self, data: &'a [u8], _: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        if self.over.load(Ordering::SeqCst) {
            return Err(LogError::Failed("another server has taken the volume over".to_owned()));
        }
        if !data.is_empty() {
            // Bytes of files are in the store before their extents are told to the owner.
            return Err(LogError::Failed("the records of a shared volume have no data".to_owned()));
        }
        Ok(Box::new(Begun(self)))
    }

    fn write_out(&self) {}
}

struct Begun<'a>(&'a CommitLog);

impl Append for Begun<'_> {
    fn place(&self) -> Place {
        Place { segment: SegmentId(0), offset: 0 }
    }

    fn commit(self: Box<Self>, _: &Changes) -> Sequence {
        RECORDS.set(RECORDS.get() + 1);
        Sequence(self.0.last.fetch_add(1, Ordering::SeqCst) + 1)
    }
}
