//! Which sessions have which inodes open, as far as the owner was told: an inode that has lost its last name lives while anybody has it open.

use forebay_cluster::SessionId;
use forebay_format::key::Key;
use forebay_types::{Ino, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::batch::Core;

/// Open inodes of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    of: FxHashMap<SessionId, FxHashSet<Ino>>,
    sessions: FxHashMap<Ino, u32>,
}

impl Opens {
    /// Notes one; returns whether it is new.
    pub(crate) fn add(&mut self, session: SessionId, ino: Ino) -> bool {
        let new = self.of.entry(session).or_default().insert(ino);
        if new {
            *self.sessions.entry(ino).or_default() += 1;
        }
        new
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.sessions.contains_key(&ino)
    }

    /// Whether another session than this one has it open.
    pub(crate) fn is_open_beside(&self, session: SessionId, ino: Ino) -> bool {
        let own = u32::from(self.has(session, ino));
        self.sessions.get(&ino).is_some_and(|sessions| *sessions > own)
    }

    pub(crate) fn has(&self, session: SessionId, ino: Ino) -> bool {
        self.of.get(&session).is_some_and(|inos| inos.contains(&ino))
    }

    fn remove(&mut self, session: SessionId, ino: Ino) -> bool {
        let Some(inos) = self.of.get_mut(&session) else { return false };
        if !inos.remove(&ino) {
            return false;
        }
        if inos.is_empty() {
            self.of.remove(&session);
        }
        match self.sessions.get_mut(&ino) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.sessions.remove(&ino)),
        }
        true
    }

    fn all_of(&self, session: SessionId) -> Vec<Ino> {
        self.of.get(&session).into_iter().flatten().copied().collect()
    }
}

impl Core {
    /// A session has an inode open.
    pub(crate) fn opened(&mut self, session: SessionId, at: SubvolumeId, ino: Ino) {
        if self.sessions.lives(session) && self.opens.add(session, ino) {
            self.put(&Key::Open(session.0, at, ino), Some(Vec::new()));
        }
    }

    /// A session has inodes open no longer.
    pub(crate) fn released(&mut self, session: SessionId, at: SubvolumeId, inos: &[Ino]) {
        for ino in inos {
            if self.opens.remove(session, *ino) {
                self.put(&Key::Open(session.0, at, *ino), None);
            }
        }
    }

    pub(crate) fn release_all(&mut self, session: SessionId, at: SubvolumeId) {
        let all = self.opens.all_of(session);
        self.released(session, at, &all);
    }
}
