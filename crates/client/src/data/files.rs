//! The files of which something is kept.

use std::sync::{Arc, atomic::AtomicBool};

use forebay_types::Ino;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::file::{File, FileState};

const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Files([RwLock<FxHashMap<Ino, Arc<File>>>; SHARDS]);

impl Files {
    fn shard(&self, ino: Ino) -> &RwLock<FxHashMap<Ino, Arc<File>>> {
        &self.0[ino.0 as usize % SHARDS]
    }

    pub(super) fn get(&self, ino: Ino) -> Option<Arc<File>> {
        self.shard(ino).read().get(&ino).cloned()
    }

    /// The file, made where nothing is known of it.
    pub(super) fn get_or_make(&self, ino: Ino, parent: Ino) -> Arc<File> {
        if let Some(file) = self.get(ino) {
            return file;
        }
        let mut shard = self.shard(ino).write();
        let made = || {
            let (aside, state) = (AtomicBool::new(false), Mutex::new(FileState::default()));
            Arc::new(File { ino, parent, aside, state })
        };
        Arc::clone(shard.entry(ino).or_insert_with(made))
    }

    /// Forgets a file if `idle` says that nothing of it is kept. Nobody gets hold of it meanwhile.
    pub(super) fn remove_if(&self, ino: Ino, idle: impl FnOnce(&mut FileState) -> bool) {
        let mut shard = self.shard(ino).write();
        let Some(file) = shard.get(&ino) else { return };
        // Who has it already, to write to it, finds out under the file's lock that it was removed.
        let mut state = file.state.lock();
        if idle(&mut state) {
            state.removed = true;
            drop(state);
            shard.remove(&ino);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<File>> {
        self.0.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }
}
