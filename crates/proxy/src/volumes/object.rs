//! Segments become an object: their bodies one after the other, and a footer that is made of the heads of their runs.

use bytes::Bytes;
use forebay_format::{
    footer::{Footer, RunEntry, SegmentEntry, TAIL_LEN},
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore};
use forebay_protocol::StoredSegment;
use forebay_types::{Epoch, SegmentId, VolumeId};

/// Bytes of a footer for one run, about: room that is taken beforehand.
const RUN_BYTES: usize = 40;

/// A sealed segment, as it is in the log.
pub(super) struct Whole {
    pub(super) segment: SegmentId,
    pub(super) epoch: Epoch,
    pub(super) check: u32,
    pub(super) bytes: Bytes,
}

/// An object to be put, and what the owner is told of it.
pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) segments: Vec<StoredSegment>,
}

/// The object of these segments, in this order.
pub(super) fn object_of(volume: VolumeId, wholes: &[Whole]) -> Object {
    let len: usize = wholes.iter().map(|whole| whole.bytes.len()).sum();
    let mut body = Vec::with_capacity(len + RUN_BYTES * wholes.len() + TAIL_LEN);
    let (mut entries, mut segments) = (Vec::with_capacity(wholes.len()), Vec::with_capacity(wholes.len()));
    for Whole { segment, epoch, check, bytes } in wholes {
        let runs = runs_of(*segment, bytes);
        let raw = runs.iter().map(|run| u64::from(run.run_len)).sum();
        let (offset, len) = (body.len() as u64, bytes.len() as u64);
        segments.push(StoredSegment { segment: *segment, epoch: *epoch, len, check: *check, offset, raw });
        entries.push(SegmentEntry { id: *segment, offset, len, runs });
        body.extend_from_slice(bytes);
    }
    Footer { volume, segments: entries }.encode_to(&mut body);
    Object { bytes: body.into(), segments }
}

/// The runs of a segment, by walking from head to head.
fn runs_of(segment: SegmentId, bytes: &[u8]) -> Vec<RunEntry> {
    let (mut at, mut runs) = (0, Vec::new());
    while at < bytes.len() {
        let run = bytes
            .get(at..at + STREAM_HEAD_LEN)
            .and_then(|head| stream::decode(head, segment, at as u64).ok());
        let end = run.map(|run| at + STREAM_HEAD_LEN + run.stored_len as usize);
        let (Some(run), Some(end)) = (run, end.filter(|end| *end <= bytes.len())) else {
            // Files name runs by rows: what its writer laid out in another way is stored as it is.
            tracing::warn!(%segment, at, "a segment has what is no run: its footer ends there");
            break;
        };
        runs.push(run);
        at = end;
    }
    runs
}

/// Puts an object under a number of its own, whether or not that was tried before.
///
/// # Errors
/// [`ObjectError`]: the object may be there or not, but where another one has its name.
pub(super) fn put(store: &ObjectStore, key: &str, bytes: &Bytes) -> Result<(), ObjectError> {
    match store.put_new(key, bytes.clone()) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match is_ours(store, key, bytes)? {
            true => Ok(()),
            false => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Whether the object under a key is this one: it is as long, and ends in the same footer, which has the checksums of all runs.
fn is_ours(store: &ObjectStore, key: &str, bytes: &Bytes) -> Result<bool, ObjectError> {
    let len = bytes.len() as u64;
    if store.head(key)?.size != len {
        return Ok(false);
    }
    let tail = bytes.len().checked_sub(TAIL_LEN).and_then(|at| bytes[at..].try_into().ok());
    let footer = tail.and_then(|tail| Footer::len_from_tail(tail).ok());
    let footer = footer.map_or(len, |body| (body + TAIL_LEN) as u64).min(len);
    Ok(store.get_range(key, len - footer..len)? == bytes[(len - footer) as usize..])
}

#[cfg(test)]
mod tests {
    use forebay_types::{Generation, Ino, SubvolumeId};

    use super::*;

    fn run(segment: SegmentId, at: u64, body: &[u8]) -> Vec<u8> {
        let entry = RunEntry {
            subvolume: SubvolumeId::FIRST,
            generation: Generation::FIRST,
            ino: Ino(9),
            block: 0,
            offset: 0,
            run_len: body.len() as u32 * 2,
            run_offset: at + STREAM_HEAD_LEN as u64,
            stored_len: body.len() as u32,
            form: 0,
            check: 7,
        };
        [&stream::encode(segment, &entry)[..], body].concat()
    }

    fn whole(segment: u64, bytes: Vec<u8>) -> Whole {
        let check = crc32c::crc32c(&bytes);
        Whole { segment: SegmentId(segment), epoch: Epoch(1), check, bytes: bytes.into() }
    }

    #[test]
    fn a_footer_lists_the_runs_of_all_segments() {
        let first = run(SegmentId(1), 0, b"abc");
        let second = run(SegmentId(1), first.len() as u64, b"defgh");
        let other = run(SegmentId(2), 0, b"x");
        let one = whole(1, [first.clone(), second].concat());
        let object = object_of(VolumeId([7; 16]), &[one, whole(2, other)]);
        let tail: [u8; TAIL_LEN] = object.bytes[object.bytes.len() - TAIL_LEN..].try_into().unwrap();
        let len = Footer::len_from_tail(&tail).unwrap();
        let end = object.bytes.len() - TAIL_LEN;
        let footer = Footer::decode(&object.bytes[end - len..end], &tail).unwrap();
        let runs: Vec<Vec<u32>> =
            footer.segments.iter().map(|one| one.runs.iter().map(|run| run.stored_len).collect()).collect();
        assert_eq!(runs, [vec![3, 5], vec![1]]);
        assert_eq!(footer.segments[1].offset, 64 + 3 + 64 + 5);
        assert_eq!(object.segments.iter().map(|one| one.raw).collect::<Vec<_>>(), [16, 2]);
        assert_eq!(object.segments[1].offset, footer.segments[1].offset);
    }

    #[test]
    fn what_is_no_run_is_stored_as_it_is() {
        let first = run(SegmentId(1), 0, b"abc");
        let cut = [first.clone(), run(SegmentId(2), 0, b"moved")].concat();
        let object = object_of(VolumeId([7; 16]), &[whole(1, cut.clone())]);
        assert_eq!(object.segments[0].len, cut.len() as u64);
        assert_eq!(object.segments[0].raw, 6, "the head of another segment counts for nothing");
        let short = object_of(VolumeId([7; 16]), &[whole(1, first[..66].to_vec())]);
        assert_eq!((short.segments[0].len, short.segments[0].raw), (66, 0));
    }
}
