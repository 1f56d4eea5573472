use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::{Batch, Engine, EngineError, Outcome, RowPage, Writers};

/// An engine that can be exchanged for another one under whoever uses it, once that one has the same rows.
///
/// A read that an exchange overtakes is made again of the new engine: the old one may be emptied and removed from that moment on.
///
/// While keys are noted, every key of a batch that was not refused is in the next [`Paused::noted`] or [`MovableEngine::noted`] once the batch is over: what was
/// read of a row before that may be old. One author commits, one batch at a time, and settles each.
pub struct MovableEngine {
    engine: RwLock<Arc<dyn Engine>>,
    /// Held shared by batches on their way, and alone in a pause.
    gate: RwLock<()>,
    noted: Mutex<Option<Keys>>,
    /// Whether nobody knows what became of the last batch.
    unsettled: AtomicBool,
}

/// Keys of rows.
pub type Keys = BTreeSet<Vec<u8>>;

impl fmt::Debug for MovableEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.read().fmt(f)
    }
}

impl MovableEngine {
    /// Puts itself in front of an engine.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> MovableEngine {
        let (gate, noted, unsettled) = (RwLock::default(), Mutex::default(), AtomicBool::new(false));
        MovableEngine { engine: RwLock::new(engine), gate, noted, unsettled }
    }

    /// The engine as it is now.
    #[must_use]
    pub fn present(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine.read())
    }

    /// Answers a read from the engine that is still the present one afterwards.
    fn read<T>(&self, read: impl Fn(&dyn Engine) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut engine = self.present();
        loop {
            let answer = read(&*engine);
            let present = self.present();
            if Arc::ptr_eq(&engine, &present) {
                return answer;
            }
            engine = present;
        }
    }

    /// Begins to note keys. Returns once no batch is on its way that is not noted; `false` where that takes longer than `limit`.
    #[must_use]
    pub fn note(&self, limit: Duration) -> bool {
        let Some(_alone) = self.gate.try_write_for(limit) else { return false };
        *self.noted.lock() = Some(Keys::new());
        true
    }

    /// Notes no more.
    pub fn forget(&self) {
        *self.noted.lock() = None;
    }

    /// Takes the keys that are noted.
    #[must_use]
    pub fn noted(&self) -> Keys {
        self.noted.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets batches wait, from when the one on its way is over until the pause is dropped. `None` where that batch takes longer than `limit`.
    #[must_use]
    pub fn pause(&self, limit: Duration) -> Option<Paused<'_>> {
        self.gate.try_write_for(limit).map(|alone| Paused { of: self, _alone: alone })
    }
}

/// A time without batches.
pub struct Paused<'a> {
    of: &'a MovableEngine,
    _alone: RwLockWriteGuard<'a, ()>,
}

impl fmt::Debug for Paused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paused({:?})", self.of)
    }
}

impl Paused<'_> {
    /// Whether a batch may still come of which nobody knows.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.of.unsettled.load(SeqCst)
    }

    /// Takes the keys that are noted.
    #[must_use]
    pub fn noted(&self) -> Keys {
        self.of.noted()
    }

    /// From now on everything goes to `engine`, and nothing is noted.
    pub fn exchange(&self, engine: Arc<dyn Engine>) {
        *self.of.engine.write() = engine;
        self.of.forget();
    }
}

impl Engine for MovableEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.read(|engine| engine.get(key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.read(|engine| engine.get_many(keys))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.read(|engine| engine.scan(from, to, limit))
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let _on_its_way = self.gate.read();
        let outcome = self.present().commit(batch)?;
        self.unsettled.store(outcome == Outcome::Unknown, SeqCst);
        // A batch that is fenced now may have been committed by a try before.
        if let Some(noted) = self.noted.lock().as_mut() {
            noted.extend(batch.rows.iter().map(|(key, _)| key.to_vec()));
        }
        Ok(outcome)
    }

    fn writers(&self) -> Writers {
        self.present().writers()
    }

    fn alone_for(&self) -> Option<Duration> {
        self.present().alone_for()
    }

    fn size_on_disk(&self) -> u64 {
        self.present().size_on_disk()
    }
}
