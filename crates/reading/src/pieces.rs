//! Files by what they consist of: pieces put together, and those fetched ahead that are likely to be wanted.

use std::ops::Range;

use bytes::Bytes;
use forebay_cache::Pattern;
use forebay_data::{Access, ReadError, ReadPiece, ReadPieces, RunReader, SegmentSource};
use forebay_format::row::Extent;
use forebay_meta::{Piece, PieceSource};
use forebay_types::SegmentId;

/// Holes of at least this many bytes are told as such instead of being filled in.
const HOLE_MIN: u64 = 64 << 10;
/// Files of at most this many bytes are small: who reads one is likely to read its neighbours, which lie beside it.
pub const SMALL_FILE: u64 = 256 << 10;
/// Runs of at most this many stored bytes are fetched ahead whole.
const SMALL_RUN: u32 = 256 << 10;
/// What lies at most this many bytes behind something that is fetched ahead is fetched with it.
const GAP_MAX: u64 = 64 << 10;

/// What a reader that goes on like this will do next.
#[must_use]
pub fn access_of(pattern: Pattern) -> Access {
    match pattern {
        Pattern::Start => Access::Nearby,
        Pattern::Sequential => Access::Sequential,
        Pattern::Strided | Pattern::Random => Access::Random,
    }
}

/// The bytes of pieces, verified.
///
/// # Errors
/// [`ReadError`].
pub fn read_pieces(reader: &RunReader, pieces: &[Piece], access: Access) -> Result<ReadPieces, ReadError> {
    let is_gap = |piece: &Piece| piece.source == PieceSource::Hole && piece.len >= HOLE_MIN;
    let mut out = ReadPieces::new();
    for group in pieces.chunk_by(|one, two| !is_gap(one) && !is_gap(two)) {
        match group {
            [gap] if is_gap(gap) => out.push(ReadPiece::Zeros(gap.len as usize)),
            [Piece { source: PieceSource::Extent(extent), len, .. }] => {
                let parts = reader.read_bytes(extent, 0, *len as u32, access)?;
                out.extend(parts.into_iter().map(ReadPiece::Bytes));
            }
            group => out.push(ReadPiece::Bytes(read_together(reader, group, access)?)),
        }
    }
    Ok(out)
}

/// Pieces in one buffer.
fn read_together(reader: &RunReader, pieces: &[Piece], access: Access) -> Result<Bytes, ReadError> {
    let total: u64 = pieces.iter().map(|piece| piece.len).sum();
    let mut buffer = reader.buffer(total as usize);
    read_into(reader, pieces, &mut buffer, access)?;
    Ok(buffer.freeze())
}

/// The bytes of pieces, written to `out`, which has as many as they have together.
///
/// # Errors
/// [`ReadError`]; `out` may then have bytes that mean nothing.
pub fn read_into(
    reader: &RunReader,
    pieces: &[Piece],
    out: &mut [u8],
    access: Access,
) -> Result<(), ReadError> {
    let mut rest = out;
    for piece in pieces {
        let (out, after) = rest.split_at_mut(piece.len as usize);
        match &piece.source {
            PieceSource::Hole => out.fill(0),
            PieceSource::Inline(data) => out.copy_from_slice(data),
            PieceSource::Extent(extent) => reader.read_into(extent, 0, out, access)?,
        }
        rest = after;
    }
    Ok(())
}

/// Has the stored bytes of pieces brought near, without waiting: what lies side by side together, so that requests are as long as the source likes them; also where
/// pieces of two segments take turns.
pub fn fetch_ahead(reader: &RunReader, source: &dyn SegmentSource, pieces: &[Piece]) {
    // The last one first.
    let mut beside: [Option<(SegmentId, Range<u64>)>; 2] = [None, None];
    let fetch = |(segment, range): (SegmentId, Range<u64>)| {
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        source.prefetch(segment, range.start, len);
    };
    for piece in pieces {
        let PieceSource::Extent(extent) = &piece.source else { continue };
        let Some(stored) = stored_of(reader, extent, piece.len) else { continue };
        let adjoins = |(segment, range): &&mut (SegmentId, Range<u64>)| {
            let gap = range.start..range.end.saturating_add(GAP_MAX);
            *segment == extent.segment && gap.contains(&stored.start)
        };
        if let Some((_, range)) = beside.iter_mut().flatten().find(adjoins) {
            range.end = range.end.max(stored.end);
            continue;
        }
        beside.rotate_right(1);
        beside[0].replace((extent.segment, stored)).into_iter().for_each(fetch);
    }
    beside.into_iter().rev().flatten().for_each(fetch);
}

/// What of its segment is fetched for a piece: of a small run all.
fn stored_of(reader: &RunReader, extent: &Extent, len: u64) -> Option<Range<u64>> {
    if extent.stored_len > SMALL_RUN {
        return reader.stored_of(extent, u32::try_from(len).unwrap_or(u32::MAX));
    }
    Some(extent.run_offset..extent.run_offset.saturating_add(u64::from(extent.stored_len)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_data::SourceError;
    use forebay_format::{Keyring, run::RunForm};
    use parking_lot::Mutex;

    use super::*;

    const MIB: u32 = 1 << 20;

    /// Notes what is to be brought near.
    #[derive(Default)]
    struct Noting(Mutex<Vec<(u64, u64, u32)>>);

    impl SegmentSource for Noting {
        fn read(&self, segment: SegmentId, _: u64, _: u32) -> Result<Bytes, SourceError> {
            Err(SourceError::NotFound { segment, detail: "nothing is read".to_owned() })
        }

        fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) {
            self.0.lock().push((segment.0, offset, len));
        }
    }

    /// A run of `len` raw bytes, compressed to half of that.
    fn piece(segment: u64, run_offset: u64, len: u32) -> Piece {
        let (segment, form) = (SegmentId(segment), RunForm::Plain.number());
        let extent =
            Extent { len, segment, run_offset, stored_len: len / 2, run_len: len, skip: 0, form, check: 0 };
        Piece { offset: 0, len: len.into(), source: PieceSource::Extent(extent) }
    }

    fn fetched(pieces: &[Piece]) -> Vec<(u64, u64, u32)> {
        let source = Arc::new(Noting::default());
        let keys = Arc::new(Keyring::new(Vec::new()));
        let reader = RunReader::new(Arc::clone(&source) as Arc<dyn SegmentSource>, keys, 0);
        fetch_ahead(&reader, source.as_ref(), pieces);
        source.0.lock().clone()
    }

    #[test]
    fn large_runs_side_by_side_are_fetched_together() {
        let half = u64::from(MIB / 2);
        let runs: Vec<Piece> = (0..6).map(|run| piece(1, run * (half + 64), MIB)).collect();
        assert_eq!(fetched(&runs), [(1, 0, 6 * (MIB / 2) + 5 * 64)]);
        let apart = [piece(1, 0, MIB), piece(1, 4 * half, MIB), piece(2, 5 * half, MIB)];
        assert_eq!(fetched(&apart), [(1, 0, MIB / 2), (1, 4 * half, MIB / 2), (2, 5 * half, MIB / 2)]);
    }

    #[test]
    fn pieces_of_two_segments_may_take_turns() {
        let turns: Vec<Piece> = (0..4)
            .flat_map(|turn| [piece(1, turn * u64::from(MIB / 2), MIB), piece(2, turn * 2048, 4096)])
            .collect();
        assert_eq!(fetched(&turns), [(1, 0, 2 * MIB), (2, 0, 4 * 2048)]);
    }
}
