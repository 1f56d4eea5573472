use crate::connection::{Limits, ProtocolError};

use super::{BODY_MAX, BULK_MAX, Code, Cursor, cut};

/// What every preface begins with: bytes that no text protocol and no TLS record begins with.
pub const MAGIC: [u8; 8] = *b"\x89FBRPC\r\n";
/// Longest preface, in bytes.
pub const PREFACE_LEN_MAX: usize = START + REST_MAX;
/// Magic and length.
const START: usize = 10;
const REST_MIN: usize = 36;
const REST_MAX: usize = 2048;

/// What each side sends first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preface {
    /// The oldest version spoken; in an answer the chosen one.
    pub oldest: u16,
    /// The newest version spoken; in an answer the chosen one.
    pub newest: u16,
    /// In an answer that refuses: why.
    pub refused: Option<Code>,
    /// Feature bits.
    pub features: u64,
    /// What the sender takes.
    pub limits: Limits,
    /// The sender's release.
    pub release: String,
    /// For people, with a refusal.
    pub text: String,
}

impl Preface {
    /// The layout in bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (release, text) = (cut(&self.release, 255), cut(&self.text, 255));
        let mut bytes = Vec::with_capacity(START + REST_MIN + release.len() + text.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&((REST_MIN + release.len() + text.len()) as u16).to_le_bytes());
        bytes.extend_from_slice(&self.oldest.to_le_bytes());
        bytes.extend_from_slice(&self.newest.to_le_bytes());
        bytes.extend_from_slice(&self.refused.map_or(0, |code| code.0).to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        for number in [self.limits.body, self.limits.bulk, self.limits.requests, self.limits.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[release.len() as u8, text.len() as u8]);
        bytes.extend_from_slice(release.as_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a preface from the front of `bytes`, and says how long it was; nothing if it is not all there yet. Wrong bytes are refused as soon as
    /// they are seen.
    ///
    /// # Errors
    /// Bytes that are not a preface.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Preface, usize)>, ProtocolError> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(ProtocolError::NotForebay);
        }
        let Some(len) = Cursor(bytes.get(8..).unwrap_or_default()).u16() else { return Ok(None) };
        let len = usize::from(len);
        if !(REST_MIN..=REST_MAX).contains(&len) {
            return Err(ProtocolError::Oversized {
                what: "preface",
                found: len as u64,
                max: REST_MAX as u64,
            });
        }
        let Some(whole) = bytes.get(..START + len) else { return Ok(None) };
        let (checked, crc) = whole.split_at(whole.len() - 4);
        let found = crc32c::crc32c(checked);
        let expected = Cursor(crc).u32().unwrap_or(!found);
        if found != expected {
            return Err(ProtocolError::HeaderChecksum { expected, found });
        }
        let preface = Preface::fields(&mut Cursor(&checked[START..]))
            .ok_or(ProtocolError::Malformed { what: "preface" })?;
        preface.check()?;
        Ok(Some((preface, whole.len())))
    }

    fn fields(cursor: &mut Cursor<'_>) -> Option<Preface> {
        let (oldest, newest, code) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
        let features = cursor.u64()?;
        let limits = Limits {
            body: cursor.u32()?,
            bulk: cursor.u32()?,
            requests: cursor.u32()?,
            bytes: cursor.u32()?,
        };
        let (release, text) = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
        let (release, text) = (cursor.text(release)?, cursor.text(text)?);
        let refused = (code != 0).then_some(Code(code));
        Some(Preface { oldest, newest, refused, features, limits, release, text })
    }

    fn check(&self) -> Result<(), ProtocolError> {
        let limits = &self.limits;
        if self.oldest > self.newest || limits.body > BODY_MAX || limits.bulk > BULK_MAX {
            return Err(ProtocolError::Malformed { what: "preface" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preface() -> Preface {
        Preface {
            oldest: 1,
            newest: 3,
            refused: None,
            features: 5,
            limits: Limits { body: 1 << 20, bulk: 8 << 20, requests: 1024, bytes: 64 << 20 },
            release: "0.1.0".to_owned(),
            text: String::new(),
        }
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let len = (bytes.len() - START + 4) as u16;
        bytes[8..10].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = preface().encode();
        let expected = [
            &b"\x89FBRPC\r\n"[..],
            &[41, 0, 1, 0, 3, 0, 0, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 16, 0, 0, 0, 128, 0, 0, 4, 0, 0, 0, 0, 0, 4],
            &[5, 0],
            b"0.1.0",
        ]
        .concat();
        assert_eq!(bytes[..bytes.len() - 4], expected);
        assert_eq!(Preface::decode(&bytes).unwrap(), Some((preface(), bytes.len())));
    }

    #[test]
    fn half_of_it_waits_for_more_and_a_flipped_bit_is_seen() {
        let bytes = preface().encode();
        for cut in 0..bytes.len() {
            assert_eq!(Preface::decode(&bytes[..cut]).unwrap(), None, "{cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Preface::decode(&wrong), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn another_protocol_is_seen_at_its_first_byte() {
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"SSH-2.0", b"\0"] {
            assert!(matches!(Preface::decode(&other[..1]), Err(ProtocolError::NotForebay)));
        }
    }

    #[test]
    fn what_a_later_release_adds_is_passed_over() {
        let bytes = preface().encode();
        let mut longer = bytes[..bytes.len() - 4].to_vec();
        longer.extend_from_slice(b"added later");
        let longer = sealed(longer);
        assert_eq!(Preface::decode(&longer).unwrap(), Some((preface(), longer.len())));
    }

    #[test]
    fn limits_out_of_bounds_are_refused() {
        for wrong in [
            Preface { oldest: 4, ..preface() },
            Preface { limits: Limits { body: BODY_MAX + 1, ..preface().limits }, ..preface() },
            Preface { limits: Limits { bulk: BULK_MAX + 1, ..preface().limits }, ..preface() },
        ] {
            assert!(matches!(Preface::decode(&wrong.encode()), Err(ProtocolError::Malformed { .. })));
        }
        let short = sealed(preface().encode()[..20].to_vec());
        assert!(matches!(Preface::decode(&short), Err(ProtocolError::Oversized { .. })));
    }
}
