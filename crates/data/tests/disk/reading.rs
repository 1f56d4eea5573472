use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use forebay_data::{Access, Parts, ReadError, RunReader, SegmentSource, SourceError};
use forebay_format::{Keyring, MasterKey, RunSealer, row::Extent, run};
use forebay_types::{Compression, SegmentId, limits::FRAME_SIZE};
use parking_lot::Mutex;
use proptest::{prelude::*, sample::select};

const SEGMENT: SegmentId = SegmentId(5);

/// Segments in memory. `flipped` are damaged until they are distrusted, `broken` for good.
#[derive(Default)]
struct Memory {
    segments: Mutex<HashMap<SegmentId, Vec<u8>>>,
    flipped: Mutex<Vec<u64>>,
    broken: Mutex<Vec<u64>>,
    reads: AtomicUsize,
    distrusted: Mutex<Vec<(u64, u32)>>,
    /// They are lent out, in parts of so many bytes.
    shares: Option<usize>,
}

impl SegmentSource for Memory {
    fn read(&self, segment: SegmentId, offset: u64, len: u32) -> Result<Bytes, SourceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let segments = self.segments.lock();
        let body = segments
            .get(&segment)
            .ok_or_else(|| SourceError::NotFound { segment, detail: "not in memory".into() })?;
        let end = (offset as usize).saturating_add(len as usize).min(body.len());
        let mut bytes = body[(offset as usize).min(end)..end].to_vec();
        for at in self.flipped.lock().iter().chain(&*self.broken.lock()) {
            if (offset..offset + bytes.len() as u64).contains(at) {
                bytes[(at - offset) as usize] ^= 4;
            }
        }
        Ok(bytes.into())
    }

    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        _: Access,
    ) -> Result<Option<Parts>, SourceError> {
        let Some(part) = self.shares else { return Ok(None) };
        let mut bytes = self.read(segment, offset, len)?;
        let mut parts = Parts::new();
        while !bytes.is_empty() {
            parts.push(bytes.split_to(part.min(bytes.len())));
        }
        Ok(Some(parts))
    }

    fn distrust(&self, _: SegmentId, offset: u64, len: u32) {
        self.flipped.lock().retain(|at| !(offset..offset + u64::from(len)).contains(at));
        self.distrusted.lock().push((offset, len));
    }
}

fn read_bytes(
    reader: &RunReader,
    extent: &Extent,
    from: u32,
    len: u32,
    access: Access,
) -> Result<Vec<u8>, ReadError> {
    reader.read_bytes(extent, from, len, access).map(|parts| parts.concat())
}

struct Stored {
    raw: Vec<u8>,
    extent: Extent,
}

fn master() -> MasterKey {
    MasterKey::new(1, [8; 32])
}

/// Puts a run of `len` raw bytes into the segment.
fn store(memory: &Memory, seed: u64, len: usize, compression: Compression, sealed: bool) -> Stored {
    let mut state = seed | 1;
    let raw: Vec<u8> = (0..len)
        .map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64);
            if seed.is_multiple_of(2) { (state >> 62) as u8 } else { (state >> 56) as u8 }
        })
        .collect();
    let sealer = RunSealer::new(&master(), seed.to_le_bytes().repeat(2).try_into().expect("16 bytes"));
    let sealer = sealer.expect("a sealer");
    let mut segments = memory.segments.lock();
    let body = segments.entry(SEGMENT).or_default();
    let run_offset = body.len() as u64;
    let about = run::encode(&raw, compression, sealed.then_some(&sealer), body).expect("a run");
    let (len, form, check) = (len as u32, about.form, about.check);
    let stored_len = about.stored_len;
    let extent = Extent { len, segment: SEGMENT, run_offset, stored_len, run_len: len, skip: 0, form, check };
    Stored { raw, extent }
}

fn reader(memory: &Arc<Memory>, cache: u64) -> RunReader {
    let source = Arc::clone(memory) as Arc<dyn SegmentSource>;
    RunReader::new(source, Arc::new(Keyring::new(vec![master()])), cache)
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        1..2000usize,
        select(vec![FRAME_SIZE - 1, FRAME_SIZE, FRAME_SIZE + 1, 2 * FRAME_SIZE]),
        1..6 * FRAME_SIZE,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random parts of random extents, over a cache that is too small, of the right size, or off.
    #[test]
    fn parts_are_what_was_written(
        runs in prop::collection::vec((any::<u64>(), lengths(), select(Compression::ALL), any::<bool>()), 1..4),
        reads in prop::collection::vec((any::<prop::sample::Index>(), any::<[u32; 4]>()), 1..20),
        cache in select(vec![0u64, 200_000, 16 << 20]),
        shares in select(vec![None, Some(usize::MAX), Some(100_000), Some(5000)]),
    ) {
        let memory = Arc::new(Memory { shares, ..Memory::default() });
        let stored: Vec<Stored> =
            runs.into_iter().map(|(seed, len, compression, sealed)| store(&memory, seed, len, compression, sealed)).collect();
        let reader = reader(&memory, cache);
        for (which, [skip, len, from, part]) in reads {
            let Stored { raw, extent } = &stored[which.index(stored.len())];
            let whole = read_bytes(&reader, extent, 0, extent.len, Access::Sequential).expect("the bytes");
            prop_assert!(whole == raw[..], "all of {extent:?}");
            let frame = (from as usize % raw.len() / FRAME_SIZE * FRAME_SIZE) as u32;
            let rest = read_bytes(&reader, extent, frame, extent.len - frame, Access::Nearby).expect("the bytes");
            prop_assert!(rest == raw[frame as usize..], "from {frame} on of {extent:?}");
            let skip = skip % extent.run_len;
            let len = 1 + len % (extent.run_len - skip);
            let extent = extent.part(skip, len);
            let from = from % len;
            let part = part % (len - from + 1);
            let mut out = b"before".to_vec();
            reader.read(&extent, from, part, &mut out).expect("the bytes");
            let at = (skip + from) as usize;
            for access in [Access::Random, Access::Nearby, Access::Sequential] {
                let bytes = read_bytes(&reader, &extent, from, part, access).expect("the bytes");
                prop_assert!(bytes == raw[at..at + part as usize], "{part} bytes from {from} of {extent:?}");
                let mut buffer = reader.buffer(part as usize);
                buffer.fill(0xee);
                reader.read_into(&extent, from, &mut buffer, access).expect("the bytes");
                prop_assert!(buffer[..] == raw[at..at + part as usize], "{part} bytes from {from} of {extent:?}");
            }
            prop_assert!(out[6..] == raw[at..at + part as usize], "{part} bytes from {from} of {extent:?}");
            prop_assert_eq!(&out[..6], b"before");
            prop_assert!(reader.cached_bytes() <= cache);
        }
    }

    /// A flipped byte is never handed out: what a second fetch heals is right, what it does not is an error.
    #[test]
    fn damage_is_healed_or_named(
        seed in any::<u64>(), len in lengths(), compression in select(Compression::ALL), sealed in any::<bool>(),
        place in any::<prop::sample::Index>(), lasting in any::<bool>(), shares in select(vec![None, Some(usize::MAX), Some(100_000), Some(5000)])
    ) {
        let memory = Arc::new(Memory { shares, ..Memory::default() });
        let Stored { raw, extent } = store(&memory, seed, len, compression, sealed);
        let at = place.index(extent.stored_len as usize) as u64;
        if lasting { &memory.broken } else { &memory.flipped }.lock().push(at);
        let mut out = vec![1];
        let reader = reader(&memory, 0);
        if lasting {
            let bytes = read_bytes(&reader, &extent, 0, extent.len, Access::Sequential);
            prop_assert!(matches!(bytes, Err(ReadError::Corrupt { .. })), "{bytes:?}");
            memory.distrusted.lock().clear();
        }
        let outcome = match shares.is_some() {
            true => read_bytes(&reader, &extent, 0, extent.len, Access::Sequential)
                .map(|bytes| out.extend_from_slice(&bytes)),
            false => reader.read(&extent, 0, extent.len, &mut out),
        };
        if lasting {
            let named = matches!(outcome, Err(ReadError::Corrupt { segment: SEGMENT, offset: 0, .. }));
            prop_assert!(named, "{outcome:?}");
            prop_assert_eq!(out, [1]);
        } else {
            prop_assert!(outcome.is_ok(), "{outcome:?}");
            prop_assert!(out[1..] == raw[..]);
        }
        let distrusted = memory.distrusted.lock();
        prop_assert!(distrusted.len() == 1 && (distrusted[0].0..distrusted[0].0 + u64::from(distrusted[0].1)).contains(&at));
    }
}

#[test]
fn a_part_of_a_large_run_is_fetched_alone_and_then_cached() {
    let memory = Arc::new(Memory::default());
    let Stored { raw, extent } = store(&memory, 2, 1 << 20, Compression::Lz4, false);
    let reader = reader(&memory, 64 << 20);
    let read = |from: u32, len: u32| {
        let (before, mut out) = (memory.reads.load(Ordering::Relaxed), Vec::new());
        reader.read(&extent, from, len, &mut out).expect("bytes");
        assert!(out == raw[from as usize..(from + len) as usize]);
        memory.reads.load(Ordering::Relaxed) - before
    };
    assert_eq!(read(300_000, 4096), 2, "table and frame");
    assert_eq!(read(304_096, 4096), 0, "the same frame");
    assert_eq!(read(0, 4096), 1, "the table is known");
    assert_eq!(read(0, 1 << 20), 2, "what is around the cached frames, neighbours together");
    assert_eq!(read(0, 1 << 20), 0);
}

#[test]
fn a_small_run_takes_one_read_and_a_raw_one_leaves_the_cache_alone() {
    let memory = Arc::new(Memory::default());
    let raw = store(&memory, 1, 8192, Compression::None, false);
    let packed = store(&memory, 2, 8192, Compression::Lz4, false);
    let reader = reader(&memory, 1 << 20);
    let mut out = Vec::new();
    reader.read(&raw.extent, 4096, 4096, &mut out).expect("bytes");
    assert_eq!((memory.reads.load(Ordering::Relaxed), reader.cached_bytes()), (1, 0));
    reader.read(&packed.extent, 4096, 4096, &mut out).expect("bytes");
    reader.read(&packed.extent, 0, 4096, &mut out).expect("bytes");
    assert_eq!(memory.reads.load(Ordering::Relaxed), 2, "the second read of it was cached");
    assert!(reader.cached_bytes() > 8192);
}

/// A reader that comes by once keeps no memory; one that comes back to a frame, or goes on in it, finds it.
#[test]
fn a_raw_frame_is_kept_for_those_who_come_back() {
    let memory = Arc::new(Memory::default());
    let Stored { raw, extent } = store(&memory, 1, 1 << 20, Compression::None, false);
    let reader = reader(&memory, 16 << 20);
    let read = |from: u32, len: u32, access| {
        let before = memory.reads.load(Ordering::Relaxed);
        let bytes = read_bytes(&reader, &extent, from, len, access).expect("bytes");
        assert!(bytes == raw[from as usize..(from + len) as usize]);
        memory.reads.load(Ordering::Relaxed) - before
    };
    let frame = FRAME_SIZE as u32;
    assert_eq!(read(3 * frame + 4096, 4096, Access::Random), 2, "table and frame");
    let table_only = reader.cached_bytes();
    for other in [4, 9, 15, 0] {
        assert_eq!(read(other * frame, 4096, Access::Random), 1);
    }
    assert_eq!(reader.cached_bytes(), table_only, "nobody came back yet");
    assert_eq!(read(3 * frame, 4096, Access::Random), 1, "the second time it is kept");
    assert_eq!(read(3 * frame + 60_000, 5536, Access::Random), 0);
    assert_eq!(read(5 * frame, 4096, Access::Sequential), 1);
    assert_eq!(read(5 * frame + 4096, 4096, Access::Sequential), 0);
}

#[test]
fn whole_raw_frames_take_one_read_and_no_room_in_the_cache() {
    let memory = Arc::new(Memory::default());
    let Stored { raw, extent } = store(&memory, 1, (1 << 20) - 100, Compression::None, false);
    let reader = reader(&memory, 16 << 20);
    let reads = || memory.reads.load(Ordering::Relaxed);
    assert!(read_bytes(&reader, &extent, 0, extent.len, Access::Sequential).expect("bytes") == raw);
    assert_eq!(reads(), 2, "the table, and all frames");
    let table_only = reader.cached_bytes();
    assert!(read_bytes(&reader, &extent, 0, extent.len, Access::Nearby).expect("bytes") == raw);
    assert_eq!((reads(), reader.cached_bytes()), (3, table_only));
    let part = read_bytes(&reader, &extent, 1000, 300_000, Access::Random).expect("bytes");
    assert!(part == raw[1000..301_000]);
    assert_eq!(reads(), 6, "the first frame, the whole ones, the last frame");
}

#[test]
fn what_a_source_shares_is_not_copied_and_takes_one_read() {
    let memory = Arc::new(Memory { shares: Some(usize::MAX), ..Memory::default() });
    let Stored { raw, extent } = store(&memory, 1, (1 << 20) - 100, Compression::None, false);
    let reader = reader(&memory, 16 << 20);
    let reads = || memory.reads.load(Ordering::Relaxed);
    assert!(read_bytes(&reader, &extent, 0, extent.len, Access::Sequential).expect("bytes") == raw);
    assert_eq!(reads(), 1, "the table and all frames");
    let from = 2 * FRAME_SIZE as u32;
    let two = read_bytes(&reader, &extent, from, from, Access::Sequential).expect("bytes");
    assert!(two == raw[2 * FRAME_SIZE..4 * FRAME_SIZE]);
    assert_eq!(reads(), 2, "the table is known");
}

/// What is used again and again stays while a scan of ten times the cache goes by.
#[test]
fn a_scan_does_not_evict_what_is_used() {
    let memory = Arc::new(Memory::default());
    let hot = store(&memory, 2, 4 * FRAME_SIZE, Compression::Lz4, false);
    let cold: Vec<_> =
        (0..40).map(|seed| store(&memory, seed * 2 + 4, 16 * FRAME_SIZE, Compression::Lz4, false)).collect();
    let capacity = 4 << 20;
    let reader = reader(&memory, capacity);
    let mut out = Vec::new();
    let mut read_hot = || {
        out.clear();
        let before = memory.reads.load(Ordering::Relaxed);
        reader.read(&hot.extent, 0, hot.extent.len, &mut out).expect("bytes");
        assert!(out == hot.raw);
        memory.reads.load(Ordering::Relaxed) - before
    };
    let fetched: usize = (0..3).map(|_| read_hot()).sum();
    assert!(fetched > 0);
    let mut missed = 0;
    for stored in &cold {
        let mut out = Vec::new();
        reader.read(&stored.extent, 0, stored.extent.len, &mut out).expect("bytes");
        assert!(reader.cached_bytes() <= capacity);
        missed += usize::from(read_hot() > 0);
    }
    assert!(missed <= 4, "the hot run was fetched again {missed} times in 40");
}

#[test]
fn errors_tell_what_is_wrong() {
    let memory = Arc::new(Memory::default());
    let Stored { extent, .. } = store(&memory, 2, 1000, Compression::Lz4, true);
    let mut out = Vec::new();
    let keyless = RunReader::new(Arc::clone(&memory) as Arc<dyn SegmentSource>, Arc::default(), 1 << 20);
    let sealed = keyless.read(&extent, 0, 10, &mut out);
    assert!(matches!(sealed, Err(ReadError::Sealed { segment: SEGMENT, .. })), "{sealed:?}");
    assert!(memory.distrusted.lock().is_empty(), "a missing key is not the source's fault");
    let reader = reader(&memory, 1 << 20);
    let missing = reader.read(&Extent { segment: SegmentId(9), ..extent }, 0, 10, &mut out);
    assert!(matches!(missing, Err(ReadError::Source(SourceError::NotFound { .. }))), "{missing:?}");
    for (from, len) in [(0, 1001), (1000, 1), (u32::MAX, u32::MAX)] {
        let outside = reader.read(&extent, from, len, &mut out);
        assert!(matches!(outside, Err(ReadError::OutOfRange { .. })), "{outside:?}");
    }
    let short = reader.read(&Extent { run_offset: 1 << 40, ..extent }, 0, 10, &mut out);
    assert!(matches!(short, Err(ReadError::Corrupt { .. })), "{short:?}");
    assert!(out.is_empty());
}

/// An extent that contradicts its run is refused, whatever it says.
#[test]
fn a_wrong_extent_is_refused() {
    let memory = Arc::new(Memory::default());
    let Stored { extent, .. } = store(&memory, 2, 3 * FRAME_SIZE, Compression::Lz4, false);
    let reader = reader(&memory, 1 << 20);
    let mut out = Vec::new();
    reader.read(&extent, 0, extent.len, &mut out).expect("bytes");
    for wrong in [
        Extent { check: !extent.check, ..extent },
        Extent { form: 1, check: 1, ..extent },
        Extent { form: 77, check: 2, ..extent },
        Extent { stored_len: 3, check: 3, ..extent },
        Extent { run_offset: extent.run_offset + 1, ..extent },
        Extent { run_offset: u64::MAX, ..extent },
    ] {
        let refused = reader.read(&wrong, 0, 100, &mut out);
        assert!(matches!(refused, Err(ReadError::Corrupt { .. })), "{wrong:?}: {refused:?}");
    }
    // No memory is taken for a run that cannot be as long as this one says.
    let endless = Extent { stored_len: u32::MAX, len: 100, run_len: 100, check: 4, ..extent };
    let (before, refused) = (memory.reads.load(Ordering::Relaxed), reader.read(&endless, 0, 100, &mut out));
    assert!(matches!(refused, Err(ReadError::Corrupt { .. })), "{refused:?}");
    assert_eq!(memory.reads.load(Ordering::Relaxed), before);
    // A longer run under the same checksum: the cached table has no such frames.
    let longer = Extent { run_len: 9 * FRAME_SIZE as u32, len: 9 * FRAME_SIZE as u32, ..extent };
    assert!(reader.read(&longer, 8 * FRAME_SIZE as u32, 10, &mut out).is_err());
    assert!(out.len() == extent.len as usize);
}
