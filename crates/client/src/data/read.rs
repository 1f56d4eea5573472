//! Reading: what is kept back, over what the owner says.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use forebay_data::{Access, ReadError, ReadPiece, ReadPieces, SourceError};
use forebay_meta::{Inode, Piece, PieceSource};
use forebay_protocol::{Answer, Contents as Small, InodeAnswer, Mapped, Operation};
use forebay_reading::{SMALL_FILE, access_of, fetch_ahead, read_into, read_pieces};
use forebay_types::Ino;

use super::{Contents, Shared, Within, file::File, maps};
use crate::ClientError;

/// How often a read begins anew because its data was moved while it was read.
const ATTEMPTS: u32 = 4;
/// How long a read waits for members that alone have a segment, and how often the owner is asked meanwhile whether the store has it.
const MEMBERS_WITHIN: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Bytes of a file whose map is asked for at a time, at least, and what such a range begins with a multiple of.
const MAP_LEN: u64 = 1 << 30;
const MAP_START: u64 = 64 << 20;

impl Contents {
    /// `len` bytes of a file from `offset` on, fewer at its end. `inode` is as known under a lease. `leased` says whether there is one now, until which goes what the owner
    /// says of the file is kept ([`Contents::forget`]); without one it is for this read alone, for others may change the file before the next one.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Store`] where the bytes cannot be had or are not what was written, [`ClientError::Lost`] where nobody has them any more.
    pub fn read(
        &self,
        inode: &Inode,
        offset: u64,
        len: u32,
        leased: &dyn Fn() -> bool,
    ) -> Result<ReadPieces, ClientError> {
        let shared = &*self.shared;
        let ino = inode.ino;
        let file = shared.files.get(ino);
        let seen = file.as_ref().and_then(|file| file.state.lock().seen);
        let size = seen.map_or(inode.row.size, |seen| seen.size.max(inode.row.size));
        let end = offset.saturating_add(u64::from(len)).min(size);
        if offset >= end {
            return Ok(ReadPieces::new());
        }
        let within = shared.within(inode.row.policy);
        let access = shared.follow(ino, offset, end - offset, (size, within));
        if let Some(file) = file
            && let Some(read) = shared.read_kept(&file, &(offset..end), (access, within), leased)?
        {
            return Ok(read);
        }
        // The layers were looked at before the map: what has left them is in it.
        let read = |pieces: &[Piece]| {
            shared.source.confine(pieces, within);
            read_pieces(&shared.reader, pieces, access)
        };
        shared.read_owners(ino, &(offset..end), leased, read)
    }

    /// Takes in what an answer on an inode brings along, so that the owner need not be asked for a map.
    pub fn learn(&self, answer: &InodeAnswer) {
        let shared = &*self.shared;
        let inline = match &answer.contents {
            Some(Small::Inline(bytes)) => Some(bytes.as_slice()),
            Some(Small::Place(segment, place)) => {
                shared.source.learn(std::iter::once((*segment, *place)));
                None
            }
            None => None,
        };
        let placed = answer.contents.is_some() || answer.row.layout == forebay_format::row::Layout::Empty;
        // Of a file that was written here, the answer may be older than what was committed.
        if !placed || shared.files.get(answer.ino).is_some() {
            return;
        }
        let asked = shared.maps.asking(answer.ino);
        if let Some(pieces) = maps::of_layout(&answer.row.layout, inline, shared.block_size()) {
            shared.maps.learn(answer.ino, &pieces, asked);
        }
    }
}

impl Shared {
    /// Takes note of a read, and has fetched ahead what is likely to be wanted next, as far as its map is known.
    fn follow(&self, ino: Ino, offset: u64, len: u64, (size, within): (u64, Within)) -> Access {
        if size <= SMALL_FILE {
            return Access::Nearby;
        }
        let advice = self.ahead.observe(ino.0, offset, len, size);
        for range in advice.ahead {
            let pieces = self.maps.known(ino, &range);
            self.source.confine(&pieces, within);
            fetch_ahead(&self.reader, self.source.as_ref(), &pieces);
        }
        access_of(advice.pattern)
    }

    /// A range of which something is kept back; `None` where nothing is.
    fn read_kept(
        &self,
        file: &File,
        range: &Range<u64>,
        (access, within): (Access, Within),
        leased: &dyn Fn() -> bool,
    ) -> Result<Option<ReadPieces>, ClientError> {
        let mut missing = vec![range.clone()];
        let mut out = {
            let state = file.state.lock();
            let layers = || state.open.iter().chain(state.flying.iter().rev().map(|layer| &**layer));
            if !layers().any(|layer| layer.touches(range)) {
                return Ok(None);
            }
            let mut out = self.reader.buffer((range.end - range.start) as usize);
            layers().for_each(|layer| layer.fill(range.start, &mut out, &mut missing));
            out
        };
        for gap in missing {
            let place = (gap.start - range.start) as usize..(gap.end - range.start) as usize;
            let out = &mut out[place];
            let read = |pieces: &[Piece]| {
                self.source.confine(pieces, within);
                read_into(&self.reader, pieces, out, access)
            };
            self.read_owners(file.ino, &gap, leased, read)?;
        }
        Ok(Some(std::iter::once(ReadPiece::Bytes(out.freeze())).collect()))
    }

    /// Reads what the owner says of a range; asks anew where that is not found in the store any more.
    fn read_owners<T>(
        &self,
        ino: Ino,
        range: &Range<u64>,
        leased: &dyn Fn() -> bool,
        mut read: impl FnMut(&[Piece]) -> Result<T, ReadError>,
    ) -> Result<T, ClientError> {
        let (mut attempt, mut waits) = (1, None);
        loop {
            let pieces = self.map(ino, range, leased)?;
            match read(&pieces) {
                // It may be stored by now, or its members come back. Others who read of the segment may have forgotten where it was meanwhile, or know it anew.
                Err(ReadError::Source(SourceError::NotStored { segment, .. }))
                    if waits.get_or_insert_with(Instant::now).elapsed() < MEMBERS_WITHIN =>
                {
                    std::thread::sleep(ASK_AGAIN);
                    self.source.forget(segment);
                    self.maps.forget(ino);
                }
                Err(ReadError::Source(SourceError::NotFound { segment, .. })) if attempt < ATTEMPTS => {
                    self.source.forget(segment);
                    self.maps.forget(ino);
                    attempt += 1;
                }
                Err(ReadError::Source(SourceError::Lost { .. })) => {
                    return Err(self.lost_around(ino, range, leased, &pieces));
                }
                read => return read.map_err(|error| ClientError::Store(format!("inode {ino}: {error}"))),
            }
        }
    }

    /// What the owner has of a range: pieces without a gap, up to its end.
    pub(super) fn map(
        &self,
        ino: Ino,
        range: &Range<u64>,
        leased: &dyn Fn() -> bool,
    ) -> Result<Vec<Piece>, ClientError> {
        let mut pieces = self.maps.known(ino, range);
        loop {
            let at = pieces.last().map_or(range.start, |piece| piece.offset + piece.len);
            if at >= range.end {
                return Ok(pieces);
            }
            let known = self.maps.known(ino, &(at..range.end));
            if known.is_empty() {
                pieces.extend(self.ask_map(ino, &(at..range.end), leased)?);
            } else {
                pieces.extend(known);
            }
        }
    }

    /// The pieces from the start of a range as the owner has them now, one at least and none beyond its end.
    fn ask_map(
        &self,
        ino: Ino,
        range: &Range<u64>,
        leased: &dyn Fn() -> bool,
    ) -> Result<Vec<Piece>, ClientError> {
        let from = range.start - range.start % MAP_START;
        let mut pieces = self.ask_map_from(ino, from, range.end, leased)?;
        if pieces.last().is_none_or(|last| last.offset + last.len <= range.start) {
            // There are too many pieces before it.
            pieces = self.ask_map_from(ino, range.start, range.end, leased)?;
        }
        let wanted = |piece: &Piece| {
            let (start, end) = (piece.offset.max(range.start), (piece.offset + piece.len).min(range.end));
            (start < end).then(|| maps::part(piece, start, end))
        };
        Ok(pieces.iter().filter_map(wanted).collect())
    }

    /// The pieces from an offset on, at least to `end` as far as one answer goes. Beyond the end of the file there is a hole.
    pub(super) fn ask_map_from(
        &self,
        ino: Ino,
        from: u64,
        end: u64,
        leased: &dyn Fn() -> bool,
    ) -> Result<Vec<Piece>, ClientError> {
        // The lease is looked for after that: if it goes from here on, what it kept true is forgotten after that, too.
        let asked = self.maps.asking(ino);
        let keeps = leased();
        let len = (end - from).max(MAP_LEN);
        let response = self.asks.ask(Operation::Map(ino, from, len), None)?;
        let (Mapped { mut pieces, places, to }, sets) = match response.answer {
            Answer::Mapped(mapped) => (mapped, Vec::new()),
            Answer::MappedSets(mapped, sets) => (mapped, sets),
            Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
            other => return Err(ClientError::Unexpected(format!("{other:?} to a request for a map"))),
        };
        let mut at = from;
        for piece in &pieces {
            if piece.offset != at || piece.len == 0 {
                return Err(ClientError::Unexpected(format!("a map of inode {ino} with a gap at {at}")));
            }
            at += piece.len;
        }
        if at != to.max(from) {
            return Err(ClientError::Unexpected(format!("a map of inode {ino} that ends at {at}, not {to}")));
        }
        if pieces.is_empty() {
            pieces.push(Piece { offset: from, len: u64::MAX - from, source: PieceSource::Hole });
        }
        self.source.learn(places.into_iter());
        self.source.learn_sets(sets.into_iter());
        if keeps {
            self.maps.learn(ino, &pieces, asked);
        }
        Ok(pieces)
    }
}
