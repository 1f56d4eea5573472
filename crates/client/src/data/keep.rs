//! Writing, and having what was written settled, given up or forgotten.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use forebay_meta::{Inode, SetAttr, SetTime, WriteAttr};
use forebay_protocol::Failure;
use forebay_types::{
    Ino, Timespec,
    limits::{INLINE_MAX, file_size_max},
};
use parking_lot::MutexGuard;

use super::{
    Contents, Shared,
    file::{Base, File, Wrote},
    layer::PIECE_COST,
    line::{BATCH_MAX, Line, weight},
    options::Room,
};
use crate::{ClientError, link::Patience};

/// Pieces of an open layer that are worth a batch: each becomes an extent of the commit.
const PIECES_MAX: usize = 8192;

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Took {
    /// It is kept back.
    All,
    /// Nothing was: no room is set aside for it.
    NoRoom,
}

/// A layer that somebody waits for.
struct Awaited {
    file: Arc<File>,
    number: u64,
    failures: u64,
}

impl Contents {
    /// Keeps `data` back as what the file has at `offset`. The caller has the lease to write; `inode` is the file as known under it. Waits for room
    /// if `room` says so, never for a lease; `session` is the one in which the caller has it. Of a write that does not wait, the inode may be older: what the file has is
    /// asked of the owner before a commit, and it has no lease to be of a session. Nothing is written where the volume has a limit and no room is set aside for it: that is for
    /// [`Contents::make_room`], and then it is tried again.
    ///
    /// # Errors
    /// [`ClientError`]: the file would be too large, or there is no room and there will be none, since the store refuses what is kept. Nothing was written.
    pub fn write(
        &self,
        inode: &Inode,
        offset: u64,
        data: &[u8],
        attr: WriteAttr,
        (room, mut session): (Room, u64),
    ) -> Result<Took, ClientError> {
        let shared = &*self.shared;
        let len = data.len() as u64;
        if len == 0 {
            return Ok(Took::All);
        }
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > file_size_max(shared.volume.block_size)) {
            return Err(ClientError::Failed(Failure::FileTooLarge));
        }
        let reserved = len + PIECE_COST;
        // What fits its row takes nothing of the limit.
        let limited = inode.row.size.max(end.unwrap_or(u64::MAX)) > INLINE_MAX as u64;
        if !shared.reserve(reserved, room, limited)? {
            return Ok(Took::NoRoom);
        }
        if room == Room::Wait && shared.asks.session() != session {
            shared.free(reserved);
            return Err(ClientError::SessionEnded);
        }
        let (file, wrote) = loop {
            let file = shared.files.get_or_make(inode.ino, inode.row.parent);
            let mut state = file.state.lock();
            if state.removed {
                continue;
            }
            if state.is_of_later(session) {
                // While this came here, in which the lease went.
                drop(state);
                if room == Room::Wait {
                    shared.free(reserved);
                    return Err(ClientError::SessionEnded);
                }
                session = shared.asks.session();
                continue;
            }
            if state.is_of_another(session) {
                drop(state);
                shared.lose(&file, ClientError::SessionEnded);
                continue;
            }
            if !state.keeps() {
                file.aside.store(shared.waits_aside(inode.row.policy), Relaxed);
            }
            let now = shared.options.clock.now();
            let known = room == Room::Wait;
            let wrote = state.write(inode, offset, data, attr.mode, (session, now), known);
            drop(state);
            break (file, wrote);
        };
        let Wrote { added, cost, pieces } = wrote;
        let full = cost >= BATCH_MAX || pieces >= PIECES_MAX;
        let mut line = shared.line.lock();
        line.kept = (line.kept + added).saturating_sub(reserved);
        let room = line.squeezed > 0 && added < reserved;
        let first = line.dirty(file.place(), weight(cost, pieces), Instant::now(), full);
        // While others wait for the store beside this one, nobody may look at its age.
        let wake = first || full || line.aside > 0 || line.is_pressed(shared.options.due());
        drop(line);
        if wake {
            shared.work.notify_one();
        }
        if room {
            shared.changed.notify_all();
        }
        Ok(Took::All)
    }

    /// Has room set aside at the owner for so many bytes that are about to be written. The caller holds no right to any file, and looks at the file again afterwards.
    ///
    /// # Errors
    /// [`ClientError`]: [`Failure::NoSpace`] where the volume is full.
    pub fn make_room(&self, bytes: u64) -> Result<(), ClientError> {
        self.shared.make_room(bytes + PIECE_COST)
    }

    /// Puts what is kept back, or was since the row was looked at, over an inode's row: size, times, mode, allocated bytes.
    pub fn overlay(&self, inode: &mut Inode) {
        let Some(file) = self.shared.files.get(inode.ino) else { return };
        let Some(seen) = file.state.lock().seen else { return };
        let row = &mut inode.row;
        row.size = row.size.max(seen.size);
        row.mtime = seen.mtime;
        row.ctime = row.ctime.max(seen.wrote);
        row.mode &= seen.mode.unwrap_or(0o7777);
        row.allocated = row.allocated.max(seen.allocated.min(seen.size));
    }

    /// Whether anything is kept back of a file.
    #[must_use]
    pub fn has_kept(&self, ino: Ino) -> bool {
        self.shared.files.get(ino).is_some_and(|file| file.state.lock().keeps())
    }

    /// Has all that was written to these files before stored and committed; returns when the owner has it. Many who call this share objects and
    /// commits.
    ///
    /// # Errors
    /// [`ClientError`]: it is kept back as before, and the next call tries again. What is lost is not told here, but by [`Contents::take_failure`].
    pub fn settle(&self, inos: &[Ino]) -> Result<(), ClientError> {
        self.settle_within(inos, &Patience::FOREVER)
    }

    /// As [`Contents::settle`], as long as `patience` lasts.
    ///
    /// # Errors
    /// As there; those of patience.
    pub fn settle_within(&self, inos: &[Ino], patience: &Patience<'_>) -> Result<(), ClientError> {
        let files = inos.iter().filter_map(|ino| self.shared.files.get(*ino));
        self.shared.settle(files.collect(), true, patience)
    }

    /// The same for all files.
    ///
    /// # Errors
    /// As [`Contents::settle`].
    pub fn settle_all(&self) -> Result<(), ClientError> {
        self.settle_all_within(&Patience::FOREVER)
    }

    /// As [`Contents::settle_all`], as long as `patience` lasts.
    ///
    /// # Errors
    /// As there; those of patience.
    pub fn settle_all_within(&self, patience: &Patience<'_>) -> Result<(), ClientError> {
        self.shared.settle(self.shared.files.all(), true, patience)
    }

    /// Says that attributes are about to be set by a request of this client; [`Contents::forget`] follows. What is kept
    /// back fits them from here on: bytes beyond a new size are dropped, a time that is set is not replaced by that of an earlier write.
    /// What is on its way is waited for: its commit could come after the attributes, and undo them.
    ///
    /// # Errors
    /// As [`Contents::settle`].
    pub fn before_set_attr(&self, ino: Ino, set: &SetAttr) -> Result<(), ClientError> {
        let shared = &*self.shared;
        let patience = shared.asks.patience();
        let concerns = set.size.is_some() || set.mtime.is_some() || set.mode.is_some();
        let Some(file) = shared.files.get(ino).filter(|_| concerns) else { return Ok(()) };
        let mut guard = loop {
            let guard = file.state.lock();
            // Bytes in the inode's row would be taken for what is under the layer after they were cut.
            let in_row = !matches!(guard.base, Base::Empty | Base::Extents);
            let open = set.size.is_some() && in_row && guard.open.is_some();
            // What is on its way would set the former time after this one: a recall may have sent it just now.
            if !open && guard.flying.is_empty() && !guard.telling {
                break guard;
            }
            drop(guard);
            shared.settle(vec![Arc::clone(&file)], open, &patience)?;
            shared.await_told(&file, &patience)?;
        };
        let state = &mut *guard;
        state.torn &= set.size != Some(0);
        let mut freed = 0;
        if let Some(open) = &mut state.open {
            freed = set.size.map_or(0, |size| open.cut(size));
            open.mode = open.mode.filter(|_| set.mode.is_none());
        }
        if let Some(seen) = &mut state.seen {
            seen.size = set.size.unwrap_or(seen.size);
            seen.mode = seen.mode.filter(|_| set.mode.is_none());
        }
        let mtime = match set.mtime {
            None if set.size.is_none() => None,
            None | Some(SetTime::Now) => Some(shared.options.clock.now()),
            Some(SetTime::To(time)) => Some(time),
        };
        if let Some(mtime) = mtime {
            state.set_mtime(mtime);
        }
        drop(guard);
        shared.free(freed);
        Ok(())
    }

    /// The attributes were set, by [`Contents::before_set_attr`]'s request, and this is the time of change that the file has now: what is kept back does not replace it.
    pub fn after_set_attr(&self, ino: Ino, set: &SetAttr, mtime: Timespec) {
        if let Some(file) = self.shared.files.get(ino)
            && (set.size.is_some() || set.mtime.is_some())
        {
            file.state.lock().set_mtime(mtime);
        }
    }

    /// Forgets what the owner has said of a file: the lease went, or the inode was changed by something else than what is kept back here.
    pub fn forget(&self, ino: Ino) {
        self.shared.maps.forget(ino);
        self.shared.files.remove_if(ino, |state| {
            if !state.keeps() {
                (state.seen, state.base) = (None, Base::Unknown);
            }
            !state.keeps() && state.lost.is_none()
        });
    }

    /// Drops what is kept back of a file that is gone.
    pub fn discard(&self, ino: Ino) {
        if let Some(file) = self.shared.files.get(ino) {
            self.shared.drop_file(&file);
        }
        self.shared.maps.forget(ino);
    }

    /// Why a file is not whole, while that is still to be told.
    #[must_use]
    pub fn failure(&self, ino: Ino) -> Option<ClientError> {
        let file = self.shared.files.get(ino)?;
        let state = file.state.lock();
        state.lost.clone().filter(|_| state.torn)
    }

    /// Gives up what is kept back of a file, which its next fsync says.
    pub fn lose(&self, ino: Ino, error: ClientError) {
        if let Some(file) = self.shared.files.get(ino) {
            self.shared.lose(&file, error);
        }
    }

    /// What was lost of a file, told once: its next fsync fails with it.
    #[must_use]
    pub fn take_failure(&self, ino: Ino) -> Option<ClientError> {
        let file = self.shared.files.get(ino)?;
        let lost = file.state.lock().lost.take()?;
        self.shared.files.remove_if(ino, |state| !state.keeps() && state.seen.is_none());
        Some(lost)
    }

    /// The session with the owner is over: what is kept back is lost, and nothing that the owner has said counts any more, but for files whose contents are final.
    pub fn session_ended(&self, is_final: &dyn Fn(Ino) -> bool) {
        self.shared.maps.forget_all_but(is_final);
        for file in self.shared.files.all() {
            if file.state.lock().keeps() {
                self.shared.lose(&file, ClientError::SessionEnded);
            } else {
                self.forget(file.ino);
            }
        }
        self.shared.line.lock().succeeded();
        self.shared.changed.notify_all();
    }

    /// Says that the volume has a limit, or none: the session begins, or the owner has told.
    pub fn limited(&self, limited: bool) {
        self.shared.line.lock().allowance.begin(limited);
    }

    /// Has room set aside at the owner for what is kept back, where the volume has a limit: the owner may be another one, which knows of none.
    ///
    /// # Errors
    /// [`ClientError`]: the next write that lacks it asks again.
    pub fn renew_room(&self) -> Result<(), ClientError> {
        self.shared.ask_for_room(0, 0, &self.shared.asks.patience()).map(drop)
    }
}

impl Shared {
    /// Takes room for so many bytes, and waits for that here. Returns whether there is as much at the owner, if the volume's limit counts for them.
    fn reserve(&self, len: u64, room: Room, limited: bool) -> Result<bool, ClientError> {
        let mut patience = None;
        let mut line = self.line.lock();
        while room == Room::Wait && line.kept > 0 && line.kept + len > self.options.budget {
            if line.stop {
                return Err(ClientError::Closed);
            }
            if let Some(error) = &line.refused {
                return Err(error.clone());
            }
            let patience = patience.get_or_insert_with(|| self.asks.patience());
            line.squeezed += 1;
            self.work.notify_all();
            let waited = patience.wait(&self.changed, &mut line);
            line.squeezed -= 1;
            waited?;
        }
        if limited && room == Room::Wait && line.allowance.lacks(len) {
            return Ok(false);
        }
        line.kept += len;
        line.kept_max = line.kept_max.max(line.kept);
        line.allowance.take(len);
        Ok(true)
    }

    /// Waits until what is kept back of files now is committed; has their open layers taken if `open`, and waits for those on their way alone if not.
    pub(super) fn settle(
        &self,
        files: Vec<Arc<File>>,
        open: bool,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        let mut awaited = Vec::with_capacity(files.len());
        for file in files {
            let state = file.state.lock();
            let number = match &state.open {
                Some(layer) if open => Some(layer.number),
                _ => state.flying.back().map(|layer| layer.number),
            };
            let failures = state.failures;
            drop(state);
            if let Some(number) = number {
                awaited.push(Awaited { file, number, failures });
            }
        }
        if awaited.is_empty() {
            return Ok(());
        }
        let mut line = self.line.lock();
        if open {
            awaited.iter().for_each(|awaited| line.want(awaited.file.place()));
            self.work.notify_all();
        }
        self.wait_for(&mut line, awaited, patience)
    }

    fn wait_for(
        &self,
        line: &mut MutexGuard<'_, Line>,
        mut awaited: Vec<Awaited>,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        loop {
            let mut failed = None;
            awaited.retain(|Awaited { file, number, failures }| {
                let state = file.state.lock();
                let settled = state.settled >= *number || !state.keeps();
                if !settled && state.failures != *failures {
                    failed = state.failed.clone();
                }
                !settled
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if awaited.is_empty() {
                return Ok(());
            }
            if line.stop {
                return Err(ClientError::Closed);
            }
            patience.wait(&self.changed, line)?;
        }
    }

    /// Drops what is kept back of a file that is gone.
    pub(super) fn drop_file(&self, file: &Arc<File>) {
        let freed = file.state.lock().drop_all();
        self.line.lock().clean(file.place());
        self.maps.forget(file.ino);
        self.losses.forget(file.ino);
        self.files.remove_if(file.ino, |state| !state.keeps() && state.lost.is_none());
        self.free(freed);
    }

    /// Waits until it is known what became of a commit of a file whose layers came back.
    fn await_told(&self, file: &File, patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut line = self.line.lock();
        while file.state.lock().telling {
            patience.wait(&self.changed, &mut line)?;
        }
        Ok(())
    }

    /// Drops what is kept back of a file, which its next fsync says.
    pub(super) fn lose(&self, file: &Arc<File>, error: ClientError) {
        let freed = {
            let mut state = file.state.lock();
            (state.lost, state.torn) = (Some(error), true);
            state.drop_all()
        };
        self.line.lock().clean(file.place());
        self.maps.forget(file.ino);
        self.free(freed);
    }
}
