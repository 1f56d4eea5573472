use std::{collections::HashSet, fs::File};

use forebay_data::{DataError, PackedWriter, SealedSegment, Streams, combine, read_footer};
use forebay_format::{
    footer::{Footer, RunEntry, SegmentEntry},
    record::StreamRun,
    run::{self, EncodedRun},
};
use forebay_types::{Compression, Generation, Ino, SegmentId, SubvolumeId};

use crate::setting::{VOLUME, segments};

/// A stored run of `len` raw bytes that begin with its number.
pub fn run(number: u64, len: usize) -> (Vec<u8>, EncodedRun) {
    let raw: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + number) as u8).collect();
    let mut stored = Vec::new();
    let about = run::encode(&raw, Compression::None, None, &mut stored).expect("a run");
    (stored, about)
}

pub fn entry(number: u64, about: &EncodedRun) -> RunEntry {
    RunEntry {
        subvolume: SubvolumeId(1),
        generation: Generation(1),
        ino: Ino(number),
        block: 0,
        offset: 0,
        run_len: about.stored_len - 8 * (about.stored_len / 65544 + 1),
        run_offset: 0,
        stored_len: 0,
        form: about.form,
        check: about.check,
    }
}

fn streams(dir: &std::path::Path) -> Streams {
    Streams::open(Streams::recover(dir).expect("recovered"), dir, VOLUME, segments())
}

fn sealed_footer(sealed: &SealedSegment) -> Footer {
    let file = File::open(&sealed.path).expect("a sealed file");
    read_footer(&file, &sealed.path).expect("a footer")
}

#[test]
fn one_inode_stays_in_one_stream_and_can_be_read_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let streams = streams(dir.path());
    let mut used = HashSet::new();
    for ino in 0..64 {
        let (stored, about) = run(ino, 500);
        let places: Vec<StreamRun> = (0..3)
            .map(|_| streams.append(Ino(ino), &entry(ino, &about), [&stored, &[]]).expect("a place"))
            .collect();
        assert!(places.iter().all(|place| place.segment == places[0].segment));
        assert!(places.windows(2).all(|pair| pair[1].run_offset > pair[0].run_offset));
        for place in places {
            assert_eq!(
                streams.read(place.segment, place.run_offset, place.stored_len).expect("read"),
                stored
            );
            used.insert(place.segment);
        }
    }
    assert_eq!(used.len(), 4, "inodes are spread over the slots");
}

#[test]
fn a_stream_cut_at_every_byte_has_the_runs_before_the_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = streams(dir.path());
    let places: Vec<_> = (1..=3)
        .map(|number| {
            let (stored, about) = run(number, 40 + number as usize * 30);
            first.append(Ino(7), &entry(number, &about), [&stored, &[]]).expect("a place")
        })
        .collect();
    first.sync().expect("a sync");
    drop(first);
    let path = dir.path().join(format!("{}.seg", places[0].segment));
    let mut whole = std::fs::read(&path).expect("the stream");
    let end = |place: &StreamRun| (place.run_offset + u64::from(place.stored_len)) as usize;
    let padding = whole.split_off(end(&places[2]));
    assert!(padding.iter().all(|byte| *byte == 0), "only zeros follow the last run");
    for len in 0..=whole.len() {
        std::fs::write(&path, &whole[..len]).expect("cut");
        let recovered = Streams::recover(dir.path()).expect("recovered");
        let expected = places.iter().filter(|place| end(place) <= len).count();
        assert_eq!((recovered.len(), recovered[0].runs.len()), (1, expected), "cut at {len}");
        assert_eq!(recovered[0].valid_len as usize, places[..expected].last().map_or(0, end));
        for (index, place) in places.iter().enumerate() {
            assert_eq!(recovered[0].has(place).expect("read"), index < expected, "cut at {len}");
        }
    }
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).expect("flipped");
        let recovered = Streams::recover(dir.path()).expect("recovered");
        let hit = places.iter().position(|place| at < end(place)).expect("a run");
        let in_head = at < places[hit].run_offset as usize;
        assert_eq!(recovered[0].runs.len(), if in_head { hit } else { 3 }, "flipped at {at}");
        for (index, place) in places.iter().enumerate() {
            let whole = if in_head { index < hit } else { index != hit };
            assert_eq!(recovered[0].has(place).expect("read"), whole, "flipped at {at}");
        }
    }
}

#[test]
fn a_recovered_stream_is_sealed_and_read_but_takes_no_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let before = streams(dir.path());
    let (stored, about) = run(1, 900);
    let place = before.append(Ino(1), &entry(1, &about), [&stored, &[]]).expect("a place");
    before.sync().expect("a sync");
    drop(before);
    let path = dir.path().join(format!("{}.seg", place.segment));
    let mut torn = std::fs::read(&path).expect("the stream");
    torn.extend_from_slice(&[0xaa; 300]);
    std::fs::write(&path, torn).expect("a torn tail");
    let after = streams(dir.path());
    assert_eq!(after.sealable(u64::MAX, u32::MAX), [place.segment]);
    let next = after.append(Ino(1), &entry(1, &about), [&stored, &[]]).expect("a place");
    assert_ne!(next.segment, place.segment);
    let sealed = after.seal(place.segment).expect("sealed");
    let footer = sealed_footer(&sealed);
    assert_eq!(footer.volume, VOLUME);
    let entry = SegmentEntry { id: place.segment, offset: 0, len: sealed.len, runs: sealed.runs.clone() };
    assert_eq!(footer.segments, [entry]);
    assert_eq!((sealed.runs.len(), sealed.raw, sealed.runs[0].run_offset), (1, 900, place.run_offset));
    assert_eq!(after.seal(place.segment).expect("again"), sealed);
    drop(after);
    let again = Streams::recover(dir.path()).expect("recovered");
    let found = again.iter().find(|found| found.segment == place.segment).expect("the sealed one");
    assert!(found.sealed && found.has(&place).expect("read"));
    assert_eq!(found.valid_len, sealed.len);
}

#[test]
fn full_large_and_idle_streams_are_sealable() {
    let dir = tempfile::tempdir().expect("a directory");
    let streams = streams(dir.path());
    let (small, about) = run(1, 1000);
    let place = streams.append(Ino(1), &entry(1, &about), [&small, &[]]).expect("a place");
    assert_eq!(streams.sealable(1 << 20, 2), []);
    assert_eq!(streams.sealable(1000, 2), [place.segment], "long enough");
    streams.append(Ino(1), &entry(1, &about), [&small, &[]]).expect("a place");
    assert_eq!(streams.sealable(1 << 20, 2), [], "an append ends idleness");
    assert_eq!(streams.sealable(1 << 20, 2), []);
    assert_eq!(streams.sealable(1 << 20, 2), [place.segment], "idle");
    let (large, about) = run(2, 8 << 20);
    let mut segments = HashSet::new();
    for _ in 0..5 {
        segments.insert(streams.append(Ino(1), &entry(2, &about), [&large, &[]]).expect("a place").segment);
    }
    assert_eq!(segments.len(), 2, "a stream rolls over at 32 MiB");
    assert_eq!(streams.sealable(u64::MAX, u32::MAX), [place.segment], "full");
    streams.seal(place.segment).expect("sealed");
    assert_eq!(streams.sealable(u64::MAX, u32::MAX), []);
    streams.remove(place.segment).expect("removed");
    assert!(matches!(streams.read(place.segment, 0, 1), Err(DataError::NoSegment { .. })));
    assert!(!dir.path().join(format!("{}.seg", place.segment)).exists());
}

/// Runs of all lengths around a block's, read back at once, after a sync and after the file was closed, and in one read over all of them.
#[test]
fn runs_are_read_back_wherever_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let streams = streams(dir.path());
    let lengths = [1, 3900, 4024, 4025, 5000, 1 << 20, 3 << 20, 70_000, 1 << 20, 1];
    let mut all: Vec<(StreamRun, Vec<u8>)> = Vec::new();
    for (number, len) in (1..).zip(lengths) {
        let (stored, about) = run(number, len);
        let (front, back) = stored.split_at(stored.len() / 3);
        let place = streams.append(Ino(9), &entry(number, &about), [front, back]).expect("a place");
        all.push((place, stored));
        for (place, stored) in &all {
            assert!(streams.read(place.segment, place.run_offset, place.stored_len).expect("read") == stored);
        }
        if number % 3 == 0 {
            streams.sync().expect("a sync");
        }
    }
    let segment = all[0].0.segment;
    let sealed = streams.seal(segment).expect("sealed");
    let whole = streams.read(segment, 0, sealed.len as u32).expect("read");
    let file = std::fs::read(&sealed.path).expect("the file");
    assert!(file[..sealed.len as usize] == whole[..]);
    for (place, stored) in &all {
        let at = place.run_offset as usize;
        assert!(whole[at..at + stored.len()] == stored[..], "{place:?}");
    }
    assert_eq!(file.len() as u64, std::fs::metadata(&sealed.path).expect("a file").len());
    assert_eq!(sealed_footer(&sealed).segments[0].runs, sealed.runs, "nothing follows the footer");
}

#[test]
fn threads_append_sync_and_seal_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = streams(dir.path());
    let places = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (all, places) = (&all, &places);
            scope.spawn(move || {
                for round in 0..40 {
                    let number = thread * 1000 + round;
                    let (stored, about) = run(number, 200 + round as usize);
                    let place =
                        all.append(Ino(number), &entry(number, &about), [&stored, &[]]).expect("a place");
                    places.lock().push((place, stored));
                    if round % 8 == 0 {
                        all.sync().expect("a sync");
                    }
                    if round % 10 == 9 {
                        all.seal(place.segment).expect("sealed");
                    }
                }
            });
        }
    });
    all.sync().expect("a sync");
    drop(all);
    let recovered = Streams::recover(dir.path()).expect("recovered");
    for (place, _) in &*places.lock() {
        let stream = recovered.iter().find(|stream| stream.segment == place.segment).expect("a stream");
        assert!(stream.has(place).expect("read"), "{place:?}");
    }
    let reopened = Streams::open(recovered, dir.path(), VOLUME, segments());
    for (place, stored) in places.into_inner() {
        assert_eq!(reopened.read(place.segment, place.run_offset, place.stored_len).expect("read"), stored);
    }
}

fn packed(dir: &std::path::Path, segment: SegmentId, numbers: std::ops::Range<u64>) -> SealedSegment {
    let mut packed = PackedWriter::create(dir, VOLUME, segment).expect("a writer");
    let mut expected = 0;
    for number in numbers {
        let (stored, about) = run(number, 700);
        assert_eq!(packed.add(&entry(number, &about), [&stored, &[]]).expect("a place"), expected);
        expected += stored.len() as u64;
    }
    assert_eq!(packed.len(), expected);
    packed.finish().expect("finished")
}

#[test]
fn a_packed_segment_is_whole_or_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let segment = segments()();
    let sealed = packed(dir.path(), segment, 1..4);
    assert_eq!(sealed_footer(&sealed).segments[0].runs, sealed.runs);
    assert_eq!(sealed.raw, 2100);
    let streams = streams(dir.path());
    let (stored, _) = run(2, 700);
    let second = sealed.runs[1];
    assert_eq!(streams.read(segment, second.run_offset, second.stored_len).expect("recovered"), stored);
    let adopted = packed(dir.path(), segments()(), 1..3);
    streams.adopt(&adopted).expect("adopted");
    let second = adopted.runs[1];
    assert_eq!(streams.read(adopted.segment, second.run_offset, second.stored_len).expect("adopted"), stored);
    assert_eq!(streams.sealable(0, 0), [], "they are sealed already");
    assert_eq!(streams.segments(), [segment, adopted.segment]);
    drop(PackedWriter::create(dir.path(), VOLUME, segments()()).expect("a writer"));
    let left = dir.path().join(format!("{}.part", segments()()));
    std::fs::write(&left, b"of a crash").expect("a file");
    assert_eq!(Streams::recover(dir.path()).expect("recovered").len(), 2);
    assert!(!left.exists());
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 2);
}

#[test]
fn several_segments_become_one_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = [packed(dir.path(), segments()(), 0..3), packed(dir.path(), segments()(), 3..4)];
    let out = dir.path().join("object");
    let footer = combine(VOLUME, &parts, &out).expect("combined");
    assert_eq!(read_footer(&File::open(&out).expect("the object"), &out).expect("a footer"), footer);
    let object = std::fs::read(&out).expect("the object");
    for (part, entry) in parts.iter().zip(&footer.segments) {
        let body = std::fs::read(&part.path).expect("a part");
        let (at, len) = (entry.offset as usize, entry.len as usize);
        assert_eq!((entry.id, entry.len), (part.segment, part.len));
        assert_eq!(object[at..at + len], body[..len]);
    }
    let again = combine(VOLUME, &parts, &out);
    assert!(matches!(again, Err(DataError::Io { .. })), "an object is never overwritten");
    let missing = [SealedSegment { len: parts[0].len + 10_000, ..parts[0].clone() }];
    let out = dir.path().join("other");
    assert!(combine(VOLUME, &missing, &out).is_err());
    assert!(!out.exists());
}

#[test]
fn a_footer_that_is_none_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let sealed = packed(dir.path(), segments()(), 0..3);
    let whole = std::fs::read(&sealed.path).expect("the file");
    let path = dir.path().join("damaged");
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).expect("cut");
        let refused = read_footer(&File::open(&path).expect("a file"), &path);
        assert!(matches!(refused, Err(DataError::Format { .. })), "cut at {len}: {refused:?}");
    }
    for at in sealed.len as usize..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).expect("flipped");
        let refused = read_footer(&File::open(&path).expect("a file"), &path);
        assert!(matches!(refused, Err(DataError::Format { .. })), "flipped at {at}: {refused:?}");
    }
}

/// A packed segment has no heads between its runs: without its footer nothing in it is known, and nothing of it may be cut off.
#[test]
fn a_packed_segment_with_a_damaged_footer_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let sealed = packed(dir.path(), segments()(), 0..5);
    let mut bytes = std::fs::read(&sealed.path).expect("the segment");
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    std::fs::write(&sealed.path, &bytes).expect("damaged");
    let streams = streams(dir.path());
    assert!(matches!(streams.seal(sealed.segment), Err(DataError::Format { .. })));
    assert_eq!(std::fs::read(&sealed.path).expect("the segment"), bytes);
}
