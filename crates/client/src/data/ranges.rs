//! Holes, and ranges that files share: what is kept back is settled first, then the owner does it.

use forebay_data::ReadPiece;
use forebay_format::row::Layout;
use forebay_meta::{Inode, PieceSource, WriteAttr};
use forebay_protocol::{Answer, InodeAnswer, Operation};
use forebay_types::Ino;
use forebay_vfs::Whence;

use super::{Contents, options::Room};
use crate::ClientError;

/// Bytes that are copied, not shared, by one call.
const COPY_MAX: u64 = 1 << 20;

impl Contents {
    /// Makes zeros of bytes `from..to` and frees what they took; the size grows to at least `size`. Returns the inode as it is then. `held`: the session in which the
    /// caller has locked the file, if he has.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn punch(
        &self,
        ino: Ino,
        (from, to): (u64, u64),
        size: Option<u64>,
        attr: WriteAttr,
        held: Option<u64>,
    ) -> Result<InodeAnswer, ClientError> {
        self.settle(&[ino])?;
        let changed = self.changed_while(held, Operation::Punch { ino, from, to, size, attr });
        self.forget(ino);
        changed
    }

    /// Raises the size to at least `end`. Space is not set aside.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn allocate(&self, ino: Ino, end: u64, attr: WriteAttr) -> Result<InodeAnswer, ClientError> {
        self.punch(ino, (0, 0), Some(end), attr, None)
    }

    /// Makes `len` bytes of one file (fewer at its end) those of another, or of the same elsewhere. Returns how many, and the target as it is then where the owner has
    /// changed it; what was copied instead is kept back like a write. The ranges must not overlap, and the caller has leases on both.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was changed.
    pub fn copy_range(
        &self,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        len: u64,
        attr: WriteAttr,
    ) -> Result<(u64, Option<InodeAnswer>), ClientError> {
        self.settle(&[source, target])?;
        let now = self.changed(Operation::Inode(source))?;
        let len = len.min(now.row.size.saturating_sub(from));
        if len == 0 {
            return Ok((0, None));
        }
        let into = self.changed(Operation::Inode(target))?;
        if now.row.layout == Layout::Inline || into.row.layout == Layout::Inline {
            // Fewer than asked for is a success: a tiny file may have been made huge by a truncation. What is longer than a row makes the target one of extents.
            let len = len.min(COPY_MAX);
            let source = Inode::removed(source, now.row, None);
            let bytes = self.read_whole(&source, from, len as u32)?;
            let target = Inode::removed(target, into.row, None);
            self.write(&target, to, &bytes, attr, (Room::Wait, self.shared.asks.session()))?;
            return Ok((bytes.len() as u64, None));
        }
        let changed = self.changed(Operation::Share { source, from, target, to, len, attr });
        self.forget(target);
        Ok((len, Some(changed?)))
    }

    /// Where at or after `offset` data or a hole begins; `None` where there is none, or `offset` is beyond the end. `leased` as of [`Contents::read`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn seek(
        &self,
        inode: &Inode,
        offset: u64,
        whence: Whence,
        leased: &dyn Fn() -> bool,
    ) -> Result<Option<u64>, ClientError> {
        self.settle(&[inode.ino])?;
        let mut inode = Inode::removed(inode.ino, inode.row, None);
        self.overlay(&mut inode);
        let size = inode.row.size;
        let mut at = offset;
        while at < size {
            // As much as one answer of the owner has, so that a long file's map is not asked for to its end.
            let mut pieces = self.shared.maps.known(inode.ino, &(at..size));
            if pieces.is_empty() {
                let range = at..size.min(at.saturating_add(1 << 30));
                pieces = self.shared.map(inode.ino, &range, leased)?;
            }
            let wanted = pieces.iter().find(|piece| match whence {
                Whence::Data => piece.source != PieceSource::Hole,
                Whence::Hole => piece.source == PieceSource::Hole,
            });
            if let Some(piece) = wanted {
                return Ok(Some(piece.offset));
            }
            at = pieces.last().map_or(size, |piece| piece.offset + piece.len);
        }
        Ok((offset < size && whence == Whence::Hole).then_some(size))
    }

    fn read_whole(&self, inode: &Inode, offset: u64, len: u32) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::with_capacity(len as usize);
        for piece in self.read(inode, offset, len, &|| true)? {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        Ok(bytes)
    }

    /// Has the owner do something that it answers with an inode.
    fn changed(&self, operation: Operation) -> Result<InodeAnswer, ClientError> {
        self.changed_while(None, operation)
    }

    fn changed_while(&self, held: Option<u64>, operation: Operation) -> Result<InodeAnswer, ClientError> {
        match self.shared.asks.ask_while(held, operation)?.answer {
            Answer::Inode(inode) => Ok(*inode),
            Answer::Failed(failure) => Err(ClientError::Failed(failure)),
            other => Err(ClientError::Unexpected(format!("{other:?}, not an inode"))),
        }
    }
}
