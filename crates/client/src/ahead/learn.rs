//! Asking for a directory, and for numbers.

use std::{collections::BTreeMap, sync::Arc};

use forebay_cluster::Lease;
use forebay_protocol::{Answer, DirectoryEntry, Failure, InodeAnswer, Operation};
use forebay_types::Ino;
use parking_lot::MutexGuard;

use super::{Shared, state::State, table::Entry};
use crate::error::ClientError;

/// Runs of numbers that are asked for at once.
const RUNS: u32 = 64;
/// Entries of one page, and pages: a directory with more names is not worth reading for the few that are made in it.
const PAGE: u32 = 4096;
const PAGES: usize = 16;

impl Shared {
    /// Asks for numbers of inodes, without the lock. Returns whether there may be some now: else the session has as many as it may have.
    pub(super) fn fetch_numbers(&self, state: &mut MutexGuard<'_, State>) -> Result<bool, ClientError> {
        if state.numbers.is_refused() {
            return Ok(false);
        }
        let session = state.session;
        let asked = MutexGuard::unlocked(state, || self.under.ask_in(session, Operation::Runs(RUNS), None));
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

    /// Takes the lease to write on a directory and reads it, without the lock; it is delegated then, if the lease still is what it was.
    pub(super) fn learn(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        directory: Ino,
    ) -> Result<(), ClientError> {
        let (session, until) = (state.session, state.queue.until(&[directory]));
        // Own changes of it wait from here on, and those under way are waited for: what is read is to be all.
        state.learning.insert(directory, true);
        while state.is_busy(&[directory]) && !state.closed {
            self.changed.wait(state);
        }
        self.wait_for(state, until);
        let read = MutexGuard::unlocked(state, || self.read(session, directory));
        let may = state.learning.remove(&directory).unwrap_or(false);
        self.changed.notify_all();
        match read {
            Ok(Some((inode, names)))
                if may && state.session == session && self.leases.to_write(session, directory).is_some() =>
            {
                state.table.delegate(&inode, names);
            }
            Ok(_) | Err(ClientError::SessionEnded) => state.put_off(directory),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A directory and its names; `None` where it is not to be had.
    fn read(&self, session: u64, directory: Ino) -> Result<Option<Known>, ClientError> {
        let asked = self.under.ask_in(session, Operation::Inode(directory), Some(Lease::Write))?;
        let Answer::Inode(inode) = asked.answer else { return Ok(None) };
        if inode.directory.is_none() || self.leases.to_write(session, directory).is_none() {
            return Ok(None);
        }
        let mut names = BTreeMap::new();
        for _ in 0..PAGES {
            let after = names.last_key_value().map(|(name, _): (&Vec<u8>, &Entry)| name.clone());
            let page = Operation::Entries { directory, after, limit: PAGE, inodes: false };
            match self.under.ask_in(session, page, None)?.answer {
                Answer::Entries(entries) if entries.is_empty() => return Ok(Some((*inode, names))),
                Answer::Entries(entries) => names.extend(entries.into_iter().map(entry)),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// A directory, and what its names stand for.
type Known = (InodeAnswer, BTreeMap<Vec<u8>, Entry>);

fn entry(entry: DirectoryEntry) -> (Vec<u8>, Entry) {
    (entry.name, Entry { ino: entry.ino, kind: entry.kind })
}
