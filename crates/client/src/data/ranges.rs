//! Holes, and ranges that files share: what is kept back is settled first, then the owner does it.

use forebay_data::ReadPiece;
use forebay_format::row::{InodeRow, Layout};
use forebay_meta::{Inode, PieceSource, WriteAttr};
use forebay_protocol::{Answer, Failure, InodeAnswer, Operation};
use forebay_types::Ino;
use forebay_vfs::Whence;

use super::{Contents, Took, options::Room};
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
        self.settle_within(&[ino], &self.shared.asks.patience())?;
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
        self.settle_within(&[source, target], &self.shared.asks.patience())?;
        let now = self.changed(Operation::Inode(source))?;
        let len = len.min(now.row.size.saturating_sub(from));
        if len == 0 {
            return Ok((0, None));
        }
        let into = self.changed(Operation::Inode(target))?;
        if now.row.layout == Layout::Inline || into.row.layout == Layout::Inline {
            // What is longer than a row makes the target one of extents.
            return self.copy_bytes((source, now.row), from, (target, into.row), to, len, attr);
        }
        let changed = self.changed(Operation::Share { source, from, target, to, len, attr });
        self.forget(target);
        if matches!(changed, Err(ClientError::Failed(Failure::BelowClass))) {
            // What the one has is not where the other must have it.
            return self.copy_bytes((source, now.row), from, (target, into.row), to, len, attr);
        }
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
        self.settle_within(&[inode.ino], &self.shared.asks.patience())?;
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

    /// Copies bytes that cannot be shared. Fewer than asked for is a success: a tiny file may have been made huge by a truncation.
    fn copy_bytes(
        &self,
        (source, of): (Ino, InodeRow),
        from: u64,
        (target, into): (Ino, InodeRow),
        to: u64,
        len: u64,
        attr: WriteAttr,
    ) -> Result<(u64, Option<InodeAnswer>), ClientError> {
        let source = Inode::removed(source, of, None);
        let bytes = self.read_whole(&source, from, len.min(COPY_MAX) as u32)?;
        let target = Inode::removed(target, into, None);
        while self.write(&target, to, &bytes, attr, (Room::Wait, self.shared.asks.session()))? == Took::NoRoom
        {
            self.make_room(bytes.len() as u64)?;
        }
        Ok((bytes.len() as u64, None))
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
