//! A segment in the log.

use forebay_types::Epoch;

/// Bytes of a segment, as they were appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where they are in the segment.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// CRC32C of them.
    pub check: u32,
    /// CRC32C of the segment up to their end.
    pub running: u32,
    /// The position of their record in the log.
    pub position: u64,
}

impl Piece {
    /// Where they end in the segment.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A segment in the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// The highest epoch that was heard of.
    pub epoch: Epoch,
    /// What there is, by offset and without gaps.
    pub pieces: Vec<Piece>,
    /// Length and CRC32C, once it is sealed.
    pub sealed: Option<(u64, u32)>,
    /// Bytes of it in the log do not check, or may be missing: this copy counts for nothing.
    pub damaged: bool,
    /// The log has to be synced up to here before anything is said of it.
    pub(super) upto: u64,
    /// The position of the first record that is needed to know its epoch and its seal, where it is not its bytes that say so.
    pub(super) said: Option<u64>,
    /// The position at which its first bytes were taken in, where it is known that there were none before.
    pub(super) opened: Option<u64>,
}

impl Kept {
    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    /// CRC32C of all of it.
    #[must_use]
    pub fn check(&self) -> u32 {
        self.pieces.last().map_or(0, |piece| piece.running)
    }

    /// Up to where the log has to be synced before anything is said of it.
    #[must_use]
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// The position of the first record that is still needed for it.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.pieces.iter().map(|piece| piece.position).chain(self.said).min()
    }

    /// Where a prefix of this length ends among the pieces, and its CRC32C.
    pub(super) fn cut(&self, len: u64) -> Option<(usize, u32)> {
        if len == 0 {
            return Some((0, 0));
        }
        let at = self.pieces.partition_point(|piece| piece.end() < len);
        self.pieces.get(at).filter(|piece| piece.end() == len).map(|piece| (at + 1, piece.running))
    }

    /// The piece that begins at an offset.
    pub(super) fn piece(&self, offset: u64) -> Option<&Piece> {
        let at = self.pieces.binary_search_by_key(&offset, |piece| piece.offset).ok()?;
        self.pieces.get(at)
    }

    /// Adds bytes at the end.
    pub(super) fn push(&mut self, offset: u64, len: u64, check: u32, position: u64) {
        let running = combined(self.check(), check, len);
        if offset == 0 {
            self.opened = Some(position);
        }
        self.pieces.push(Piece { offset, len, check, running, position });
    }

    /// A record at this position says the epoch. A seal before it is still needed.
    pub(super) fn fenced_at(&mut self, position: u64) {
        self.said = self.said.filter(|_| self.sealed.is_some()).or(Some(position));
    }

    /// Takes in bytes that were read from the log, wherever they belong. `again`: they were in the log before.
    pub(super) fn found(&mut self, piece: Piece, again: bool) {
        if piece.offset == 0 && !again {
            self.opened = Some(piece.position);
        }
        if self.sealed.is_some_and(|(len, _)| piece.end() > len) {
            self.damaged = true;
            return;
        }
        match self.pieces.binary_search_by_key(&piece.offset, |known| known.offset) {
            Ok(at) if (self.pieces[at].len, self.pieces[at].check) == (piece.len, piece.check) => {
                self.pieces[at].position = piece.position;
            }
            Ok(_) => self.damaged = true,
            Err(at) => self.pieces.insert(at, piece),
        }
    }

    /// Takes in a seal that was read from the log: what is beyond it goes.
    pub(super) fn found_seal(&mut self, len: u64, check: u32) {
        let within = self.pieces.partition_point(|piece| piece.offset < len);
        self.pieces.truncate(within);
        self.sealed = Some((len, check));
    }

    /// The log was read: keeps what there is without gaps, and says whether the copy is whole. What came before `lost_before` may have had records of it that
    /// nobody can read.
    pub(super) fn judge(&mut self, lost_before: u64) {
        let (mut running, mut end, mut whole) = (0, 0, 0);
        for piece in &mut self.pieces {
            if piece.offset != end {
                break;
            }
            running = combined(running, piece.check, piece.len);
            (end, piece.running, whole) = (piece.end(), running, whole + 1);
        }
        self.damaged |= whole < self.pieces.len();
        self.pieces.truncate(whole);
        self.damaged |= match self.sealed {
            Some(sealed) => sealed != (self.end(), self.check()),
            None => lost_before > 0 && self.opened.is_none_or(|opened| opened < lost_before),
        };
    }
}

/// CRC32C of two neighbours, of which the second one has so many bytes.
fn combined(first: u32, second: u32, len: u64) -> u32 {
    crc32c::crc32c_combine(first, second, usize::try_from(len).unwrap_or(usize::MAX))
}
