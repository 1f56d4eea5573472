//! Assembled files of a volume that servers keep: those whose contents are final (`docs/design/coherence-modes.md`), so that no change ever has to reach them.
//!
//! **Guarantees.** What [`SealedFiles::lease`] hands out holds what reads of the inode give, whoever reads, for good: a file is assembled only once it is sealed, of bytes that
//! were verified on the way, and while its policy lets them be on a disk here. All of them together take no more than the budget. A fault of their disk is nobody's error.
//!
//! **Relies on** the volume: a sealed file is never unsealed, and its number is never another file's. A read of it may wait for servers as long as the volume is open: nobody
//! waits for the thread that assembles.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{Arc, Weak, atomic::Ordering},
    thread,
};

use forebay_types::{Coherence, FileKind, Ino};
use forebay_vfs::{Files, VfsError};

use super::{Assembled, AssembledStatus, DIRECTORY, PlainFile, assemble::Origin, plain::PIECE};

/// Plain files of sealed ones, which a thread assembles.
pub struct SealedFiles {
    assembled: Assembled,
    files: Arc<dyn Files>,
}

impl fmt::Debug for SealedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SealedFiles").field(&self.assembled).finish()
    }
}

/// An assembled file that stays until this is dropped.
#[derive(Debug)]
pub struct SealedLease {
    of: Arc<SealedFiles>,
    ino: Ino,
    plain: Arc<PlainFile>,
}

impl SealedLease {
    /// The file.
    #[must_use]
    pub fn plain(&self) -> &PlainFile {
        &self.plain
    }

    /// Whether a new lease would be of the same file; not so once it was found damaged.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.of.assembled.table.lock().is_current(self.ino, self.plain.number())
    }
}

impl Drop for SealedLease {
    fn drop(&mut self) {
        self.of.assembled.change(|table| table.release(self.ino, self.plain.number()));
    }
}

/// Why a file was not assembled, or mended.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAssembled {
    #[error("it cannot be read: {0}")]
    Read(VfsError),
    #[error("it is not all there")]
    Short,
    #[error("the disk: {0}")]
    Disk(#[from] io::Error),
}

impl SealedFiles {
    /// Assembles files of `files` of at least `min` bytes, which together take up to `capacity` bytes on disk, in a directory of its own in `dir`, in a thread. What a former
    /// process had there went with it.
    ///
    /// # Errors
    /// The directory cannot be made, or no thread be started.
    pub fn start(
        files: Arc<dyn Files>,
        dir: &Path,
        (capacity, min): (u64, u64),
    ) -> io::Result<Arc<SealedFiles>> {
        let dir = dir.join(DIRECTORY);
        fs::create_dir_all(&dir)?;
        let assembled = Assembled::new(dir, capacity, min);
        let sealed = Arc::new(SealedFiles { assembled, files });
        let of = Arc::downgrade(&sealed);
        thread::Builder::new().name("fb-assemble".to_owned()).spawn(move || run(&of))?;
        Ok(sealed)
    }

    /// Says that a sealed file of `size` bytes was opened for reading: one that is opened again is worth being assembled. Cheap.
    pub fn opened(&self, ino: Ino, size: u64) {
        self.assembled.opened(ino, size);
    }

    /// Takes the assembled file of an inode, if there is one. Does not wait for one to be made.
    #[must_use]
    pub fn lease(self: &Arc<Self>, ino: Ino) -> Option<SealedLease> {
        if self.assembled.busy.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let plain = self.assembled.table.lock().lease(ino)?;
        Some(SealedLease { of: Arc::clone(self), ino, plain })
    }

    /// What is assembled.
    #[must_use]
    pub fn status(&self) -> AssembledStatus {
        self.assembled.status()
    }

    /// Assembles nothing more, and lets go what nobody leases. Does not wait for what is being assembled, which is given up when the servers answer, or the volume is closed.
    pub fn stop(&self) {
        self.assembled.end();
    }

    fn is_stopped(&self) -> bool {
        self.assembled.stopped.load(Ordering::Relaxed)
    }

    /// Copies one piece of a file of `size` bytes.
    fn fill(
        &self,
        (ino, piece): (Ino, u64),
        size: u64,
        plain: &PlainFile,
        anew: bool,
    ) -> Result<(), NotAssembled> {
        let (offset, len) = (piece * PIECE, PIECE.min(size - piece * PIECE));
        let parts = self.files.read(ino, offset, len as u32).map_err(NotAssembled::Read)?;
        plain.fill_piece(piece, len, parts, anew)?.then_some(()).ok_or(NotAssembled::Short)
    }
}

impl Origin for SealedFiles {
    type Error = NotAssembled;

    fn try_assemble(&self, assembled: &Assembled, ino: Ino) -> Result<bool, NotAssembled> {
        if assembled.change(|table| table.begin(ino)).is_none() {
            return Ok(false);
        }
        let inode = self.files.inode(ino).map_err(NotAssembled::Read)?;
        let (row, size) = (&inode.row, inode.row.size);
        let is_final = row.kind == FileKind::Regular && row.coherence == Coherence::Sealed;
        if !is_final || !self.files.may_keep(&inode) {
            return Ok(false);
        }
        let Some(plain) = assembled.place(ino, size, inode.attr().allocated)? else { return Ok(false) };
        for piece in 0..size.div_ceil(PIECE) {
            if self.is_stopped() || !self.files.may_keep(&inode) {
                return Ok(false);
            }
            self.fill((ino, piece), size, &plain, false)?;
        }
        Ok(assembled.publish(ino, plain)?)
    }

    fn mend(&self, ino: Ino, piece: u64, plain: &PlainFile) -> Result<(), NotAssembled> {
        let size = plain.file().metadata()?.len();
        if size <= piece * PIECE {
            Err(NotAssembled::Short)
        } else {
            self.fill((ino, piece), size, plain, true)
        }
    }
}

impl Drop for SealedFiles {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Assembles and scrubs until it is stopped or nobody has the files.
fn run(of: &Weak<SealedFiles>) {
    while let Some(sealed) = of.upgrade() {
        if sealed.is_stopped() {
            return;
        }
        sealed.assembled.wait();
        if !sealed.is_stopped() {
            sealed.assembled.round(&*sealed);
        }
    }
}
