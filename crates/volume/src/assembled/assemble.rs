//! Making an assembled file, and looking at it again later: whoever has its bytes.

use std::{
    fmt::Display,
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_types::{FileKind, Ino};

use super::{
    Assembled, PlainFile, SCRUB_PIECES, count,
    plain::{Checked, PIECE},
};
use crate::{Volume, error::VolumeError, error::io_error};

/// Where the scrub is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scrub {
    ino: Ino,
    piece: u64,
}

/// Who has the bytes of what is assembled.
pub(super) trait Origin {
    type Error: Display;

    /// Assembles a file. False: it is none of those, or it was in vain.
    fn try_assemble(&self, assembled: &Assembled, ino: Ino) -> Result<bool, Self::Error>;

    /// Writes a piece of a damaged file anew.
    fn mend(&self, ino: Ino, piece: u64, plain: &PlainFile) -> Result<(), Self::Error>;
}

impl Assembled {
    /// Assembles what waits to be, or scrubs a little. Says whether it assembled something. What goes wrong is the cache's affair: readers have the volume.
    pub(super) fn round(&self, of: &impl Origin) -> bool {
        self.bury();
        let next = self.queue.lock().pop_front();
        let Some(ino) = next else {
            (0..SCRUB_PIECES).for_each(|_| self.scrub_step(of));
            return false;
        };
        let made = of.try_assemble(self, ino);
        let published = matches!(made, Ok(true));
        match made {
            Ok(true) => count(&self.counts.assembled),
            Ok(false) => {}
            Err(error) => {
                count(&self.counts.given_up);
                tracing::debug!(%ino, "not assembled: {error}");
            }
        }
        self.change(|table| table.give_up(ino));
        published
    }

    /// A place for a file of `size` bytes, of which `allocated` are no holes. `None`: it is not worth it, or has no room.
    pub(super) fn place(&self, ino: Ino, size: u64, allocated: u64) -> io::Result<Option<PlainFile>> {
        if size < self.min || size > self.capacity {
            return Ok(None);
        }
        let room = self.change(|table| table.make_room(ino, allocated.min(size), self.capacity));
        let Some(evicted) = room else { return Ok(None) };
        self.counts.evictions.fetch_add(evicted, Ordering::Relaxed);
        self.bury();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        PlainFile::new(&self.dir, number, size).map(Some)
    }

    /// Lets a file be leased that is whole, unless it has no room after all, or nothing is assembled any more.
    pub(super) fn publish(&self, ino: Ino, plain: PlainFile) -> io::Result<bool> {
        let bytes = plain.disk_bytes()?;
        // Who stops it does that before he clears the table.
        Ok(self.change(|table| {
            !self.stopped.load(Ordering::Relaxed)
                && table.fits(bytes, self.capacity)
                && table.publish(ino, plain, bytes)
        }))
    }

    /// Looks at one more piece of what is assembled.
    fn scrub_step(&self, of: &impl Origin) {
        let mut scrub = self.scrub.lock();
        let Some(plain) = self.table.lock().plain(scrub.ino) else { return self.leave(&mut scrub) };
        match plain.check(scrub.piece) {
            Ok(None) => self.leave(&mut scrub),
            Ok(Some(Checked { piece, intact })) => {
                if !intact {
                    self.damaged(of, (scrub.ino, piece), &plain, "");
                }
                scrub.piece = piece + 1;
            }
            Err(error) => {
                self.damaged(of, (scrub.ino, scrub.piece), &plain, &format!(": {error}"));
                scrub.piece += 1;
            }
        }
    }

    /// Goes on with the next file.
    fn leave(&self, scrub: &mut Scrub) {
        let next = self.table.lock().after(scrub.ino);
        *scrub = Scrub { ino: next.unwrap_or_default(), piece: 0 };
    }

    /// A piece is not what it was: no new opens, and those that are there get it from the volume again.
    fn damaged(&self, of: &impl Origin, (ino, piece): (Ino, u64), plain: &PlainFile, detail: &str) {
        count(&self.counts.damaged);
        self.change(|table| table.doom(ino));
        let offset = piece * PIECE;
        tracing::error!(
            "the cache's disk changed the bytes of inode {ino} at {offset} in '{}'{detail}; they are read from the volume again",
            self.dir.display()
        );
        if let Err(error) = of.mend(ino, piece, plain) {
            tracing::error!("those who have inode {ino} open may read wrong bytes at {offset}: {error}");
        }
    }
}

impl Origin for Volume {
    type Error = VolumeError;

    fn try_assemble(&self, assembled: &Assembled, ino: Ino) -> Result<bool, VolumeError> {
        let begun = {
            // Whoever changes it now has done so before the size is asked for.
            let _nobody_writes = self.data_locks.lock(ino);
            assembled.change(|table| table.begin(ino))
        };
        let Some(vain) = begun else { return Ok(false) };
        let inode = self.ns.inode(self.subvolume, ino)?;
        if inode.row.kind != FileKind::Regular {
            return Ok(false);
        }
        let disk = |error: io::Error| io_error("assemble a file in", &assembled.dir)(error);
        let size = inode.row.size;
        let Some(plain) = assembled.place(ino, size, inode.attr().allocated).map_err(disk)? else {
            return Ok(false);
        };
        if !self.copy(ino, size, &plain, &vain)? {
            count(&assembled.counts.given_up);
            return Ok(false);
        }
        let _nobody_writes = self.data_locks.lock(ino);
        assembled.publish(ino, plain).map_err(disk)
    }

    fn mend(&self, ino: Ino, piece: u64, plain: &PlainFile) -> Result<(), VolumeError> {
        self.mend_plain(ino, piece * PIECE, plain)
    }
}

impl Volume {
    /// Copies verified bytes; holes stay holes. False: in vain.
    fn copy(&self, ino: Ino, size: u64, plain: &PlainFile, vain: &AtomicBool) -> Result<bool, VolumeError> {
        for piece in 0..size.div_ceil(PIECE) {
            if vain.load(Ordering::SeqCst) || self.upkeep.stopping() {
                return Ok(false);
            }
            let (offset, len) = (piece * PIECE, PIECE.min(size - piece * PIECE));
            let parts = self.read_unfollowed(ino, offset, len as u32)?;
            let filled = plain.fill_piece(piece, len, parts, false);
            if !filled.map_err(io_error("assemble a file of", &self.paths.root))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
