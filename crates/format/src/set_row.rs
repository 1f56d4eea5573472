//! The value of a row `0 g segment`: who has a segment that the store may not have. See `docs/design/proxy-group.md`.

use forebay_types::{Epoch, Ino};

use crate::{
    Decoder, Encoder, FormatError,
    row::{Row, version},
};

/// Members of a set at most.
pub const SET_MAX: usize = 16;
const WHAT: &str = "the set of a segment";

/// How far a segment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetRowState {
    /// Its writer may append.
    Open,
    /// It ends here.
    Sealed {
        /// Bytes.
        len: u64,
        /// CRC32C of all of them.
        check: u32,
    },
    /// The store has it.
    Stored,
    /// Nobody has it: the members that had it were given up.
    Lost,
}

/// A segment over the logs of a group's members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentSetRow {
    /// The session of its writer.
    pub writer: u128,
    /// Raised when recovery or repair takes it.
    pub epoch: Epoch,
    /// The directory whose files it has.
    pub directory: Ino,
    /// The group.
    pub group: [u8; 16],
    /// The members that have it: 1 to [`SET_MAX`], none twice. The first one puts it.
    pub set: Vec<[u8; 16]>,
    /// Who is being given a copy; it is not of the set.
    pub joining: Option<[u8; 16]>,
    /// How far it has come.
    pub state: SetRowState,
    /// No request that is still to come names it.
    pub settled: bool,
    /// Recovery has sealed it: perhaps beyond what was acknowledged.
    pub recovered: bool,
}

impl SegmentSetRow {
    /// Kept for segments with records of a journal, which nobody writes (`docs/design/proxy-group.md`, "Why there is no journal of requests").
    const KEPT: u8 = 1;
    const SETTLED: u8 = 2;
    const JOINING: u8 = 4;
    const RECOVERED: u8 = 8;
    /// Where the state is in the flags.
    const STATE: u8 = 4;

    fn is_sound(&self) -> bool {
        let twice = self.set.iter().enumerate().any(|(at, member)| self.set[..at].contains(member));
        let joins = self.joining.is_some_and(|member| self.set.contains(&member));
        (1..=SET_MAX).contains(&self.set.len()) && !twice && !joins
    }
}

impl Row for SegmentSetRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        debug_assert!(self.is_sound());
        let to = &mut Encoder(to);
        to.u8(1);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let state = match self.state {
            SetRowState::Open => 0,
            SetRowState::Sealed { .. } => 1,
            SetRowState::Stored => 2,
            SetRowState::Lost => 3,
        };
        to.u8(flag(self.settled, Self::SETTLED)
            | flag(self.joining.is_some(), Self::JOINING)
            | flag(self.recovered, Self::RECOVERED)
            | state << Self::STATE);
        to.0.extend_from_slice(&self.writer.to_le_bytes());
        to.varint(self.epoch.0);
        to.varint(self.directory.0);
        to.0.extend_from_slice(&self.group);
        to.varint(self.set.len() as u64);
        self.set.iter().chain(&self.joining).for_each(|member| to.0.extend_from_slice(member));
        if let SetRowState::Sealed { len, check } = self.state {
            to.varint(len);
            to.u32(check);
        }
    }

    fn decode(bytes: &[u8]) -> Result<SegmentSetRow, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let flags = from.u8()?;
        if flags & Self::KEPT != 0 {
            return Err(FormatError::invalid(WHAT, "flag 1, which no segment has"));
        }
        let writer = u128::from_le_bytes(from.array()?);
        let (epoch, directory, group) = (Epoch(from.varint()?), Ino(from.varint()?), from.array()?);
        let count = from.varint()?;
        if count > SET_MAX as u64 {
            return Err(FormatError::invalid(WHAT, format!("{count} members")));
        }
        let set = (0..count).map(|_| from.array()).collect::<Result<Vec<_>, _>>()?;
        let joining = if flags & Self::JOINING != 0 { Some(from.array()?) } else { None };
        let state = match flags >> Self::STATE {
            0 => SetRowState::Open,
            1 => SetRowState::Sealed { len: from.varint()?, check: from.u32()? },
            2 => SetRowState::Stored,
            3 => SetRowState::Lost,
            other => return Err(FormatError::invalid(WHAT, format!("state {other}"))),
        };
        from.end()?;
        let has = |flag: u8| flags & flag != 0;
        let (settled, recovered) = (has(Self::SETTLED), has(Self::RECOVERED));
        let row = SegmentSetRow { writer, epoch, directory, group, set, joining, state, settled, recovered };
        if !row.is_sound() {
            return Err(FormatError::invalid(WHAT, "there are none, or one twice"));
        }
        Ok(row)
    }
}
