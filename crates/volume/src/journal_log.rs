//! The namespace's log is the journal.

use std::sync::{Arc, OnceLock};

use forebay_data::{DataError, Journal};
use forebay_format::record::Changes;
use forebay_meta::{Append, Log, LogError, Place, Urgency};
use forebay_types::Sequence;

use crate::remote::Fence;

/// The journal, once it has been replayed into the namespace that logs to it. Takes nothing more once another machine owns the volume.
#[derive(Debug)]
pub(crate) struct JournalLog {
    pub(crate) journal: OnceLock<Arc<Journal>>,
    pub(crate) fence: Option<Arc<Fence>>,
}

impl Log for JournalLog {
    fn begin<'a>(&'a self, data: &'a [u8], urgency: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        if let Some(theirs) = self.fence.as_ref().and_then(|fence| fence.taken_over_by()) {
            let failure = format!("another machine has taken this volume over (epoch {theirs})");
            return Err(LogError::Failed(failure));
        }
        let journal = self.journal.get().ok_or_else(|| LogError::Failed("it is not open yet".to_owned()))?;
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
