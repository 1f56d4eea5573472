//! Groups of proxies, for those who run them, and for their members and clients.

use std::sync::Arc;

use forebay_group::{
    GroupId, GroupRow, Joining, Member, MemberId, MemberRow, MemberState, Refusal as GroupRefusal, Shape,
    ViewEpoch,
    placement::{WEIGHT_MAX, ZONE_MAX},
};
use forebay_protocol::{
    Refusal,
    group::{
        GROUPS_MAX, GroupInfo, GroupMember, GroupRequest, GroupVolume, Join, Joined, Leave, LostMember,
        MemberNumbers, NoWriteClass, WriteClass,
    },
};
use forebay_rpc::Peer;

use super::{check, invalid, making::check_name, unavailable};
use crate::{
    cluster::Cluster,
    groups::Known,
    registry::{
        Change, GroupBatch, GroupEntry, MemberRow as ServerRow, RegistryError, VolumeRow, VolumeState,
    },
    service::Refused,
};

/// How many members may be asked for at a segment's acknowledgement.
const COPIES_MAX: u8 = 8;

/// [`forebay_protocol::Kind::Groups`]
pub(crate) fn groups(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    request: &GroupRequest,
) -> Result<Vec<GroupInfo>, Refused> {
    check(cluster, peer)?;
    match request {
        GroupRequest::Create(name, copies) => make(cluster, name, *copies)?,
        GroupRequest::List => {
            let known = cluster.groups.refresh(cluster)?;
            cluster.registry.refresh()?;
            return Ok(known.groups.keys().filter_map(|name| info(cluster, &known, name)).collect());
        }
        GroupRequest::Show(_) => {}
        GroupRequest::SetCopies(name, copies) => {
            check_copies(*copies)?;
            let shape = Shape { copies: Some(*copies), ..Shape::default() };
            reshape(cluster, name, None, &shape)?;
        }
        GroupRequest::SetMember(name, member, weight, zone) => {
            check_shape(*weight, zone.as_deref())?;
            let member = member_of(cluster, name, member)?;
            let shape = Shape { weight: *weight, zone: zone.clone(), copies: None };
            reshape(cluster, name, Some(member), &shape)?;
        }
        GroupRequest::Drain(name, member) => {
            let member = member_of(cluster, name, member)?;
            change(cluster, name, Some(member), |group, _, settled| {
                let drains = group.view.members.get(&member).map(|member| member.state);
                (drains != Some(MemberState::Draining)).then(|| group.drain(member, settled)).transpose()
            })?;
        }
        GroupRequest::Remove(name, member) => {
            let member = member_of(cluster, name, member)?;
            change(cluster, name, Some(member), |group, found, settled| {
                group.remove(member, found, settled).map(Some)
            })?;
        }
        GroupRequest::GiveUp(name, member) => {
            let member = absent_member_of(cluster, name, member)?;
            change(cluster, name, Some(member), |group, found, settled| {
                group.give_up(member, found, settled)
            })?;
            tracing::warn!("member {member} of the group '{name}' is given up, and what it alone had");
        }
        GroupRequest::Delete(name) => {
            let gone = show(cluster, name)?;
            delete(cluster, name)?;
            return Ok(vec![gone]);
        }
        GroupRequest::Assign(volume, group) => assign(cluster, volume, group.as_slice())?,
        GroupRequest::AssignAll(volume, groups) => assign(cluster, volume, groups)?,
        GroupRequest::SetClass(volume, class) => set_class(cluster, volume, *class)?,
        GroupRequest::OfVolume(_) => {}
    }
    let names = match request {
        GroupRequest::Assign(volume, _)
        | GroupRequest::AssignAll(volume, _)
        | GroupRequest::OfVolume(volume)
        | GroupRequest::SetClass(volume, _) => {
            let view = cluster.registry.refresh()?;
            let row = view.volumes.get(volume).ok_or_else(|| Refusal::NoVolume(volume.clone()))?;
            if let Some(hosted) = cluster.hosted(row.id) {
                cluster.groups.refresh(cluster)?;
                hosted.tell_owner(cluster);
            }
            row.groups().map(str::to_owned).collect()
        }
        GroupRequest::Create(name, _)
        | GroupRequest::Show(name)
        | GroupRequest::SetCopies(name, _)
        | GroupRequest::SetMember(name, ..)
        | GroupRequest::Drain(name, _)
        | GroupRequest::Remove(name, _)
        | GroupRequest::GiveUp(name, _)
        | GroupRequest::Delete(name) => vec![name.clone()],
        GroupRequest::List => Vec::new(),
    };
    names.iter().map(|name| show(cluster, name)).collect()
}

pub(super) fn no_group(name: &str) -> Refused {
    invalid(format!("there is no group '{name}': `forebay group create {name}` makes one"))
}

fn check_copies(copies: u8) -> Result<(), Refused> {
    match copies {
        1..=COPIES_MAX => Ok(()),
        _ => Err(invalid(format!("{copies} copies of a segment: from 1 to {COPIES_MAX} are possible"))),
    }
}

fn check_shape(weight: Option<u32>, zone: Option<&str>) -> Result<(), Refused> {
    if let Some(weight) = weight.filter(|weight| !(1..=WEIGHT_MAX).contains(weight)) {
        return Err(invalid(format!("{weight} is no weight: a member's share is from 1 to {WEIGHT_MAX}")));
    }
    match zone {
        Some(zone) if zone.is_empty() || zone.len() > ZONE_MAX || zone.chars().any(char::is_control) => {
            Err(invalid(format!("{zone:?} is no zone: a name of 1 to {ZONE_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

fn make(cluster: &Cluster, name: &str, copies: u8) -> Result<(), Refused> {
    check_name("group", name)?;
    check_copies(copies)?;
    let id = GroupId(forebay_env::random().map_err(unavailable)?);
    let mut batch = GroupBatch::default();
    batch.group(name, None, Some(&GroupEntry { id, row: GroupRow::new(copies) }));
    if !cluster.registry.change_groups(&batch)? {
        return Err(invalid(format!("there is a group '{name}' already")));
    }
    cluster.groups.refresh(cluster)?;
    Ok(())
}

/// A member by its node, its address, its id, or the first digits of that.
fn member_of(cluster: &Cluster, name: &str, wanted: &str) -> Result<MemberId, Refused> {
    let known = cluster.groups.refresh(cluster)?;
    let group = known.groups.get(name).ok_or_else(|| no_group(name))?;
    let fits = |(id, member): &(&MemberId, &Member)| member.is_meant(**id, wanted);
    let fitting: Vec<MemberId> = group.row.row.view.members.iter().filter(fits).map(|(id, _)| *id).collect();
    match fitting.as_slice() {
        [id] => Ok(*id),
        [] => Err(invalid(format!(
            "the group '{name}' has no member '{wanted}': `forebay group show {name}` lists nodes, addresses and ids"
        ))),
        several => Err(invalid(format!(
            "'{wanted}' could be {} members of the group '{name}': give an address or an id",
            several.len()
        ))),
    }
}

/// A member that is not in the view: by the machine that it was on, its id, the first digits of that, or its whole id where it was counted out so long ago that the group
/// remembers nothing of it.
fn absent_member_of(cluster: &Cluster, name: &str, wanted: &str) -> Result<MemberId, Refused> {
    let known = cluster.groups.refresh(cluster)?;
    let group = &known.groups.get(name).ok_or_else(|| no_group(name))?.row.row;
    let was_on = |id: &MemberId| group.nodes.get(id).is_some_and(|node| node == wanted);
    let absent = group.lost.iter().map(|(id, _)| *id).chain(group.given_up.iter().copied());
    let fitting: Vec<MemberId> = absent.filter(|id| id.begins_with(wanted) || was_on(id)).collect();
    match (fitting.as_slice(), wanted.parse()) {
        ([id], _) => Ok(*id),
        ([], Ok(id)) => Ok(id),
        ([], _) => match member_of(cluster, name, wanted) {
            // It is there, which is said where the change is decided.
            Ok(id) => Ok(id),
            Err(_) => Err(invalid(format!(
                "the group '{name}' has lost no member '{wanted}': `forebay group lost --group {name}` lists who is missing"
            ))),
        },
        (several, _) => Err(invalid(format!(
            "'{wanted}' could be {} members that the group '{name}' has lost: give an id",
            several.len()
        ))),
    }
}

/// Changes a group by what the protocol decides.
fn change(
    cluster: &Cluster,
    name: &str,
    member: Option<MemberId>,
    mut decide: impl FnMut(
        &GroupRow,
        Option<&MemberRow>,
        bool,
    ) -> Result<Option<forebay_group::Change>, GroupRefusal>,
) -> Result<(), Refused> {
    let changed = cluster.groups.change(cluster, name, member, None, |group, found, settled| {
        decide(group, found, settled).map_err(|refusal| Refused::from(Refusal::Invalid(refusal.to_string())))
    })?;
    changed.map(drop).ok_or_else(|| no_group(name))
}

fn reshape(cluster: &Cluster, name: &str, member: Option<MemberId>, shape: &Shape) -> Result<(), Refused> {
    change(cluster, name, None, |group, _, settled| group.reshape(member, shape, settled))
}

/// In one line with changes of volumes: none comes to be read through a group that goes.
fn delete(cluster: &Cluster, name: &str) -> Result<(), Refused> {
    cluster.registry.change(|view| {
        let found = cluster.registry.group(name)?.ok_or_else(|| no_group(name))?;
        if !found.row.row.view.members.is_empty() {
            return Err(invalid(format!(
                "the group '{name}' has members: stop their proxies, or drain and remove them"
            )));
        }
        if let Some((volume, row)) = view.volumes.iter().find(|(_, row)| row.has_group(name)) {
            let others: Vec<&str> = row.groups().filter(|group| *group != name).collect();
            let others = if others.is_empty() { "none".to_owned() } else { others.join(",") };
            return Err(invalid(format!(
                "the volume '{volume}' is read through the group '{name}': `forebay volume set {volume} --group {others}` ends that"
            )));
        }
        Ok((vec![Change::GroupGoes(name.to_owned(), found.bytes)], ()))
    })?;
    cluster.groups.refresh(cluster)?;
    Ok(())
}

/// The volume is read through these groups from now on. In one line with changes of groups: none of them goes meanwhile.
fn assign(cluster: &Cluster, volume: &str, groups: &[String]) -> Result<(), Refused> {
    if groups.len() > GROUPS_MAX {
        return Err(invalid(format!("{} groups: a volume has {GROUPS_MAX} at most", groups.len())));
    }
    let mut names: Vec<&String> = groups.iter().collect();
    names.sort_unstable();
    if let Some([name, _]) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(invalid(format!("the group '{name}' is named twice")));
    }
    if groups.len() > 1 {
        cluster.look()?;
        if let Some(address) = cluster.members.lock().other_than(ServerRow::knows_several_groups) {
            return Err(invalid(format!(
                "the server at {address} is of an older release, which knows no volume with several groups: upgrade it first"
            )));
        }
    }
    cluster.registry.change(|view| {
        let row = view.volumes.get(volume).filter(|row| row.state == VolumeState::Ready);
        let row = row.ok_or_else(|| Refused::from(Refusal::NoVolume(volume.to_owned())))?;
        stays_written_over(volume, row, groups)?;
        for name in groups {
            let found = cluster.registry.group(name)?.ok_or_else(|| no_group(name))?;
            keeps_enough(name, &found.row, row.class)?;
        }
        let mut names = groups.iter().cloned();
        let (group, further) = (names.next().unwrap_or_default(), names.collect());
        let changed = VolumeRow { group, further, generation: row.generation + 1, ..row.clone() };
        Ok((vec![Change::Volume(volume.to_owned(), Some(changed))], ()))
    })
}

/// Refuses to take away a group whose members may have what the store has not, and to put another one in front of what mounts of an older release go by.
fn stays_written_over(volume: &str, row: &VolumeRow, groups: &[String]) -> Result<(), Refused> {
    let first = groups.first().map(String::as_str);
    let is_first = row.groups().next() == first;
    if row.class == WriteClass::Object
        || (is_first && row.groups().all(|name| groups.iter().any(|to| to == name)))
    {
        return Ok(());
    }
    let names = row.groups().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" and ");
    Err(invalid(format!(
        "the volume '{volume}' is written over {names}: others may be added behind; `forebay volume set {volume} --durability object --group NAME` ends that, and waits until nothing is left at the members of those that go"
    )))
}

/// Refuses a group that keeps fewer copies than a class takes.
fn keeps_enough(name: &str, group: &GroupEntry, class: WriteClass) -> Result<(), Refused> {
    if class == WriteClass::Object || class.copies(group.row.view.copies).is_some() {
        return Ok(());
    }
    Err(invalid(format!(
        "the group '{name}' keeps one copy of what is written, and one alone is never enough: give replica:2, or `forebay group set {name} --copies 2`; `local` is one copy on the machine that writes"
    )))
}

/// Mounts follow it as they follow the view.
fn set_class(cluster: &Cluster, volume: &str, class: WriteClass) -> Result<(), Refused> {
    if let WriteClass::Replica(Some(copies)) = class
        && !WriteClass::fits(copies)
    {
        return Err(invalid(format!(
            "{copies} copies of what is written: {}",
            NoWriteClass(class.to_string())
        )));
    }
    cluster.registry.change(|view| {
        let row = view.volumes.get(volume).filter(|row| row.state == VolumeState::Ready);
        let row = row.ok_or_else(|| Refused::from(Refusal::NoVolume(volume.to_owned())))?;
        if class != WriteClass::Object {
            if row.group.is_empty() {
                return Err(invalid(format!(
                    "the volume '{volume}' has no group of proxies that could keep copies: give one by --group"
                )));
            }
            for name in row.groups() {
                let found = cluster.registry.group(name)?.ok_or_else(|| no_group(name))?;
                keeps_enough(name, &found.row, class)?;
            }
        }
        let changed = VolumeRow { class, generation: row.generation + 1, ..row.clone() };
        Ok((vec![Change::Volume(volume.to_owned(), Some(changed))], ()))
    })
}

fn show(cluster: &Cluster, name: &str) -> Result<GroupInfo, Refused> {
    let known = cluster.groups.refresh(cluster)?;
    cluster.registry.refresh()?;
    info(cluster, &known, name).ok_or_else(|| no_group(name))
}

fn info(cluster: &Cluster, known: &Known, name: &str) -> Option<GroupInfo> {
    let GroupEntry { id, row: group } = &known.groups.get(name)?.row;
    let member = |(member, shape): (&MemberId, &Member)| {
        let row = known.members.get(&(*id, *member)).map(|found| &found.row);
        GroupMember {
            id: *member,
            member: shape.clone(),
            drained: row.is_some_and(|row| group.is_drained(*member, &row.row)),
            acknowledged: row.map_or(ViewEpoch(0), |row| row.row.acknowledged),
            dirty: row.map_or(0, |row| row.row.dirty),
            numbers: row.map_or(MemberNumbers::default(), |row| row.numbers),
        }
    };
    let lost = |id| LostMember { id, node: group.nodes.get(&id).cloned().unwrap_or_default() };
    let view = cluster.registry.view();
    let through = view.volumes.iter().filter(|(_, row)| row.has_group(name));
    let volumes = through.map(|(name, row)| GroupVolume { name: name.clone(), class: row.class });
    Some(GroupInfo {
        name: name.to_owned(),
        id: *id,
        epoch: group.view.epoch,
        copies: group.view.copies,
        members: group.view.members.iter().map(member).collect(),
        lost: group.lost.iter().map(|(id, _)| lost(*id)).collect(),
        given_up: group.given_up.iter().copied().collect(),
        volumes: volumes.collect(),
    })
}

/// The name of a group, which may have been made a moment ago by way of another server.
fn name_of(cluster: &Cluster, id: GroupId) -> Result<String, Refused> {
    if let Some((name, _)) = cluster.groups.known().group(id) {
        return Ok(name.to_owned());
    }
    let known = cluster.groups.refresh(cluster)?;
    let found = known.group(id).map(|(name, _)| name.to_owned());
    found.ok_or_else(|| invalid(format!("there is no group with the id {id} (any more)")))
}

/// [`forebay_protocol::Kind::Join`]
pub(crate) fn join(cluster: &Arc<Cluster>, peer: &Arc<Peer>, join: &Join) -> Result<Joined, Refused> {
    check(cluster, peer)?;
    check_shape(Some(join.member.weight), Some(&join.member.zone))?;
    check_shape(None, Some(&join.member.node))?;
    let name = name_of(cluster, join.group)?;
    let joining =
        Joining { id: join.id, member: join.member.clone(), log_end: join.log_end, dirty: join.dirty };
    let mut refused = None;
    let changed = cluster.groups.change(
        cluster,
        &name,
        Some(join.id),
        Some(join.numbers),
        |group, found, settled| match group.join(found, &joining, settled) {
            Ok(change) => Ok(change),
            Err(refusal) => {
                refused = Some(refusal);
                Ok::<_, RegistryError>(None)
            }
        },
    )?;
    let Some((group, changed)) = changed else { return Err(no_group(&name)) };
    if changed {
        let (id, Member { node, address, .. }) = (join.id, &join.member);
        tracing::info!("member {id} ({node}, {address}) has joined the group '{name}'");
        return Ok(Joined::In(group.row.view));
    }
    Ok(match refused {
        None => Joined::In(group.row.view),
        Some(GroupRefusal::Acts { address, .. }) => Joined::Acts(address),
        Some(refusal) => Joined::Never(refusal.to_string()),
    })
}

/// [`forebay_protocol::Kind::Leave`]
pub(crate) fn leave(cluster: &Arc<Cluster>, peer: &Arc<Peer>, leave: &Leave) -> Result<(), Refused> {
    check(cluster, peer)?;
    let name = name_of(cluster, leave.group)?;
    // Whoever acts for the member now has nothing to do with this process.
    let changed = cluster.groups.change(cluster, &name, Some(leave.id), None, |group, found, settled| {
        Ok::<_, RegistryError>(group.leave(leave.id, leave.incarnation, found, settled).unwrap_or(None))
    })?;
    if changed.is_some_and(|(_, changed)| changed) {
        tracing::info!("member {} has left the group '{name}'", leave.id);
    }
    Ok(())
}
