//! The bytes of the log of a proxy group's member: a file head, then records.
//!
//! ```text
//! file   = magic:8 version:u32 member:16 group:16 number:u64 incarnation:16 position of the first record:u64 CRC32C of the 76 bytes before:u32
//!          zeros to 4096
//! record = magic:u32 kind:u8 unsynced:u24 volume:16 segment:u64 epoch:u64 offset:u64 length:u32 CRC32C of the bytes:u32
//!          low half of the position:u32 CRC32C of incarnation and the 60 bytes before:u32, then the bytes, then zeros to a multiple of 64
//! ```
//!
//! The checksum of a record's head begins with its file's incarnation, which is random: bytes that somebody stores, a copy of a log among them, cannot be
//! taken for a record. *Unsynced* says up to where all was on stable storage when the record was appended: so many blocks before the one in which it begins. What
//! that covers and cannot be read is damage; what nothing covers may be a torn tail.

use forebay_types::{Epoch, SegmentId, VolumeId};

use crate::{Decoder, Encoder, FormatError};

/// Bytes before the first record of a file.
pub const FILE_HEAD_LEN: usize = 4096;
/// Bytes of a record before its bytes, and what records are aligned to.
pub const RECORD_HEAD_LEN: usize = 64;
/// A write begins and ends at a multiple of this.
pub const BLOCK: u64 = 4096;
/// Most bytes of a record: a longer claim is damage.
pub const BYTES_MAX: u32 = 8 << 20;
/// The four bytes that every record begins with.
pub const RECORD_MAGIC_BYTES: [u8; 4] = RECORD_MAGIC.to_le_bytes();
const FILE_MAGIC: &[u8; 8] = b"FBplog\r\n";
const RECORD_MAGIC: u32 = 0x474c_4246;
const VERSION: u32 = 1;
const UNSYNCED_MAX: u64 = (1 << 24) - 1;
const WHAT: &str = "a record of a member's log";

/// The head of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// The member whose log it is.
    pub member: [u8; 16],
    /// Its group.
    pub group: [u8; 16],
    /// The file's number, as in its name.
    pub number: u64,
    /// Who writes it.
    pub incarnation: [u8; 16],
    /// The position of its first record in the whole log.
    pub first: u64,
}

impl FileHead {
    /// The head's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FILE_HEAD_LEN);
        let mut to = Encoder(&mut bytes);
        to.0.extend_from_slice(FILE_MAGIC);
        to.u32(VERSION);
        to.0.extend_from_slice(&self.member);
        to.0.extend_from_slice(&self.group);
        to.u64(self.number);
        to.0.extend_from_slice(&self.incarnation);
        to.u64(self.first);
        let crc = crc32c::crc32c(to.0);
        to.u32(crc);
        bytes.resize(FILE_HEAD_LEN, 0);
        bytes
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FormatError`] where it is none.
    pub fn decode(bytes: &[u8]) -> Result<FileHead, FormatError> {
        const WHAT: &str = "a file of a member's log";
        let mut from = Decoder::new(bytes, WHAT);
        if &from.array::<8>()? != FILE_MAGIC {
            return Err(FormatError::invalid(WHAT, "it does not begin as one"));
        }
        let version = from.u32()?;
        let head = FileHead {
            member: from.array()?,
            group: from.array()?,
            number: from.u64()?,
            incarnation: from.array()?,
            first: from.u64()?,
        };
        let expected = from.u32()?;
        let found = crc32c::crc32c(&bytes[..76]);
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, expected, found });
        }
        if version != VERSION {
            return Err(FormatError::Version { what: WHAT, found: version, supported: VERSION });
        }
        let rest = from.array::<{ FILE_HEAD_LEN - 80 }>()?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(FormatError::invalid(WHAT, "bytes that must be zero are not"));
        }
        Ok(head)
    }
}

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Bytes of a segment, which follow.
    Append,
    /// Nothing of a lower epoch is taken.
    Fence,
    /// The segment ends here.
    Seal,
    /// Nothing of the segment is needed.
    Drop,
    /// The member has acknowledged a view.
    View,
    /// Records between two positions could not be read: nobody knows of which segments they were.
    Lost,
    /// Bytes of a segment that were in the log before and are there anew; they follow.
    Again,
}

impl RecordKind {
    const ALL: [RecordKind; 7] = [
        RecordKind::Append,
        RecordKind::Fence,
        RecordKind::Seal,
        RecordKind::Drop,
        RecordKind::View,
        RecordKind::Lost,
        RecordKind::Again,
    ];

    fn number(self) -> u8 {
        match self {
            RecordKind::Append => 1,
            RecordKind::Fence => 2,
            RecordKind::Seal => 3,
            RecordKind::Drop => 4,
            RecordKind::View => 5,
            RecordKind::Lost => 6,
            RecordKind::Again => 7,
        }
    }

    /// Whether bytes follow.
    #[must_use]
    pub fn has_bytes(self) -> bool {
        matches!(self, RecordKind::Append | RecordKind::Again)
    }
}

/// The head of a record. Fields that its kind has no use for are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// What it says.
    pub kind: RecordKind,
    /// Up to here all was on stable storage when it was appended, rounded down to a block; 0 where that is too far back to be said.
    pub synced: u64,
    /// The volume.
    pub volume: VolumeId,
    /// The segment.
    pub segment: SegmentId,
    /// Its epoch; of a view its epoch; of lost records the position of the first.
    pub epoch: Epoch,
    /// Where the bytes are in the segment; the length that a seal says; of lost records the position after the last.
    pub offset: u64,
    /// How many bytes follow.
    pub len: u32,
    /// CRC32C of them; of a seal, of the whole segment.
    pub check: u32,
}

impl RecordHead {
    /// Its bytes, at this position in a file of this incarnation.
    #[must_use]
    pub fn encode(&self, incarnation: &[u8; 16], position: u64) -> [u8; RECORD_HEAD_LEN] {
        let mut bytes = Vec::with_capacity(RECORD_HEAD_LEN);
        let mut to = Encoder(&mut bytes);
        let behind = (position / BLOCK).saturating_sub(self.synced / BLOCK).min(UNSYNCED_MAX);
        to.u32(RECORD_MAGIC);
        to.u32((behind as u32) << 8 | u32::from(self.kind.number()));
        to.0.extend_from_slice(&self.volume.0);
        to.u64(self.segment.0);
        to.u64(self.epoch.0);
        to.u64(self.offset);
        to.u32(self.len);
        to.u32(self.check);
        to.u32(position as u32);
        let crc = head_crc(incarnation, to.0);
        to.u32(crc);
        let mut head = [0; RECORD_HEAD_LEN];
        head.copy_from_slice(&bytes);
        head
    }

    /// Reads the head of the record at this position in a file of this incarnation.
    ///
    /// # Errors
    /// [`FormatError`] where there is none.
    pub fn decode(bytes: &[u8], incarnation: &[u8; 16], position: u64) -> Result<RecordHead, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        if from.u32()? != RECORD_MAGIC {
            return Err(FormatError::invalid(WHAT, "it does not begin as one"));
        }
        let kind = from.u32()?;
        let (behind, number) = (u64::from(kind >> 8), kind as u8);
        let volume = VolumeId(from.array()?);
        let (segment, epoch, offset) = (SegmentId(from.u64()?), Epoch(from.u64()?), from.u64()?);
        let (len, check, at) = (from.u32()?, from.u32()?, from.u32()?);
        let expected = from.u32()?;
        let found = head_crc(incarnation, &bytes[..60]);
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, expected, found });
        }
        if at != position as u32 {
            return Err(FormatError::invalid(WHAT, "it belongs at another position"));
        }
        let Some(kind) = RecordKind::ALL.into_iter().find(|kind| kind.number() == number) else {
            return Err(FormatError::invalid(WHAT, format!("{number} is no kind")));
        };
        if kind.has_bytes() != (len > 0) || len > BYTES_MAX {
            return Err(FormatError::invalid(WHAT, format!("{len} bytes follow")));
        }
        let synced = match behind {
            UNSYNCED_MAX => 0,
            behind => (position / BLOCK).saturating_sub(behind) * BLOCK,
        };
        Ok(RecordHead { kind, synced, volume, segment, epoch, offset, len, check })
    }

    /// Bytes that the record takes.
    #[must_use]
    pub fn size(&self) -> u64 {
        RECORD_HEAD_LEN as u64 + u64::from(self.len).next_multiple_of(RECORD_HEAD_LEN as u64)
    }
}

fn head_crc(incarnation: &[u8; 16], head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(incarnation), head)
}
