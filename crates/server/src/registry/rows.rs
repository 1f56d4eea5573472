//! The registry's rows, byte by byte: `docs/design/servers.md`.

mod deleted;
mod groups;
mod place;

use std::fmt;

use forebay_cluster::ServerId;
use forebay_format::{Decoder, Encoder, FormatError, row::Row};
use forebay_protocol::group::{GROUPS_MAX, WriteClass};
use forebay_types::{Compression, VolumeId};

pub use deleted::DeletedRow;
pub(crate) use deleted::deleted_key;
pub(crate) use groups::{GROUP_MEMBERS, GROUPS, group_key, group_member_key, group_member_of, group_of};
pub use groups::{GroupEntry, GroupMemberRow};
use place::places;
pub use place::{PlaceAddress, VolumePlace};

/// The version of the layout, in the row with an empty rest.
pub(crate) const SCHEMA: &[u8] = &[0];
/// Counts the changes of volumes and tokens.
pub(crate) const CHANGES: &[u8] = &[1];
const VOLUME: u8 = 2;
const TOKEN: u8 = 3;
const MEMBER: u8 = 4;

/// Bytes of a text in a row at most.
const TEXT_MAX: usize = 4096;

/// What keys of volumes begin with.
pub(crate) const VOLUMES: &[u8] = &[VOLUME];
/// What keys of tokens begin with.
pub(crate) const TOKENS: &[u8] = &[TOKEN];
/// What keys of members begin with.
pub(crate) const MEMBERS: &[u8] = &[MEMBER];

/// The key of a volume's row.
pub(crate) fn volume_key(name: &str) -> Vec<u8> {
    [VOLUMES, name.as_bytes()].concat()
}

/// The key of a token's row.
pub(crate) fn token_key(id: TokenId) -> Vec<u8> {
    [TOKENS, &id.0.to_be_bytes()].concat()
}

/// The key of a server's row.
pub(crate) fn member_key(id: ServerId) -> Vec<u8> {
    [MEMBERS, &id.0].concat()
}

/// The name in a volume's key.
pub(crate) fn name_of(key: &[u8]) -> Option<String> {
    let name = key.strip_prefix(VOLUMES)?;
    std::str::from_utf8(name).ok().map(str::to_owned)
}

/// The number in a token's key.
pub(crate) fn token_of(key: &[u8]) -> Option<TokenId> {
    let id = key.strip_prefix(TOKENS)?.try_into().ok()?;
    Some(TokenId(u64::from_be_bytes(id)))
}

/// The server in a member's key.
pub(crate) fn member_of(key: &[u8]) -> Option<ServerId> {
    key.strip_prefix(MEMBERS)?.try_into().ok().map(ServerId)
}

/// A token's public number: random, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Whether a volume may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeState {
    /// Its database is being made.
    Making,
    /// It may be mounted.
    Ready,
    /// It is being removed, and never comes back.
    Deleting,
}

impl VolumeState {
    /// The state in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            VolumeState::Making => "making",
            VolumeState::Ready => "ready",
            VolumeState::Deleting => "deleting",
        }
    }
}

/// In the place of copies in a row that has them always: class `object`.
const CLASS_OBJECT: u8 = 255;

/// A shared volume. Its name is in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRow {
    /// Its identity, which no other volume ever has.
    pub id: VolumeId,
    /// Whether it may be used.
    pub state: VolumeState,
    /// The store's URL.
    pub store: String,
    /// The endpoint of the store's service; empty: the provider's own.
    pub endpoint: String,
    /// The store's region; empty: not said.
    pub region: String,
    /// Bytes of a block.
    pub block_size: u32,
    /// How new data is compressed.
    pub compression: Compression,
    /// How many bytes its files may have; `None`: no limit.
    pub limit: Option<u64>,
    /// When it was made: seconds since 1970.
    pub created: u64,
    /// Raised by each change of what is above.
    pub generation: u64,
    /// Where its database is.
    pub place: VolumePlace,
    /// Where it was before, while that database is still to be removed.
    pub left: Option<VolumePlace>,
    /// The name of the group of proxies through which it is read; empty: none. Of several the first: who knows of one alone goes by that.
    pub group: String,
    /// The names of the other groups through which it is read, [`GROUPS_MAX`] with the first. Only with a first.
    pub further: Vec<String>,
    /// How durable what is written to it is before a sync succeeds. Only with a group it is another one than [`WriteClass::Object`].
    pub class: WriteClass,
}

impl VolumeRow {
    /// The names of its groups, the first one first.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let first = Some(self.group.as_str()).filter(|first| !first.is_empty());
        first.into_iter().chain(self.further.iter().map(String::as_str))
    }

    /// Whether it is read through this group.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        self.groups().any(|group| group == name)
    }
}

impl Row for VolumeRow {
    /// Version 1 has neither place nor group, version 2 no group, version 3 no class, version 4 one group, so that releases which know no others read what has none. Version 5 has the class
    /// always, and the further groups: a release that knows one group alone must not go by the first.
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        let elsewhere = self.place != VolumePlace::default() || self.left.is_some();
        let grouped = !self.group.is_empty();
        let class = match self.class {
            WriteClass::Local if grouped => Some(WriteClass::COPIES_LOCAL),
            WriteClass::Replica(copies) if grouped => Some(copies.unwrap_or(0)),
            _ => None,
        };
        let several = grouped && !self.further.is_empty();
        to.u8(match (class, grouped, elsewhere) {
            _ if several => 5,
            (Some(_), ..) => 4,
            (None, true, _) => 3,
            (None, false, true) => 2,
            (None, false, false) => 1,
        });
        to.0.extend_from_slice(&self.id.0);
        to.u8(match self.state {
            VolumeState::Making => 1,
            VolumeState::Ready => 2,
            VolumeState::Deleting => 3,
        });
        for text in [&self.store, &self.endpoint, &self.region] {
            to.bytes(text.as_bytes());
        }
        to.u32(self.block_size);
        to.bytes(self.compression.as_str().as_bytes());
        to.u8(u8::from(self.limit.is_some()));
        to.varint(self.limit.unwrap_or(0));
        to.varint(self.created);
        to.varint(self.generation);
        if elsewhere || grouped {
            to.u8(u8::from(self.left.is_some()));
            for place in [&self.place].into_iter().chain(&self.left) {
                to.bytes(place.address.0.as_bytes());
                to.bytes(place.brought_by.as_bytes());
            }
        }
        if grouped {
            to.bytes(self.group.as_bytes());
        }
        if let Some(copies) = class.or(several.then_some(CLASS_OBJECT)) {
            to.u8(copies);
        }
        if several {
            // Seven at most.
            to.u8(u8::try_from(self.further.len()).unwrap_or(u8::MAX));
            for group in &self.further {
                to.bytes(group.as_bytes());
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<VolumeRow, FormatError> {
        const WHAT: &str = "a volume of the registry";
        let mut from = Decoder::new(bytes, WHAT);
        let version = from.u8()?;
        if !(1..=5).contains(&version) {
            return Err(FormatError::Version { what: WHAT, found: u32::from(version), supported: 5 });
        }
        let id = VolumeId(from.array()?);
        let state = match from.u8()? {
            1 => VolumeState::Making,
            2 => VolumeState::Ready,
            3 => VolumeState::Deleting,
            other => return Err(invalid(WHAT, format!("{other} is no state"))),
        };
        let (store, endpoint, region) =
            (text(&mut from, WHAT)?, text(&mut from, WHAT)?, text(&mut from, WHAT)?);
        let block_size = from.u32()?;
        let compression = text(&mut from, WHAT)?;
        let compression =
            compression.parse().map_err(|_| invalid(WHAT, format!("'{compression}' is no compression")))?;
        let limited = from.u8()? != 0;
        let limit = Some(from.varint()?).filter(|_| limited);
        let (created, generation) = (from.varint()?, from.varint()?);
        let (place, left) = if version == 1 { Default::default() } else { places(&mut from, WHAT)? };
        let group = if version >= 3 { text(&mut from, WHAT)? } else { String::new() };
        if version >= 3 && group.is_empty() {
            return Err(invalid(WHAT, "its group has no name".to_owned()));
        }
        let class = match version {
            4 => class(from.u8()?, WHAT)?,
            5 => match from.u8()? {
                CLASS_OBJECT => WriteClass::Object,
                copies => class(copies, WHAT)?,
            },
            _ => WriteClass::Object,
        };
        let further = if version == 5 { further(&mut from, &group, WHAT)? } else { Vec::new() };
        from.end()?;
        Ok(VolumeRow {
            id,
            state,
            store,
            endpoint,
            region,
            block_size,
            compression,
            limit,
            created,
            generation,
            place,
            left,
            group,
            further,
            class,
        })
    }
}

/// The groups behind the first one, of which there are some, each once.
fn further(from: &mut Decoder<'_>, first: &str, what: &'static str) -> Result<Vec<String>, FormatError> {
    let count = usize::from(from.u8()?);
    if !(1..GROUPS_MAX).contains(&count) {
        return Err(invalid(what, format!("{count} groups behind its first")));
    }
    let mut further: Vec<String> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(from, what)?;
        if name.is_empty() || name == first || further.contains(&name) {
            return Err(invalid(what, format!("{name:?} is a group of it twice, or has no name")));
        }
        further.push(name);
    }
    Ok(further)
}

fn class(copies: u8, what: &'static str) -> Result<WriteClass, FormatError> {
    match copies {
        0 => Ok(WriteClass::Replica(None)),
        WriteClass::COPIES_LOCAL => Ok(WriteClass::Local),
        copies if WriteClass::fits(copies) => Ok(WriteClass::Replica(Some(copies))),
        copies => Err(invalid(what, format!("{copies} copies of what is written to it"))),
    }
}

/// What a token lets its bearer do. The secret itself is nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRow {
    /// SHA-256 of the secret.
    pub digest: [u8; 32],
    /// The volume that it opens.
    pub volume: VolumeId,
    /// The directory that is the root of what it shows, from the volume's root on: `/` or `/a/b`.
    pub root: String,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Nothing may be executed.
    pub no_exec: bool,
    /// Root of the client's machine is nobody.
    pub root_squash: bool,
    /// When it was made: seconds since 1970.
    pub created: u64,
    /// From when on it opens nothing: seconds since 1970; 0: never.
    pub expires: u64,
}

impl TokenRow {
    /// Whether it is too late for it.
    #[must_use]
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires != 0 && now >= self.expires
    }
}

impl Row for TokenRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.0.extend_from_slice(&self.digest);
        to.0.extend_from_slice(&self.volume.0);
        to.bytes(self.root.as_bytes());
        to.u8(u8::from(self.read_only) | u8::from(self.no_exec) << 1 | u8::from(self.root_squash) << 2);
        to.varint(self.created);
        to.varint(self.expires);
    }

    fn decode(bytes: &[u8]) -> Result<TokenRow, FormatError> {
        const WHAT: &str = "a token of the registry";
        let mut from = begin(bytes, WHAT)?;
        let (digest, volume) = (from.array()?, VolumeId(from.array()?));
        let root = text(&mut from, WHAT)?;
        let flags = from.u8()?;
        if flags > 7 {
            return Err(invalid(WHAT, format!("its flags are {flags:#x}")));
        }
        let row = TokenRow {
            digest,
            volume,
            root,
            read_only: flags & 1 != 0,
            no_exec: flags & 2 != 0,
            root_squash: flags & 4 != 0,
            created: from.varint()?,
            expires: from.varint()?,
        };
        from.end()?;
        Ok(row)
    }
}

/// A metadata server that lives, or did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRow {
    /// Where clients and other servers reach it.
    pub address: String,
    /// Raised by the server about once a second.
    pub beat: u64,
    /// What it runs: its version and, behind a `+`, what it knows besides.
    pub release: String,
}

impl MemberRow {
    /// What a server of this build runs.
    pub const RELEASE: &str = concat!(env!("CARGO_PKG_VERSION"), "+groups");

    /// Whether it knows that a volume may have several groups. Builds of the first version that say nothing do not.
    #[must_use]
    pub fn knows_several_groups(&self) -> bool {
        self.release != "0.1.0"
    }
}

impl Row for MemberRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.bytes(self.address.as_bytes());
        to.varint(self.beat);
        to.bytes(self.release.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<MemberRow, FormatError> {
        const WHAT: &str = "a member of the registry";
        let mut from = begin(bytes, WHAT)?;
        let row = MemberRow {
            address: text(&mut from, WHAT)?,
            beat: from.varint()?,
            release: text(&mut from, WHAT)?,
        };
        from.end()?;
        Ok(row)
    }
}

/// How many changes there were, and which one was the last: nobody else writes its random bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// How many.
    pub number: u64,
    /// Random.
    pub nonce: u64,
}

impl Row for Mark {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u64(self.number);
        to.u64(self.nonce);
    }

    fn decode(bytes: &[u8]) -> Result<Mark, FormatError> {
        let mut from = Decoder::new(bytes, "the registry's counter of changes");
        let mark = Mark { number: from.u64()?, nonce: from.u64()? };
        from.end()?;
        Ok(mark)
    }
}

fn begin<'a>(bytes: &'a [u8], what: &'static str) -> Result<Decoder<'a>, FormatError> {
    let mut from = Decoder::new(bytes, what);
    match from.u8()? {
        1 => Ok(from),
        found => Err(FormatError::Version { what, found: u32::from(found), supported: 1 }),
    }
}

fn invalid(what: &'static str, detail: String) -> FormatError {
    FormatError::Invalid { what, detail }
}

fn text(from: &mut Decoder<'_>, what: &'static str) -> Result<String, FormatError> {
    let bytes = from.bytes()?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_MAX);
    text.map(str::to_owned).ok_or_else(|| invalid(what, "its text is none".to_owned()))
}

#[cfg(test)]
mod tests;
