//! Deferred answers to requests that came by a ring.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::errno::Errno;
use crate::lock_reply::ReplyPort;
use crate::ring::Slot;

/// Who commits a slot whose answer came later.
pub(crate) trait Resume: Send + Sync {
    /// The slot has its answer. Called by whatever thread gave it, which must not wait.
    fn resume(self: Arc<Self>, slot: Slot);

    /// The slot's request is to be served again by whoever goes on with the queue.
    fn leave(self: Arc<Self>, slot: Slot);
}

/// Where the answer to a slot's request goes if the method does not return it.
pub(crate) struct SlotPort {
    state: Mutex<State>,
    queue: Weak<dyn Resume>,
}

enum State {
    /// No answer is owed by this way.
    Idle,
    /// The method runs.
    Serving(u64),
    /// It was answered while the method ran.
    Answered(Option<Errno>),
    /// The method has returned without an answer; the slot waits here for it.
    Deferred(u64, Slot),
}

impl SlotPort {
    pub(crate) fn new(queue: Weak<dyn Resume>) -> SlotPort {
        SlotPort { state: Mutex::new(State::Idle), queue }
    }

    /// A port of a slot that has no queue yet: answers are lost.
    pub(crate) fn nowhere() -> SlotPort {
        struct Nobody;
        impl Resume for Nobody {
            fn resume(self: Arc<Self>, _: Slot) {}
            fn leave(self: Arc<Self>, _: Slot) {}
        }
        SlotPort { state: Mutex::new(State::Idle), queue: Weak::<Nobody>::new() }
    }

    /// From now on an answer to `unique` is for the request in the slot.
    pub(crate) fn expect(&self, unique: u64) {
        *self.state.lock() = State::Serving(unique);
    }

    /// The method has deferred its answer. The slot comes back if the answer is there already; otherwise it goes to the
    /// queue when it comes.
    pub(crate) fn defer(&self, unique: u64, mut slot: Slot) -> Option<Slot> {
        let mut state = self.state.lock();
        if let State::Answered(error) = *state {
            *state = State::Idle;
            slot.put_answer(unique, error);
            return Some(slot);
        }
        *state = State::Deferred(unique, slot);
        None
    }
}

impl ReplyPort for SlotPort {
    fn answer(&self, unique: u64, error: Option<Errno>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Idle) {
            State::Serving(expected) if expected == unique => *state = State::Answered(error),
            State::Deferred(expected, mut slot) if expected == unique => {
                drop(state);
                slot.put_answer(unique, error);
                if let Some(queue) = self.queue.upgrade() {
                    queue.resume(slot);
                }
            }
            other => *state = other,
        }
    }

    fn take_back(&self, unique: u64) -> Option<i32> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Idle) {
            State::Deferred(expected, slot) if expected == unique => {
                drop(state);
                if let Some(queue) = self.queue.upgrade() {
                    queue.leave(slot);
                }
            }
            other => *state = other,
        }
        None
    }

    fn tells_early_signals(&self) -> bool {
        false
    }
}
