//! The value of a row `0 y number`: what goes by a policy. See `docs/design/policies.md`.

use forebay_types::{Ino, PolicyId, SyncClass};

use crate::{
    Decoder, Encoder, FormatError,
    row::{Row, version},
};

const WHAT: &str = "a policy";

/// The identity of a group of proxies.
pub type GroupBytes = [u8; 16];

/// Where bytes are kept, and where not, beside the store: what was said for a directory or a file by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyKeep {
    /// In the caches of the volume's group, where they do not make way for others.
    pub pin: bool,
    /// On no disk but of this group's members.
    pub confine: Option<GroupBytes>,
    /// In the caches of this group, as long as there is room.
    pub place: Option<GroupBytes>,
    /// On no disk of this group's members.
    pub exclude: Option<GroupBytes>,
}

impl PolicyKeep {
    /// Whether no member of this group may have any of the bytes on its disk.
    #[must_use]
    pub fn bars(&self, group: GroupBytes) -> bool {
        self.confine.is_some_and(|confined| confined != group) || self.exclude == Some(group)
    }
}

/// What was said for a directory or a file, and all that goes by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyRow {
    /// The inode for which it was said.
    pub made_for: Ino,
    /// What that went by before, a lower number: what this one does not say is said there.
    pub before: PolicyId,
    /// What `fsync` waits for at least; `None` where this does not say.
    pub durability: Option<SyncClass>,
    /// Where bytes are kept, and where not, beside the store.
    pub keep: PolicyKeep,
    /// Whether all that was below the directory has been given the number.
    pub spread: bool,
}

impl PolicyRow {
    const PIN: u8 = 1;
    const DURABILITY: u8 = 2;
    const CONFINE: u8 = 4;
    const PLACE: u8 = 8;
    const EXCLUDE: u8 = 16;
    const SPREAD: u8 = 32;
    const KNOWN: u8 = 63;
    /// Stands for the store where the number of copies is.
    const STORE: u8 = 0;
}

impl Row for PolicyRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        to.u8(1);
        let PolicyKeep { pin, confine, place, exclude } = self.keep;
        to.u8(flag(pin, Self::PIN)
            | flag(self.durability.is_some(), Self::DURABILITY)
            | flag(confine.is_some(), Self::CONFINE)
            | flag(place.is_some(), Self::PLACE)
            | flag(exclude.is_some(), Self::EXCLUDE)
            | flag(self.spread, Self::SPREAD));
        to.varint(self.made_for.0);
        to.varint(self.before.0);
        if let Some(class) = self.durability {
            to.u8(class.copies().unwrap_or(Self::STORE));
        }
        for group in [confine, place, exclude].into_iter().flatten() {
            to.0.extend_from_slice(&group);
        }
    }

    fn decode(bytes: &[u8]) -> Result<PolicyRow, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let flags = from.u8()?;
        if flags & !Self::KNOWN != 0 {
            // What it says besides would not be obeyed.
            return Err(FormatError::invalid(WHAT, format!("flags {flags}")));
        }
        let (made_for, before) = (Ino(from.varint()?), PolicyId(from.varint()?));
        let durability = match flags & Self::DURABILITY {
            0 => None,
            _ => Some(match from.u8()? {
                Self::STORE => SyncClass::Object,
                copies => SyncClass::of_copies(copies)
                    .ok_or_else(|| FormatError::invalid(WHAT, format!("{copies} copies")))?,
            }),
        };
        let mut group = |flag: u8| match flags & flag {
            0 => Ok(None),
            _ => from.array().map(Some),
        };
        let (confine, place, exclude) = (group(Self::CONFINE)?, group(Self::PLACE)?, group(Self::EXCLUDE)?);
        from.end()?;
        let keep = PolicyKeep { pin: flags & Self::PIN != 0, confine, place, exclude };
        Ok(PolicyRow { made_for, before, durability, keep, spread: flags & Self::SPREAD != 0 })
    }
}
