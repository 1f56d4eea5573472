//! What stands in the place of an owner's fence while a volume's rows are on their way to another engine, and after. `docs/design/migration.md`.

use forebay_types::Epoch;

use crate::{Decoder, Encoder, FormatError, row::Row};

/// Bytes of a place's address at most.
pub const PLACE_MAX: usize = 4096;
/// The version of a fence's row that nobody may own.
const VERSION: u8 = 2;
const WHAT: &str = "a fence that nobody may take";

/// A database that nobody may own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MovingRow {
    /// Rows of a move that is not over are being put here.
    Incoming {
        /// The move.
        nonce: [u8; 16],
        /// Raised by every batch of it.
        batches: u64,
    },
    /// The rows are in another place, for good.
    Moved {
        /// The move.
        nonce: [u8; 16],
        /// The term of the owner that moved them.
        epoch: Epoch,
        /// The place, with what is secret of its address: at most [`PLACE_MAX`] bytes; empty: the cluster's own.
        to: String,
    },
}

impl MovingRow {
    /// Whether these bytes in the place of a fence are meant to be one of these.
    #[must_use]
    pub fn is_meant(bytes: &[u8]) -> bool {
        bytes.first() == Some(&VERSION)
    }
}

impl Row for MovingRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let bytes = &mut Encoder(to);
        bytes.u8(VERSION);
        match self {
            MovingRow::Incoming { nonce, batches } => {
                bytes.u8(1);
                bytes.0.extend_from_slice(nonce);
                bytes.varint(*batches);
            }
            MovingRow::Moved { nonce, epoch, to } => {
                bytes.u8(2);
                bytes.0.extend_from_slice(nonce);
                bytes.varint(epoch.0);
                bytes.bytes(to.as_bytes());
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<MovingRow, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        let version = from.u8()?;
        if version != VERSION {
            let (found, supported) = (u32::from(version), u32::from(VERSION));
            return Err(FormatError::Version { what: WHAT, found, supported });
        }
        let row = match from.u8()? {
            1 => MovingRow::Incoming { nonce: from.array()?, batches: from.varint()? },
            2 => {
                let (nonce, epoch) = (from.array()?, Epoch(from.varint()?));
                MovingRow::Moved { nonce, epoch, to: place(&mut from)? }
            }
            other => return Err(FormatError::invalid(WHAT, format!("{other} is no kind"))),
        };
        from.end()?;
        Ok(row)
    }
}

fn place(from: &mut Decoder<'_>) -> Result<String, FormatError> {
    let text = std::str::from_utf8(from.bytes()?).ok().filter(|text| text.len() <= PLACE_MAX);
    text.map(str::to_owned).ok_or_else(|| FormatError::invalid(WHAT, "its place is none"))
}
