//! What is lost for good of files that were written here: `fsync` and `close` say so, once each (`docs/design/proxy-group.md`, "What is lost for good").
//!
//! A sync succeeds when the members of a set have the bytes, so what is lost later was promised before. The owner tells of losses, not of whose; which files they concern
//! is asked when somebody syncs or closes one that was written over members. Of a reader's files nothing is kept here: a read fails by itself.
//!
//! Guarantees: a file that lost something before it is asked about, and of which this client has been told, is told of, unless more than [`FILES`] others were written
//! since. What was written anew or cut off meanwhile is not.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_meta::Piece;
use forebay_protocol::Failure;
use forebay_types::Ino;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{Contents, Shared};
use crate::{ClientError, LostBytes};

/// Files that are remembered at least.
const FILES: usize = 1 << 16;
/// Bytes of a file around a read of which it is said what else is lost. Begins with a multiple of it.
const AROUND: u64 = 1 << 30;

/// Which call says that something is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TellsLoss {
    /// `fsync`. Who was told by it need not be told by a close.
    Sync,
    /// `close` of one of its descriptors.
    Close,
}

/// A file that was written over members.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// How often this client had been told of losses when the file was whole, or when what follows was set.
    told: u64,
    /// A sync, a close is to look.
    sync: bool,
    close: bool,
}

#[derive(Debug, Default)]
struct Written {
    /// Those that were written lately, and others that were before: these go when there are too many.
    lately: FxHashMap<Ino, Watch>,
    before: FxHashMap<Ino, Watch>,
}

impl Written {
    fn get(&mut self, ino: Ino) -> Option<&mut Watch> {
        match self.lately.get_mut(&ino) {
            Some(watch) => Some(watch),
            None => self.before.get_mut(&ino),
        }
    }

    fn wrote(&mut self, ino: Ino, told: u64, room: usize) {
        if self.lately.contains_key(&ino) {
            return;
        }
        // What it had before may be lost as well.
        let watch = self.before.remove(&ino).unwrap_or(Watch { told, sync: false, close: false });
        if self.lately.len() >= room {
            self.before = std::mem::take(&mut self.lately);
        }
        self.lately.insert(ino, watch);
    }
}

/// What this client was told of losses, and the files that may have some.
#[derive(Debug, Default)]
pub(super) struct Losses {
    told: AtomicU64,
    written: Mutex<Written>,
}

impl Losses {
    /// How often this client was told of losses.
    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    /// Files were written over members; it was told so often before.
    pub(super) fn wrote(&self, inos: impl Iterator<Item = Ino>, told: u64) {
        let mut written = self.written.lock();
        inos.for_each(|ino| written.wrote(ino, told, FILES));
    }

    pub(super) fn forget(&self, ino: Ino) {
        let mut written = self.written.lock();
        written.lately.remove(&ino);
        written.before.remove(&ino);
    }

    /// Whether it is to be looked whether a file has lost something.
    fn is_due(&self, ino: Ino, by: TellsLoss) -> bool {
        let now = self.told();
        let mut written = self.written.lock();
        let Some(watch) = written.get(ino) else { return false };
        if watch.told != now {
            *watch = Watch { told: now, sync: true, close: true };
        }
        match by {
            TellsLoss::Sync => watch.sync,
            TellsLoss::Close => watch.close,
        }
    }

    /// It was looked, and whether something is lost.
    fn was_seen(&self, ino: Ino, by: TellsLoss, lost: bool) {
        if let Some(watch) = self.written.lock().get(ino) {
            watch.close = false;
            watch.sync &= lost && by == TellsLoss::Close;
        }
    }
}

impl Contents {
    /// The owner says that something is lost for good, or may have said so while it could not be heard.
    pub fn something_lost(&self) {
        self.shared.losses.told.fetch_add(1, Ordering::SeqCst);
    }

    /// Fails where something is lost for good of a file that was written here: once for each loss and kind of call.
    ///
    /// # Errors
    /// [`ClientError::Lost`]; others where the owner cannot be asked, and the next call asks again.
    pub fn tell_loss(&self, ino: Ino, by: TellsLoss) -> Result<(), ClientError> {
        let shared = &*self.shared;
        if !shared.losses.is_due(ino, by) {
            return Ok(());
        }
        let lost = shared.lost_of(ino)?;
        shared.losses.was_seen(ino, by, lost.is_some());
        lost.map_or(Ok(()), |lost| Err(ClientError::Lost(lost)))
    }
}

impl Shared {
    /// What a file has lost for good, as the owner says now.
    fn lost_of(&self, ino: Ino) -> Result<Option<LostBytes>, ClientError> {
        let (mut from, mut found) = (0, None);
        while from < u64::MAX {
            // To its end: each answer has as many pieces as one may have, and holes are one each, however large.
            let pieces = match self.ask_map_from(ino, from, u64::MAX, &|| false) {
                Err(ClientError::Failed(Failure::Stale)) => return Ok(None),
                pieces => pieces?,
            };
            if let Some(more) = self.source.lost_of(ino, &pieces) {
                let LostBytes { from, bytes, .. } = found.unwrap_or(LostBytes { bytes: 0, ..more });
                found = Some(LostBytes { from, bytes: bytes + more.bytes, ..more });
            }
            from = pieces.last().map_or(u64::MAX, |last| last.offset.saturating_add(last.len));
        }
        Ok(found)
    }

    /// The error of a read of `range`, some of whose `pieces` are lost: it tells of what else is lost near it, so that many reads of a file tell of one thing.
    pub(super) fn lost_around(
        &self,
        ino: Ino,
        range: &Range<u64>,
        leased: &dyn Fn() -> bool,
        pieces: &[Piece],
    ) -> ClientError {
        let from = range.start - range.start % AROUND;
        let around = from..from.saturating_add(AROUND).max(range.end);
        let near = self.map(ino, &around, leased).ok().and_then(|pieces| self.source.lost_of(ino, &pieces));
        // It may have been written anew since.
        let lost = near.or_else(|| self.source.lost_of(ino, pieces));
        ClientError::Lost(lost.unwrap_or(LostBytes {
            ino,
            from: range.start,
            to: range.end,
            bytes: range.end - range.start,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);

    fn told(losses: &Losses) {
        losses.told.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn each_loss_is_looked_for_once_by_a_sync_and_by_a_close() {
        let losses = Losses::default();
        losses.wrote([FILE].into_iter(), losses.told());
        assert!(!losses.is_due(FILE, TellsLoss::Sync), "nothing was lost");
        told(&losses);
        // A close that says so leaves it to a sync to say it too, and not the other way round.
        assert!(losses.is_due(FILE, TellsLoss::Close));
        losses.was_seen(FILE, TellsLoss::Close, true);
        assert!(!losses.is_due(FILE, TellsLoss::Close) && losses.is_due(FILE, TellsLoss::Sync));
        losses.was_seen(FILE, TellsLoss::Sync, true);
        assert!(!losses.is_due(FILE, TellsLoss::Sync));
        told(&losses);
        assert!(losses.is_due(FILE, TellsLoss::Sync));
        losses.was_seen(FILE, TellsLoss::Sync, true);
        assert!(!losses.is_due(FILE, TellsLoss::Close));
        told(&losses);
        assert!(losses.is_due(FILE, TellsLoss::Close));
        losses.was_seen(FILE, TellsLoss::Close, false);
        assert!(!losses.is_due(FILE, TellsLoss::Sync), "the file is whole");
        assert!(!losses.is_due(Ino(8), TellsLoss::Sync), "it was not written here");
    }

    #[test]
    fn a_loss_that_is_told_while_a_file_is_committed_is_looked_for() {
        let losses = Losses::default();
        let before = losses.told();
        told(&losses);
        losses.wrote([FILE].into_iter(), before);
        assert!(losses.is_due(FILE, TellsLoss::Sync));
        // And what it had before, though it is written again.
        losses.wrote([FILE].into_iter(), losses.told());
        assert!(losses.is_due(FILE, TellsLoss::Sync));
    }

    #[test]
    fn as_many_files_are_remembered_as_there_is_room_for() {
        let mut written = Written::default();
        for ino in 0..25 {
            written.wrote(Ino(ino), 0, 10);
            written.wrote(Ino(3), 0, 10);
        }
        assert!((15..25).all(|ino| written.get(Ino(ino)).is_some()));
        assert!(written.get(Ino(3)).is_some(), "it is written all the time");
        assert!(written.get(Ino(4)).is_none());
    }
}
