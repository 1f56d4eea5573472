//! The journal's bytes: a file head, then records.
//!
//! ```text
//! head   = magic:8 version:u32 volume:16 file's segment:u64 epoch:u64 first sequence:u64 CRC32C of the 52 bytes before:u32 zeros to 64
//! record = magic:u32 data length:u32 changes length:u32 CRC32C of changes:u32 sequence:u64 epoch:u64 CRC32C of data:u32
//!          CRC32C of the 36 bytes before:u32, then data, then changes
//! ```
//!
//! A record may say up to which record all was on stable storage when it was appended: among its live bytes, segment 0, which is none, has
//! that sequence instead of bytes.
//!
//! The data of a record are runs (see [`crate::run`]): the file is the segment that extent rows name, and a run's offset is its place in the
//! file. The changes are rows put or deleted, live bytes added to or taken from segments, and the stream runs that must be on
//! disk for the record to count. A record is valid only where its checksums, its epoch and its sequence fit.

use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};

use crate::{Decoder, Encoder, FormatError};

/// Bytes before the first record of a file.
pub const FILE_HEAD_LEN: usize = 64;
/// Bytes of a record before its data.
pub const RECORD_HEAD_LEN: usize = 40;
/// Most bytes of a record's data or changes; a longer claim is damage.
pub const PART_MAX: u32 = 1 << 30;
/// The four bytes that every record begins with.
pub const RECORD_MAGIC_BYTES: [u8; 4] = RECORD_MAGIC.to_le_bytes();
const FILE_MAGIC: &[u8; 8] = b"FBjrnl\r\n";
const RECORD_MAGIC: u32 = 0x4652_4543;
const VERSION: u32 = 1;
const WHAT: &str = "a journal record";
/// Whose live bytes are the last durable record.
const DURABLE: SegmentId = SegmentId(0);

/// The head of a journal file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// The volume.
    pub volume: VolumeId,
    /// The segment that this file is.
    pub segment: SegmentId,
    /// The epoch of the owner that writes it.
    pub epoch: Epoch,
    /// The sequence of its first record.
    pub first: Sequence,
}

impl FileHead {
    /// The head's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEAD_LEN] {
        let mut bytes = Vec::with_capacity(FILE_HEAD_LEN);
        let mut to = Encoder(&mut bytes);
        to.0.extend_from_slice(FILE_MAGIC);
        to.u32(VERSION);
        to.0.extend_from_slice(&self.volume.0);
        to.u64(self.segment.0);
        to.u64(self.epoch.0);
        to.u64(self.first.0);
        let crc = crc32c::crc32c(to.0);
        to.u32(crc);
        let mut head = [0; FILE_HEAD_LEN];
        head[..bytes.len()].copy_from_slice(&bytes);
        head
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FormatError`] where it is none.
    pub fn decode(bytes: &[u8]) -> Result<FileHead, FormatError> {
        const WHAT: &str = "a journal file";
        let mut from = Decoder::new(bytes, WHAT);
        if &from.array::<8>()? != FILE_MAGIC {
            return Err(FormatError::invalid(WHAT, "it does not begin as one"));
        }
        let version = from.u32()?;
        let head = FileHead {
            volume: VolumeId(from.array()?),
            segment: SegmentId(from.u64()?),
            epoch: Epoch(from.u64()?),
            first: Sequence(from.u64()?),
        };
        let expected = from.u32()?;
        let found = crc32c::crc32c(&bytes[..52]);
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, expected, found });
        }
        if version != VERSION {
            return Err(FormatError::Version { what: WHAT, found: version, supported: VERSION });
        }
        if from.array::<{ FILE_HEAD_LEN - 56 }>()? != [0; FILE_HEAD_LEN - 56] {
            return Err(FormatError::invalid(WHAT, "bytes that must be zero are not"));
        }
        Ok(head)
    }

    /// Whether anything of the head of this file is in `bytes`: they are a damaged head then, and not a sector to which none was ever written.
    #[must_use]
    pub fn is_remnant(bytes: &[u8], volume: VolumeId, segment: SegmentId) -> bool {
        let has = |at: usize, field: &[u8]| bytes.get(at..at + field.len()) == Some(field);
        has(0, FILE_MAGIC) || has(12, &volume.0) || has(28, &segment.0.to_le_bytes())
    }
}

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Bytes of data that follow.
    pub data_len: u32,
    /// Bytes of changes that follow the data.
    pub changes_len: u32,
    /// Its place in the journal's order.
    pub sequence: Sequence,
    /// The epoch of its writer.
    pub epoch: Epoch,
    data_crc: u32,
    changes_crc: u32,
}

impl RecordHead {
    /// The head for these parts.
    #[must_use]
    pub fn new(sequence: Sequence, epoch: Epoch, data: &[u8], changes: &[u8]) -> RecordHead {
        let data = (data.len() as u32, RecordHead::data_crc(data));
        RecordHead::with_data_crc(sequence, epoch, data, changes)
    }

    /// The checksum of a record's data, for [`RecordHead::with_data_crc`].
    #[must_use]
    pub fn data_crc(data: &[u8]) -> u32 {
        crc32c::crc32c(data)
    }

    /// The head for data of which length and checksum are known already.
    #[must_use]
    pub fn with_data_crc(sequence: Sequence, epoch: Epoch, data: (u32, u32), changes: &[u8]) -> RecordHead {
        let (data_len, data_crc) = data;
        let changes_crc = crc32c::crc32c(changes);
        RecordHead { data_len, changes_len: changes.len() as u32, sequence, epoch, data_crc, changes_crc }
    }

    /// The head's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEAD_LEN] {
        let mut head = [0; RECORD_HEAD_LEN];
        head[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&self.data_len.to_le_bytes());
        head[8..12].copy_from_slice(&self.changes_len.to_le_bytes());
        head[12..16].copy_from_slice(&self.changes_crc.to_le_bytes());
        head[16..24].copy_from_slice(&self.sequence.0.to_le_bytes());
        head[24..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[32..36].copy_from_slice(&self.data_crc.to_le_bytes());
        let crc = crc32c::crc32c(&head[..36]);
        head[36..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// Reads a head; its parts are to be checked with [`RecordHead::check`].
    ///
    /// # Errors
    /// [`FormatError`] where it is none.
    pub fn decode(bytes: &[u8]) -> Result<RecordHead, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        let magic = from.u32()?;
        let (data_len, changes_len, changes_crc) = (from.u32()?, from.u32()?, from.u32()?);
        let (sequence, epoch) = (Sequence(from.u64()?), Epoch(from.u64()?));
        let (data_crc, expected) = (from.u32()?, from.u32()?);
        if magic != RECORD_MAGIC {
            return Err(FormatError::invalid(WHAT, "it does not begin as one"));
        }
        let found = crc32c::crc32c(&bytes[..36]);
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, expected, found });
        }
        if data_len > PART_MAX || changes_len > PART_MAX {
            return Err(FormatError::invalid(WHAT, "it is longer than any"));
        }
        Ok(RecordHead { data_len, changes_len, sequence, epoch, data_crc, changes_crc })
    }

    /// Checks data and changes against the head.
    ///
    /// # Errors
    /// [`FormatError`] where they are not the ones that were written.
    pub fn check(&self, data: &[u8], changes: &[u8]) -> Result<(), FormatError> {
        for (bytes, len, expected) in
            [(data, self.data_len, self.data_crc), (changes, self.changes_len, self.changes_crc)]
        {
            if bytes.len() != len as usize {
                return Err(FormatError::Truncated { what: WHAT });
            }
            let found = crc32c::crc32c(bytes);
            if found != expected {
                return Err(FormatError::Checksum { what: WHAT, expected, found });
            }
        }
        Ok(())
    }
}

/// A run in a stream that has to be on disk for a record to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRun {
    /// The stream.
    pub segment: SegmentId,
    /// Where the run starts.
    pub run_offset: u64,
    /// Bytes as stored.
    pub stored_len: u32,
    /// Raw bytes.
    pub run_len: u32,
    /// The form of the run.
    pub form: u8,
    /// CRC32C of its head and frame table.
    pub check: u32,
}

/// What a record changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Rows: key, and the value put or `None` for a row deleted. Later ones win.
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Live bytes added to segments (negative: taken). What segment 0 has is no such count: see [`Changes::durable`].
    pub live: Vec<(SegmentId, i64)>,
    /// Stream runs that must be on disk.
    pub streams: Vec<StreamRun>,
}

impl Changes {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.live.is_empty() && self.streams.is_empty()
    }

    /// The record up to which all was on stable storage when this one was appended; 0 where it does not say.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        let mark = self.live.iter().find(|(segment, _)| *segment == DURABLE);
        Sequence(mark.map_or(0, |(_, sequence)| sequence.unsigned_abs()))
    }

    /// Appends the changes' bytes.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        self.encode_marked_to(None, out);
    }

    /// Appends the changes' bytes, and says that all records up to `durable` are on stable storage.
    pub fn encode_marked_to(&self, durable: Option<Sequence>, out: &mut Vec<u8>) {
        let to = &mut Encoder(out);
        to.varint(self.rows.len() as u64);
        for (key, value) in &self.rows {
            to.bytes(key);
            match value {
                None => to.varint(0),
                Some(value) => {
                    to.varint(value.len() as u64 + 1);
                    to.0.extend_from_slice(value);
                }
            }
        }
        let mark = durable.map(|sequence| (DURABLE, sequence.0 as i64));
        to.varint((self.live.len() + usize::from(mark.is_some())) as u64);
        for (segment, bytes) in self.live.iter().chain(&mark) {
            to.varint(segment.0);
            to.signed(*bytes);
        }
        to.varint(self.streams.len() as u64);
        for run in &self.streams {
            to.varint(run.segment.0);
            to.varint(run.run_offset);
            to.varint(u64::from(run.stored_len));
            to.varint(u64::from(run.run_len));
            to.u8(run.form);
            to.u32(run.check);
        }
    }

    /// Reads changes.
    ///
    /// # Errors
    /// [`FormatError`] where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Changes, FormatError> {
        let mut from = Decoder::new(bytes, "the changes of a journal record");
        let mut changes = Changes::default();
        for _ in 0..from.varint()? {
            let key = from.bytes()?.to_vec();
            let value = match from.varint()? {
                0 => None,
                more => Some(from.take(usize::try_from(more - 1).unwrap_or(usize::MAX))?.to_vec()),
            };
            changes.rows.push((key, value));
        }
        for _ in 0..from.varint()? {
            changes.live.push((SegmentId(from.varint()?), from.signed()?));
        }
        for _ in 0..from.varint()? {
            changes.streams.push(StreamRun {
                segment: SegmentId(from.varint()?),
                run_offset: from.varint()?,
                stored_len: from.varint32()?,
                run_len: from.varint32()?,
                form: from.u8()?,
                check: from.u32()?,
            });
        }
        from.end()?;
        Ok(changes)
    }
}
