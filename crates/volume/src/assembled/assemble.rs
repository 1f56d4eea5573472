//! Making an assembled file, and looking at it again later.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_data::ReadPiece;
use forebay_types::{FileKind, Ino};

use super::{
    Assembled, PlainFile, count,
    plain::{Checked, PIECE},
};
use crate::{Volume, error::VolumeError, error::io_error};

/// Where the scrub is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scrub {
    ino: Ino,
    piece: u64,
}

impl Volume {
    /// Assembles one file. What goes wrong is the cache's affair: readers have the volume.
    pub(super) fn assemble(&self, assembled: &Assembled, ino: Ino) -> bool {
        let made = self.try_assemble(assembled, ino);
        let published = matches!(made, Ok(true));
        match made {
            Ok(true) => count(&assembled.counts.assembled),
            Ok(false) => {}
            Err(error) => {
                count(&assembled.counts.given_up);
                tracing::debug!(%ino, "not assembled: {error}");
            }
        }
        assembled.change(|table| table.give_up(ino));
        published
    }

    fn try_assemble(&self, assembled: &Assembled, ino: Ino) -> Result<bool, VolumeError> {
        let begun = {
            // Whoever changes it now has done so before the size is asked for.
            let _nobody_writes = self.data_locks.lock(ino);
            assembled.change(|table| table.begin(ino))
        };
        let Some(vain) = begun else { return Ok(false) };
        let inode = self.ns.inode(self.subvolume, ino)?;
        let size = inode.row.size;
        if inode.row.kind != FileKind::Regular || size < assembled.min || size > assembled.capacity {
            return Ok(false);
        }
        let expected = inode.attr().allocated.min(size);
        let room = assembled.change(|table| table.make_room(ino, expected, assembled.capacity));
        let Some(evicted) = room else { return Ok(false) };
        assembled.counts.evictions.fetch_add(evicted, Ordering::Relaxed);
        assembled.bury();
        let disk = |error: io::Error| io_error("assemble a file in", &assembled.dir)(error);
        let number = assembled.next_number.fetch_add(1, Ordering::Relaxed);
        let plain = PlainFile::new(&assembled.dir, number, size).map_err(disk)?;
        if !self.copy(ino, size, &plain, &vain)? {
            count(&assembled.counts.given_up);
            return Ok(false);
        }
        let bytes = plain.disk_bytes().map_err(disk)?;
        let _nobody_writes = self.data_locks.lock(ino);
        Ok(assembled
            .change(|table| table.fits(bytes, assembled.capacity) && table.publish(ino, plain, bytes)))
    }

    /// Copies verified bytes; holes stay holes. False: in vain.
    fn copy(&self, ino: Ino, size: u64, plain: &PlainFile, vain: &AtomicBool) -> Result<bool, VolumeError> {
        let mut offset = 0;
        while offset < size {
            if vain.load(Ordering::SeqCst) || self.upkeep.stopping() {
                return Ok(false);
            }
            let len = PIECE.min(size - offset);
            let (mut at, mut sum, mut whole) = (offset, 0, true);
            for piece in self.read_unfollowed(ino, offset, len as u32)? {
                match piece {
                    ReadPiece::Bytes(bytes) => {
                        plain.fill(at, &bytes).map_err(io_error("assemble a file of", &self.paths.root))?;
                        sum = crc32c::crc32c_append(sum, &bytes);
                        at += bytes.len() as u64;
                    }
                    ReadPiece::Zeros(count) => {
                        whole = false;
                        at += count as u64;
                    }
                }
            }
            if at != offset + len {
                return Ok(false);
            }
            if whole {
                plain.sum(offset / PIECE, sum);
            }
            offset += len;
        }
        Ok(true)
    }

    /// Looks at one more piece of what is assembled.
    pub(super) fn scrub_step(&self, assembled: &Assembled) {
        let mut scrub = assembled.scrub.lock();
        let here = assembled.table.lock().plain(scrub.ino);
        let checked = here.as_ref().map(|plain| plain.check(scrub.piece));
        match checked {
            None | Some(Ok(None)) => {
                let next = assembled.table.lock().after(scrub.ino);
                *scrub = Scrub { ino: next.unwrap_or_default(), piece: 0 };
            }
            Some(Ok(Some(Checked { piece, intact: true }))) => scrub.piece = piece + 1,
            Some(Ok(Some(Checked { piece, .. }))) => {
                self.damaged(assembled, (scrub.ino, piece), here.as_deref(), "");
                scrub.piece = piece + 1;
            }
            Some(Err(error)) => {
                self.damaged(assembled, (scrub.ino, scrub.piece), here.as_deref(), &format!(": {error}"));
                scrub.piece += 1;
            }
        }
    }

    /// A piece is not what it was: no new opens, and those that are there get it from the volume again.
    fn damaged(
        &self,
        assembled: &Assembled,
        (ino, piece): (Ino, u64),
        plain: Option<&PlainFile>,
        detail: &str,
    ) {
        count(&assembled.counts.damaged);
        assembled.change(|table| table.doom(ino));
        let offset = piece * PIECE;
        tracing::error!(
            "the cache's disk changed the bytes of inode {ino} at {offset} in '{}'{detail}; they are read from the volume again",
            assembled.dir.display()
        );
        if let Some(Err(error)) = plain.map(|plain| self.mend_plain(ino, offset, plain)) {
            tracing::error!("those who have inode {ino} open may read wrong bytes at {offset}: {error}");
        }
    }
}
