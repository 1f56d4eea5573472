use std::{fmt, str::FromStr};

/// What `fsync` of a file on a shared volume waits for. Ordered: what is greater promises more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SyncClass {
    /// The member of the volume's group that is on the writer's machine has it on stable storage, and perhaps nobody else.
    Local,
    /// So many members of the volume's group have it on stable storage: [`SyncClass::COPIES_MIN`] to [`SyncClass::COPIES_MAX`].
    Replica(u8),
    /// The store has it.
    Object,
}

impl SyncClass {
    /// How many copies of [`SyncClass::Local`] there are.
    pub const COPIES_LOCAL: u8 = 1;
    /// The fewest copies of [`SyncClass::Replica`]: one alone is never enough.
    pub const COPIES_MIN: u8 = 2;
    /// The most.
    pub const COPIES_MAX: u8 = 8;

    /// So many copies: one is [`SyncClass::Local`]. `None` where there is no such class.
    #[must_use]
    pub fn of_copies(copies: u8) -> Option<SyncClass> {
        match copies {
            SyncClass::COPIES_LOCAL => Some(SyncClass::Local),
            SyncClass::COPIES_MIN..=SyncClass::COPIES_MAX => Some(SyncClass::Replica(copies)),
            _ => None,
        }
    }

    /// How many members have it at least; `None` where the store is to have it.
    #[must_use]
    pub fn copies(self) -> Option<u8> {
        match self {
            SyncClass::Local => Some(SyncClass::COPIES_LOCAL),
            SyncClass::Replica(copies) => Some(copies),
            SyncClass::Object => None,
        }
    }

    /// Whether bytes that so many members have, and the store has not, are of this class.
    #[must_use]
    pub fn is_met_by(self, copies: usize) -> bool {
        self.copies().is_some_and(|least| copies >= usize::from(least))
    }
}

impl fmt::Display for SyncClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncClass::Local => f.write_str("local"),
            SyncClass::Replica(copies) => write!(f, "replica:{copies}"),
            SyncClass::Object => f.write_str("object"),
        }
    }
}

/// A text is no class that a file can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is no durability of a file: there are local, replica:K with K from {min} to {max}, and object",
    min = SyncClass::COPIES_MIN,
    max = SyncClass::COPIES_MAX
)]
pub struct NoSyncClass(pub String);

impl FromStr for SyncClass {
    type Err = NoSyncClass;

    fn from_str(text: &str) -> Result<SyncClass, NoSyncClass> {
        let class = match text.split_once(':') {
            None if text == "local" => Some(SyncClass::Local),
            None if text == "object" => Some(SyncClass::Object),
            Some(("replica", digits)) => {
                let copies = digits.parse().ok().filter(|copies| *copies != SyncClass::COPIES_LOCAL);
                copies.and_then(SyncClass::of_copies)
            }
            _ => None,
        };
        class.ok_or_else(|| NoSyncClass(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_more_than_any_number_of_copies() {
        let all: Vec<SyncClass> =
            (0..=9).filter_map(SyncClass::of_copies).chain([SyncClass::Object]).collect();
        assert_eq!((all.len(), all[0]), (9, SyncClass::Local));
        assert!(all.is_sorted_by(|one, next| one < next));
        assert!(SyncClass::Replica(3).is_met_by(3) && !SyncClass::Replica(3).is_met_by(2));
        assert!(SyncClass::Local.is_met_by(1) && !SyncClass::Local.is_met_by(0));
        assert!(!SyncClass::Object.is_met_by(16));
    }

    #[test]
    fn classes_are_read_as_they_are_written() {
        for text in ["local", "object", "replica:2", "replica:8"] {
            assert_eq!(text.parse::<SyncClass>().map(|class| class.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "replica", "replica:1", "replica:9", "replica:", "local:1", "object:2"] {
            assert!(text.parse::<SyncClass>().is_err(), "{text}");
        }
    }
}
