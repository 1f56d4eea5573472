//! What the owner has said of what files consist of, kept until it may be true no longer.

use std::ops::Range;

use forebay_format::row::Layout;
use forebay_meta::{Piece, PieceSource};
use forebay_types::Ino;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

const SHARDS: usize = 16;
/// Pieces of all maps in one shard; beyond it, others are dropped.
const SHARD_PIECES: usize = (256 << 10) / SHARDS;

/// The known parts of a file: pieces by their offset, with gaps between them where nothing is known.
#[derive(Debug, Default)]
struct FileMap {
    pieces: Vec<Piece>,
}

#[derive(Debug, Default)]
struct Shard {
    maps: FxHashMap<Ino, FileMap>,
    pieces: usize,
    /// Rises when anything is forgotten.
    version: u64,
}

/// When something was asked for: what is forgotten after that is not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(u64);

#[derive(Debug, Default)]
pub(super) struct Maps([Mutex<Shard>; SHARDS]);

impl Maps {
    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.0[ino.0 as usize % SHARDS]
    }

    /// Says that an answer on a file is about to be asked for.
    pub(super) fn asking(&self, ino: Ino) -> Asked {
        Asked(self.shard(ino).lock().version)
    }

    /// The pieces of a range from its start, as far as they are known without a gap. The last one ends with the range at most.
    pub(super) fn known(&self, ino: Ino, range: &Range<u64>) -> Vec<Piece> {
        let shard = self.shard(ino).lock();
        let Some(map) = shard.maps.get(&ino) else { return Vec::new() };
        let first = map.pieces.partition_point(|piece| piece.offset + piece.len <= range.start);
        let mut at = range.start;
        let mut found = Vec::new();
        for piece in &map.pieces[first..] {
            if piece.offset > at || at >= range.end {
                break;
            }
            let end = (piece.offset + piece.len).min(range.end);
            found.push(part(piece, at, end));
            at = end;
        }
        found
    }

    /// Keeps pieces that follow each other, unless anything was forgotten since they were asked for.
    pub(super) fn learn(&self, ino: Ino, pieces: &[Piece], asked: Asked) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let (from, to) = (first.offset, last.offset + last.len);
        let mut shard = self.shard(ino).lock();
        if shard.version != asked.0 {
            return;
        }
        shard.make_room(ino, pieces.len());
        let map = &mut shard.maps.entry(ino).or_default().pieces;
        let before = map.len();
        // What is known already stays: it is the same.
        let begin = map.partition_point(|piece| piece.offset + piece.len <= from);
        let end = map.partition_point(|piece| piece.offset < to);
        let mut merged = Vec::with_capacity(pieces.len() + 2);
        if let Some(head) = map.get(begin).filter(|piece| begin < end && piece.offset < from) {
            merged.push(part(head, head.offset, from));
        }
        merged.extend_from_slice(pieces);
        if let Some(tail) = map[begin..end].last().filter(|piece| piece.offset + piece.len > to) {
            merged.push(part(tail, to, tail.offset + tail.len));
        }
        map.splice(begin..end, merged);
        let after = map.len();
        shard.pieces = shard.pieces + after - before;
    }

    pub(super) fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        shard.version += 1;
        if let Some(map) = shard.maps.remove(&ino) {
            shard.pieces -= map.pieces.len();
        }
    }

    pub(super) fn forget_all_but(&self, is_final: &dyn Fn(Ino) -> bool) {
        for shard in &self.0 {
            let mut shard = shard.lock();
            shard.version += 1;
            shard.maps.retain(|ino, _| is_final(*ino));
            shard.pieces = shard.maps.values().map(|map| map.pieces.len()).sum();
        }
    }
}

impl Shard {
    /// Drops maps of other files until there is room for so many pieces.
    fn make_room(&mut self, ino: Ino, pieces: usize) {
        while self.pieces + pieces > SHARD_PIECES {
            let Some(other) = self.maps.keys().find(|other| **other != ino).copied() else { return };
            if let Some(map) = self.maps.remove(&other) {
                self.pieces -= map.pieces.len();
            }
        }
    }
}

/// The part of a piece between two offsets in the file.
pub(super) fn part(piece: &Piece, from: u64, to: u64) -> Piece {
    let skip = from - piece.offset;
    let source = match &piece.source {
        PieceSource::Hole => PieceSource::Hole,
        PieceSource::Inline(bytes) => {
            PieceSource::Inline(bytes[skip as usize..(to - piece.offset) as usize].to_vec())
        }
        PieceSource::Extent(extent) => PieceSource::Extent(extent.part(skip as u32, (to - from) as u32)),
    };
    Piece { offset: from, len: to - from, source }
}

/// All of a file that is known from its inode; `None` where the owner has to be asked.
pub(super) fn of_layout(layout: &Layout, inline: Option<&[u8]>, block_size: u64) -> Option<Vec<Piece>> {
    let (offset, len, source) = match (layout, inline) {
        (Layout::Empty, _) => (0, 0, PieceSource::Hole),
        (Layout::Inline, Some(bytes)) => (0, bytes.len() as u64, PieceSource::Inline(bytes.to_vec())),
        (Layout::Single(block, offset, extent), _) => {
            let at = u64::from(*block) * block_size + u64::from(*offset);
            (at, u64::from(extent.len), PieceSource::Extent(*extent))
        }
        (Layout::Inline, None) | (Layout::Extents, _) => return None,
    };
    let end = offset + len;
    let hole = |from: u64, to: u64| Piece { offset: from, len: to - from, source: PieceSource::Hole };
    let pieces = [hole(0, offset), Piece { offset, len, source }, hole(end, u64::MAX)];
    Some(pieces.into_iter().filter(|piece| piece.len > 0).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hole(range: Range<u64>) -> Piece {
        Piece { offset: range.start, len: range.end - range.start, source: PieceSource::Hole }
    }

    proptest! {
        #[test]
        fn what_was_learned_is_known(asked in prop::collection::vec((0..200u64, 1..40u64), 1..20)) {
            let maps = Maps::default();
            let mut known = vec![false; 300];
            for (from, len) in asked {
                let half = from + len / 2;
                let mut pieces = vec![hole(from..half), hole(half..from + len)];
                pieces.retain(|piece| piece.len > 0);
                maps.learn(Ino(1), &pieces, maps.asking(Ino(1)));
                known[from as usize..(from + len) as usize].fill(true);
                for at in 0..240 {
                    let found: u64 = maps.known(Ino(1), &(at..300)).iter().map(|piece| piece.len).sum();
                    let expected = known[at as usize..].iter().take_while(|known| **known).count();
                    prop_assert_eq!(found, expected as u64);
                }
            }
        }
    }

    #[test]
    fn what_was_asked_before_something_is_forgotten_is_not_kept() {
        let maps = Maps::default();
        let asked = maps.asking(Ino(1));
        maps.forget(Ino(1));
        maps.learn(Ino(1), &[hole(0..10)], asked);
        assert!(maps.known(Ino(1), &(0..10)).is_empty());
    }

    #[test]
    fn maps_have_a_bound() {
        let maps = Maps::default();
        for ino in 0..1000 {
            let ino = Ino(ino * SHARDS as u64);
            let pieces: Vec<_> = (0..1000).map(|at| hole(at..at + 1)).collect();
            maps.learn(ino, &pieces, maps.asking(ino));
            assert!(maps.0[0].lock().pieces <= SHARD_PIECES);
            assert_eq!(maps.known(ino, &(0..1000)).len(), 1000);
        }
    }
}
