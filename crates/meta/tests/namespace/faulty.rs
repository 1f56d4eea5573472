//! An engine whose next commit goes wrong in a chosen way.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use forebay_meta::{Batch, Engine, EngineError, Outcome, RowPage, Writers};
use parking_lot::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing is committed, and the engine says so.
    Fails,
    /// Nothing is committed, and the engine does not know.
    UnknownLost,
    /// All is committed, and the engine does not know.
    UnknownDone,
}

#[derive(Debug)]
pub struct FaultyEngine {
    pub inner: Arc<dyn Engine>,
    pub next: Mutex<Option<Fault>>,
    /// Gets and scans so far.
    pub reads: AtomicU64,
    /// Rows that were asked for many at a time.
    pub together: AtomicU64,
}

impl FaultyEngine {
    pub fn over(inner: Arc<dyn Engine>) -> Arc<FaultyEngine> {
        Arc::new(FaultyEngine {
            inner,
            next: Mutex::new(None),
            reads: AtomicU64::new(0),
            together: AtomicU64::new(0),
        })
    }
}

impl Engine for FaultyEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.together.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.inner.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        match self.next.lock().take() {
            None => self.inner.commit(batch),
            Some(Fault::Fails) => Err(EngineError::NoSpace { place: "a test".into() }),
            Some(Fault::UnknownLost) => Ok(Outcome::Unknown),
            Some(Fault::UnknownDone) => {
                self.inner.commit(batch)?;
                Ok(Outcome::Unknown)
            }
        }
    }

    fn writers(&self) -> Writers {
        self.inner.writers()
    }

    fn size_on_disk(&self) -> u64 {
        self.inner.size_on_disk()
    }
}
