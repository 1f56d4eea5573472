//! How segments over the members of groups stand: what those who run them ask metadata servers.

use forebay_group::MemberId;
use forebay_types::{Ino, SegmentId};

use crate::word::{lists, record};

/// Segments, and the bytes of them that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many.
    pub segments: u64,
    /// Bytes of files.
    pub bytes: u64,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
    }
}

/// Asks how the segments stand that the store may not have, of the volumes that the asked server owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetsOf {
    /// Over this group alone.
    pub group: Option<String>,
    /// Those are listed that no member has that is there, or that are lost.
    pub list: bool,
    /// The files with parts of these are named: all rows of each volume are looked through.
    pub files: bool,
}

/// How the segments of a volume over the members of a group stand that the store may not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeSets {
    /// The volume.
    pub volume: String,
    /// The group; its id where it has no name any more.
    pub group: String,
    /// The owner's term: of two servers that say that a volume is theirs the later one is right.
    pub epoch: u64,
    /// Their writers append to them, or ended and they are recovered.
    pub open: Tally,
    /// They wait to be stored.
    pub sealed: Tally,
    /// Of both, those of which fewer members are there than there are to be copies, but one at least.
    pub under: Tally,
    /// Those of which no member is there: who needs them waits for one.
    pub missing: Tally,
    /// Those that were given up: reads of them fail.
    pub lost: Tally,
    /// Whether the owner knows who is in the group; else nothing is said to be missing.
    pub known: bool,
    /// For how long the oldest of those that are sealed has waited to be stored, in seconds, since this owner has known of it.
    pub oldest_s: u64,
    /// The missing, then the lost, as many of them as fit.
    pub list: Vec<MissingSegment>,
    /// Some of the files with parts of these, from the root on, where they were asked for.
    pub files: Vec<String>,
}

/// A segment that nobody has who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingSegment {
    /// Which.
    pub segment: SegmentId,
    /// Bytes of files that are in use of it.
    pub bytes: u64,
    /// It was given up.
    pub lost: bool,
    /// The directory whose files were put together in it.
    pub directory: Ino,
    /// Who had it, or has.
    pub members: Vec<MemberId>,
}

record!(Tally { segments, bytes });
record!(SetsOf { group, list, files });
record!(VolumeSets {
    volume,
    group,
    epoch,
    open,
    sealed,
    under,
    missing,
    lost,
    known,
    oldest_s,
    list,
    files
});
record!(MissingSegment { segment, bytes, lost, directory, members });
lists!(VolumeSets, MissingSegment);
