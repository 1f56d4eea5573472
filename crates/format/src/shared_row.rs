//! Values of the rows that only a volume shared by many machines has: who owns it, which clients it has. See `docs/design/cluster.md`.

use forebay_types::Epoch;

use crate::{
    Decoder, Encoder, FormatError,
    row::{Row, version},
};

/// Bytes of an address or a name of a client at most.
pub const TEXT_MAX: usize = 1024;

/// Who owns the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FenceRow {
    /// The term of ownership.
    pub epoch: Epoch,
    /// The process that has it; `None` where it was given up.
    pub server: Option<[u8; 16]>,
    /// Raised by every batch of the owner.
    pub beat: u64,
    /// Where clients reach the server, at most [`TEXT_MAX`] bytes.
    pub address: String,
}

impl Row for FenceRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.epoch.0);
        to.u8(u8::from(self.server.is_some()));
        to.0.extend_from_slice(self.server.as_ref().map_or(&[], |server| server.as_slice()));
        to.varint(self.beat);
        to.bytes(self.address.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<FenceRow, FormatError> {
        const WHAT: &str = "a fence";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let epoch = Epoch(from.varint()?);
        let server = match from.u8()? {
            0 => None,
            1 => Some(from.array()?),
            other => return Err(FormatError::invalid(WHAT, format!("{other} is no owner"))),
        };
        let row = FenceRow { epoch, server, beat: from.varint()?, address: text(&mut from, WHAT)? };
        from.end()?;
        Ok(row)
    }
}

/// A client of the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// The term of the owner with which it began.
    pub epoch: Epoch,
    /// What the client calls itself, for people: at most [`TEXT_MAX`] bytes.
    pub client: String,
}

impl Row for SessionRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.epoch.0);
        to.bytes(self.client.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<SessionRow, FormatError> {
        const WHAT: &str = "a session";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let row = SessionRow { epoch: Epoch(from.varint()?), client: text(&mut from, WHAT)? };
        from.end()?;
        Ok(row)
    }
}

/// The last request of a slot, and what it was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetryRow {
    /// The request's number.
    pub number: u64,
    /// The answer, as it goes to the client.
    pub answer: Vec<u8>,
}

impl Row for RetryRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.number);
        to.bytes(&self.answer);
    }

    fn decode(bytes: &[u8]) -> Result<RetryRow, FormatError> {
        const WHAT: &str = "an answered request";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let row = RetryRow { number: from.varint()?, answer: from.bytes()?.to_vec() };
        from.end()?;
        Ok(row)
    }
}

fn text(from: &mut Decoder<'_>, what: &'static str) -> Result<String, FormatError> {
    let bytes = from.bytes()?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_MAX);
    text.map(str::to_owned).ok_or_else(|| FormatError::invalid(what, "its text is none"))
}
