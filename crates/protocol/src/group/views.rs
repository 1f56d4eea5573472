//! Groups of proxies: what their members, their clients and those who run them ask metadata servers.

use std::{collections::BTreeMap, fmt, str::FromStr};

use forebay_format::{Decoder, Encoder, FormatError};
use forebay_group::{GroupId, Incarnation, Member, MemberId, MemberRow, MemberState, View, ViewEpoch};

use crate::word::{Word, choice, lists, put_list, record, take_list, wrong};

/// What a member says of itself beside what the protocol needs, for people and for clients that choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberNumbers {
    /// Bytes that the store may not have.
    pub dirty_bytes: u64,
    /// Bytes of its cache that are used.
    pub used: u64,
    /// Bytes of its cache.
    pub capacity: u64,
    /// Reads that it answered in the last second.
    pub load: u64,
}

/// A process wants to act for a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// Which group.
    pub group: GroupId,
    /// Whose directory it has.
    pub id: MemberId,
    /// What it is in the view; the state is the group's to say.
    pub member: Member,
    /// Where its log ends.
    pub log_end: u64,
    /// Segments in it.
    pub dirty: u64,
    /// The rest.
    pub numbers: MemberNumbers,
}

/// What becomes of a [`Join`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Joined {
    /// It acts, from when it asked.
    In(View),
    /// Another process acts, or did until a moment ago: it is asked again.
    Acts(String),
    /// It never will with this directory, for this reason.
    Never(String),
}

/// A member stays in its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenewMember {
    /// Which group.
    pub group: GroupId,
    /// Who.
    pub id: MemberId,
    /// What its row becomes.
    pub row: MemberRow,
    /// The rest.
    pub numbers: MemberNumbers,
}

/// What becomes of a [`RenewMember`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// It stays; the present view, where it is later than the one that the member goes by.
    Stays(ViewEpoch, Option<View>),
    /// It was counted out, or another process acts: it joins anew.
    Out,
}

/// A member that acts no more leaves in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leave {
    /// Which group.
    pub group: GroupId,
    /// Who.
    pub id: MemberId,
    /// As which process.
    pub incarnation: Incarnation,
}

/// Asks for the group through which a volume is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewOf {
    /// The volume.
    pub volume: String,
    /// The secret of a token for it.
    pub token: Option<String>,
    /// The view that is known; 0: none.
    pub known: ViewEpoch,
}

/// Groups of one volume at most.
pub const GROUPS_MAX: usize = 8;

/// Asks for the groups through which a volume is read. Answered by what is known of each, in the volume's order; by none where it has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewsOf {
    /// The volume.
    pub volume: String,
    /// The secret of a token for it.
    pub token: Option<String>,
    /// The views that are known.
    pub known: Vec<(GroupId, ViewEpoch)>,
}

/// A group, as a client of it sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Which.
    pub id: GroupId,
    /// Its view, where that is later than the one that is known.
    pub view: Option<View>,
    /// On how many members' stable storage what is written to the volume is before it counts, where it is written over the group; else it goes to the store.
    pub writes: Option<u8>,
}

/// How durable what is written to a shared volume is before a sync succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteClass {
    /// The store has it.
    #[default]
    Object,
    /// The member of the volume's group that is on the writer's machine has it on stable storage, perhaps alone; where there is none, the store.
    Local,
    /// So many members of the volume's group have it on stable storage, at least [`WriteClass::COPIES_MIN`]; as many as the group says, where none is given.
    Replica(Option<u8>),
}

impl WriteClass {
    /// How many copies of [`WriteClass::Local`] there are, by which it is told to mounts and kept in rows: releases that do not know it put what is written there into the
    /// store.
    pub const COPIES_LOCAL: u8 = 1;
    /// The fewest copies of [`WriteClass::Replica`]: one alone is never enough.
    pub const COPIES_MIN: u8 = 2;
    /// The most.
    pub const COPIES_MAX: u8 = 8;

    /// Whether so many copies are possible.
    #[must_use]
    pub fn fits(copies: u8) -> bool {
        (WriteClass::COPIES_MIN..=WriteClass::COPIES_MAX).contains(&copies)
    }

    /// The number of copies, where a group keeps `group` of its segments; `None` where what is written goes to the store.
    #[must_use]
    pub fn copies(self, group: u8) -> Option<u8> {
        let copies = match self {
            WriteClass::Object => return None,
            WriteClass::Local => return Some(WriteClass::COPIES_LOCAL),
            WriteClass::Replica(copies) => copies.unwrap_or(group),
        };
        (copies >= WriteClass::COPIES_MIN).then_some(copies)
    }
}

impl fmt::Display for WriteClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteClass::Object => f.write_str("object"),
            WriteClass::Local => f.write_str("local"),
            WriteClass::Replica(None) => f.write_str("replica"),
            WriteClass::Replica(Some(copies)) => write!(f, "replica:{copies}"),
        }
    }
}

/// A text is no class.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is no durability of a shared volume: there are object, replica, replica:K with K from {min} to {max}, and local",
    min = WriteClass::COPIES_MIN,
    max = WriteClass::COPIES_MAX
)]
pub struct NoWriteClass(pub String);

impl FromStr for WriteClass {
    type Err = NoWriteClass;

    fn from_str(text: &str) -> Result<WriteClass, NoWriteClass> {
        let copies = |digits: &str| digits.parse().ok().filter(|copies| WriteClass::fits(*copies));
        match text.split_once(':') {
            None if text == "object" => Some(WriteClass::Object),
            None if text == "local" => Some(WriteClass::Local),
            None if text == "replica" => Some(WriteClass::Replica(None)),
            Some(("replica", digits)) => copies(digits).map(|copies| WriteClass::Replica(Some(copies))),
            _ => None,
        }
        .ok_or_else(|| NoWriteClass(text.to_owned()))
    }
}

/// A volume that goes through a group, and how it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupVolume {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: WriteClass,
}

/// What is to be done with groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupRequest {
    /// Makes one of this name with so many copies.
    Create(String, u8),
    /// All of them.
    List,
    /// One of them.
    Show(String),
    /// How many copies a segment has.
    SetCopies(String, u8),
    /// What a member is: group, member (its node, its address, or its id's first digits), weight, zone.
    SetMember(String, String, Option<u32>, Option<String>),
    /// A member takes nothing new, and puts what it has.
    Drain(String, String),
    /// A member that has drained leaves for good.
    Remove(String, String),
    /// The disk of a member that is not in the view is lost for good: what it alone had is given up.
    GiveUp(String, String),
    /// Forgets one without members, which no volume is read through.
    Delete(String),
    /// A volume is read through this group, or through none.
    Assign(String, Option<String>),
    /// The groups of a volume, in its order. Who knows of one alone takes the first.
    OfVolume(String),
    /// How durable what is written to a volume is. Answered by its groups.
    SetClass(String, WriteClass),
    /// A volume is read through these groups, [`GROUPS_MAX`] at most. Answered by them.
    AssignAll(String, Vec<String>),
}

/// A member, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// Who.
    pub id: MemberId,
    /// What it is; its weight is 0 where it is not in the view.
    pub member: Member,
    /// Whether it takes nothing new and has nothing that the store may not have.
    pub drained: bool,
    /// The view that it goes by.
    pub acknowledged: ViewEpoch,
    /// Segments that the store may not have.
    pub dirty: u64,
    /// The rest.
    pub numbers: MemberNumbers,
}

/// A member that is not in the view, and may come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostMember {
    /// Who.
    pub id: MemberId,
    /// The machine that it was on; empty where that is not known.
    pub node: String,
}

/// A group, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Which.
    pub id: GroupId,
    /// Its view.
    pub epoch: ViewEpoch,
    /// How many members have a segment before it is acknowledged.
    pub copies: u8,
    /// Who is in it.
    pub members: Vec<GroupMember>,
    /// Who was counted out, or left, and may come back; and on which machine it was, where that is known.
    pub lost: Vec<LostMember>,
    /// Who was given up.
    pub given_up: Vec<MemberId>,
    /// Volumes that are read through it.
    pub volumes: Vec<GroupVolume>,
}

/// [`WriteClass::Local`] goes as a number of copies that earlier releases know to be too few: they say so, and change nothing.
impl Word for WriteClass {
    fn put(&self, to: &mut Encoder<'_>) {
        let copies = match self {
            WriteClass::Object => return to.u8(1),
            WriteClass::Local => Some(WriteClass::COPIES_LOCAL),
            WriteClass::Replica(copies) => *copies,
        };
        to.u8(2);
        copies.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<WriteClass, FormatError> {
        match from.u8()? {
            1 => Ok(WriteClass::Object),
            2 => Ok(match Word::take(from)? {
                Some(WriteClass::COPIES_LOCAL) => WriteClass::Local,
                copies => WriteClass::Replica(copies),
            }),
            tag => Err(wrong(format!("{tag} is no WriteClass"))),
        }
    }
}

impl Word for View {
    fn put(&self, to: &mut Encoder<'_>) {
        self.epoch.put(to);
        self.copies.put(to);
        to.varint(self.members.len() as u64);
        for (id, member) in &self.members {
            id.put(to);
            member.put(to);
        }
        put_list(&self.before, to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<View, FormatError> {
        let (epoch, copies) = (ViewEpoch::take(from)?, u8::take(from)?);
        let listed: Vec<(MemberId, Member)> = take_list(from)?;
        let count = listed.len();
        let ordered = listed.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let members: BTreeMap<MemberId, Member> = listed.into_iter().collect();
        // In one order alone, so that what is decoded encodes to what it was.
        if !ordered || members.len() != count {
            return Err(wrong("members of a view are not in their order".to_owned()));
        }
        Ok(View { epoch, copies, members, before: take_list(from)? })
    }
}

record!(Member { incarnation, address, node, zone, weight, state });
record!(MemberRow { incarnation, beat, acknowledged, log_end, dirty });
record!(MemberNumbers { dirty_bytes, used, capacity, load });
record!(Join { group, id, member, log_end, dirty, numbers });
record!(RenewMember { group, id, row, numbers });
record!(Leave { group, id, incarnation });
record!(ViewOf { volume, token, known });
record!(ViewsOf { volume, token, known });
record!(GroupView { name, id, view, writes });
record!(GroupVolume { name, class });
record!(GroupMember { id, member, drained, acknowledged, dirty, numbers });
record!(LostMember { id, node });
record!(GroupInfo { name, id, epoch, copies, members, lost, given_up, volumes });
choice!(MemberState { 1 => Active, 2 => Draining });
choice!(Joined { 1 => In(view), 2 => Acts(address), 3 => Never(why) });
choice!(Renewed { 1 => Stays(epoch, view), 2 => Out });
choice!(GroupRequest {
    1 => Create(name, copies),
    2 => List,
    3 => Show(name),
    4 => SetCopies(name, copies),
    5 => SetMember(name, member, weight, zone),
    6 => Drain(name, member),
    7 => Remove(name, member),
    8 => Delete(name),
    9 => Assign(volume, group),
    10 => OfVolume(volume),
    11 => SetClass(volume, class),
    12 => GiveUp(name, member),
    13 => AssignAll(volume, groups),
});
lists!(
    GroupInfo,
    GroupMember,
    GroupView,
    GroupVolume,
    LostMember,
    (GroupId, ViewEpoch),
    (MemberId, u64),
    (MemberId, String),
);
