//! How a batch is committed, and what became of it.
//!
//! 1. In turn: its fences are looked at in SlateDB's memory, which has every batch before it, and it is put there too.
//! 2. Not in turn: the log is put to the store, one put at a time, each with all batches that wait.
//!
//! Before 2 has ended nobody is told anything: nor is a batch that was fenced by one that is not durable. What is not known to be durable when
//! SlateDB gives up or time is up is unknown: a put may still be on its way. It is the log's key that keeps writers apart: a put finds it taken where
//! another writer has begun.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_engine::{Batch, EngineError, Outcome};
use slatedb::{
    CloseReason, DbSnapshot, WriteBatch,
    config::{FlushOptions, FlushType, WriteOptions},
};

use crate::{
    engine::SlateEngine,
    explain,
    reading::{self, NOTHING},
};

/// Puts of the log after which its rows are put into a table: a start reads no more of them than this.
const LOG_PUTS: u32 = 256;

/// What a batch comes to in its turn.
enum Turn {
    /// It is in SlateDB's hands.
    Sent,
    /// A fence does not hold.
    Fenced,
}

impl SlateEngine {
    pub(crate) fn commit_batch(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let limit = self.place.waits.commit;
        let turn = self.turn.try_lock_for(limit).ok_or_else(|| self.too_late())?;
        match self.closed() {
            None => {}
            Some(CloseReason::Fenced) => return Ok(Outcome::Fenced),
            Some(_) => return Err(self.unusable()),
        }
        let took = if self.fences_hold(batch, limit)? { Turn::Sent } else { Turn::Fenced };
        if matches!(took, Turn::Sent) && !self.send(batch, limit) {
            return Ok(Outcome::Unknown);
        }
        let snapshot = self.db.snapshot();
        drop(turn);
        // As it was sent, or as it was fenced by what is there.
        let durable = match snapshot {
            Ok(snapshot) => self.make_durable(snapshot, limit),
            Err(error) => Err(explain::of_slate(&self.name, &error)),
        };
        match (took, durable) {
            (Turn::Sent, Ok(())) => Ok(Outcome::Committed),
            (Turn::Fenced, Ok(())) => Ok(Outcome::Fenced),
            (Turn::Sent, Err(error)) => {
                tracing::warn!("what became of a batch is not known: {error}");
                Ok(Outcome::Unknown)
            }
            (Turn::Fenced, Err(_)) if self.closed() == Some(CloseReason::Fenced) => Ok(Outcome::Fenced),
            (Turn::Fenced, Err(error)) => Err(error),
        }
    }

    fn too_late(&self) -> EngineError {
        explain::too_late(&self.name, self.place.last_trouble())
    }

    fn fences_hold(&self, batch: &Batch<'_>, limit: Duration) -> Result<bool, EngineError> {
        let keys: Vec<&[u8]> = batch.expect.iter().map(|(key, _)| key.as_slice()).collect();
        let found = self.place.wait(limit, reading::get_many(&self.db, &keys));
        let found = found.ok_or_else(|| self.too_late())?;
        let found = match found {
            Ok(found) => found,
            // It was shut out meanwhile, and changes nothing any more.
            Err(_) if self.closed() == Some(CloseReason::Fenced) => return Ok(false),
            Err(error) => return Err(explain::of_slate(&self.name, &error)),
        };
        Ok(batch.expect.iter().zip(&found).all(|((_, expected), found)| expected == found))
    }

    /// Gives a batch to SlateDB; `false` where it is not certain that it took it.
    fn send(&self, batch: &Batch<'_>, limit: Duration) -> bool {
        let mut rows = WriteBatch::new();
        for (key, value) in &batch.rows {
            match value {
                Some(value) => rows.put_bytes(reading::key_of(key), Bytes::copy_from_slice(value)),
                None => rows.delete(reading::key_of(key)),
            }
        }
        if batch.rows.is_empty() {
            rows.put(NOTHING, b"");
        }
        let sent = self.place.wait(limit, self.db.write_with_options(rows, &WriteOptions::default()));
        matches!(sent, Some(Ok(_)))
    }

    /// Sees to it that all of a snapshot is in the store, then shows it.
    fn make_durable(&self, snapshot: Arc<DbSnapshot>, limit: Duration) -> Result<(), EngineError> {
        let seq = snapshot.seq();
        let durable = self.place.wait(limit, async {
            if self.durable() >= seq {
                return Ok(());
            }
            let mut puts = self.flushing.lock().await;
            // Who had it before may have put this too.
            if self.durable() >= seq {
                return Ok(());
            }
            self.db.flush().await?;
            *puts += 1;
            if *puts >= LOG_PUTS {
                *puts = 0;
                self.put_tables();
            }
            Ok(())
        });
        match durable {
            None => Err(self.too_late()),
            Some(Err(error)) => Err(explain::of_slate(&self.name, &error)),
            Some(Ok(())) if self.durable() < seq => Err(self.too_late()),
            Some(Ok(())) => {
                self.show(snapshot);
                Ok(())
            }
        }
    }

    fn put_tables(&self) {
        let (db, name) = (self.db.clone(), self.name.clone());
        self.place.spawn(async move {
            let options = FlushOptions { flush_type: FlushType::MemTable };
            if let Err(error) = db.flush_with_options(options).await {
                tracing::debug!("{name}: putting tables: {error}");
            }
        });
    }
}
