//! Groups of proxies: who is in them, as this server watches it.
//!
//! Guarantees: those of [`forebay_group`]'s keeper: views of a group form one line, whichever servers change them; a member is counted out only over the row
//! that this server saw unchanged for [`GroupTerms::count_out_after`]. Relies on the registry: a change is committed only if each row in it is, byte for byte,
//! as it was read.

mod renewals;

use std::{collections::BTreeMap, sync::Arc};

use forebay_group::{Change, GroupId, GroupRow, GroupTerms, MemberId, MemberRow, View, Watch};
use forebay_protocol::group::MemberNumbers;
use parking_lot::{Mutex, RwLock};

pub(crate) use renewals::Renewals;

use crate::{
    cluster::Cluster,
    registry::{Found, GroupBatch, GroupEntry, GroupMemberRow, GroupMembers, RegistryError},
};

/// All groups, as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) groups: BTreeMap<String, Found<GroupEntry>>,
    pub(crate) members: GroupMembers,
}

impl Known {
    /// The group with this identity, and its name.
    pub(crate) fn group(&self, id: GroupId) -> Option<(&str, &GroupEntry)> {
        let found = self.groups.iter().find(|(_, found)| found.row.id == id);
        found.map(|(name, found)| (name.as_str(), &found.row))
    }

    /// The view of a group.
    pub(crate) fn view(&self, id: GroupId) -> Option<&View> {
        self.group(id).map(|(_, entry)| &entry.row.view)
    }
}

/// Groups as this server watches them.
#[derive(Debug)]
pub(crate) struct Groups {
    terms: GroupTerms,
    watches: Mutex<BTreeMap<GroupId, Watch>>,
    known: RwLock<Arc<Known>>,
    /// Held while all rows are read: what was read later is known later.
    reading: Mutex<()>,
    pub(crate) renewals: Renewals,
}

impl Groups {
    pub(crate) fn new(terms: GroupTerms) -> Groups {
        Groups {
            terms,
            watches: Mutex::default(),
            known: RwLock::default(),
            reading: Mutex::new(()),
            renewals: Renewals::default(),
        }
    }

    /// What was read last.
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read())
    }

    /// Reads all rows.
    pub(crate) fn refresh(&self, cluster: &Cluster) -> Result<Arc<Known>, RegistryError> {
        let _alone = self.reading.lock();
        // Members first: a view that is read later knows of each of them.
        let members = cluster.registry.group_members()?;
        let known = Arc::new(Known { groups: cluster.registry.groups()?, members });
        *self.known.write() = Arc::clone(&known);
        Ok(known)
    }

    /// Reads all rows, and tells the owners of volumes: from then on they go by no view that was over before.
    pub(crate) fn tell_owners(&self, cluster: &Cluster) -> Result<Arc<Known>, RegistryError> {
        let known = self.refresh(cluster)?;
        for owner in cluster.hosted.read().values().filter_map(|hosted| hosted.owner()) {
            for found in known.groups.values() {
                owner.group_is(found.row.id, &found.row.row);
            }
        }
        Ok(known)
    }

    /// Looks at all members, tells the owners of volumes, and counts those out whose rows have not changed for long.
    pub(crate) fn look(&self, cluster: &Cluster) -> Result<(), RegistryError> {
        let known = self.tell_owners(cluster)?;
        let overdue = self.watch(&known, cluster);
        for (name, member, watched) in overdue {
            let decided = self.change(cluster, &name, Some(member), None, |group, found, settled| {
                // It renewed meanwhile, or another server was faster.
                let same = found.is_some_and(|found| *found == watched);
                Ok::<_, RegistryError>(same.then(|| group.count_out(member, &watched, settled)))
            })?;
            if decided.is_some_and(|(_, changed)| changed) {
                tracing::warn!("member {member} of the group '{name}' is counted out: it did not renew");
            }
        }
        Ok(())
    }

    fn watch(&self, known: &Known, cluster: &Cluster) -> Vec<(String, MemberId, MemberRow)> {
        let now = cluster.ticks.now();
        let mut watches = self.watches.lock();
        watches.retain(|id, _| known.group(*id).is_some());
        let mut overdue = Vec::new();
        for (name, found) in &known.groups {
            let GroupEntry { id, row } = &found.row;
            let range = (*id, MemberId([0; 16]))..=(*id, MemberId([0xff; 16]));
            let rows: BTreeMap<MemberId, MemberRow> = known
                .members
                .range(range)
                .map(|((_, member), found)| (*member, found.row.row.clone()))
                .collect();
            let watch = watches.entry(*id).or_insert_with(|| Watch::new(self.terms));
            watch.saw(row.view.epoch, &rows, now);
            overdue.extend(watch.overdue(now).into_iter().map(|(id, row)| (name.clone(), id, row)));
        }
        overdue
    }

    /// Changes a group. `decide` is given its row, that of `member`, and whether the view has stood for long; it is asked again where another change came
    /// first. `numbers` are put with the member's row. Answers the group as it is then, and whether it was changed; `None` where there is no such group.
    pub(crate) fn change<E: From<RegistryError>>(
        &self,
        cluster: &Cluster,
        name: &str,
        member: Option<MemberId>,
        numbers: Option<MemberNumbers>,
        mut decide: impl FnMut(&GroupRow, Option<&MemberRow>, bool) -> Result<Option<Change>, E>,
    ) -> Result<Option<(GroupEntry, bool)>, E> {
        loop {
            let Some(Found { row: group, bytes }) = cluster.registry.group(name)? else { return Ok(None) };
            let key = member.map(|member| (group.id, member));
            let found = cluster.registry.members_of_groups(key.as_slice())?.pop().flatten();
            let settled = {
                let watches = self.watches.lock();
                let (epoch, now) = (group.row.view.epoch, cluster.ticks.now());
                watches.get(&group.id).is_some_and(|watch| watch.settled(epoch, now))
            };
            let row = found.as_ref().map(|found| &found.row.row);
            let Some(change) = decide(&group.row, row, settled)? else { return Ok(Some((group, false))) };
            let mut batch = GroupBatch::default();
            let next = change.group.map(|(_, next)| GroupEntry { id: group.id, row: next });
            if let Some(next) = &next {
                batch.group(name, Some(bytes), Some(next));
            }
            if let Some((id, _, to)) = change.member {
                let numbers = numbers.unwrap_or_default();
                let to = to.map(|row| GroupMemberRow { row, numbers });
                batch.member((group.id, id), found.map(|found| found.bytes), to.as_ref());
            }
            if cluster.registry.change_groups(&batch)? {
                self.refresh(cluster)?;
                let changed = next.unwrap_or(group);
                // Not only from the next look on.
                let mut watches = self.watches.lock();
                let watch = watches.entry(changed.id).or_insert_with(|| Watch::new(self.terms));
                watch.view_is(changed.row.view.epoch, cluster.ticks.now());
                return Ok(Some((changed, true)));
            }
        }
    }
}
