//! What was written to a file and is not committed.

use std::{collections::BTreeMap, ops::Range};

use forebay_types::Timespec;

/// Bytes of one piece at most.
const PIECE_MAX: usize = 1 << 20;
/// Bytes of memory that a piece takes besides its own.
pub(super) const PIECE_COST: u64 = 128;

/// Bytes written over a file, and what else the writes changed.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// By their offset; none is empty, none overlaps another.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Bytes of all pieces.
    bytes: u64,
    /// Rises with each layer of a file.
    pub(super) number: u64,
    /// The size that the file has with it.
    pub(super) size: u64,
    /// Bits of the mode that stay.
    pub(super) mode: Option<u16>,
    /// The last write.
    pub(super) mtime: Timespec,
    /// The session in which it was opened: it is committed in no other.
    pub(super) session: u64,
}

impl Layer {
    pub(super) fn new(number: u64, session: u64, size: u64, mtime: Timespec) -> Layer {
        Layer { pieces: BTreeMap::new(), bytes: 0, number, size, mode: None, mtime, session }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn cost(&self) -> u64 {
        self.bytes + PIECE_COST * self.pieces.len() as u64
    }

    /// How many pieces there are.
    pub(super) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Writes `data` over what is there. Returns how much more it costs than before.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.lay(offset, data, true)
    }

    /// Writes `data` only where nothing is.
    pub(super) fn write_under(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.lay(offset, data, false)
    }

    fn lay(&mut self, offset: u64, data: &[u8], over: bool) -> u64 {
        let before = self.cost();
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let rest = &data[(at - offset) as usize..];
            let gap_end = self.pieces.range(at + 1..end).next().map_or(end, |(start, _)| *start);
            let len = match self.pieces.range_mut(..=at).next_back() {
                Some((start, piece)) if *start + piece.len() as u64 > at => {
                    let from = (at - start) as usize;
                    let len = rest.len().min(piece.len() - from);
                    if over {
                        piece[from..from + len].copy_from_slice(&rest[..len]);
                    }
                    at += len as u64;
                    continue;
                }
                Some((start, piece)) if *start + piece.len() as u64 == at && piece.len() < PIECE_MAX => {
                    let len = ((gap_end - at) as usize).min(PIECE_MAX - piece.len());
                    piece.extend_from_slice(&rest[..len]);
                    len
                }
                _ => {
                    let len = ((gap_end - at) as usize).min(PIECE_MAX);
                    self.pieces.insert(at, rest[..len].to_vec());
                    len
                }
            };
            at += len as u64;
            self.bytes += len as u64;
        }
        self.cost() - before
    }

    /// Drops what lies beyond `size`. Returns how much less it costs.
    pub(super) fn cut(&mut self, size: u64) -> u64 {
        let before = self.cost();
        let beyond = self.pieces.split_off(&size);
        self.bytes -= beyond.values().map(|piece| piece.len() as u64).sum::<u64>();
        if let Some((start, piece)) = self.pieces.range_mut(..size).next_back() {
            let keep = usize::try_from(size - start).unwrap_or(usize::MAX);
            self.bytes -= piece.len().saturating_sub(keep) as u64;
            piece.truncate(keep);
        }
        self.size = size;
        before - self.cost()
    }

    /// Puts a newer layer over this one, which takes its number. Returns how much less this one costs then than both.
    pub(super) fn put_over(&mut self, newer: &Layer) -> u64 {
        let added: u64 = newer.pieces.iter().map(|(offset, piece)| self.write(*offset, piece)).sum();
        self.number = newer.number;
        self.size = newer.size;
        self.mode = narrowed(self.mode, newer.mode);
        self.mtime = newer.mtime;
        // A piece that filled several gaps may cost more now.
        newer.cost().saturating_sub(added)
    }

    /// Takes away all but the first `count` pieces. They are a layer of the same number; what stays has one below it.
    pub(super) fn split(&mut self, count: usize) -> Option<Layer> {
        let from = *self.pieces.keys().nth(count)?;
        let pieces = self.pieces.split_off(&from);
        let bytes = pieces.values().map(|piece| piece.len() as u64).sum();
        self.bytes -= bytes;
        let rest = Layer { pieces, bytes, ..*self };
        self.number -= 1;
        Some(rest)
    }

    /// Whether it has any byte of a range.
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let before = self.pieces.range(..range.end).next_back();
        before.is_some_and(|(start, piece)| start + piece.len() as u64 > range.start)
    }

    /// Fills `out`, the bytes from `at` on, where it has them and they are `missing`; those are missing no longer.
    pub(super) fn fill(&self, at: u64, out: &mut [u8], missing: &mut Vec<Range<u64>>) {
        let mut left = Vec::with_capacity(missing.len());
        for gap in missing.drain(..) {
            let mut from = gap.start;
            let first = self.pieces.range(..=gap.start).next_back().map_or(gap.start, |(start, _)| *start);
            for (start, piece) in self.pieces.range(first..gap.end) {
                let (low, high) = ((*start).max(from), (start + piece.len() as u64).min(gap.end));
                if low >= high {
                    continue;
                }
                let bytes = &piece[(low - start) as usize..(high - start) as usize];
                out[(low - at) as usize..(high - at) as usize].copy_from_slice(bytes);
                if low > from {
                    left.push(from..low);
                }
                from = high;
            }
            if from < gap.end {
                left.push(from..gap.end);
            }
        }
        *missing = left;
    }

    /// The pieces cut where a block of `block_size` bytes ends, those that follow each other in a block together: offset, and parts.
    pub(super) fn runs(&self, block_size: u64) -> Vec<(u64, Vec<&[u8]>)> {
        let mut runs: Vec<(u64, u64, Vec<&[u8]>)> = Vec::new();
        for (start, piece) in &self.pieces {
            let mut done = 0;
            while done < piece.len() {
                let at = start + done as u64;
                let room = (block_size - at % block_size) as usize;
                let part = &piece[done..piece.len().min(done + room)];
                match runs.last_mut() {
                    Some((_, end, parts)) if *end == at && !at.is_multiple_of(block_size) => {
                        *end += part.len() as u64;
                        parts.push(part);
                    }
                    _ => runs.push((at, at + part.len() as u64, vec![part])),
                }
                done += part.len();
            }
        }
        runs.into_iter().map(|(at, _, parts)| (at, parts)).collect()
    }

    /// Writes all of it over `bytes`, which are a file's from its start and get as long as that needs.
    pub(super) fn apply_to(&self, bytes: &mut Vec<u8>) {
        for (start, piece) in &self.pieces {
            let (from, to) = (*start as usize, *start as usize + piece.len());
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(piece);
        }
    }
}

/// Bits that stay when two writes leave some each.
pub(super) fn narrowed(one: Option<u16>, two: Option<u16>) -> Option<u16> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one & two),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn empty() -> Layer {
        Layer::new(1, 1, 0, Timespec::default())
    }

    /// What a layer says of the first `len` bytes; `None` where it has none.
    fn seen(layer: &Layer, len: usize) -> Vec<Option<u8>> {
        let mut out = vec![0; len];
        let mut missing = std::iter::once(0..len as u64).collect();
        layer.fill(0, &mut out, &mut missing);
        let gap = |at: usize| missing.iter().any(|gap| gap.contains(&(at as u64)));
        out.iter().enumerate().map(|(at, byte)| (!gap(at)).then_some(*byte)).collect()
    }

    proptest! {
        #[test]
        fn layers_are_bytes_over_nothing(
            steps in prop::collection::vec((0..3u8, 0..300u64, 1..80usize), 1..40),
            block in 7..64u64,
        ) {
            let (mut layer, mut newer) = (empty(), empty());
            let (mut model, mut over) = (vec![None; 400], vec![None; 400]);
            for (number, (kind, at, len)) in steps.into_iter().enumerate() {
                let data = vec![number as u8; len];
                let (to, model) = if number % 2 == 0 { (&mut layer, &mut model) } else { (&mut newer, &mut over) };
                match kind {
                    0 => {
                        to.write(at, &data);
                        model[at as usize..at as usize + len].fill(Some(number as u8));
                    }
                    1 => {
                        to.write_under(at, &data);
                        for byte in &mut model[at as usize..at as usize + len] {
                            *byte = byte.or(Some(number as u8));
                        }
                    }
                    _ => {
                        to.cut(at);
                        model[at as usize..].fill(None);
                    }
                }
                prop_assert_eq!(to.bytes, model.iter().flatten().count() as u64);
                prop_assert_eq!(&seen(to, 400), model);
            }
            let all = layer.cost() + newer.cost();
            let freed = layer.put_over(&newer);
            prop_assert!(layer.cost() + freed >= all);
            let model: Vec<_> = model.iter().zip(over).map(|(under, over)| over.or(*under)).collect();
            prop_assert_eq!(&seen(&layer, 400), &model);
            let mut from_runs = vec![None; 400];
            for (at, parts) in layer.runs(block) {
                let bytes = parts.concat();
                prop_assert!(at % block + bytes.len() as u64 <= block);
                for (byte, place) in bytes.iter().zip(&mut from_runs[at as usize..]) {
                    *place = Some(*byte);
                }
            }
            prop_assert_eq!(&from_runs, &model);
            if let Some(rest) = layer.split(2) {
                prop_assert_eq!((layer.count(), layer.number + 1), (2, rest.number));
                prop_assert_eq!(layer.bytes + rest.bytes, model.iter().flatten().count() as u64);
                layer.put_over(&rest);
                prop_assert_eq!(&seen(&layer, 400), &model);
            }
        }
    }

    #[test]
    fn what_is_appended_makes_few_pieces() {
        let mut layer = empty();
        for at in 0..4096 {
            layer.write(at * 1000, &[7; 1000]);
        }
        assert_eq!((layer.bytes, layer.count()), (4_096_000, 4));
        assert_eq!(layer.runs(4 << 20).len(), 1);
    }
}
