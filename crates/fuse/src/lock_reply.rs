//! Answers that may come later: locks.
//!
//! Order that must hold: a request is entered into [`Pending`] before the file system's method runs, and an interrupt
//! sets the entry's mark before the file system's `interrupt` runs. So a method that first makes its waiter findable and
//! then asks [`LockReply::is_interrupted`] cannot miss a signal.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::arrivals::Arrivals;
use crate::errno::Errno;
use crate::protocol::Opcode;
use crate::session::Observer;

/// Where a deferred answer goes: the transport that the request came by.
pub(crate) trait ReplyPort: Send + Sync {
    /// Answers request `unique` without a body.
    fn answer(&self, unique: u64, error: Option<Errno>);

    /// No answer comes: whoever goes on with the session serves the request again. Gives the descriptor that it was read from, if it was read from
    /// one; a ring's queue keeps it otherwise.
    fn take_back(&self, unique: u64) -> Option<i32>;

    /// Whether the kernel tells of a signal that the caller of a request that came by this got before (see [`crate::signalled`]).
    fn tells_early_signals(&self) -> bool {
        true
    }
}

/// Interrupts whose request is not known (yet) are kept, the newest so many: request and interrupt are read by
/// different workers, and the interrupt may be through first.
const EARLY_INTERRUPTS: usize = 1024;

/// A request without an answer.
struct Owed {
    /// Its caller got a signal.
    mark: Arc<AtomicBool>,
    port: Arc<dyn ReplyPort>,
    /// All of it, where it was read from a descriptor.
    request: Vec<u8>,
}

/// A request that was read from a descriptor, and taken back: to be served again by whoever goes on with the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub descriptor: i32,
    pub request: Vec<u8>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Owed>,
    early: VecDeque<u64>,
}

/// The lock requests that have no answer yet.
#[derive(Default)]
pub(crate) struct Pending {
    table: Mutex<Table>,
    /// What has come; where locks are kept here.
    arrivals: Option<Arc<Arrivals>>,
}

impl Pending {
    /// `keeps_locks`: the file system keeps the locks, so they may have to wait for closes.
    pub(crate) fn new(keeps_locks: bool) -> Arc<Pending> {
        Arc::new(Pending { table: Mutex::default(), arrivals: keeps_locks.then(Arrivals::new) })
    }

    /// A request was read.
    pub(crate) fn came(&self, unique: u64, op: Opcode) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.came(unique, op);
        }
    }

    /// A request was served.
    pub(crate) fn served(&self, unique: u64, op: Opcode) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.served(unique, op);
        }
    }

    /// Nobody waits for closes any longer. True: nobody did.
    pub(crate) fn hurry(&self) -> bool {
        let Some(arrivals) = self.arrivals.as_ref().filter(|arrivals| arrivals.somebody_waits()) else {
            return true;
        };
        arrivals.hurry();
        false
    }

    fn enter(&self, unique: u64, port: &Arc<dyn ReplyPort>) -> Arc<AtomicBool> {
        let mut table = self.table.lock();
        let early = table.early.iter().position(|seen| *seen == unique);
        if let Some(at) = early {
            table.early.remove(at);
        }
        let mark = Arc::new(AtomicBool::new(early.is_some()));
        let owed = Owed { mark: Arc::clone(&mark), port: Arc::clone(port), request: Vec::new() };
        table.waiting.insert(unique, owed);
        mark
    }

    /// Keeps all of a request that was read from a descriptor, if its answer is still owed.
    pub(crate) fn remember(&self, unique: u64, request: &[u8]) {
        if let Some(owed) = self.table.lock().waiting.get_mut(&unique) {
            owed.request = request.to_vec();
        }
    }

    /// Takes back all requests that wait for an answer, in the order in which they were made: what is answered from now on is lost. Nothing may be
    /// being served.
    pub(crate) fn take_back(&self) -> Vec<Left> {
        let mut waiting: Vec<_> = std::mem::take(&mut self.table.lock().waiting).into_iter().collect();
        waiting.sort_unstable_by_key(|(unique, _)| *unique);
        let left = |(unique, owed): (u64, Owed)| {
            let descriptor = owed.port.take_back(unique)?;
            Some(Left { descriptor, request: owed.request })
        };
        waiting.into_iter().filter_map(left).collect()
    }

    /// Whether an answer is still owed.
    pub(crate) fn owes(&self, unique: u64) -> bool {
        self.table.lock().waiting.contains_key(&unique)
    }

    /// Whether its answer was still owed.
    fn leave(&self, unique: u64) -> bool {
        self.table.lock().waiting.remove(&unique).is_some()
    }

    /// Marks the request as interrupted, also one that is yet to come.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut table = self.table.lock();
        if let Some(owed) = table.waiting.get(&unique) {
            owed.mark.store(true, Ordering::SeqCst);
            return;
        }
        if table.early.len() == EARLY_INTERRUPTS {
            table.early.pop_front();
        }
        table.early.push_back(unique);
    }
}

/// The answer to a lock request, given once, from any thread, now or later. Dropped without one, it answers `EIO`.
///
/// It holds no worker thread. After the mount has ended, or was paused, it is without effect: whoever goes on is asked again.
pub struct LockReply {
    unique: u64,
    op: Opcode,
    began: Instant,
    mark: Arc<AtomicBool>,
    pending: Arc<Pending>,
    port: Arc<dyn ReplyPort>,
    observer: Option<Arc<dyn Observer>>,
    answered: bool,
}

impl LockReply {
    pub(crate) fn new(
        unique: u64,
        op: Opcode,
        pending: &Arc<Pending>,
        port: &Arc<dyn ReplyPort>,
        observer: Option<&Arc<dyn Observer>>,
    ) -> LockReply {
        LockReply {
            unique,
            op,
            began: Instant::now(),
            mark: pending.enter(unique, port),
            pending: Arc::clone(pending),
            port: Arc::clone(port),
            observer: observer.cloned(),
            answered: false,
        }
    }

    /// The request, as [`crate::Filesystem::interrupt`] names it.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Whether the caller got a signal. Make the waiter findable for [`crate::Filesystem::interrupt`] first, then ask
    /// this, so that no signal is missed.
    pub fn is_interrupted(&self) -> bool {
        self.mark.load(Ordering::SeqCst)
    }

    /// Has `call` go on with the lock when the closes that were made before it was asked for have been served: the kernel does not wait for them,
    /// so what they let go of may still be in its way. Now, or soon by another thread. For a request that would be refused, not for one that
    /// waits.
    pub fn after_earlier_closes(self, call: impl FnOnce(LockReply) + Send + 'static) {
        match self.pending.arrivals.clone() {
            Some(arrivals) => arrivals.after_earlier(self.unique, Box::new(move || call(self))),
            None => call(self),
        }
    }

    /// Answers.
    pub fn answer(mut self, result: Result<(), Errno>) {
        self.send(result.err());
    }

    fn send(&mut self, error: Option<Errno>) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        if !self.pending.leave(self.unique) {
            return;
        }
        self.port.answer(self.unique, error);
        if let Some(observer) = &self.observer {
            let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            observer.request(self.op, nanos, error, 0);
        }
    }
}

impl Drop for LockReply {
    fn drop(&mut self) {
        self.send(Some(Errno::EIO));
    }
}

impl std::fmt::Debug for LockReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockReply")
            .field("unique", &self.unique)
            .field("op", &self.op)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Port(Mutex<Vec<(u64, Option<Errno>)>>);

    impl ReplyPort for Port {
        fn answer(&self, unique: u64, error: Option<Errno>) {
            self.0.lock().push((unique, error));
        }

        fn take_back(&self, _: u64) -> Option<i32> {
            Some(3)
        }
    }

    fn reply(unique: u64, pending: &Arc<Pending>, port: &Arc<Port>) -> LockReply {
        let port: Arc<dyn ReplyPort> = port.clone();
        LockReply::new(unique, Opcode::Setlkw, pending, &port, None)
    }

    #[test]
    fn every_reply_is_answered_once() {
        let (pending, port) = (Arc::new(Pending::default()), Arc::new(Port::default()));
        reply(2, &pending, &port).answer(Ok(()));
        reply(4, &pending, &port).answer(Err(Errno::EAGAIN));
        drop(reply(6, &pending, &port));
        assert_eq!(*port.0.lock(), [(2, None), (4, Some(Errno::EAGAIN)), (6, Some(Errno::EIO))]);
        assert!(pending.table.lock().waiting.is_empty());
    }

    #[test]
    fn what_was_taken_back_is_answered_by_nobody() {
        let (pending, port) = (Arc::new(Pending::default()), Arc::new(Port::default()));
        let (second, first) = (reply(4, &pending, &port), reply(2, &pending, &port));
        pending.remember(2, b"two");
        pending.remember(4, b"four");
        reply(6, &pending, &port).answer(Ok(()));
        let left: Vec<_> =
            pending.take_back().into_iter().map(|left| (left.descriptor, left.request)).collect();
        assert_eq!(left, [(3, b"two".to_vec()), (3, b"four".to_vec())]);
        drop(first);
        second.answer(Ok(()));
        assert_eq!(*port.0.lock(), [(6, None)]);
    }

    #[test]
    fn an_interrupt_is_seen_before_and_after_its_request() {
        let (pending, port) = (Arc::new(Pending::default()), Arc::new(Port::default()));
        pending.interrupt(8);
        assert!(reply(8, &pending, &port).is_interrupted());
        let late = reply(10, &pending, &port);
        assert!(!late.is_interrupted());
        pending.interrupt(10);
        assert!(late.is_interrupted());
        assert!(!reply(12, &pending, &port).is_interrupted());
    }

    #[test]
    fn unknown_interrupts_are_bounded() {
        let (pending, port) = (Arc::new(Pending::default()), Arc::new(Port::default()));
        (0..EARLY_INTERRUPTS as u64 + 1).for_each(|unique| pending.interrupt(unique));
        assert_eq!(pending.table.lock().early.len(), EARLY_INTERRUPTS);
        assert!(!reply(0, &pending, &port).is_interrupted());
        assert!(reply(1, &pending, &port).is_interrupted());
    }
}
