//! What is in a chunk: ranges of files of the journal and of streams, and where segments are that are in the store already.

use forebay_format::{Decoder, Encoder, FormatError, row::ObjectRef};
use forebay_types::{Epoch, ObjectId, SegmentId};

const JOURNAL: u8 = 1;
const STREAM: u8 = 2;
const STORED: u8 = 3;
const WHAT: &str = "a chunk of the journal";

/// A piece of a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item<'a> {
    /// Bytes of a file of the journal, from `from` on.
    Journal { segment: SegmentId, from: u64, bytes: &'a [u8] },
    /// Bytes of a stream's body, from `from` on.
    Stream { segment: SegmentId, from: u64, bytes: &'a [u8] },
    /// A segment that records name, and that is in an object.
    Stored { segment: SegmentId, at: StoredAt },
}

/// Where a segment is in the store, and what its row has to say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoredAt {
    pub(crate) object: ObjectRef,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) raw: u64,
}

impl Item<'_> {
    pub(crate) fn segment(&self) -> SegmentId {
        match self {
            Item::Journal { segment, .. } | Item::Stream { segment, .. } | Item::Stored { segment, .. } => {
                *segment
            }
        }
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        let to = &mut Encoder(out);
        let kind = match self {
            Item::Journal { .. } => JOURNAL,
            Item::Stream { .. } => STREAM,
            Item::Stored { .. } => STORED,
        };
        to.u8(kind);
        to.varint(self.segment().0);
        match self {
            Item::Journal { from, bytes, .. } | Item::Stream { from, bytes, .. } => {
                to.varint(*from);
                to.bytes(bytes);
            }
            Item::Stored { at, .. } => {
                for number in [at.object.epoch.0, at.object.id.0, at.offset, at.len, at.raw] {
                    to.varint(number);
                }
            }
        }
    }
}

/// The pieces of a chunk's payload.
///
/// # Errors
/// [`FormatError`] where it is none.
pub(crate) fn items(payload: &[u8]) -> Result<Vec<Item<'_>>, FormatError> {
    let mut from = Decoder::new(payload, WHAT);
    let mut items = Vec::new();
    while !from.rest().is_empty() {
        let kind = from.u8()?;
        let segment = SegmentId(from.varint()?);
        items.push(match kind {
            JOURNAL => Item::Journal { segment, from: from.varint()?, bytes: from.bytes()? },
            STREAM => Item::Stream { segment, from: from.varint()?, bytes: from.bytes()? },
            STORED => {
                let object = ObjectRef { epoch: Epoch(from.varint()?), id: ObjectId(from.varint()?) };
                let (offset, len, raw) = (from.varint()?, from.varint()?, from.varint()?);
                Item::Stored { segment, at: StoredAt { object, offset, len, raw } }
            }
            other => {
                return Err(FormatError::Invalid { what: WHAT, detail: format!("a piece of kind {other}") });
            }
        });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pieces_come_back_and_cut_ones_do_not() {
        let object = ObjectRef { epoch: Epoch(3), id: ObjectId(77) };
        let all = [
            Item::Journal { segment: SegmentId(1), from: 64, bytes: b"records" },
            Item::Stream { segment: SegmentId(1 << 40), from: 0, bytes: &[7; 300] },
            Item::Stored {
                segment: SegmentId(9),
                at: StoredAt { object, offset: 1 << 33, len: 5, raw: 1 << 20 },
            },
        ];
        let mut payload = Vec::new();
        let mut ends = vec![0];
        for item in &all {
            item.encode_to(&mut payload);
            ends.push(payload.len());
        }
        assert_eq!(items(&payload).unwrap(), all);
        for at in 0..payload.len() {
            assert_eq!(items(&payload[..at]).is_ok(), ends.contains(&at), "cut at {at}");
        }
        assert!(items(&[9, 1]).is_err());
    }
}
