//! Policies of directories and files (`docs/design/policies.md`).

use forebay_format::{Decoder, Encoder, FormatError};
use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_types::{Epoch, Ino, PolicyId, SegmentId, SyncClass};

use crate::{
    SegmentPlace, VolumeInfo,
    word::{Word, choice, lists, record, wrong},
};

/// Inodes, or policies, that one request names at most.
pub const POLICIES_MAX: usize = 4096;

/// A change of policies. Only sessions that a server begins for those who administer may ask for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyChange {
    /// From now on the policy of this directory or file says something else by itself; where it has none of its own, it is given one. What its own does not say, what it went by
    /// before does.
    Set(Ino, PolicyEdit),
    /// These go by the policy, unless they go by another one than what its directory went by before. Answered by [`crate::Answer::Committed`] with those that do.
    Give(PolicyId, Vec<Ino>),
    /// All that was below the directory has been given the policy.
    Spread(PolicyId),
}

/// What a policy is to say by itself from now on. `None` leaves what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyEdit {
    /// What `fsync` waits for at least; `Some(None)`: nothing is said of it.
    pub durability: Option<Option<SyncClass>>,
    /// Whether bytes are pinned in the caches of the volume's group.
    pub pin: Option<bool>,
    /// Outside of which group's disks no bytes are kept.
    pub confine: Option<Option<GroupId>>,
    /// In which group's caches bytes are kept as long as there is room.
    pub place: Option<Option<GroupId>>,
    /// On which group's disks no bytes are kept.
    pub exclude: Option<Option<GroupId>>,
}

/// What is said in a policy, with groups by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicySaid {
    /// What `fsync` waits for at least.
    pub durability: Option<SyncClass>,
    /// Whether bytes are pinned in the caches of the volume's group.
    pub pin: bool,
    /// Outside of which group's disks no bytes are kept.
    pub confine: Option<String>,
    /// In which group's caches bytes are kept as long as there is room.
    pub place: Option<String>,
    /// On which group's disks no bytes are kept.
    pub exclude: Option<String>,
}

/// Parts of what a policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyParts {
    /// [`PolicySaid::durability`]
    pub durability: bool,
    /// [`PolicySaid::pin`]
    pub pin: bool,
    /// [`PolicySaid::confine`]
    pub confine: bool,
    /// [`PolicySaid::place`]
    pub place: bool,
    /// [`PolicySaid::exclude`]
    pub exclude: bool,
}

impl PolicyParts {
    /// All of it.
    pub const ALL: PolicyParts =
        PolicyParts { durability: true, pin: true, confine: true, place: true, exclude: true };
}

/// What is asked about the policy of a directory or file, or is to be done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRequest {
    /// The volume.
    pub volume: String,
    /// The directory or file.
    pub ino: Ino,
    /// What.
    pub what: PolicyWhat,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyWhat {
    /// Nothing.
    Show,
    /// It says this by itself besides what it says.
    Set(PolicySaid),
    /// These parts of what it says by itself count no longer.
    Unset(PolicyParts),
    /// What is in the directory, from after a name on, is to go by this policy: one step.
    Give(PolicyId, Option<Vec<u8>>),
    /// All steps are done.
    Spread(PolicyId),
    /// Nothing: as [`PolicyWhat::Show`], of this one of the volume's groups.
    ShowIn(String),
}

/// What counts for a directory or file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyInfo {
    /// The policy by which it goes.
    pub policy: PolicyId,
    /// For what that was said; `None` where it goes by none.
    pub made_for: Option<Ino>,
    /// What that says, with what it came after.
    pub said: PolicySaid,
    /// What that says by itself.
    pub own: PolicySaid,
    /// The group through which the volume is read, the first of several, or the one that was named; empty: none.
    pub group: String,
    /// On which disks bytes may be: of this machine and all groups; of members of one of its groups at least, or of the one that was named; on none: `fsync` waits for the store.
    pub disks: Disks,
    /// How far that is so of what is to be kept or not kept by members, all that goes by the policy together; `None` where nothing is.
    pub kept: Option<PolicyKept>,
    /// The class of the volume.
    pub volume: SyncClass,
    /// Whether all that was below has been given the policy.
    pub spread: bool,
    /// Whether it is a directory.
    pub directory: bool,
    /// What a step did.
    pub step: PolicyStep,
}

/// What a step did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyStep {
    /// How many were looked at.
    pub seen: u64,
    /// How many of them go by another policy, and stay so.
    pub kept: u64,
    /// Directories of which what is in them is to be given the policy, too.
    pub directories: Vec<Ino>,
    /// The last name; `None` where there were no more.
    pub next: Option<Vec<u8>>,
}

/// On which disks bytes may be, besides the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Disks {
    /// On any.
    #[default]
    Any,
    /// On those of the members of the volume's group alone.
    Members,
    /// On none.
    None,
}

/// What a policy says of bytes, to those who write and read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyRule {
    /// Which policy.
    pub policy: PolicyId,
    /// What `fsync` waits for at least.
    pub class: Option<SyncClass>,
    /// On which disks they may be.
    pub disks: Disks,
}

/// Where bytes may be besides the store, by a policy that says something of disks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Whether on the disk of the machine that reads or writes them, as far as the volume's groups are known to who says so.
    pub here: bool,
    /// On the disks of which groups' members; of no others, also where the volume has others.
    pub groups: Vec<GroupId>,
}

/// As [`PolicyRule`], of each of a volume's groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRule {
    /// Which policy.
    pub policy: PolicyId,
    /// What `fsync` waits for at least, wherever they may be.
    pub class: Option<SyncClass>,
    /// Where they may be; `None`: nothing is said of disks.
    pub bounds: Option<Bounds>,
}

/// Bytes that policies concern, of whole chunks of members' caches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicySums {
    /// They are to be in caches.
    pub wanted: u64,
    /// They are.
    pub kept: u64,
    /// They are not: there is no room, for those that are pinned among the pins.
    pub no_room: u64,
    /// They are not: the store did not give them.
    pub failed: u64,
    /// Bytes that were on disks and were to be on none of them, dropped the last time.
    pub dropped: u64,
    /// What the store said, the last time.
    pub why: String,
}

/// How far policies are satisfied by the members of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyKept {
    /// What members have said.
    pub sums: PolicySums,
    /// Members that are active.
    pub members: u32,
    /// Those of them that have said something within two minutes.
    pub heard: u32,
    /// Whether all of these have gone through all that there is.
    pub whole: bool,
}

/// How far they are, at a member: for each policy of which it found something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyReport {
    /// Whether it has gone through all that there is.
    pub whole: bool,
    /// The policies by which files go, and what was found of each.
    pub sums: Vec<(PolicyId, PolicySums)>,
}

/// A member asks the owner of a volume which bytes are to be in its cache, or are not to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedOf {
    /// The volume.
    pub volume: String,
    /// The group, through which the volume is to be read.
    pub group: GroupId,
    /// Who asks.
    pub member: MemberId,
    /// As which process.
    pub incarnation: Incarnation,
    /// From which inode, and from which byte of it on; `None`: only the version is asked for.
    pub from: Option<(Ino, u64)>,
    /// What it has found so far, where it has looked.
    pub report: Option<PolicyReport>,
}

/// What changes whenever a policy does: the term of the owner, and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyVersion {
    /// The owner's term.
    pub epoch: Epoch,
    /// The last batch that changed one.
    pub batch: u64,
}

/// What is to be in the caches of a group, and what is not to be: some of it, in the order of inodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The volume.
    pub volume: VolumeInfo,
    /// Of which policies this is said.
    pub version: PolicyVersion,
    /// Which bytes.
    pub places: Vec<WantedPlace>,
    /// From where to go on.
    pub next: Option<(Ino, u64)>,
}

/// What becomes of bytes in the caches of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// They are there, and stay.
    Stay,
    /// They are there as long as there is room.
    Near,
    /// They are not there.
    Nowhere,
}

/// Stored bytes of a file, and what is to become of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedPlace {
    /// The policy by which the file goes.
    pub policy: PolicyId,
    /// What is to become of them.
    pub wish: Wish,
    /// The segment that has them.
    pub segment: SegmentId,
    /// Where that is in the store.
    pub place: SegmentPlace,
    /// From which byte of the segment on.
    pub from: u64,
    /// How many.
    pub len: u64,
}

/// Asks a server how far policies are satisfied, for the volumes that it owns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeptOf {
    /// Of this group alone.
    pub group: Option<String>,
}

/// How far the policies of a volume are satisfied by its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeKept {
    /// The volume.
    pub volume: String,
    /// The group through which it is read.
    pub group: String,
    /// The owner's term.
    pub epoch: u64,
    /// How far.
    pub kept: PolicyKept,
}

/// One byte, as in rows: how many copies, or 0 for the store.
impl Word for SyncClass {
    fn put(&self, to: &mut Encoder<'_>) {
        to.u8(self.copies().unwrap_or(0));
    }

    fn take(from: &mut Decoder<'_>) -> Result<SyncClass, FormatError> {
        match from.u8()? {
            0 => Ok(SyncClass::Object),
            copies => {
                SyncClass::of_copies(copies).ok_or_else(|| wrong(format!("a class of {copies} copies")))
            }
        }
    }
}

choice!(PolicyChange { 1 => Set(ino, class), 2 => Give(policy, inos), 3 => Spread(policy) });
choice!(PolicyWhat { 1 => Show, 2 => Set(said), 3 => Unset(parts), 4 => Give(policy, after), 5 => Spread(policy), 6 => ShowIn(group) });
choice!(Wish { 1 => Stay, 2 => Near, 3 => Nowhere });
choice!(Disks { 1 => Any, 2 => Members, 3 => None });
record!(PolicyRule { policy, class, disks });
record!(Bounds { here, groups });
record!(GroupRule { policy, class, bounds });
record!(PolicyEdit { durability, pin, confine, place, exclude });
record!(PolicySaid { durability, pin, confine, place, exclude });
record!(PolicyParts { durability, pin, confine, place, exclude });
record!(PolicyRequest { volume, ino, what });
record!(PolicyInfo { policy, made_for, said, own, group, disks, kept, volume, spread, directory, step });
record!(PolicyStep { seen, kept, directories, next });
record!(PolicySums { wanted, kept, no_room, failed, dropped, why });
record!(PolicyKept { sums, members, heard, whole });
record!(PolicyReport { whole, sums });
record!(WantedOf { volume, group, member, incarnation, from, report });
record!(PolicyVersion { epoch, batch });
record!(Wanted { volume, version, places, next });
record!(WantedPlace { policy, wish, segment, place, from, len });
record!(KeptOf { group });
record!(VolumeKept { volume, group, epoch, kept });
lists!(
    PolicyId,
    (PolicyId, SyncClass),
    (PolicyId, PolicySums),
    WantedPlace,
    VolumeKept,
    PolicyRule,
    GroupRule,
    GroupId,
);
