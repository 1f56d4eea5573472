//! The footer of a segment and of an object: what is in it, found from its end.
//!
//! ```text
//! [segment body]… [body of the footer] [tail: 32 bytes]
//! tail = magic:8 version:u32 footer length:u32 CRC32C of the footer:u32 reserved:u32 CRC32C of the 24 bytes before:u32 reserved:u32
//! ```
//!
//! A sealed segment file is an object of one segment; an object of several is their bodies one after the other and one footer for all.

use forebay_types::{Generation, Ino, SegmentId, SubvolumeId, VolumeId};

use crate::{Decoder, Encoder, FormatError};

/// Bytes at the end of an object from which the footer is found.
pub const TAIL_LEN: usize = 32;
const MAGIC: &[u8; 8] = b"FBobject";
const VERSION: u32 = 1;
const WHAT: &str = "an object's footer";

/// One run of a segment: the block that it was written for, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunEntry {
    /// The subvolume it was written in.
    pub subvolume: SubvolumeId,
    /// The generation it was written in.
    pub generation: Generation,
    /// The inode.
    pub ino: Ino,
    /// The block of the inode.
    pub block: u32,
    /// Where in the block the run starts.
    pub offset: u32,
    /// Raw bytes.
    pub run_len: u32,
    /// Where in the segment the run is.
    pub run_offset: u64,
    /// Bytes as stored.
    pub stored_len: u32,
    /// Its form.
    pub form: u8,
    /// CRC32C of its head and frame table.
    pub check: u32,
}

/// One segment of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentEntry {
    /// Which one.
    pub id: SegmentId,
    /// Where its body starts in the object.
    pub offset: u64,
    /// Bytes of its body.
    pub len: u64,
    /// Its runs, in any order.
    pub runs: Vec<RunEntry>,
}

/// What is in an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The volume it belongs to.
    pub volume: VolumeId,
    /// Its segments, by offset.
    pub segments: Vec<SegmentEntry>,
}

impl Footer {
    /// Appends the footer and the tail.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let to = &mut Encoder(out);
        to.0.extend_from_slice(&self.volume.0);
        to.varint(self.segments.len() as u64);
        for segment in &self.segments {
            to.varint(segment.id.0);
            to.varint(segment.offset);
            to.varint(segment.len);
            to.varint(segment.runs.len() as u64);
            segment.runs.iter().for_each(|run| put_run(run, to));
        }
        let len = out.len() - start;
        let crc = crc32c::crc32c(&out[start..]);
        let tail = out.len();
        let to = &mut Encoder(out);
        to.0.extend_from_slice(MAGIC);
        to.u32(VERSION);
        to.u32(len as u32);
        to.u32(crc);
        to.u32(0);
        let crc = crc32c::crc32c(&to.0[tail..]);
        to.u32(crc);
        to.u32(0);
    }

    /// Bytes of the footer before the tail, as the tail (the last [`TAIL_LEN`] bytes of an object) tells.
    ///
    /// # Errors
    /// [`FormatError`] where the tail is none.
    pub fn len_from_tail(tail: &[u8; TAIL_LEN]) -> Result<usize, FormatError> {
        Ok(take_tail(tail)?.0)
    }

    /// Reads the footer from its bytes and the tail's.
    ///
    /// # Errors
    /// [`FormatError`] where anything does not fit.
    pub fn decode(body: &[u8], tail: &[u8; TAIL_LEN]) -> Result<Footer, FormatError> {
        let (len, expected) = take_tail(tail)?;
        let found = crc32c::crc32c(body);
        if len != body.len() {
            return Err(FormatError::Truncated { what: WHAT });
        }
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, expected, found });
        }
        let mut from = Decoder::new(body, WHAT);
        let volume = VolumeId(from.array()?);
        let mut segments = Vec::new();
        for _ in 0..from.varint()? {
            let (id, offset, len) = (SegmentId(from.varint()?), from.varint()?, from.varint()?);
            let mut runs = Vec::new();
            for _ in 0..from.varint()? {
                runs.push(take_run(&mut from)?);
            }
            segments.push(SegmentEntry { id, offset, len, runs });
        }
        from.end()?;
        Ok(Footer { volume, segments })
    }
}

fn take_tail(tail: &[u8; TAIL_LEN]) -> Result<(usize, u32), FormatError> {
    let mut from = Decoder::new(tail, WHAT);
    if &from.array::<8>()? != MAGIC {
        return Err(FormatError::invalid(WHAT, "these bytes are no object of Forebay"));
    }
    let (version, len, crc) = (from.u32()?, from.u32()?, from.u32()?);
    from.u32()?;
    let expected = from.u32()?;
    let found = crc32c::crc32c(&tail[..24]);
    if found != expected {
        return Err(FormatError::Checksum { what: WHAT, expected, found });
    }
    if version != VERSION {
        return Err(FormatError::Version { what: WHAT, found: version, supported: VERSION });
    }
    if from.u32()? != 0 {
        return Err(FormatError::invalid(WHAT, "bytes that must be zero are not"));
    }
    Ok((len as usize, crc))
}

fn put_run(run: &RunEntry, to: &mut Encoder<'_>) {
    to.varint(u64::from(run.subvolume.0));
    to.varint(u64::from(run.generation.0));
    to.varint(run.ino.0);
    to.varint(u64::from(run.block));
    to.varint(u64::from(run.offset));
    to.varint(u64::from(run.run_len));
    to.varint(run.run_offset);
    to.varint(u64::from(run.stored_len));
    to.u8(run.form);
    to.u32(run.check);
}

fn take_run(from: &mut Decoder<'_>) -> Result<RunEntry, FormatError> {
    Ok(RunEntry {
        subvolume: SubvolumeId(from.varint32()?),
        generation: Generation(from.varint32()?),
        ino: Ino(from.varint()?),
        block: from.varint32()?,
        offset: from.varint32()?,
        run_len: from.varint32()?,
        run_offset: from.varint()?,
        stored_len: from.varint32()?,
        form: from.u8()?,
        check: from.u32()?,
    })
}
