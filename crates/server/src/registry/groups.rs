//! Groups of proxies in the registry. Their changes are no changes of volumes and tokens: each expects the rows that it was decided over.

use std::collections::BTreeMap;

use forebay_engine::Batch;
use forebay_format::row::Row;
use forebay_group::{GroupId, MemberId};

use super::{
    Registry, RegistryError,
    rows::{
        GROUP_MEMBERS, GROUPS, GroupEntry, GroupMemberRow, group_key, group_member_key, group_member_of,
        group_of,
    },
};

/// A row with the bytes that it was read from: what a change expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<T> {
    /// What it says.
    pub row: T,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Members' rows of all groups.
pub type GroupMembers = BTreeMap<(GroupId, MemberId), Found<GroupMemberRow>>;

/// A row's bytes, where there is one.
type Bytes = Option<Vec<u8>>;

/// Rows that are put together or not at all: each with what it must be, and what it becomes.
#[derive(Debug, Default)]
pub struct GroupBatch(Vec<(Vec<u8>, Bytes, Bytes)>);

impl GroupBatch {
    /// A group's row.
    pub fn group(&mut self, name: &str, from: Option<Vec<u8>>, to: Option<&GroupEntry>) {
        self.0.push((group_key(name), from, to.map(Row::encode)));
    }

    /// A row of a member.
    pub fn member(
        &mut self,
        (group, member): (GroupId, MemberId),
        from: Option<Vec<u8>>,
        to: Option<&GroupMemberRow>,
    ) {
        self.0.push((group_member_key(group, member), from, to.map(Row::encode)));
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Registry {
    /// All groups.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn groups(&self) -> Result<BTreeMap<String, Found<GroupEntry>>, RegistryError> {
        let mut groups = BTreeMap::new();
        self.each_row(GROUPS, |key, value| {
            let found = Found { row: GroupEntry::decode(value)?, bytes: value.to_vec() };
            groups.extend(group_of(key).map(|name| (name, found)));
            Ok(())
        })?;
        Ok(groups)
    }

    /// The rows of all members of all groups.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn group_members(&self) -> Result<GroupMembers, RegistryError> {
        let mut members = BTreeMap::new();
        self.each_row(GROUP_MEMBERS, |key, value| {
            let found = Found { row: GroupMemberRow::decode(value)?, bytes: value.to_vec() };
            members.extend(group_member_of(key).map(|key| (key, found)));
            Ok(())
        })?;
        Ok(members)
    }

    /// One group.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn group(&self, name: &str) -> Result<Option<Found<GroupEntry>>, RegistryError> {
        self.engine.get(&group_key(name))?.map(|bytes| self.found(bytes)).transpose()
    }

    /// The rows of these members, in this order.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn members_of_groups(
        &self,
        wanted: &[(GroupId, MemberId)],
    ) -> Result<Vec<Option<Found<GroupMemberRow>>>, RegistryError> {
        let keys: Vec<_> = wanted.iter().map(|(group, member)| group_member_key(*group, *member)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let rows = self.engine.get_many(&keys)?;
        rows.into_iter().map(|row| row.map(|bytes| self.found(bytes)).transpose()).collect()
    }

    /// Changes rows. `false` where one of them is not as expected any more: nothing was changed.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn change_groups(&self, changes: &GroupBatch) -> Result<bool, RegistryError> {
        // Each row that is put is like none before it: a view or a beat that is greater, or a process of its own.
        let Some((mark, ..)) = changes.0.first() else { return Ok(true) };
        let rows = changes.0.iter().map(|(key, _, to)| (key.as_slice(), to.as_deref())).collect();
        let expect = changes.0.iter().map(|(key, from, _)| (key.clone(), from.clone())).collect();
        self.commit_settled(&Batch { expect, rows }, mark)
    }

    fn found<T: Row>(&self, bytes: Vec<u8>) -> Result<Found<T>, RegistryError> {
        let row = T::decode(&bytes).map_err(|source| self.damaged(source))?;
        Ok(Found { row, bytes })
    }
}
