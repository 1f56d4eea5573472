//! The form of everything but data that a volume has in its bucket: a head in the clear, and a payload in runs, which are compressed, checked
//! frame by frame, and sealed where the volume is encrypted.
//!
//! ```text
//! magic:8 version:u32 head length:u32 head CRC32C of all before:u32, then the runs one after the other
//! head = kind:u8 volume:16 epoch start first last number of runs, and of each run: raw length, stored length, form:u8, check:u32
//! ```

use forebay_format::{Decoder, Encoder, FormatError, Keyring, RunSealer, run};
use forebay_types::{Compression, Epoch, Sequence, VolumeId, limits::FRAME_SIZE};

const MAGIC: &[u8; 8] = b"FBbuckt\n";
const VERSION: u32 = 1;
const FIXED_LEN: usize = 16;
const RUN_LEN: usize = 4 << 20;
const WHAT: &str = "an object of the bucket";

/// What an object of the bucket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Some of the rows of a base.
    BasePart = 1,
    /// What says that a base is whole.
    BaseWhole = 2,
    /// The rows of one checkpoint.
    Delta = 3,
    /// Bytes of the journal and of streams.
    Chunk = 4,
}

/// What an object of the bucket says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) volume: VolumeId,
    /// The owner that made it.
    pub(crate) epoch: Epoch,
    /// The first record of that owner: what older epochs have from there on does not count.
    pub(crate) start: Sequence,
    /// The first record that it has.
    pub(crate) first: Sequence,
    /// The last one.
    pub(crate) last: Sequence,
}

fn invalid(detail: impl Into<String>) -> FormatError {
    FormatError::Invalid { what: WHAT, detail: detail.into() }
}

/// The bytes of an object.
///
/// # Errors
/// [`FormatError`] where sealing or compressing fails.
pub(crate) fn encode(
    head: &Head,
    payload: &[u8],
    compression: Compression,
    sealer: Option<&RunSealer>,
) -> Result<Vec<u8>, FormatError> {
    let mut runs = Vec::with_capacity(payload.len() / 2 + 1024);
    let mut about = Vec::new();
    let to = &mut Encoder(&mut about);
    to.u8(head.kind as u8);
    to.0.extend_from_slice(&head.volume.0);
    for number in [head.epoch.0, head.start.0, head.first.0, head.last.0] {
        to.varint(number);
    }
    to.varint(payload.chunks(RUN_LEN).count() as u64);
    for raw in payload.chunks(RUN_LEN) {
        let encoded = run::encode(raw, compression, sealer, &mut runs)?;
        to.varint(raw.len() as u64);
        to.varint(u64::from(encoded.stored_len));
        to.u8(encoded.form);
        to.u32(encoded.check);
    }
    let mut out = Vec::with_capacity(FIXED_LEN + about.len() + 4 + runs.len());
    let to = &mut Encoder(&mut out);
    to.0.extend_from_slice(MAGIC);
    to.u32(VERSION);
    to.u32(about.len() as u32);
    to.0.extend_from_slice(&about);
    let crc = crc32c::crc32c(to.0);
    to.u32(crc);
    out.extend_from_slice(&runs);
    Ok(out)
}

/// How many bytes of an object are enough for [`decode_head`].
pub(crate) const HEAD_MAX: u64 = 16 << 10;

/// The head alone, from the first bytes of an object ([`HEAD_MAX`], or all).
///
/// # Errors
/// [`FormatError`].
pub(crate) fn decode_head(bytes: &[u8], volume: VolumeId, kind: Kind) -> Result<Head, FormatError> {
    Ok(take_head(&mut Decoder::new(bytes, WHAT), bytes, volume, kind)?.0)
}

/// Head and payload of an object, every byte verified.
///
/// # Errors
/// [`FormatError`]: damaged, of another volume or kind, or sealed with a key that is not at hand.
pub(crate) fn decode(
    bytes: &[u8],
    volume: VolumeId,
    kind: Kind,
    keys: &Keyring,
) -> Result<(Head, Vec<u8>), FormatError> {
    let mut from = Decoder::new(bytes, WHAT);
    let (head, mut about) = take_head(&mut from, bytes, volume, kind)?;
    let mut payload = Vec::new();
    for _ in 0..about.varint()? {
        let (raw_len, stored_len) = (about.varint32()?, about.varint32()?);
        let (form, check) = (about.u8()?, about.u32()?);
        let stored = from.take(stored_len as usize)?;
        open_run(stored, (form, raw_len, check), keys, &mut payload)?;
    }
    about.end()?;
    from.end()?;
    Ok((head, payload))
}

/// Takes off the head; returns it, and what it says of the runs.
fn take_head<'a>(
    from: &mut Decoder<'a>,
    bytes: &[u8],
    volume: VolumeId,
    kind: Kind,
) -> Result<(Head, Decoder<'a>), FormatError> {
    if &from.array::<8>()? != MAGIC {
        return Err(invalid("it does not begin as one"));
    }
    let (version, len) = (from.u32()?, from.u32()? as usize);
    let about = from.take(len)?;
    let expected = from.u32()?;
    let found = crc32c::crc32c(bytes.get(..FIXED_LEN + len).unwrap_or_default());
    if found != expected {
        return Err(FormatError::Checksum { what: WHAT, expected, found });
    }
    if version != VERSION {
        return Err(FormatError::Version { what: WHAT, found: version, supported: VERSION });
    }
    let mut about = Decoder::new(about, WHAT);
    if about.u8()? != kind as u8 {
        return Err(invalid("it is of another kind than its name says"));
    }
    let found = VolumeId(about.array()?);
    if found != volume {
        return Err(invalid(format!("it belongs to volume {found}, not {volume}")));
    }
    let epoch = Epoch(about.varint()?);
    let (start, first) = (Sequence(about.varint()?), Sequence(about.varint()?));
    Ok((Head { kind, volume, epoch, start, first, last: Sequence(about.varint()?) }, about))
}

fn open_run(
    stored: &[u8],
    (form, raw_len, check): (u8, u32, u32),
    keys: &Keyring,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let table = run::RunTable::decode(stored, form, raw_len, stored.len() as u32, check)?;
    for index in 0..(raw_len as usize).div_ceil(FRAME_SIZE) {
        let (at, len) = table.stored(index, index)?;
        let frame = stored.get(at as usize..(at + len) as usize).unwrap_or_default();
        table.decode_frame(index, frame, keys, out)?;
    }
    Ok(())
}

/// Appends a row: key, and the value or `None` for a row deleted.
pub(crate) fn put_row(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let to = &mut Encoder(out);
    to.bytes(key);
    match value {
        None => to.varint(0),
        Some(value) => {
            to.varint(value.len() as u64 + 1);
            to.0.extend_from_slice(value);
        }
    }
}

/// A row of a batch.
pub(crate) type BatchRow = (Vec<u8>, Option<Vec<u8>>);

/// The rows of a payload.
///
/// # Errors
/// [`FormatError`] where it is none of rows.
pub(crate) fn rows(payload: &[u8]) -> Result<Vec<BatchRow>, FormatError> {
    let mut from = Decoder::new(payload, "rows in the bucket");
    let mut rows = Vec::new();
    while !from.rest().is_empty() {
        let key = from.bytes()?.to_vec();
        let value = match from.varint()? {
            0 => None,
            more => Some(from.take(usize::try_from(more - 1).unwrap_or(usize::MAX))?.to_vec()),
        };
        rows.push((key, value));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use forebay_format::MasterKey;

    use super::*;

    fn head() -> Head {
        let (start, first, last) = (Sequence(5), Sequence(7), Sequence(900));
        Head { kind: Kind::Delta, volume: VolumeId([3; 16]), epoch: Epoch(4), start, first, last }
    }

    fn payload() -> Vec<u8> {
        let mut payload = Vec::new();
        for index in 0..200_000u32 {
            put_row(
                &mut payload,
                &index.to_be_bytes(),
                (index % 3 > 0).then_some(b"the same value for many"),
            );
        }
        payload
    }

    #[test]
    fn what_was_put_comes_back_plain_and_sealed() {
        let master = MasterKey::new(1, [9; 32]);
        let sealer = RunSealer::new(&master, [8; 16]).unwrap();
        let ring = Keyring::new(vec![master]);
        let payload = payload();
        for sealer in [None, Some(&sealer)] {
            let bytes = encode(&head(), &payload, Compression::Zstd, sealer).unwrap();
            let (found, opened) = decode(&bytes, head().volume, Kind::Delta, &ring).unwrap();
            assert_eq!(found, head());
            assert!(opened == payload);
            assert_eq!(rows(&opened).unwrap().len(), 200_000);
            assert_eq!(
                decode(&bytes, head().volume, Kind::Delta, &Keyring::default()).is_err(),
                sealer.is_some()
            );
            assert!(decode(&bytes, VolumeId([4; 16]), Kind::Delta, &ring).is_err());
            assert!(decode(&bytes, head().volume, Kind::Chunk, &ring).is_err());
        }
        let empty = encode(&head(), &[], Compression::Zstd, None).unwrap();
        assert_eq!(decode(&empty, head().volume, Kind::Delta, &ring).unwrap().1, Vec::<u8>::new());
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let ring = Keyring::default();
        let mut small = Vec::new();
        put_row(&mut small, b"a key", Some(b"a value"));
        let bytes = encode(&head(), &small, Compression::Lz4, None).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                assert!(decode(&wrong, head().volume, Kind::Delta, &ring).is_err(), "byte {at} bit {bit}");
            }
            assert!(decode(&bytes[..at], head().volume, Kind::Delta, &ring).is_err(), "cut at {at}");
        }
    }
}
