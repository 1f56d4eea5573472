//! What a server asks of an owner besides clients' requests: sessions that come back, that are ended for them, and how it stands.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use forebay_cluster::SessionId;
use forebay_format::{key::Key, row::Row, shared_row::SessionRow};
use forebay_meta::MetaError;
use forebay_types::{FileKind, Ino};

use crate::owner::VolumeOwner;

/// How an owner stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerStatus {
    /// Sessions that live.
    pub sessions: u64,
    /// Leases of all of them.
    pub leases: u64,
    /// Requests that were taken in and are not carried out: most wait for leases.
    pub waiting: u64,
    /// Batches that were committed.
    pub batches: u64,
    /// What they took, in microseconds, all together.
    pub commit_us: u64,
    /// What one of them took lately, in microseconds: a mean over some tens of them.
    pub lately_us: u64,
    /// Bytes of the volume's files.
    pub used: u64,
    /// How many they may have; [`u64::MAX`] for no limit.
    pub limit: u64,
}

/// A session, as its owner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Its number.
    pub session: SessionId,
    /// How long ago it was heard of.
    pub heard: Duration,
    /// Its leases.
    pub leases: u64,
}

/// Counts batches.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    count: AtomicU64,
    us: AtomicU64,
    lately: AtomicU64,
}

impl Batches {
    pub(crate) fn took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.us.fetch_add(us, Relaxed);
        // One thread commits. Each batch counts for a sixteenth.
        let lately = self.lately.load(Relaxed);
        let first = self.count.fetch_add(1, Relaxed) == 0;
        self.lately.store(if first { us } else { lately - lately / 16 + us / 16 }, Relaxed);
    }
}

impl VolumeOwner {
    /// Whether a session lives, as far as is known: its end may be on its way to the engine.
    #[must_use]
    pub fn lives(&self, session: SessionId) -> bool {
        self.core.lock().sessions.lives(session)
    }

    /// Ends a session, for its client or against its will: what it has is given to others once that is committed. One that does not live is over already.
    pub fn end_session(&self, session: SessionId) {
        let mut core = self.core.lock();
        if core.sessions.lives(session) {
            core.end_session(session, self.at, self.ticks.now());
            drop(core);
            self.work.notify_one();
        }
    }

    /// Tells a session again which leases it is to return: it was perhaps not connected when it was told.
    pub fn tell_again(&self, session: SessionId) {
        let effects = self.core.lock().table.outstanding(session);
        self.carry_out(effects);
    }

    /// Ends at once, as a crash would: nothing more is answered or committed, and the volume is not given up.
    pub fn abandon(&self) {
        self.core.lock().over = true;
        self.work.notify_one();
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> OwnerStatus {
        // Not inside: an operation that has its turn looks whether an inode is open.
        let used = self.ns.segment_totals().live;
        let core = self.core.lock();
        let sessions = core.sessions.all();
        OwnerStatus {
            sessions: sessions.len() as u64,
            leases: core.table.leases() as u64,
            waiting: core.table.requests() as u64,
            batches: self.batches.count.load(Relaxed),
            commit_us: self.batches.us.load(Relaxed),
            lately_us: self.batches.lately.load(Relaxed),
            used,
            limit: self.limit.load(Relaxed),
        }
    }

    /// The sessions that live, in the order of their numbers.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let (core, now) = (self.core.lock(), self.ticks.now());
        let status = |session| SessionStatus {
            session,
            heard: core.sessions.last_heard(session).map_or(Duration::ZERO, |heard| now.since(heard)),
            leases: core.table.leases_of(session).len() as u64,
        };
        core.sessions.all().into_iter().map(status).collect()
    }

    /// What the client of a session calls itself, as the session's row has it.
    ///
    /// # Errors
    /// [`MetaError`] where the row cannot be read.
    pub fn client_of(&self, session: SessionId) -> Result<Option<String>, MetaError> {
        let row = self.ns.engine().get(&Key::Session(session.0).encode())?;
        Ok(row.and_then(|row| SessionRow::decode(&row).ok()).map(|row| row.client))
    }

    /// The directory that these names lead to from the root, `None` where there is none. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`MetaError`] where rows cannot be read.
    pub fn directory_at<'a>(
        &self,
        names: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<Ino>, MetaError> {
        let mut at = Ino::ROOT;
        for name in names {
            match self.ns.lookup(self.at, at, name) {
                Ok(inode) if inode.row.kind == FileKind::Directory => at = inode.ino,
                Ok(_) | Err(MetaError::NotFound | MetaError::NotDirectory(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(at))
    }
}
