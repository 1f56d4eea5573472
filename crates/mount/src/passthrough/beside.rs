//! Opens, and what the kernel holds.

use std::sync::atomic::Ordering;

use forebay_fuse::{flags::OpenFlags, is_held_elsewhere, types::Opened};
use forebay_types::Ino;

use super::{
    Passthrough, Route, is_beside, own,
    table::{File, Held},
};

impl Passthrough {
    /// Where an open of `number` belongs; `reading`: it is for reading alone.
    pub(crate) fn route(&self, number: u64, reading: bool) -> Route {
        let ino = own(number);
        match (is_beside(number), reading) {
            (true, true) => Route::Beside,
            (true, false) => {
                self.table.lock().withhold(ino);
                Route::Elsewhere
            }
            (false, true) if self.rounds.is_on() && !self.has_none() && self.volume.is_assembled(ino) => {
                // Held from now on, so that it is there when the open comes.
                let sent = self.table.lock().send(ino).is_some_and(|file| self.hold(ino, file));
                if sent { Route::Elsewhere } else { Route::Cached }
            }
            (false, _) => Route::Cached,
        }
    }

    /// A change of the size by the number beside: it belongs to the other one.
    pub(crate) fn withhold(&self, number: u64) {
        self.table.lock().withhold(own(number));
    }

    /// The answer to an open of the number beside, for reading. `None`: it belongs to the file's own number, as the file is no longer assembled. One
    /// that comes here all the same has no name to look up, and is served by requests.
    pub(crate) fn open(&self, number: u64, fh: u64) -> Option<Opened> {
        let ino = own(number);
        let mut table = self.table.lock();
        let direct = Opened { fh, flags: OpenFlags::DIRECT_IO, passthrough: None };
        let Some(file) = table.file(ino) else { return Some(direct) };
        if file.direct.is_empty() && self.hold(ino, file) {
            file.through += 1;
            file.idle = false;
            self.rounds.count();
            let passthrough = file.held.as_ref().map(|held| held.backing.id());
            return Some(Opened { fh, flags: OpenFlags::NONE, passthrough });
        }
        if !file.is_moving() {
            file.withhold();
            return None;
        }
        file.direct.insert(fh);
        Some(direct)
    }

    /// Has the kernel hold the assembled file. False: it cannot; then nobody has it open that way.
    fn hold(&self, ino: Ino, file: &mut File) -> bool {
        if let Some(held) = &file.held {
            // While there is an open, all others must be served by the same file.
            return file.through > 0 || held.lease.is_current();
        }
        let Some(connection) = self.connection.get().filter(|_| self.rounds.is_on()) else { return false };
        let Some(lease) = self.volume.lease_assembled(ino) else { return false };
        match connection.files.register(lease.plain()) {
            Ok(backing) => {
                file.held = Some(Held { backing, lease });
                true
            }
            Err(error) => {
                self.off(format!("it does not take files of the cache's disk: {error}"));
                false
            }
        }
    }

    /// A file was opened for writing, by its own number.
    pub(crate) fn writer_came(&self, ino: Ino) {
        self.table.lock().writer_came(ino);
    }

    /// An open has ended; `writing`: it was for writing.
    pub(crate) fn released(&self, number: u64, fh: u64, writing: bool) {
        let ino = own(number);
        let mut table = self.table.lock();
        if !is_beside(number) {
            if writing {
                table.writer_left(ino);
            }
        } else if let Some(file) = table.file(ino)
            && !file.direct.remove(&fh)
        {
            file.through = file.through.saturating_sub(1);
        }
    }

    /// The kernel forgets a number. True: it knows the file by none that is told of here.
    pub(crate) fn forgotten(&self, number: u64, count: u64) -> bool {
        let mut table = self.table.lock();
        match is_beside(number) {
            true => table.forget(own(number), count),
            false => !table.is_known(own(number)),
        }
    }

    /// An entry was made and then not told: it is no lookup.
    pub(crate) fn untold(&self, number: u64) {
        if is_beside(number) {
            self.table.lock().forget(own(number), 1);
        }
    }

    /// Has the kernel know what is assembled by now, and gives back what nobody has open or mapped.
    pub(super) fn round(&self) {
        let Some(connection) = self.connection.get() else { return };
        let assembled = self.volume.assembled_inodes();
        let waiting = {
            let mut table = self.table.lock();
            let waiting = table.admit(&assembled);
            table.age(&assembled, |held| is_held_elsewhere(held.lease.plain()) == Ok(false));
            self.files.store(table.len(), Ordering::SeqCst);
            waiting
        };
        for ino in waiting {
            let told = match self.is_writable() {
                true => connection.notifier.inval_inode(ino.0, -1, 0),
                false => Ok(()),
            };
            match told {
                Ok(()) => {
                    if let Some(file) = self.table.lock().file(ino) {
                        file.ready = true;
                    }
                }
                Err(error) => tracing::debug!(%ino, "the kernel keeps its attributes: {error}"),
            }
        }
    }
}
