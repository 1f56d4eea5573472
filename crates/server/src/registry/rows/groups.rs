//! Rows of groups of proxies: `05` and `06`.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{Decoder, Encoder, FormatError, row::Row};
use forebay_group::{GroupId, GroupRow, MemberId, MemberRow};
use forebay_protocol::{Word, group::MemberNumbers};

use super::{begin, invalid};

const GROUP: u8 = 5;
const GROUP_MEMBER: u8 = 6;

/// What keys of groups begin with.
pub(crate) const GROUPS: &[u8] = &[GROUP];
/// What keys of groups' members begin with.
pub(crate) const GROUP_MEMBERS: &[u8] = &[GROUP_MEMBER];

/// The key of a group's row.
pub(crate) fn group_key(name: &str) -> Vec<u8> {
    [GROUPS, name.as_bytes()].concat()
}

/// The key of a row of a group's member.
pub(crate) fn group_member_key(group: GroupId, member: MemberId) -> Vec<u8> {
    [GROUP_MEMBERS, &group.0, &member.0].concat()
}

/// The name in a group's key.
pub(crate) fn group_of(key: &[u8]) -> Option<String> {
    let name = key.strip_prefix(GROUPS)?;
    std::str::from_utf8(name).ok().map(str::to_owned)
}

/// Group and member in a key of [`GROUP_MEMBERS`].
pub(crate) fn group_member_of(key: &[u8]) -> Option<(GroupId, MemberId)> {
    let (group, member) = key.strip_prefix(GROUP_MEMBERS)?.split_at_checked(16)?;
    Some((GroupId(group.try_into().ok()?), MemberId(member.try_into().ok()?)))
}

/// A group of proxies. Its name is in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupEntry {
    /// Its identity, which no other group ever has.
    pub id: GroupId,
    /// What it is now.
    pub row: GroupRow,
}

impl Row for GroupEntry {
    /// Version 1 knows of nobody who was given up, and of no machines' names: releases that know no other read what has none.
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        let more = !self.row.given_up.is_empty() || !self.row.nodes.is_empty();
        to.u8(if more { 2 } else { 1 });
        to.0.extend_from_slice(&self.id.0);
        let list = |set: &BTreeSet<MemberId>| set.iter().copied().collect::<Vec<MemberId>>();
        self.row.view.put(to);
        list(&self.row.draining).put(to);
        list(&self.row.removed).put(to);
        self.row.lost.put(to);
        if more {
            self.row.nodes.iter().map(|(id, node)| (*id, node.clone())).collect::<Vec<_>>().put(to);
            list(&self.row.given_up).put(to);
        }
    }

    fn decode(bytes: &[u8]) -> Result<GroupEntry, FormatError> {
        const WHAT: &str = "a group of the registry";
        let mut from = Decoder::new(bytes, WHAT);
        let version = from.u8()?;
        if !(1..=2).contains(&version) {
            return Err(FormatError::Version { what: WHAT, found: u32::from(version), supported: 2 });
        }
        let id = GroupId(from.array()?);
        let view = Word::take(&mut from)?;
        let draining = set(&mut from, WHAT)?;
        let removed = set(&mut from, WHAT)?;
        let lost = Word::take(&mut from)?;
        let (mut nodes, mut given_up) = (BTreeMap::new(), BTreeSet::new());
        if version == 2 {
            let listed: Vec<(MemberId, String)> = Word::take(&mut from)?;
            if !listed.windows(2).all(|pair| pair[0].0 < pair[1].0) {
                return Err(invalid(WHAT, "members are not in their order".to_owned()));
            }
            (nodes, given_up) = (listed.into_iter().collect(), set(&mut from, WHAT)?);
        }
        from.end()?;
        Ok(GroupEntry { id, row: GroupRow { view, draining, removed, lost, nodes, given_up } })
    }
}

fn set(from: &mut Decoder<'_>, what: &'static str) -> Result<BTreeSet<MemberId>, FormatError> {
    let listed: Vec<MemberId> = Word::take(from)?;
    if !listed.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(invalid(what, "members are not in their order".to_owned()));
    }
    Ok(listed.into_iter().collect())
}

/// A group's member that acts. Who it is is in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMemberRow {
    /// What the protocol needs.
    pub row: MemberRow,
    /// The rest.
    pub numbers: MemberNumbers,
}

impl Row for GroupMemberRow {
    fn encode_to(&self, to: &mut Vec<u8>) {
        let to = &mut Encoder(to);
        to.u8(1);
        self.row.put(to);
        self.numbers.put(to);
    }

    fn decode(bytes: &[u8]) -> Result<GroupMemberRow, FormatError> {
        let mut from = begin(bytes, "a group's member of the registry")?;
        let row = GroupMemberRow { row: Word::take(&mut from)?, numbers: Word::take(&mut from)? };
        from.end()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use forebay_group::{Candidate, Incarnation, Member, MemberState, View, ViewEpoch};

    use super::*;

    fn id(byte: u8) -> MemberId {
        MemberId([byte; 16])
    }

    fn entry() -> GroupEntry {
        let mut view = View::new(2);
        view.epoch = ViewEpoch(300);
        for byte in [3, 9] {
            let member = Member {
                incarnation: Incarnation([byte; 16]),
                address: "10.0.0.3:7301".to_owned(),
                node: "n3".to_owned(),
                zone: "rack1".to_owned(),
                weight: 2048,
                state: MemberState::Draining,
            };
            view.members.insert(id(byte), member);
        }
        view.before = vec![Candidate { id: id(3), weight: 7, zone: "z".to_owned() }];
        let row = GroupRow {
            view,
            draining: [id(3), id(9)].into(),
            removed: [id(1)].into(),
            lost: vec![(id(8), 1 << 40), (id(2), 0)],
            nodes: [(id(2), "n2".to_owned()), (id(8), "n8".to_owned())].into(),
            given_up: [id(5), id(6)].into(),
        };
        GroupEntry { id: GroupId([7; 16]), row }
    }

    fn member() -> GroupMemberRow {
        let row = MemberRow {
            incarnation: Incarnation([4; 16]),
            beat: 1 << 20,
            acknowledged: ViewEpoch(5),
            log_end: 1 << 33,
            dirty: 3,
        };
        let numbers = MemberNumbers { dirty_bytes: 1, used: 2, capacity: 3, load: 400 };
        GroupMemberRow { row, numbers }
    }

    #[test]
    fn rows_are_read_as_they_were_written_and_no_part_of_them_is_one() {
        let bytes = entry().encode();
        assert_eq!(GroupEntry::decode(&bytes), Ok(entry()));
        (0..bytes.len()).for_each(|len| drop(GroupEntry::decode(&bytes[..len]).unwrap_err()));
        let mut former = entry();
        (former.row.nodes, former.row.given_up) = (BTreeMap::new(), BTreeSet::new());
        assert_eq!((former.encode()[0], bytes[0]), (1, 2));
        assert_eq!(GroupEntry::decode(&former.encode()), Ok(former));
        let bytes = member().encode();
        assert_eq!(GroupMemberRow::decode(&bytes), Ok(member()));
        (0..bytes.len()).for_each(|len| drop(GroupMemberRow::decode(&bytes[..len]).unwrap_err()));
        let later = [&[2], &bytes[1..]].concat();
        assert!(GroupMemberRow::decode(&later).unwrap_err().to_string().contains("use a newer one"));
    }

    /// Rows that are out there are read by later releases.
    #[test]
    fn the_bytes_stay() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let empty = GroupEntry { id: GroupId([7; 16]), row: GroupRow::new(2) };
        assert_eq!(hex(&empty.encode()), format!("01{}010200000000 00", "07".repeat(16)).replace(' ', ""));
        let mut given_up = empty;
        given_up.row.given_up.insert(id(6));
        let row = hex(&given_up.encode());
        assert_eq!(row, format!("02{}010200000000000001{}", "07".repeat(16), "06".repeat(16)));
        let row = hex(&member().encode());
        assert_eq!(row, format!("01{}80804005808080802003010203{}", "04".repeat(16), "9003"));
    }

    #[test]
    fn keys_say_whose_rows_they_are() {
        assert_eq!(group_of(&group_key("a.b")).as_deref(), Some("a.b"));
        let (group, member) = (GroupId([1; 16]), id(2));
        assert_eq!(group_member_of(&group_member_key(group, member)), Some((group, member)));
        assert_eq!(group_member_of(&group_key("a")), None);
        assert_eq!(group_member_of(&[GROUP_MEMBER, 1]), None);
    }
}
