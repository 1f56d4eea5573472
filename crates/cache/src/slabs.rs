//! Chunks in slab files: a table of headers, then as many payloads of a fixed size.
//!
//! Payload before header. A slot that is used anew has, until its header is written, the old header over parts of the
//! new payload; whichever of the two writes a crash leaves behind, a grain that is not the one its header was made
//! for does not check.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use forebay_env::buffers::{Buffer, Buffers};

use crate::{
    CHUNK_BYTES, CacheError,
    header::{ChunkHeader, GRAIN_BYTES, HEADER_BYTES},
    storage::{Fault, Run},
};

/// Slots of one file: 4 GiB of payload, so that a cache of a terabyte has 256 files open.
pub(crate) const SLAB_SLOTS: u32 = 16 * 1024;
const TABLE_BYTES: u64 = SLAB_SLOTS as u64 * HEADER_BYTES as u64;
/// What the marker, the lock and the last, partly used block of headers take.
const FIXED_BYTES: u64 = 16 * 1024;
/// A slot's payload, its header, and its share in the partly used block of headers of a full slab.
const SLOT_COST: u64 = CHUNK_BYTES + HEADER_BYTES as u64 + 1;
/// As many as 512 TiB of cache have; 32 bits would do for four times that.
const MAX_SLOTS: u64 = 1 << 31;

/// Bytes of idle buffers that are kept of each size.
const IDLE_MAX: usize = 8 << 20;

/// How many slots fit in `capacity` bytes of disk.
pub(crate) fn slots_in(capacity: u64) -> u32 {
    (capacity.saturating_sub(FIXED_BYTES) / SLOT_COST).min(MAX_SLOTS) as u32
}

/// The name of slab `number`.
fn slab_name(number: u32) -> String {
    format!("slab-{number:05}.chunks")
}

/// The number of the slab named `name`, if it is the name of one.
fn slab_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("slab-")?.strip_suffix(".chunks")?.parse().ok()?;
    (slab_name(number) == name).then_some(number)
}

/// The open slab files.
pub(crate) struct Slabs {
    files: Vec<File>,
    /// What is read comes in these.
    buffers: Arc<Buffers>,
}

impl Slabs {
    /// Opens or makes the slabs of `dir`, whose lock the caller has, and gives back the room of those above `slots`.
    pub(crate) fn open(dir: &Path, slots: u32) -> Result<Slabs, CacheError> {
        let count = slots.div_ceil(SLAB_SLOTS);
        for number in slabs_of(dir)?.into_iter().filter(|&number| number >= count) {
            let path = dir.join(slab_name(number));
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
        let open = |number| {
            let path = dir.join(slab_name(number));
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(&path).map_err(io_error("open", &path)).map(|file| (path, file))
        };
        let mut files = Vec::with_capacity(count as usize);
        for number in 0..count {
            let (path, file) = open(number)?;
            let end = payload_offset((slots - number * SLAB_SLOTS).min(SLAB_SLOTS));
            if file.metadata().map_err(io_error("look at", &path))?.len() > end {
                file.set_len(end).map_err(io_error("shorten", &path))?;
            }
            files.push(file);
        }
        Ok(Slabs { files, buffers: Buffers::new(IDLE_MAX) })
    }

    /// Calls `found` for each slot with a header that checks and a payload that lies in the file. The payload itself is
    /// verified when it is read. A table that cannot be read, or only in part, has no chunks from there on.
    pub(crate) fn recover(&self, mut found: impl FnMut(u32, &ChunkHeader)) {
        for (file, first) in self.files.iter().zip((0..).step_by(SLAB_SLOTS as usize)) {
            let end = file.metadata().map_or(0, |metadata| metadata.len());
            let held = end.saturating_sub(TABLE_BYTES).div_ceil(CHUNK_BYTES).min(u64::from(SLAB_SLOTS));
            let mut table = vec![0; held as usize * HEADER_BYTES];
            if let Err(error) = file.read_exact_at(&mut table, 0) {
                tracing::warn!(%error, slab = first / SLAB_SLOTS, "a cache slab cannot be read; its chunks are lost");
                continue;
            }
            for (slot, header) in (0..).zip(table.chunks_exact(HEADER_BYTES)) {
                let Some(header) = ChunkHeader::decode(header) else { continue };
                if payload_offset(slot) + u64::from(header.end()) <= end {
                    found(first + slot, &header);
                }
            }
        }
    }

    /// The file that slot `slot` is in, and its number there.
    fn slab(&self, slot: u32) -> io::Result<(&File, u32)> {
        let file = self.files.get((slot / SLAB_SLOTS) as usize);
        Ok((file.ok_or(io::ErrorKind::NotFound)?, slot % SLAB_SLOTS))
    }

    /// Writes `part` of a chunk, from its byte `at` on; then the header.
    pub(crate) fn write(&self, slot: u32, header: &ChunkHeader, at: u32, part: &[u8]) -> io::Result<()> {
        let (file, place) = self.slab(slot)?;
        file.write_all_at(part, payload_offset(place) + u64::from(at))?;
        file.write_all_at(&header.encode(), header_offset(place))
    }

    /// The header of a slot, if it is one.
    pub(crate) fn header(&self, slot: u32) -> io::Result<Option<ChunkHeader>> {
        let (file, place) = self.slab(slot)?;
        Ok(ChunkHeader::decode(&self.read_at(file, HEADER_BYTES, header_offset(place))?))
    }

    pub(crate) fn erase(&self, slot: u32) -> io::Result<()> {
        let (file, place) = self.slab(slot)?;
        file.write_all_at(&[0; HEADER_BYTES], header_offset(place))
    }

    /// The bytes `range` of the object, which lie in the run: one request for the headers, one for the payloads.
    pub(crate) fn read(&self, run: &Run, range: &Range<u64>) -> Result<Bytes, Fault> {
        let failed = |source| Fault { chunks: run.chunks().collect(), source: Some(source) };
        let (file, place) = self.slab(run.slot()).map_err(failed)?;
        let headers =
            self.read_at(file, run.found.len() * HEADER_BYTES, header_offset(place)).map_err(failed)?;

        let whole = run.object.bytes(&run.chunks());
        let grain = GRAIN_BYTES as u64;
        let start = range.start / grain * grain;
        let end = range.end.next_multiple_of(grain).min(whole.end);
        let payload =
            self.read_at(file, (end - start) as usize, payload_offset(place) + (start - whole.start));
        let payload = payload.map_err(failed)?;

        let mut wrong = Vec::new();
        for (index, header) in run.chunks().zip(headers.chunks_exact(HEADER_BYTES)) {
            let chunk = run.object.bytes(&(index..index + 1));
            let part = chunk.start.max(start)..chunk.end.min(end);
            let bytes = &payload[(part.start - start) as usize..(part.end - start) as usize];
            let checks = ChunkHeader::decode(header).is_some_and(|header| {
                header.key == run.object.chunk(index)
                    && u64::from(header.len) == chunk.end - chunk.start
                    && header.verifies((part.start - chunk.start) as usize, bytes)
            });
            if !checks {
                wrong.push(index);
            }
        }
        if !wrong.is_empty() {
            return Err(Fault { chunks: wrong, source: None });
        }
        Ok(payload.freeze().slice((range.start - start) as usize..(range.end - start) as usize))
    }

    /// Exactly `len` bytes from `offset`.
    fn read_at(&self, file: &File, len: usize, offset: u64) -> io::Result<Buffer> {
        let mut bytes = self.buffers.take(len);
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

fn header_offset(place: u32) -> u64 {
    u64::from(place) * HEADER_BYTES as u64
}

fn payload_offset(place: u32) -> u64 {
    TABLE_BYTES + u64::from(place) * CHUNK_BYTES
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path: PathBuf = path.to_owned();
    move |source| CacheError::Io { action, path, source }
}

/// Numbers of the slabs in `dir`.
fn slabs_of(dir: &Path) -> Result<Vec<u32>, CacheError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        numbers.extend(name.to_str().and_then(slab_number));
    }
    Ok(numbers)
}
