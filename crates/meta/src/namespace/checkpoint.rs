//! Checkpoints: handing to the engine what the journal has.

use std::{fmt, sync::Arc};

use forebay_engine::{Batch, EngineError, Outcome};
use forebay_format::{
    key::Key,
    row::{AppliedRow, Row},
};
use forebay_types::Sequence;

use super::Namespace;

use crate::{error::MetaError, rows::RowMap};
/// Rows on their way to the engine. Dropped before [`Checkpoint::store`] succeeded, they go back among the pending ones.
pub struct Checkpoint<'a> {
    ns: &'a Namespace,
    rows: Arc<RowMap>,
    sequence: Sequence,
    stored: bool,
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({} rows up to record {})", self.rows.len(), self.sequence)
    }
}

impl Namespace {
    /// Takes all pending rows for a checkpoint. There is at most one at a time. `None` where there is nothing to store.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] while another one is being written.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint<'_>>, MetaError> {
        let mut owner = self.lock();
        if owner.last == owner.applied {
            return Ok(None);
        }
        let mut rows: Vec<_> = owner
            .segments
            .take_changed()
            .into_iter()
            .map(|(id, row)| (Key::Segment(id).encode(), Some(row.encode())))
            .collect();
        let applied = AppliedRow { sequence: owner.last, epoch: owner.epoch };
        rows.push((Key::Applied.encode(), Some(applied.encode())));
        let counters = self.counters(&mut owner);
        rows.push((Key::Counters.encode(), Some(counters.encode())));
        self.rows.apply(rows);
        let rows = self.rows.freeze()?;
        Ok(Some(Checkpoint { ns: self, rows, sequence: owner.last, stored: false }))
    }
}

impl Checkpoint<'_> {
    /// The last record that it contains. The journal must be durable up to it before [`Checkpoint::store`].
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The rows: key, and the value put or `None` for a row deleted; in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    /// Stores it, durably.
    ///
    /// # Errors
    /// [`MetaError::Engine`]; the rows are pending again. After an unknown outcome the engine is asked what it has.
    pub fn store(self) -> Result<Sequence, MetaError> {
        let engine = self.ns.rows.engine();
        let outcome = engine.commit(&Batch { expect: Vec::new(), rows: self.rows().collect() })?;
        let committed = match outcome {
            Outcome::Committed => true,
            Outcome::Fenced => false,
            Outcome::Unknown => Namespace::applied(engine.as_ref())?.sequence == self.sequence,
        };
        if !committed {
            let detail = "another owner has taken the volume over".to_owned();
            return Err(EngineError::Failed { place: format!("{engine:?}"), detail }.into());
        }
        Ok(self.stored())
    }

    /// Says that the engine has its rows: the caller has committed them, in one batch with others of its own.
    pub fn stored(mut self) -> Sequence {
        self.stored = true;
        let mut owner = self.ns.lock();
        self.ns.rows.frozen_is_stored();
        owner.applied = self.sequence;
        self.sequence
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        if !self.stored {
            let _turn = self.ns.lock();
            self.ns.rows.unfreeze();
        }
    }
}
