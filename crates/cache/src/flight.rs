use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::{ReadError, key::Object};

/// One request to the store for missing chunks that follow each other, and those who wait for it.
pub(crate) struct Flight<E> {
    pub object: Object,
    pub chunks: Range<u32>,
    /// The bytes of the object that it brings: all of the chunks, or a part that begins and ends on a grain.
    pub bytes: Range<u64>,
    /// Whether others may join it, and the cache keeps what it brings.
    pub shared: bool,
    /// Made for no reader yet.
    ahead: bool,
    /// A reader waited for it.
    joined: AtomicBool,
    outcome: Mutex<Option<Result<Bytes, ReadError<E>>>>,
    landed: Condvar,
    /// What it brought is kept, or is not going to be.
    over: Mutex<bool>,
    ended: Condvar,
}

impl<E: Clone> Flight<E> {
    pub(crate) fn new(
        object: Object,
        (chunks, bytes): (Range<u32>, Range<u64>),
        shared: bool,
        ahead: bool,
    ) -> Arc<Flight<E>> {
        let (joined, outcome, landed) = (AtomicBool::new(false), Mutex::new(None), Condvar::new());
        let (over, ended) = (Mutex::new(false), Condvar::new());
        Arc::new(Flight { object, chunks, bytes, shared, ahead, joined, outcome, landed, over, ended })
    }

    /// Whether it brings these bytes.
    pub(crate) fn brings(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start <= bytes.start && bytes.end <= self.bytes.end
    }

    /// Whether no reader has asked for what it brings.
    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead && !self.joined.load(Relaxed)
    }

    pub(crate) fn join(&self) {
        self.joined.store(true, Relaxed);
    }

    /// Gives the outcome to all who wait and will. The first one counts.
    pub(crate) fn land(&self, outcome: Result<Bytes, ReadError<E>>) {
        self.outcome.lock().get_or_insert(outcome);
        self.landed.notify_all();
    }

    /// Says that what it brought is kept, or is not going to be.
    pub(crate) fn end(&self) {
        *self.over.lock() = true;
        self.ended.notify_all();
    }

    /// Waits until that is so: a little longer than for the outcome. Not for the thread that has to bring it.
    pub(crate) fn wait_end(&self) {
        let mut over = self.over.lock();
        while !*over {
            self.ended.wait(&mut over);
        }
    }

    /// Waits for the outcome. Not for the thread that has to bring it.
    pub(crate) fn wait(&self) -> Result<Bytes, ReadError<E>> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.landed.wait(&mut outcome);
        }
    }
}
