//! Keys of metadata rows.
//!
//! A key of a subvolume is `subvolume:u32 tag:u8 ino:u64 … ~generation:u32`, one of the volume is `0:u32 tag:u8 …`; all numbers
//! big-endian. `~generation` is the bitwise inverse, so that of one thing's versions the newest sorts first. Names end with a NUL (they have
//! none inside), so that names sort as byte strings and the versions of one name are neighbours.

use forebay_types::{Generation, Ino, PolicyId, SegmentId, SubvolumeId};

use crate::{Decoder, FormatError};

/// Bytes of the inverted generation at the end of a subvolume's key.
pub const VERSION_LEN: usize = 4;

const INODE: u8 = b'i';
const INLINE: u8 = b'b';
const CUTS: u8 = b'c';
const DIRECTORY: u8 = b'm';
const DENTRY: u8 = b'd';
const EXTENT: u8 = b'e';
const XATTR: u8 = b'x';

const SEGMENT: u8 = b's';
const SHARE: u8 = b'h';
const COUNTERS: u8 = b'n';
const SUBVOLUME: u8 = b'v';
const APPLIED: u8 = b'p';
const ORPHAN: u8 = b'o';
const GARBAGE: u8 = b'q';
const FENCE: u8 = b'f';
const SESSION: u8 = b'c';
const RETRY: u8 = b'r';
const WRITE_LEASE: u8 = b'w';
const NUMBERS: u8 = b'u';
const OPEN: u8 = b'l';
const LOCKS: u8 = b'k';
const SET: u8 = b'g';
const POLICY: u8 = b'y';

/// A decoded key. Each names one row; where the row has versions, the generation is in [`VersionedKey`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// A row of a subvolume, in the version of one generation.
    Versioned(SubvolumeId, Item, Generation),
    /// A segment.
    Segment(SegmentId),
    /// A block that refers to a segment although the segment's own list does not name it.
    Share(SegmentId, SubvolumeId, Ino, u32),
    /// The counters of the volume.
    Counters,
    /// A subvolume.
    Subvolume(SubvolumeId),
    /// How much of the journal the rows contain.
    Applied,
    /// An inode of which something is still to be removed: it has no name, or rows of extents that are cut off ([`Item::Cuts`]).
    Orphan(SubvolumeId, Ino),
    /// An object to be deleted, by epoch and number.
    Garbage(u64, u64),
    /// The owner of the shard.
    Fence,
    /// A client's session.
    Session(u128),
    /// What was answered last in a slot of a session.
    Retry(u128, u16),
    /// A session's lease to write, on an inode of a subvolume.
    WriteLease(u128, SubvolumeId, Ino),
    /// The numbers of segments and objects that a session was given and has not used.
    Numbers(u128),
    /// A session has an inode of a subvolume open, which stays while it has no name.
    Open(u128, SubvolumeId, Ino),
    /// A session's locks on an inode of a subvolume.
    Locks(u128, SubvolumeId, Ino),
    /// Who has a segment that the store may not have.
    Set(SegmentId),
    /// What goes by a number that directories and files have.
    Policy(PolicyId),
}

/// What a versioned row is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Item {
    /// Attributes of an inode.
    Inode(Ino),
    /// Data of a tiny file, or the target of a symbolic link.
    Inline(Ino),
    /// Ranges of blocks whose extents are gone, although rows of them may be left.
    Cuts(Ino),
    /// Times and counts of a directory.
    Directory(Ino),
    /// An entry of a directory.
    Dentry(Ino, Vec<u8>),
    /// An extent: inode, block, offset in the block.
    Extent(Ino, u32, u32),
    /// An extended attribute.
    Xattr(Ino, Vec<u8>),
}

impl Item {
    /// The key of this item without the generation: what all its versions begin with.
    #[must_use]
    pub fn prefix(&self, subvolume: SubvolumeId) -> Vec<u8> {
        match self {
            Item::Inode(ino) => head(subvolume, INODE, *ino, VERSION_LEN),
            Item::Inline(ino) => head(subvolume, INLINE, *ino, VERSION_LEN),
            Item::Cuts(ino) => head(subvolume, CUTS, *ino, VERSION_LEN),
            Item::Directory(ino) => head(subvolume, DIRECTORY, *ino, VERSION_LEN),
            Item::Dentry(parent, name) => named(subvolume, DENTRY, *parent, name),
            Item::Extent(ino, block, offset) => {
                let mut key = head(subvolume, EXTENT, *ino, 8 + VERSION_LEN);
                key.extend_from_slice(&block.to_be_bytes());
                key.extend_from_slice(&offset.to_be_bytes());
                key
            }
            Item::Xattr(ino, name) => named(subvolume, XATTR, *ino, name),
        }
    }

    /// The key of this item's version of `generation`.
    #[must_use]
    pub fn key(&self, subvolume: SubvolumeId, generation: Generation) -> Vec<u8> {
        let mut key = self.prefix(subvolume);
        key.extend_from_slice(&(!generation.0).to_be_bytes());
        key
    }
}

fn head(subvolume: SubvolumeId, tag: u8, ino: Ino, more: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(13 + more);
    key.extend_from_slice(&subvolume.0.to_be_bytes());
    key.push(tag);
    key.extend_from_slice(&ino.0.to_be_bytes());
    key
}

fn named(subvolume: SubvolumeId, tag: u8, ino: Ino, name: &[u8]) -> Vec<u8> {
    let mut key = head(subvolume, tag, ino, name.len() + 1 + VERSION_LEN);
    key.extend_from_slice(name);
    key.push(0);
    key
}

/// What the keys of a directory's entries begin with.
#[must_use]
pub fn dentries(subvolume: SubvolumeId, parent: Ino) -> Vec<u8> {
    head(subvolume, DENTRY, parent, 0)
}

/// What the keys of a file's extents begin with.
#[must_use]
pub fn extents(subvolume: SubvolumeId, ino: Ino) -> Vec<u8> {
    head(subvolume, EXTENT, ino, 0)
}

/// What the keys of one block's extents begin with.
#[must_use]
pub fn block(subvolume: SubvolumeId, ino: Ino, block: u32) -> Vec<u8> {
    let mut key = head(subvolume, EXTENT, ino, 4);
    key.extend_from_slice(&block.to_be_bytes());
    key
}

/// What the keys of an inode's extended attributes begin with.
#[must_use]
pub fn xattrs(subvolume: SubvolumeId, ino: Ino) -> Vec<u8> {
    head(subvolume, XATTR, ino, 0)
}

/// What the keys of all inodes of a subvolume begin with.
#[must_use]
pub fn inodes(subvolume: SubvolumeId) -> Vec<u8> {
    let mut key = subvolume.0.to_be_bytes().to_vec();
    key.push(INODE);
    key
}

/// What the keys of everything in a subvolume begin with.
#[must_use]
pub fn subvolume_rows(subvolume: SubvolumeId) -> Vec<u8> {
    subvolume.0.to_be_bytes().to_vec()
}

/// What the keys of the segments' rows begin with.
#[must_use]
pub fn segments() -> Vec<u8> {
    volume(SEGMENT)
}

/// What the keys of the shares of one segment begin with.
#[must_use]
pub fn shares(segment: SegmentId) -> Vec<u8> {
    let mut key = volume(SHARE);
    key.extend_from_slice(&segment.0.to_be_bytes());
    key
}

/// What the keys of the subvolumes' rows begin with.
#[must_use]
pub fn subvolumes() -> Vec<u8> {
    volume(SUBVOLUME)
}

/// What the keys of all orphans begin with.
#[must_use]
pub fn orphans() -> Vec<u8> {
    volume(ORPHAN)
}

/// What the keys of the objects to be deleted begin with.
#[must_use]
pub fn garbage() -> Vec<u8> {
    volume(GARBAGE)
}

/// What the keys of all sessions begin with.
#[must_use]
pub fn sessions() -> Vec<u8> {
    volume(SESSION)
}

/// What the keys of the slots of one session begin with; of all, without one.
#[must_use]
pub fn retries(session: Option<u128>) -> Vec<u8> {
    of_session(RETRY, session)
}

/// What the keys of one session's leases to write begin with; of all, without one.
#[must_use]
pub fn write_leases(session: Option<u128>) -> Vec<u8> {
    of_session(WRITE_LEASE, session)
}

/// What the keys of the numbers given to one session begin with; of all, without one.
#[must_use]
pub fn numbers(session: Option<u128>) -> Vec<u8> {
    of_session(NUMBERS, session)
}

/// What the keys of the inodes that one session has open begin with; of all, without one.
#[must_use]
pub fn opens(session: Option<u128>) -> Vec<u8> {
    of_session(OPEN, session)
}

/// What the keys of one session's locks begin with; of all, without one.
#[must_use]
pub fn locks(session: Option<u128>) -> Vec<u8> {
    of_session(LOCKS, session)
}

/// What the keys of the sets of segments begin with.
#[must_use]
pub fn sets() -> Vec<u8> {
    volume(SET)
}

/// What the keys of all policies begin with.
#[must_use]
pub fn policies() -> Vec<u8> {
    volume(POLICY)
}

fn of_session(tag: u8, session: Option<u128>) -> Vec<u8> {
    let mut key = volume(tag);
    key.extend(session.iter().flat_map(|session| session.to_be_bytes()));
    key
}

fn volume(tag: u8) -> Vec<u8> {
    vec![0, 0, 0, 0, tag]
}

/// The smallest key that is greater than every key with this prefix; `None` where there is none.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

impl Key {
    /// The bytes of the key.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Key::Versioned(subvolume, item, generation) => item.key(*subvolume, *generation),
            Key::Segment(id) => extend(volume(SEGMENT), &[&id.0.to_be_bytes()]),
            Key::Share(id, subvolume, ino, block) => extend(
                volume(SHARE),
                &[
                    &id.0.to_be_bytes(),
                    &subvolume.0.to_be_bytes(),
                    &ino.0.to_be_bytes(),
                    &block.to_be_bytes(),
                ],
            ),
            Key::Counters => volume(COUNTERS),
            Key::Subvolume(id) => extend(volume(SUBVOLUME), &[&id.0.to_be_bytes()]),
            Key::Applied => volume(APPLIED),
            Key::Orphan(subvolume, ino) => {
                extend(volume(ORPHAN), &[&subvolume.0.to_be_bytes(), &ino.0.to_be_bytes()])
            }
            Key::Garbage(epoch, id) => extend(volume(GARBAGE), &[&epoch.to_be_bytes(), &id.to_be_bytes()]),
            Key::Fence => volume(FENCE),
            Key::Session(session) => extend(volume(SESSION), &[&session.to_be_bytes()]),
            Key::Retry(session, slot) => {
                extend(volume(RETRY), &[&session.to_be_bytes(), &slot.to_be_bytes()])
            }
            Key::WriteLease(session, subvolume, ino) => on_inode(WRITE_LEASE, *session, *subvolume, *ino),
            Key::Numbers(session) => of_session(NUMBERS, Some(*session)),
            Key::Open(session, subvolume, ino) => on_inode(OPEN, *session, *subvolume, *ino),
            Key::Locks(session, subvolume, ino) => on_inode(LOCKS, *session, *subvolume, *ino),
            Key::Set(id) => extend(volume(SET), &[&id.0.to_be_bytes()]),
            Key::Policy(id) => extend(volume(POLICY), &[&id.0.to_be_bytes()]),
        }
    }

    /// The key that these bytes are.
    ///
    /// # Errors
    /// [`FormatError`] where they are none.
    pub fn decode(bytes: &[u8]) -> Result<Key, FormatError> {
        let mut from = Decoder::new(bytes, "a key");
        let subvolume = SubvolumeId(be32(&mut from)?);
        let tag = from.u8()?;
        let key =
            if subvolume.0 == 0 { global(tag, &mut from)? } else { versioned(subvolume, tag, &mut from)? };
        from.end()?;
        Ok(key)
    }
}

fn on_inode(tag: u8, session: u128, subvolume: SubvolumeId, ino: Ino) -> Vec<u8> {
    extend(of_session(tag, Some(session)), &[&subvolume.0.to_be_bytes(), &ino.0.to_be_bytes()])
}

fn extend(mut key: Vec<u8>, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

fn be32(from: &mut Decoder<'_>) -> Result<u32, FormatError> {
    Ok(u32::from_be_bytes(from.array()?))
}

fn be64(from: &mut Decoder<'_>) -> Result<u64, FormatError> {
    Ok(u64::from_be_bytes(from.array()?))
}

fn be128(from: &mut Decoder<'_>) -> Result<u128, FormatError> {
    Ok(u128::from_be_bytes(from.array()?))
}

fn global(tag: u8, from: &mut Decoder<'_>) -> Result<Key, FormatError> {
    Ok(match tag {
        SEGMENT => Key::Segment(SegmentId(be64(from)?)),
        SHARE => Key::Share(SegmentId(be64(from)?), SubvolumeId(be32(from)?), Ino(be64(from)?), be32(from)?),
        COUNTERS => Key::Counters,
        SUBVOLUME => Key::Subvolume(SubvolumeId(be32(from)?)),
        APPLIED => Key::Applied,
        ORPHAN => Key::Orphan(SubvolumeId(be32(from)?), Ino(be64(from)?)),
        GARBAGE => Key::Garbage(be64(from)?, be64(from)?),
        FENCE => Key::Fence,
        SESSION => Key::Session(be128(from)?),
        RETRY => Key::Retry(be128(from)?, u16::from_be_bytes(from.array()?)),
        WRITE_LEASE => Key::WriteLease(be128(from)?, SubvolumeId(be32(from)?), Ino(be64(from)?)),
        NUMBERS => Key::Numbers(be128(from)?),
        OPEN => Key::Open(be128(from)?, SubvolumeId(be32(from)?), Ino(be64(from)?)),
        LOCKS => Key::Locks(be128(from)?, SubvolumeId(be32(from)?), Ino(be64(from)?)),
        SET => Key::Set(SegmentId(be64(from)?)),
        POLICY => Key::Policy(PolicyId(be64(from)?)),
        other => return Err(FormatError::invalid("a key", format!("no volume row has tag {other}"))),
    })
}

fn versioned(subvolume: SubvolumeId, tag: u8, from: &mut Decoder<'_>) -> Result<Key, FormatError> {
    let ino = Ino(be64(from)?);
    let item = match tag {
        INODE => Item::Inode(ino),
        INLINE => Item::Inline(ino),
        CUTS => Item::Cuts(ino),
        DIRECTORY => Item::Directory(ino),
        DENTRY => Item::Dentry(ino, name(from)?),
        EXTENT => Item::Extent(ino, be32(from)?, be32(from)?),
        XATTR => Item::Xattr(ino, name(from)?),
        other => return Err(FormatError::invalid("a key", format!("no subvolume row has tag {other}"))),
    };
    Ok(Key::Versioned(subvolume, item, Generation(!be32(from)?)))
}

fn name(from: &mut Decoder<'_>) -> Result<Vec<u8>, FormatError> {
    let end = from.rest().iter().position(|byte| *byte == 0);
    let end = end.ok_or(FormatError::Truncated { what: "a name in a key" })?;
    let name = from.take(end)?.to_vec();
    from.u8()?;
    Ok(name)
}
