//! Rows `07`: volumes that were deleted. None of them goes away.

use forebay_format::{Encoder, FormatError, row::Row};
use forebay_types::VolumeId;

use super::{begin, text};

const DELETED: u8 = 7;

/// The key of the row that says for ever that a volume was deleted: its value is version 1 and the name that it had.
pub(crate) fn deleted_key(id: VolumeId) -> Vec<u8> {
    [&[DELETED][..], &id.0].concat()
}

/// A volume that was deleted. Its identity is in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletedRow {
    /// The name that it had.
    pub name: String,
}

impl Row for DeletedRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.bytes(self.name.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<DeletedRow, FormatError> {
        const WHAT: &str = "a deleted volume of the registry";
        let mut from = begin(bytes, WHAT)?;
        let row = DeletedRow { name: text(&mut from, WHAT)? };
        from.end()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use super::*;

    #[test]
    fn the_bytes_stay() {
        let row = DeletedRow { name: "v".to_owned() };
        assert_eq!(row.encode(), [1, 1, b'v']);
        assert_eq!(DeletedRow::decode(&row.encode()), Ok(row));
        assert_eq!(deleted_key(VolumeId([3; 16])), [&[7][..], &[3; 16]].concat());
        for wrong in [&[][..], &[1], &[1, 2, b'v'], &[2, 1, b'v'], &[1, 1, b'v', 0]] {
            DeletedRow::decode(wrong).unwrap_err();
        }
    }
}
