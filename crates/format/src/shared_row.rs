//! Values of the rows that only a volume shared by many machines has: who owns it, which clients it has. See `docs/design/cluster.md`.

use forebay_types::{Epoch, Ino};

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
    /// The directory that is its root.
    pub root: Ino,
    /// It changes nothing.
    pub read_only: bool,
    /// Nothing is executed from it.
    pub no_exec: bool,
    /// Its root user is nobody.
    pub root_squash: bool,
    /// The token by which it began: version 2 has one, version 1 none.
    pub token: Option<u64>,
}

impl SessionRow {
    const READ_ONLY: u8 = 1;
    const NO_EXEC: u8 = 2;
    const ROOT_SQUASH: u8 = 4;
}

impl Row for SessionRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(if self.token.is_some() { 2 } else { 1 });
        to.varint(self.epoch.0);
        to.bytes(self.client.as_bytes());
        to.varint(self.root.0);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        to.u8(flag(self.read_only, Self::READ_ONLY)
            | flag(self.no_exec, Self::NO_EXEC)
            | flag(self.root_squash, Self::ROOT_SQUASH));
        if let Some(token) = self.token {
            to.u64(token);
        }
    }

    fn decode(bytes: &[u8]) -> Result<SessionRow, FormatError> {
        const WHAT: &str = "a session";
        let mut from = Decoder::new(bytes, WHAT);
        let version = version(&mut from, WHAT, 2)?;
        let (epoch, client, root) = (Epoch(from.varint()?), text(&mut from, WHAT)?, Ino(from.varint()?));
        let flags = from.u8()?;
        let token = if version >= 2 { Some(from.u64()?) } else { None };
        from.end()?;
        if flags >= 8 {
            return Err(FormatError::invalid(WHAT, format!("flags {flags}")));
        }
        Ok(SessionRow {
            epoch,
            client,
            root,
            read_only: flags & Self::READ_ONLY != 0,
            no_exec: flags & Self::NO_EXEC != 0,
            root_squash: flags & Self::ROOT_SQUASH != 0,
            token,
        })
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

/// A run of numbers: the first, and how many.
pub type NumberRun = (u64, u64);

/// Numbers that a session was given and has not used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NumbersRow {
    /// Segments.
    pub segments: Vec<NumberRun>,
    /// Objects, by the epoch of their names.
    pub objects: Vec<(Epoch, NumberRun)>,
}

impl Row for NumbersRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.segments.len() as u64);
        for (first, count) in &self.segments {
            to.varint(*first);
            to.varint(*count);
        }
        to.varint(self.objects.len() as u64);
        for (epoch, (first, count)) in &self.objects {
            to.varint(epoch.0);
            to.varint(*first);
            to.varint(*count);
        }
    }

    fn decode(bytes: &[u8]) -> Result<NumbersRow, FormatError> {
        const WHAT: &str = "the numbers of a session";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let run = |from: &mut Decoder<'_>| -> Result<NumberRun, FormatError> {
            let (first, count) = (from.varint()?, from.varint()?);
            if count == 0 || first.checked_add(count).is_none() {
                return Err(FormatError::invalid(WHAT, format!("{count} numbers from {first}")));
            }
            Ok((first, count))
        };
        let mut row = NumbersRow::default();
        for _ in 0..from.varint()? {
            row.segments.push(run(&mut from)?);
        }
        for _ in 0..from.varint()? {
            row.objects.push((Epoch(from.varint()?), run(&mut from)?));
        }
        from.end()?;
        Ok(row)
    }
}

/// An advisory lock of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// Whether it is of flock(2), on the whole file; else a record lock of fcntl(2).
    pub flock: bool,
    /// Whether nobody else may have it too.
    pub exclusive: bool,
    /// Whose it is, among those of the session.
    pub owner: u64,
    /// The handle through which it was set, among those of the session.
    pub handle: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// The process that set it.
    pub pid: u32,
}

/// The locks that a session has on an inode: at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocksRow(pub Vec<HeldLock>);

impl LocksRow {
    const FLOCK: u8 = 1;
    const EXCLUSIVE: u8 = 2;
}

impl Row for LocksRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.0.len() as u64);
        for lock in &self.0 {
            let flock = if lock.flock { Self::FLOCK } else { 0 };
            to.u8(flock | if lock.exclusive { Self::EXCLUSIVE } else { 0 });
            to.u64(lock.owner);
            to.u64(lock.handle);
            to.varint(lock.start);
            to.varint(lock.end.saturating_sub(lock.start));
            to.varint(u64::from(lock.pid));
        }
    }

    fn decode(bytes: &[u8]) -> Result<LocksRow, FormatError> {
        const WHAT: &str = "the locks of a session";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let mut locks = Vec::new();
        for _ in 0..from.varint()? {
            let flags = from.u8()?;
            let (owner, handle, start, more) = (from.u64()?, from.u64()?, from.varint()?, from.varint()?);
            let (pid, end) = (from.varint32()?, start.checked_add(more));
            let (0..4, Some(end)) = (flags, end) else {
                return Err(FormatError::invalid(WHAT, format!("flags {flags}, {more} bytes after {start}")));
            };
            let (flock, exclusive) = (flags & Self::FLOCK != 0, flags & Self::EXCLUSIVE != 0);
            locks.push(HeldLock { flock, exclusive, owner, handle, start, end, pid });
        }
        from.end()?;
        if locks.is_empty() {
            return Err(FormatError::invalid(WHAT, "there are none"));
        }
        Ok(LocksRow(locks))
    }
}

fn text(from: &mut Decoder<'_>, what: &'static str) -> Result<String, FormatError> {
    let bytes = from.bytes()?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_MAX);
    text.map(str::to_owned).ok_or_else(|| FormatError::invalid(what, "its text is none"))
}
