//! Asking for a directory, and for numbers.

use std::sync::Arc;

use forebay_cluster::Lease;
use forebay_protocol::{Answer, DirectoryEntry, Failure, InodeAnswer, Operation};
use forebay_types::Ino;
use parking_lot::MutexGuard;

use super::{
    Shared,
    state::State,
    table::{Entry, Names},
};
use crate::{error::ClientError, link::Patience};

/// Runs of numbers that are asked for at once.
const RUNS: u32 = 64;
/// Entries of one page.
const PAGE: u32 = 4096;
/// Names of a directory that are known whole when it has been read: of one with more, only hashes.
const WHOLE: usize = 65_536;

impl Shared {
    /// Asks for numbers of inodes, without the lock. Returns whether there may be some now: else the session has as many as it may have.
    pub(super) fn fetch_numbers(
        &self,
        state: &mut MutexGuard<'_, State>,
        patience: &Patience<'_>,
    ) -> Result<bool, ClientError> {
        if state.numbers.is_refused() {
            return Ok(false);
        }
        let session = state.session;
        let runs = Operation::Runs(RUNS);
        let asked = MutexGuard::unlocked(state, || self.under.ask_within(session, runs, None, patience));
        match asked.map(|response| response.answer) {
            Ok(Answer::Runs(first, runs)) if state.session == session => state.numbers.add(first, runs),
            // Another session began: it asks for its own.
            Ok(Answer::Runs(..)) | Err(ClientError::SessionEnded) => {}
            Ok(Answer::Failed(Failure::NoSpace)) => {
                if state.session == session {
                    tracing::info!(
                        "no more numbers are given to this session: its files are made at the servers"
                    );
                    state.numbers.refuse();
                }
                return Ok(false);
            }
            Ok(Answer::Failed(failure)) => return Err(ClientError::Failed(failure)),
            Ok(other) => return Err(ClientError::Unexpected(format!("{other:?}"))),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Takes the lease to write on a directory and reads it, without the lock; it is delegated then, if the lease still is what it was. Where that cannot be done or takes
    /// more than half of the caller's patience, it is put off: the operation goes to the owner with the other half, and so do those that wait for this.
    pub(super) fn learn(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        directory: Ino,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        let (session, until, patience) = (state.session, state.queue.until(&[directory]), &patience.half());
        // Own changes of it wait from here on, and those under way are waited for: what is read is to be all.
        state.learning.insert(directory, true);
        let read = match self.wait_until_told(state, directory, until, patience) {
            Ok(()) => MutexGuard::unlocked(state, || self.read(session, directory, patience)),
            Err(error) => Err(error),
        };
        let may = state.learning.remove(&directory).unwrap_or(false);
        self.changed.notify_all();
        match read {
            Ok(Read::All(inode, names))
                if may && state.session == session && self.leases.to_write(session, directory).is_some() =>
            {
                state.table.delegate(&inode, names);
                state.begin_to_count(directory);
                state.shrink(self.options.most());
            }
            Ok(Read::NotYet) => {}
            Ok(_) => state.put_off(directory),
            Err(error) => {
                state.put_off(directory);
                // The caller has given up, or all is over. What else there is the owner says again.
                if matches!(error, ClientError::Interrupted | ClientError::Closed) {
                    return Err(error);
                }
                tracing::debug!(%error, ino = directory.0, "a directory is not read to be worked in ahead");
            }
        }
        Ok(())
    }

    /// Waits until no operation changes a directory at the owner, and what was done here up to `until` is there.
    fn wait_until_told(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        directory: Ino,
        until: u64,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        while state.is_busy(&[directory]) && !state.closed {
            patience.wait(&self.changed, state)?;
        }
        self.wait_for(state, until, patience)
    }

    /// Reads a directory and its names.
    fn read(&self, session: u64, directory: Ino, patience: &Patience<'_>) -> Result<Read, ClientError> {
        let inode = Operation::Inode(directory);
        let asked = self.under.ask_within(session, inode, Some(Lease::Write), patience)?;
        let Answer::Inode(inode) = asked.answer else { return Ok(Read::Not) };
        let Some(row) = inode.directory else { return Ok(Read::Not) };
        if self.leases.to_write(session, directory).is_none() || row.entries > self.options.hashed as u64 {
            return Ok(Read::Not);
        }
        if !self.state.lock().is_worth(directory, row.entries) {
            return Ok(Read::NotYet);
        }
        let (mut names, mut after) = (Names::default(), None);
        loop {
            let page = Operation::Entries { directory, after, limit: PAGE, inodes: false };
            let Answer::Entries(page) = self.under.ask_within(session, page, None, patience)?.answer else {
                return Ok(Read::Not);
            };
            let Some(last) = page.last() else { return Ok(Read::All(inode, names)) };
            after = Some(last.name.clone());
            let state = self.state.lock();
            // Somebody else wants it, or another session has begun.
            if state.learning.get(&directory) != Some(&true) || state.closed {
                return Ok(Read::Not);
            }
            for DirectoryEntry { name, ino, kind, .. } in page {
                names.insert(name, Entry { ino, kind });
            }
            if names.known() > WHOLE.min(self.options.known) {
                names.hash(state.table.hashing(), |entry| state.table.knows(entry.ino));
            }
        }
    }
}

/// What came of reading a directory.
enum Read {
    /// It, and all of its names.
    All(Box<InodeAnswer>, Names),
    /// It has so many that it is read when more was made in it.
    NotYet,
    /// It is not to be had.
    Not,
}
