//! POSIX access control lists as the kernel encodes them (`system.posix_acl_access` and `_default`, version 2), and what they have to do with
//! the mode.
//!
//! Guarantees: what [`Acl::decode`] accepts is a valid list in canonical order; [`Acl::encode`] gives bytes that it accepts.

use crate::error::VfsError;

/// The attribute of the list that is checked.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that what is made in a directory inherits.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about, in the order in which entries stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// This user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// This group.
    Group(u32),
    /// The most that users, groups and the owning group get.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    fn decode(tag: u16, id: u32) -> Option<AclTag> {
        Some(match (tag, id) {
            (0x01, _) => AclTag::Owner,
            (0x02, id) if id != NO_ID => AclTag::User(id),
            (0x04, _) => AclTag::OwningGroup,
            (0x08, id) if id != NO_ID => AclTag::Group(id),
            (0x10, _) => AclTag::Mask,
            (0x20, _) => AclTag::Other,
            _ => return None,
        })
    }

    fn encode(self) -> (u16, u32) {
        match self {
            AclTag::Owner => (0x01, NO_ID),
            AclTag::User(id) => (0x02, id),
            AclTag::OwningGroup => (0x04, NO_ID),
            AclTag::Group(id) => (0x08, id),
            AclTag::Mask => (0x10, NO_ID),
            AclTag::Other => (0x20, NO_ID),
        }
    }

    /// Entries of one rank stand together, ranks in ascending order.
    fn rank(self) -> u8 {
        match self {
            AclTag::Owner => 0,
            AclTag::User(_) => 1,
            AclTag::OwningGroup => 2,
            AclTag::Group(_) => 3,
            AclTag::Mask => 4,
            AclTag::Other => 5,
        }
    }

    fn is_named(self) -> bool {
        matches!(self, AclTag::User(_) | AclTag::Group(_))
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: AclTag,
    /// Read (4), write (2), execute (1).
    pub perm: u16,
}

/// A valid list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// The list that `bytes` encode; `None` where they encode none, which is how an ACL is taken away.
    ///
    /// # Errors
    /// [`VfsError::NotSupported`] for another version; [`VfsError::Invalid`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Acl>, VfsError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((version, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(VfsError::Invalid("an ACL is shorter than its head"));
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(VfsError::NotSupported("this version of ACLs"));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let (entries, left) = rest.as_chunks::<ENTRY>();
        if !left.is_empty() {
            return Err(VfsError::Invalid("an ACL ends inside an entry"));
        }
        let entries = entries.iter().map(|[a, b, c, d, id @ ..]| {
            let (tag, perm) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
            let tag = AclTag::decode(tag, u32::from_le_bytes(*id)).filter(|_| perm <= 7);
            tag.map(|tag| AclEntry { tag, perm }).ok_or(VfsError::Invalid("an ACL has an unknown entry"))
        });
        Acl::from_entries(entries.collect::<Result<_, _>>()?).map(Some)
    }

    /// The list of these entries.
    ///
    /// # Errors
    /// [`VfsError::Invalid`] where they are in another order, one that must be there is not, or one that may be there once is there twice.
    pub fn from_entries(entries: Vec<AclEntry>) -> Result<Acl, VfsError> {
        let ordered = entries.windows(2).all(|pair| match pair {
            [a, b] if a.tag.is_named() => a.tag.rank() <= b.tag.rank(),
            [a, b] => a.tag.rank() < b.tag.rank(),
            _ => true,
        });
        let has = |rank: u8| entries.iter().any(|entry| entry.tag.rank() == rank);
        let whole = has(0) && has(2) && has(5) && (has(4) || !(has(1) || has(3)));
        if ordered && whole && entries.iter().all(|entry| entry.perm <= 7) {
            Ok(Acl(entries))
        } else {
            Err(VfsError::Invalid("an ACL's entries are out of order, missing or double"))
        }
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// The bytes of the attribute.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + ENTRY * self.0.len());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            let (tag, id) = entry.tag.encode();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&entry.perm.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    fn perm(&mut self, rank: u8) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag.rank() == rank).map(|entry| &mut entry.perm)
    }

    /// The entry that the mode's group bits are: the mask, or the owning group where there is none.
    fn group_class(&mut self) -> Option<&mut u16> {
        let rank = if self.0.iter().any(|entry| entry.tag == AclTag::Mask) { 4 } else { 2 };
        self.perm(rank)
    }

    /// The nine permission bits that say what the list says, as far as they can.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let bits = |tag: AclTag| self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm);
        let group = bits(AclTag::Mask).or(bits(AclTag::OwningGroup));
        bits(AclTag::Owner).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | bits(AclTag::Other).unwrap_or(0)
    }

    /// Whether the nine permission bits say all that the list says.
    #[must_use]
    pub fn is_mode_only(&self) -> bool {
        self.0.iter().all(|entry| !entry.tag.is_named() && entry.tag != AclTag::Mask)
    }

    /// The list after a chmod to `mode`.
    #[must_use]
    pub fn with_mode(mut self, mode: u16) -> Acl {
        for (rank, perm) in [(0, mode >> 6 & 7), (5, mode & 7)] {
            if let Some(entry) = self.perm(rank) {
                *entry = perm;
            }
        }
        if let Some(entry) = self.group_class() {
            *entry = mode >> 3 & 7;
        }
        self
    }

    /// Of a default ACL: the access ACL of what is made with `mode`, and the nine permission bits that it gets.
    #[must_use]
    pub fn for_new(mut self, mode: u16) -> (Acl, u16) {
        for (rank, perm) in [(0, mode >> 6 & 7), (5, mode & 7)] {
            if let Some(entry) = self.perm(rank) {
                *entry &= perm;
            }
        }
        if let Some(entry) = self.group_class() {
            *entry &= mode >> 3 & 7;
        }
        let mode = self.mode();
        (self, mode)
    }
}

#[cfg(test)]
mod tests;
