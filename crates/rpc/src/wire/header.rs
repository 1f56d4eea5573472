use crate::connection::ProtocolError;

use super::Cursor;

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 36;
const CHECKED_LEN: usize = HEADER_LEN - 4;
/// A checksum of body and bulk is there.
const CHECKSUM: u8 = 0x01;
/// A receiver that does not know the type passes the frame over.
const SKIPPABLE: u8 = 0x80;
/// Flags that a receiver must understand; the others of `0x7e` may be ignored.
const MUST_KNOW: u8 = 0x0e;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameType {
    /// To be answered by exactly one reply or error.
    Request,
    /// Done.
    Reply,
    /// Refused.
    Error,
    /// The answer is no longer wanted.
    Cancel,
    /// To be answered by a pong.
    Ping,
    /// The answer to a ping.
    Pong,
    /// No more requests are taken.
    GoAway,
    /// A later release's, to be passed over.
    Unknown(u8),
}

impl FrameType {
    fn number(self) -> u8 {
        match self {
            FrameType::Request => 1,
            FrameType::Reply => 2,
            FrameType::Error => 3,
            FrameType::Cancel => 4,
            FrameType::Ping => 5,
            FrameType::Pong => 6,
            FrameType::GoAway => 7,
            FrameType::Unknown(number) => number,
        }
    }

    fn of(number: u8) -> FrameType {
        match number {
            1 => FrameType::Request,
            2 => FrameType::Reply,
            3 => FrameType::Error,
            4 => FrameType::Cancel,
            5 => FrameType::Ping,
            6 => FrameType::Pong,
            7 => FrameType::GoAway,
            other => FrameType::Unknown(other),
        }
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the frame is.
    pub frame: FrameType,
    /// Of a request the kind of message, of an error and a go-away the code.
    pub kind: u16,
    /// Of a request the milliseconds left.
    pub deadline_ms: u32,
    /// The request's number.
    pub id: u64,
    /// Bytes of the body.
    pub body: u32,
    /// Bytes of the bulk.
    pub bulk: u32,
    /// Of a request the largest reply that is taken, body and bulk together.
    pub reply_max: u32,
    /// CRC32C of body and bulk, where it is used.
    pub checksum: Option<u32>,
}

impl Header {
    /// A header of a frame without body, bulk, deadline and kind.
    #[must_use]
    pub fn bare(frame: FrameType, id: u64) -> Header {
        Header { frame, kind: 0, deadline_ms: 0, id, body: 0, bulk: 0, reply_max: 0, checksum: None }
    }

    /// The layout in bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        let flags = if self.checksum.is_some() { CHECKSUM } else { 0 };
        put(&[self.frame.number(), flags]);
        put(&self.kind.to_le_bytes());
        put(&self.deadline_ms.to_le_bytes());
        put(&self.id.to_le_bytes());
        put(&self.body.to_le_bytes());
        put(&self.bulk.to_le_bytes());
        put(&self.reply_max.to_le_bytes());
        put(&self.checksum.unwrap_or(0).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the layout.
    ///
    /// # Errors
    /// A checksum that does not fit, a type or flag that must be known and is not.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, ProtocolError> {
        let found = crc32c::crc32c(&bytes[..CHECKED_LEN]);
        let mut cursor = Cursor(bytes);
        let header = Header::fields(&mut cursor).ok_or(ProtocolError::Malformed { what: "a header" })?;
        let expected = cursor.u32().unwrap_or(!found);
        if found != expected {
            return Err(ProtocolError::HeaderChecksum { expected, found });
        }
        let flags = bytes[1];
        if flags & MUST_KNOW != 0 {
            return Err(ProtocolError::UnknownFlags { flags });
        }
        match header.frame {
            FrameType::Unknown(number) if flags & SKIPPABLE == 0 => {
                Err(ProtocolError::UnknownFrame { number })
            }
            _ => Ok(header),
        }
    }

    fn fields(cursor: &mut Cursor<'_>) -> Option<Header> {
        let frame = FrameType::of(cursor.u8()?);
        let flags = cursor.u8()?;
        let mut header = Header { kind: cursor.u16()?, ..Header::bare(frame, 0) };
        header.deadline_ms = cursor.u32()?;
        header.id = cursor.u64()?;
        header.body = cursor.u32()?;
        header.bulk = cursor.u32()?;
        header.reply_max = cursor.u32()?;
        let checksum = cursor.u32()?;
        header.checksum = (flags & CHECKSUM != 0).then_some(checksum);
        Some(header)
    }

    /// Bytes that follow the header.
    #[must_use]
    pub fn payload(&self) -> u64 {
        u64::from(self.body) + u64::from(self.bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            frame: FrameType::Request,
            kind: 0x0203,
            deadline_ms: 30_000,
            id: 0x1122_3344_5566_7788,
            body: 5,
            bulk: 1 << 20,
            reply_max: 4096,
            checksum: Some(0xdead_beef),
        }
    }

    /// `bytes` with its checksum made right again.
    fn sealed(mut bytes: [u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
        let crc = crc32c::crc32c(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = header().encode();
        let expected = [
            &[1, 1, 3, 2][..],
            &30_000_u32.to_le_bytes(),
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[5, 0, 0, 0],
            &[0, 0, 16, 0],
            &[0, 16, 0, 0],
            &[0xef, 0xbe, 0xad, 0xde],
        ]
        .concat();
        assert_eq!(bytes[..CHECKED_LEN], expected);
        assert_eq!(Header::decode(&bytes).unwrap(), header());
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        for bit in 0..HEADER_LEN * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&bytes), Err(ProtocolError::HeaderChecksum { .. })), "bit {bit}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_unless_it_says_that_it_may_be_passed_over() {
        let with = |frame: u8, flags: u8| {
            let mut bytes = header().encode();
            (bytes[0], bytes[1]) = (frame, flags);
            Header::decode(&sealed(bytes))
        };
        assert!(matches!(with(9, 0), Err(ProtocolError::UnknownFrame { number: 9 })));
        assert_eq!(with(9, 0x80).unwrap().frame, FrameType::Unknown(9));
        for flag in [0x02, 0x04, 0x08] {
            assert!(matches!(with(1, flag), Err(ProtocolError::UnknownFlags { .. })), "{flag:x}");
        }
        for flag in [0x10, 0x20, 0x40] {
            with(1, flag).unwrap();
        }
    }
}
