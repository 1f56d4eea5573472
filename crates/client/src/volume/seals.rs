//! Files of immutable trees: who wrote them here and has closed them makes their contents final.
//!
//! A file is sealed once its bytes are at the owner; until then it is like any other, here and elsewhere. All that were closed while one round is under way are
//! stored together in the next.

use forebay_format::row::InodeRow;
use forebay_protocol::{Answer, Operation};
use forebay_types::{Coherence, Ino};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use super::core::Core;

/// Files that one request seals.
const SEAL_MAX: usize = 4096;

#[derive(Debug, Default)]
struct State {
    /// Written in this session, and not closed.
    written: FxHashSet<Ino>,
    closed: Vec<Ino>,
    /// Somebody sees to those that are closed.
    working: bool,
}

/// Files that are to be sealed.
#[derive(Debug, Default)]
pub(crate) struct Seals(Mutex<State>);

impl Seals {
    /// A file is written here.
    pub(crate) fn written(&self, ino: Ino, row: &InodeRow) {
        if row.coherence == Coherence::Immutable {
            self.0.lock().written.insert(ino);
        }
    }

    /// Nobody here has it open any more. True: somebody has to see to it.
    #[must_use]
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        let mut state = self.0.lock();
        if !state.written.remove(&ino) {
            return false;
        }
        state.closed.push(ino);
        !std::mem::replace(&mut state.working, true)
    }

    /// What was written in the session may be lost: whoever writes it again seals it.
    pub(crate) fn session_over(&self) {
        let mut state = self.0.lock();
        state.written.clear();
        state.closed.clear();
    }

    /// Those that were closed meanwhile; none: there is nothing more to do.
    fn take(&self) -> Option<Vec<Ino>> {
        let mut state = self.0.lock();
        state.working = !state.closed.is_empty();
        state.working.then(|| std::mem::take(&mut state.closed))
    }
}

impl Core {
    /// Seals what was closed.
    pub(crate) fn seal_closed(&self) {
        loop {
            let number = self.desk.link.number();
            let Some(inos) = self.seals.take() else { return };
            if let Err(error) = self.bytes.settle(&inos) {
                tracing::warn!(%error, "files of immutable trees cannot be stored now, and can still be written");
            }
            // What is still kept back, or was written again, is somebody's who will close it, or lost.
            let stored: Vec<Ino> = inos.into_iter().filter(|ino| !self.bytes.has_kept(*ino)).collect();
            for some in stored.chunks(SEAL_MAX) {
                let asked = Operation::Seal(some.to_vec());
                match self.desk.ask_for(asked, None, None, Some(number), &self.desk.link.patience()) {
                    Ok(told) if told.answer == Answer::Done => {}
                    Ok(told) => {
                        tracing::warn!(answer = ?told.answer, "files of immutable trees are not sealed")
                    }
                    Err(error) => tracing::warn!(%error, "files of immutable trees are not sealed"),
                }
            }
        }
    }
}
