//! The head before each run of a stream, so that a stream that was never sealed can be listed after a crash.
//!
//! ```text
//! head = magic:u32 version:u8 form:u8 zero:u16 segment:u64 run's offset in the file:u64 subvolume:u32 generation:u32 inode:u64 block:u32
//!        offset in block:u32 raw length:u32 stored length:u32 CRC32C of the run's head and frame table:u32 CRC32C of the 60 bytes before:u32
//! ```
//!
//! All numbers are little-endian. The run follows its head, the next head follows the run. Segment and offset tie a head to its place, so
//! bytes of a file that happen to be copied from another stream are not taken for heads.

use forebay_types::{Generation, Ino, SegmentId, SubvolumeId};

use crate::{Decoder, FormatError, footer::RunEntry};

/// Bytes before each run of a stream.
pub const STREAM_HEAD_LEN: usize = 64;
const MAGIC: u32 = 0x4652_554e;
const VERSION: u8 = 1;
const WHAT: &str = "the head of a run in a stream";

/// The bytes of the head for `run`, whose offset is its place in the file of `segment` (64 bytes after the head's).
#[must_use]
pub fn encode(segment: SegmentId, run: &RunEntry) -> [u8; STREAM_HEAD_LEN] {
    let mut head = [0; STREAM_HEAD_LEN];
    head[..4].copy_from_slice(&MAGIC.to_le_bytes());
    head[4] = VERSION;
    head[5] = run.form;
    head[8..16].copy_from_slice(&segment.0.to_le_bytes());
    head[16..24].copy_from_slice(&run.run_offset.to_le_bytes());
    head[24..28].copy_from_slice(&run.subvolume.0.to_le_bytes());
    head[28..32].copy_from_slice(&run.generation.0.to_le_bytes());
    head[32..40].copy_from_slice(&run.ino.0.to_le_bytes());
    head[40..44].copy_from_slice(&run.block.to_le_bytes());
    head[44..48].copy_from_slice(&run.offset.to_le_bytes());
    head[48..52].copy_from_slice(&run.run_len.to_le_bytes());
    head[52..56].copy_from_slice(&run.stored_len.to_le_bytes());
    head[56..60].copy_from_slice(&run.check.to_le_bytes());
    let crc = crc32c::crc32c(&head[..60]);
    head[60..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Reads the head at `at` of the file of `segment`.
///
/// # Errors
/// [`FormatError`] where there is none, or one that belongs elsewhere.
pub fn decode(bytes: &[u8], segment: SegmentId, at: u64) -> Result<RunEntry, FormatError> {
    let mut from = Decoder::new(bytes, WHAT);
    let (magic, version, form) = (from.u32()?, from.u8()?, from.u8()?);
    let zero = from.array::<2>()?;
    let (found_segment, run_offset) = (SegmentId(from.u64()?), from.u64()?);
    let run = RunEntry {
        subvolume: SubvolumeId(from.u32()?),
        generation: Generation(from.u32()?),
        ino: Ino(from.u64()?),
        block: from.u32()?,
        offset: from.u32()?,
        run_len: from.u32()?,
        stored_len: from.u32()?,
        check: from.u32()?,
        run_offset,
        form,
    };
    let expected = from.u32()?;
    if magic != MAGIC {
        return Err(FormatError::invalid(WHAT, "it does not begin as one"));
    }
    let found = crc32c::crc32c(&bytes[..60]);
    if found != expected {
        return Err(FormatError::Checksum { what: WHAT, expected, found });
    }
    if version != VERSION {
        let (found, supported) = (u32::from(version), u32::from(VERSION));
        return Err(FormatError::Version { what: WHAT, found, supported });
    }
    if found_segment != segment
        || Some(run_offset) != at.checked_add(STREAM_HEAD_LEN as u64)
        || zero != [0; 2]
    {
        let detail = format!("it is for {run_offset} of segment {found_segment}");
        return Err(FormatError::invalid(WHAT, detail));
    }
    Ok(run)
}
