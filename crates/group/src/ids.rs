use std::{fmt, str::FromStr};

/// A group: 16 random bytes, drawn when it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub [u8; 16]);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A member of a group: 16 random bytes, drawn when its directory was made. So it is the identity of a disk: a new disk is a new member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberId(pub [u8; 16]);

impl MemberId {
    /// First digits of an id that name its member, at least.
    pub const DIGITS_MIN: usize = 4;

    /// Whether these are its first digits, as [`Display`](fmt::Display) writes them, and at least [`MemberId::DIGITS_MIN`] of them. Others' ids may
    /// begin so, too: whoever goes by this sees to it that one alone fits.
    #[must_use]
    pub fn begins_with(&self, digits: &str) -> bool {
        digits.len() >= MemberId::DIGITS_MIN && self.to_string().starts_with(digits)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "M{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A text is not the id of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no id of a member: these are 32 digits, 0 to 9 and a to f")]
pub struct NoMemberId;

impl FromStr for MemberId {
    type Err = NoMemberId;

    fn from_str(text: &str) -> Result<MemberId, NoMemberId> {
        let plain = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| MemberId(number.to_be_bytes())).ok_or(NoMemberId)
    }
}

/// What acts for a member: 16 random bytes, drawn by its process for each time that it joins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub [u8; 16]);

/// Which view of a group: raised by each change, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ViewEpoch(pub u64);

impl ViewEpoch {
    /// The one after this.
    #[must_use]
    pub const fn next(self) -> ViewEpoch {
        ViewEpoch(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_written_in_hexadecimal() {
        assert_eq!(MemberId([0xab; 16]).to_string(), "ab".repeat(16));
        let id = MemberId(std::array::from_fn(|at| at as u8));
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "ab", &"g".repeat(32), &"A".repeat(32), &format!("+{}", "0".repeat(31))] {
            assert_eq!(wrong.parse::<MemberId>(), Err(NoMemberId));
        }
        assert_eq!(GroupId([0xcd; 16]).to_string(), "cd".repeat(16));
        assert_eq!(ViewEpoch(3).next(), ViewEpoch(4));
    }

    #[test]
    fn four_digits_of_an_id_name_it_or_more() {
        let id = MemberId(std::array::from_fn(|at| at as u8));
        let whole = id.to_string();
        for long in MemberId::DIGITS_MIN..=whole.len() {
            assert!(id.begins_with(&whole[..long]), "{long}");
        }
        for wrong in ["", "000", "0002", "0001z", "äöü", &whole[2..], &format!("{whole}0")] {
            assert!(!id.begins_with(wrong), "{wrong}");
        }
    }
}
