//! The namespace's log is the journal.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use forebay_data::{DataError, Journal};
use forebay_format::record::Changes;
use forebay_meta::{Append, EmbeddedEngine, EngineFault, Log, LogError, Place, Urgency};
use forebay_types::Sequence;

use crate::remote::Fence;

/// Bytes that are taken while the metadata engine takes no checkpoint for another reason than a full disk.
const AHEAD_MAX: u64 = 64 << 20;
/// What a record is counted for besides its data: its rows wait in memory.
const RECORD_BYTES: u64 = 512;

/// The journal, once it has been replayed into the namespace that logs to it. Takes nothing more once another machine owns the volume.
///
/// While the engine takes no checkpoint, rows collect in memory and the journal's files cannot go. So on a full disk only what frees space is
/// taken, and that has no more room than the journal has in reserve; after another failure a bounded number of bytes.
#[derive(Debug)]
pub(crate) struct JournalLog {
    pub(crate) journal: OnceLock<Arc<Journal>>,
    fence: Option<Arc<Fence>>,
    engine: Arc<EmbeddedEngine>,
    /// Bytes taken since the engine began to fail.
    ahead: AtomicU64,
}

impl JournalLog {
    pub(crate) fn new(fence: Option<Arc<Fence>>, engine: Arc<EmbeddedEngine>) -> JournalLog {
        JournalLog { journal: OnceLock::new(), fence, engine, ahead: AtomicU64::new(0) }
    }

    /// Whether the engine, as it is, leaves room for something more.
    fn check_engine(&self, data: &[u8], urgency: Urgency) -> Result<(), LogError> {
        let Some(fault) = self.engine.fault() else {
            if self.ahead.load(Ordering::Relaxed) > 0 {
                self.ahead.store(0, Ordering::Relaxed);
            }
            return Ok(());
        };
        let bytes = data.len() as u64 + RECORD_BYTES;
        match fault {
            EngineFault::NoSpace if urgency == Urgency::Normal => Err(LogError::NoSpace),
            EngineFault::NoSpace => Ok(()),
            EngineFault::Other if self.ahead.fetch_add(bytes, Ordering::Relaxed) > AHEAD_MAX => {
                let why = "the metadata engine takes no checkpoint; `forebay status` says why";
                Err(LogError::Failed(why.to_owned()))
            }
            EngineFault::Other => Ok(()),
        }
    }
}

impl Log for JournalLog {
    fn begin<'a>(&'a self, data: &'a [u8], urgency: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        if let Some(theirs) = self.fence.as_ref().and_then(|fence| fence.taken_over_by()) {
            let failure = format!("another machine has taken this volume over (epoch {theirs})");
            return Err(LogError::Failed(failure));
        }
        let journal = self.journal.get().ok_or_else(|| LogError::Failed("it is not open yet".to_owned()))?;
        self.check_engine(data, urgency)?;
        let urgency = match urgency {
            Urgency::Normal => forebay_data::Urgency::Normal,
            Urgency::Reclaim => forebay_data::Urgency::Reclaim,
        };
        let append = journal.begin(data, urgency).map_err(|error| match error {
            DataError::NoSpace { .. } => LogError::NoSpace,
            other => LogError::Failed(other.to_string()),
        })?;
        Ok(Box::new(Begun(append)))
    }

    fn write_out(&self) {
        if let Some(journal) = self.journal.get() {
            journal.write_out();
        }
    }
}

struct Begun<'a>(forebay_data::Append<'a>);

impl Append for Begun<'_> {
    fn place(&self) -> Place {
        Place { segment: self.0.segment(), offset: self.0.data_offset() }
    }

    fn commit(self: Box<Self>, changes: &Changes) -> Sequence {
        self.0.commit(changes)
    }
}
