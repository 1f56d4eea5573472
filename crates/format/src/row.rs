//! Values of metadata rows. Each begins with a byte that tells its version.

use forebay_types::{
    Coherence, Epoch, FileKind, Generation, Ino, ObjectId, PolicyId, SegmentId, Sequence, SubvolumeId,
    Timespec, limits::INLINE_MAX,
};

use crate::{Decoder, Encoder, FormatError};

/// A value of a metadata row.
pub trait Row: Sized {
    /// Appends the value's bytes.
    fn encode_to(&self, to: &mut Vec<u8>);

    /// The value that these bytes are.
    ///
    /// # Errors
    /// [`FormatError`] where they are none.
    fn decode(bytes: &[u8]) -> Result<Self, FormatError>;

    /// The value's bytes.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        self.encode_to(&mut bytes);
        bytes
    }
}

pub(crate) fn version(from: &mut Decoder<'_>, what: &'static str, supported: u8) -> Result<u8, FormatError> {
    let found = from.u8()?;
    if found == 0 || found > supported {
        return Err(FormatError::Version { what, found: u32::from(found), supported: u32::from(supported) });
    }
    Ok(found)
}

/// Where the bytes of an extent are: `len` raw bytes from raw offset `skip` of a run of `run_len` raw bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes of the file that it covers; at least 1.
    pub len: u32,
    /// The segment that has the run.
    pub segment: SegmentId,
    /// Where the run starts in the segment, in bytes.
    pub run_offset: u64,
    /// Bytes of the run as stored: its head, frame table and frames.
    pub stored_len: u32,
    /// Raw bytes of the whole run.
    pub run_len: u32,
    /// Raw bytes of the run before the part in use.
    pub skip: u32,
    /// The form of the run, see [`crate::run::RunForm`].
    pub form: u8,
    /// CRC32C of the run's head and frame table.
    pub check: u32,
}

impl Extent {
    const WHOLE: u8 = 1;

    /// The part of this extent from `from` (below `len`), `len` bytes long.
    #[must_use]
    pub fn part(&self, from: u32, len: u32) -> Extent {
        debug_assert!(len > 0 && from + len <= self.len);
        Extent { len, skip: self.skip + from, ..*self }
    }

    fn put(&self, to: &mut Encoder<'_>) {
        let whole = self.skip == 0 && self.len == self.run_len;
        to.u8(self.form << 1 | if whole { Self::WHOLE } else { 0 });
        to.varint(u64::from(self.len));
        to.varint(self.segment.0);
        to.varint(self.run_offset);
        to.varint(u64::from(self.stored_len));
        if !whole {
            to.varint(u64::from(self.run_len));
            to.varint(u64::from(self.skip));
        }
        to.u32(self.check);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Extent, FormatError> {
        let flags = from.u8()?;
        let len = from.varint32()?;
        let segment = SegmentId(from.varint()?);
        let run_offset = from.varint()?;
        let stored_len = from.varint32()?;
        let (run_len, skip) =
            if flags & Self::WHOLE != 0 { (len, 0) } else { (from.varint32()?, from.varint32()?) };
        if len == 0 || u64::from(skip) + u64::from(len) > u64::from(run_len) {
            return Err(FormatError::invalid(
                "an extent",
                format!("{len} bytes from {skip} of a run of {run_len}"),
            ));
        }
        let check = from.u32()?;
        Ok(Extent { len, segment, run_offset, stored_len, run_len, skip, form: flags >> 1, check })
    }
}

impl Row for Extent {
    fn encode_to(&self, to: &mut Vec<u8>) {
        to.push(1);
        self.put(&mut Encoder(to));
    }

    fn decode(bytes: &[u8]) -> Result<Extent, FormatError> {
        let mut from = Decoder::new(bytes, "an extent");
        version(&mut from, "an extent", 1)?;
        let extent = Extent::take(&mut from)?;
        from.end()?;
        Ok(extent)
    }
}

/// Where the data of a regular file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// It has no data: all of it is a hole.
    #[default]
    Empty,
    /// In its inline row, from byte 0; what the row lacks is a hole.
    Inline,
    /// In exactly one extent: block, offset in the block, and the extent itself.
    Single(u32, u32, Extent),
    /// In extent rows.
    Extents,
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRow {
    /// What it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub mode: u16,
    /// Names that it has; for a directory 1 while it has a name, 0 afterwards.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device; else 0.
    pub rdev: u32,
    /// Size in bytes: of a file its length, of a link its target's, of a directory 0.
    pub size: u64,
    /// Bytes of the file that are stored, before compression.
    pub allocated: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the contents; of a directory in [`DirectoryRow`] instead.
    pub mtime: Timespec,
    /// Last change of the inode; of a directory the later of this one and the one in [`DirectoryRow`].
    pub ctime: Timespec,
    /// When it was made.
    pub btime: Timespec,
    /// The directory that has its name: exact for a directory, a hint for anything else.
    pub parent: Ino,
    /// Whether it has extended attributes (ACLs are such).
    pub has_xattrs: bool,
    /// Whether it has a [`CutsRow`]: then extents that are gone may still have rows, and `allocated` counts them until they have none.
    pub has_cuts: bool,
    /// How machines agree on its contents; of a directory: on those of what is made in it.
    pub coherence: Coherence,
    /// The policy by which it goes; of a directory: by which what is made in it goes, too.
    pub policy: PolicyId,
    /// Where its data is.
    pub layout: Layout,
}

impl InodeRow {
    const SAME_CTIME: u8 = 1;
    const SAME_ATIME: u8 = 2;
    const SAME_BTIME: u8 = 4;
    const XATTRS: u8 = 8;
    const LAYOUT: u8 = 4;
    const CUTS: u8 = 128;
}

impl Row for InodeRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        let same = |same: bool, flag: u8| if same { flag } else { 0 };
        let layout: u8 = match self.layout {
            Layout::Empty => 0,
            Layout::Inline => 1,
            Layout::Single(..) => 2,
            Layout::Extents => 3,
        };
        // Version 1 has neither a mode nor a policy, and is what most inodes need; version 2 has no policy.
        let coherence: u8 = match self.coherence {
            Coherence::Coherent => 0,
            Coherence::CloseToOpen => 1,
            Coherence::Immutable => 2,
            Coherence::Sealed => 3,
        };
        let version = match (self.policy, coherence) {
            (PolicyId::NONE, 0) => 1,
            (PolicyId::NONE, _) => 2,
            _ => 3,
        };
        to.u8(version);
        to.u8(same(self.ctime == self.mtime, Self::SAME_CTIME)
            | same(self.atime == self.mtime, Self::SAME_ATIME)
            | same(self.btime == self.mtime, Self::SAME_BTIME)
            | same(self.has_xattrs, Self::XATTRS)
            | same(self.has_cuts, Self::CUTS)
            | layout << Self::LAYOUT);
        if version > 1 {
            to.u8(coherence);
        }
        if version > 2 {
            to.varint(self.policy.0);
        }
        to.varint(u64::from(self.kind.mode_bits() | u32::from(self.mode)));
        to.varint(u64::from(self.nlink));
        to.varint(u64::from(self.uid));
        to.varint(u64::from(self.gid));
        to.varint(self.parent.0);
        to.time(self.mtime);
        for (time, flag) in [
            (self.ctime, self.ctime == self.mtime),
            (self.atime, self.atime == self.mtime),
            (self.btime, self.btime == self.mtime),
        ] {
            if !flag {
                to.time(time);
            }
        }
        to.varint(self.size);
        to.varint(self.allocated);
        to.varint(u64::from(self.rdev));
        if let Layout::Single(block, offset, extent) = &self.layout {
            to.varint(u64::from(*block));
            to.varint(u64::from(*offset));
            extent.put(to);
        }
    }

    fn decode(bytes: &[u8]) -> Result<InodeRow, FormatError> {
        const WHAT: &str = "an inode";
        let mut from = Decoder::new(bytes, WHAT);
        let version = version(&mut from, WHAT, 3)?;
        let flags = from.u8()?;
        let coherence = match if version > 1 { Some(from.u8()?) } else { None } {
            None => Coherence::Coherent,
            Some(0) if version > 2 => Coherence::Coherent,
            Some(1) => Coherence::CloseToOpen,
            Some(2) => Coherence::Immutable,
            Some(3) => Coherence::Sealed,
            Some(other) => return Err(FormatError::invalid(WHAT, format!("coherence {other}"))),
        };
        let policy = if version > 2 { PolicyId(from.varint()?) } else { PolicyId::NONE };
        if version > 2 && policy == PolicyId::NONE {
            return Err(FormatError::invalid(WHAT, "version 3 without a policy"));
        }
        let mode = from.varint32()?;
        let kind = FileKind::from_mode(mode)
            .filter(|_| mode < 0o200_000)
            .ok_or_else(|| FormatError::invalid(WHAT, format!("mode {mode:o}")))?;
        let (nlink, uid, gid) = (from.varint32()?, from.varint32()?, from.varint32()?);
        let parent = Ino(from.varint()?);
        let mtime = from.time()?;
        let mut other = |flag: u8| if flags & flag != 0 { Ok(mtime) } else { from.time() };
        let (ctime, atime, btime) =
            (other(Self::SAME_CTIME)?, other(Self::SAME_ATIME)?, other(Self::SAME_BTIME)?);
        let (size, allocated, rdev) = (from.varint()?, from.varint()?, from.varint32()?);
        let layout = match (flags & !Self::CUTS) >> Self::LAYOUT {
            0 => Layout::Empty,
            1 => Layout::Inline,
            2 => Layout::Single(from.varint32()?, from.varint32()?, Extent::take(&mut from)?),
            3 => Layout::Extents,
            other => return Err(FormatError::invalid(WHAT, format!("layout {other}"))),
        };
        from.end()?;
        let mode = (mode & 0o7777) as u16;
        let has_xattrs = flags & Self::XATTRS != 0;
        let has_cuts = flags & Self::CUTS != 0;
        Ok(InodeRow {
            kind,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            allocated,
            atime,
            mtime,
            ctime,
            btime,
            parent,
            has_xattrs,
            has_cuts,
            coherence,
            policy,
            layout,
        })
    }
}

/// Times and counts of a directory: what a create or an unlink in it changes, apart from its inode's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryRow {
    /// Entries, not counting `.` and `..`.
    pub entries: u64,
    /// Entries that are directories.
    pub directories: u32,
    /// Last change of the entries.
    pub mtime: Timespec,
    /// Last change of the entries, as the inode change time counts it.
    pub ctime: Timespec,
}

impl Row for DirectoryRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.entries);
        to.varint(u64::from(self.directories));
        to.time(self.mtime);
        to.time(self.ctime);
    }

    fn decode(bytes: &[u8]) -> Result<DirectoryRow, FormatError> {
        let mut from = Decoder::new(bytes, "a directory's times and counts");
        version(&mut from, "a directory's times and counts", 1)?;
        let (entries, directories) = (from.varint()?, from.varint32()?);
        let row = DirectoryRow { entries, directories, mtime: from.time()?, ctime: from.time()? };
        from.end()?;
        Ok(row)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DentryRow {
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
}

impl Row for DentryRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.u8((self.kind.mode_bits() >> 12) as u8);
        to.varint(self.ino.0);
    }

    fn decode(bytes: &[u8]) -> Result<DentryRow, FormatError> {
        let mut from = Decoder::new(bytes, "a directory entry");
        version(&mut from, "a directory entry", 1)?;
        let kind = from.u8()?;
        let kind = FileKind::from_mode(u32::from(kind) << 12)
            .filter(|_| kind < 16)
            .ok_or_else(|| FormatError::invalid("a directory entry", format!("file type {kind}")))?;
        let ino = Ino(from.varint()?);
        from.end()?;
        Ok(DentryRow { ino, kind })
    }
}

/// Bytes that a row has as they are: inline data, a link's target, the value of an extended attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BytesRow(pub Vec<u8>);

impl BytesRow {
    /// Most bytes of inline data or a link's target; attribute values may be longer.
    pub const INLINE_MAX: usize = INLINE_MAX;
}

impl Row for BytesRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        to.push(1);
        to.extend_from_slice(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<BytesRow, FormatError> {
        let mut from = Decoder::new(bytes, "a row of bytes");
        version(&mut from, "a row of bytes", 1)?;
        Ok(BytesRow(from.rest().to_vec()))
    }
}

/// Blocks of a file, from `first` to `last`, whose extents are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The first block.
    pub first: u32,
    /// The last block; not below `first`.
    pub last: u32,
}

/// What was cut off a file: rows of extents in these blocks are not shown. At least one cut, in ascending order, with at least one block
/// between two of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutsRow(pub Vec<Cut>);

impl Row for CutsRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.0.len() as u64);
        debug_assert!(self.0.windows(2).all(|pair| u64::from(pair[0].last) + 1 < u64::from(pair[1].first)));
        let mut free = 0;
        for Cut { first, last } in &self.0 {
            to.varint(u64::from(*first).saturating_sub(free));
            to.varint(u64::from(last.saturating_sub(*first)));
            free = u64::from(*last) + 2;
        }
    }

    fn decode(bytes: &[u8]) -> Result<CutsRow, FormatError> {
        const WHAT: &str = "the cuts of a file";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let count = from.varint()?;
        if count == 0 {
            return Err(FormatError::invalid(WHAT, "there are none"));
        }
        let mut cuts = Vec::new();
        let mut free = 0u64;
        for _ in 0..count {
            let first = free.saturating_add(from.varint()?);
            let last = first.saturating_add(from.varint()?);
            free = last.saturating_add(2);
            match (u32::try_from(first), u32::try_from(last)) {
                (Ok(first), Ok(last)) => cuts.push(Cut { first, last }),
                _ => return Err(FormatError::invalid(WHAT, format!("no file has a block {last}"))),
            }
        }
        from.end()?;
        Ok(CutsRow(cuts))
    }
}

/// The end of a thing: its versions of older generations are seen by snapshots only. An empty value.
pub const TOMBSTONE: &[u8] = &[];

/// What a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// A file of the journal: runs between records.
    Journal,
    /// Written in place by large writes.
    Stream,
    /// Written whole, by sealing or compaction.
    Packed,
}

/// How far a segment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Being written on this machine.
    Open,
    /// Whole and on this machine's disk; not in the store.
    Sealed,
    /// In the store.
    Stored,
}

/// The name of an object in the store: `data/EPOCH-ID`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// Its number, never used again.
    pub id: ObjectId,
}

/// What the keys of all objects of data begin with.
pub const DATA_KEYS: &str = "data";

impl ObjectRef {
    /// Its key in the store.
    #[must_use]
    pub fn key(self) -> String {
        format!("{DATA_KEYS}/{:02x}/{:08x}-{:016x}", self.id.0 & 0xff, self.epoch.0, self.id.0)
    }
}

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// What it is.
    pub kind: SegmentKind,
    /// How far it has come.
    pub state: SegmentState,
    /// The object that has it, once it is stored.
    pub object: Option<ObjectRef>,
    /// Where it starts in the object, in bytes.
    pub object_offset: u64,
    /// Its length in bytes (of an open one as far as known).
    pub len: u64,
    /// Raw bytes of all its runs.
    pub raw: u64,
    /// Raw bytes in use, summed over all extents that refer to it (one that is shared counts twice). At 0 the segment is dead.
    pub live: u64,
    /// The epoch of its writer.
    pub epoch: Epoch,
}

impl Row for SegmentRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        let kind = match self.kind {
            SegmentKind::Journal => 0u8,
            SegmentKind::Stream => 1,
            SegmentKind::Packed => 2,
        };
        let state = match self.state {
            SegmentState::Open => 0u8,
            SegmentState::Sealed => 1,
            SegmentState::Stored => 2,
        };
        to.u8(kind | state << 2 | u8::from(self.object.is_some()) << 4);
        if let Some(object) = self.object {
            to.varint(object.epoch.0);
            to.varint(object.id.0);
        }
        to.varint(self.object_offset);
        to.varint(self.len);
        to.varint(self.raw);
        to.varint(self.live);
        to.varint(self.epoch.0);
    }

    fn decode(bytes: &[u8]) -> Result<SegmentRow, FormatError> {
        const WHAT: &str = "a segment's row";
        let mut from = Decoder::new(bytes, WHAT);
        version(&mut from, WHAT, 1)?;
        let flags = from.u8()?;
        let kind = match flags & 3 {
            0 => SegmentKind::Journal,
            1 => SegmentKind::Stream,
            2 => SegmentKind::Packed,
            other => return Err(FormatError::invalid(WHAT, format!("kind {other}"))),
        };
        let state = match flags >> 2 & 3 {
            0 => SegmentState::Open,
            1 => SegmentState::Sealed,
            2 => SegmentState::Stored,
            other => return Err(FormatError::invalid(WHAT, format!("state {other}"))),
        };
        let object = match flags >> 4 {
            0 => None,
            1 => Some(ObjectRef { epoch: Epoch(from.varint()?), id: ObjectId(from.varint()?) }),
            other => return Err(FormatError::invalid(WHAT, format!("flags {other}"))),
        };
        let (object_offset, len, raw, live) =
            (from.varint()?, from.varint()?, from.varint()?, from.varint()?);
        let epoch = Epoch(from.varint()?);
        from.end()?;
        Ok(SegmentRow { kind, state, object, object_offset, len, raw, live, epoch })
    }
}

/// The next numbers to hand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountersRow {
    /// The next run of inode numbers.
    pub run: u64,
    /// The next segment.
    pub segment: u64,
    /// The next object.
    pub object: u64,
    /// The next subvolume.
    pub subvolume: u32,
    /// How many inodes there are, where they are counted: in volumes whose metadata is kept without a journal, whose records could not be added up again.
    pub inodes: Option<u64>,
}

impl CountersRow {
    /// Those of a volume in which nothing was ever made; inodes are not counted.
    pub const FIRST: CountersRow = CountersRow { run: 1, segment: 1, object: 1, subvolume: 2, inodes: None };
}

impl Row for CountersRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(if self.inodes.is_some() { 2 } else { 1 });
        to.varint(self.run);
        to.varint(self.segment);
        to.varint(self.object);
        to.varint(u64::from(self.subvolume));
        if let Some(inodes) = self.inodes {
            to.varint(inodes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<CountersRow, FormatError> {
        let mut from = Decoder::new(bytes, "the counters");
        let version = version(&mut from, "the counters", 2)?;
        let (run, segment, object) = (from.varint()?, from.varint()?, from.varint()?);
        let subvolume = from.varint32()?;
        let inodes = if version > 1 { Some(from.varint()?) } else { None };
        let row = CountersRow { run, segment, object, subvolume, inodes };
        from.end()?;
        Ok(row)
    }
}

/// A subvolume: its own generations, and what it was cloned from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubvolumeRow {
    /// The generation that is being written.
    pub generation: Generation,
    /// The subvolume and generation that it shows where it has no version of its own.
    pub origin: Option<(SubvolumeId, Generation)>,
    /// The generations that snapshots hold, ascending; all below `generation`.
    pub snapshots: Vec<Generation>,
}

impl Row for SubvolumeRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(u64::from(self.generation.0));
        let (origin, generation) = self.origin.unwrap_or_default();
        to.varint(u64::from(origin.0));
        to.varint(u64::from(generation.0));
        to.varint(self.snapshots.len() as u64);
        self.snapshots.iter().for_each(|snapshot| to.varint(u64::from(snapshot.0)));
    }

    fn decode(bytes: &[u8]) -> Result<SubvolumeRow, FormatError> {
        let mut from = Decoder::new(bytes, "a subvolume");
        version(&mut from, "a subvolume", 1)?;
        let generation = Generation(from.varint32()?);
        let origin = (SubvolumeId(from.varint32()?), Generation(from.varint32()?));
        let count = from.varint()?;
        let mut snapshots = Vec::new();
        for _ in 0..count {
            snapshots.push(Generation(from.varint32()?));
        }
        from.end()?;
        let ascending = snapshots.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || snapshots.last().is_some_and(|last| *last >= generation) {
            return Err(FormatError::invalid("a subvolume", "its snapshots are out of order"));
        }
        Ok(SubvolumeRow { generation, origin: (origin.0.0 != 0).then_some(origin), snapshots })
    }
}

/// How much of the journal the rows contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppliedRow {
    /// The last record that is contained.
    pub sequence: Sequence,
    /// The epoch of the owner that wrote this.
    pub epoch: Epoch,
}

impl Row for AppliedRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        to.varint(self.sequence.0);
        to.varint(self.epoch.0);
    }

    fn decode(bytes: &[u8]) -> Result<AppliedRow, FormatError> {
        let mut from = Decoder::new(bytes, "the applied position");
        version(&mut from, "the applied position", 1)?;
        let row = AppliedRow { sequence: Sequence(from.varint()?), epoch: Epoch(from.varint()?) };
        from.end()?;
        Ok(row)
    }
}
