//! How the segments stand that the store may not have, of the volumes that this server owns.

use std::sync::Arc;

use forebay_owner::SetsStatus;
use forebay_protocol::group::{SetsOf, VolumeSets};
use forebay_rpc::Peer;

use super::{check, unavailable};
use crate::{cluster::Cluster, service::Refused};

/// [`forebay_protocol::Kind::Sets`]
pub(crate) fn sets(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    of: &SetsOf,
) -> Result<Vec<VolumeSets>, Refused> {
    check(cluster, peer)?;
    if of.list {
        // Somebody may be about to give a member up: one that is gone by now must not count as there because an owner has not heard of it.
        cluster.groups.tell_owners(cluster).map_err(unavailable)?;
        // And that nothing is written over a group any more, before it is said that nothing is left there.
        cluster.registry.refresh()?;
        cluster.hosted.read().values().for_each(|hosted| hosted.tell_owner(cluster));
    }
    let mut all = all_sets(cluster, of.list);
    if of.list {
        all.extend(nothing_of(cluster, &all));
        all.sort_by(|a, b| (&a.volume, &a.group).cmp(&(&b.volume, &b.group)));
    }
    all.retain(|one| of.group.as_ref().is_none_or(|group| *group == one.group));
    if of.files {
        for one in &mut all {
            name_files(cluster, one)?;
        }
    }
    Ok(all)
}

/// Of groups of the volumes that this server owns in which there are none: that it is so is said, too.
fn nothing_of(cluster: &Cluster, all: &[VolumeSets]) -> Vec<VolumeSets> {
    let view = cluster.registry.view();
    let hosted: Vec<_> = cluster.hosted.read().values().cloned().collect();
    let owned = hosted.iter().filter(|hosted| hosted.owner().is_some());
    let groups = owned.filter_map(|hosted| Some((hosted, view.volume(hosted.id)?.1)));
    let groups = groups.flat_map(|(hosted, row)| row.groups().map(move |group| (hosted, group)));
    let is_said =
        |volume: &str, group: &str| all.iter().any(|one| one.volume == volume && one.group == group);
    groups
        .filter(|(hosted, group)| !is_said(&hosted.name, group))
        .map(|(hosted, group)| VolumeSets {
            volume: hosted.name.clone(),
            group: group.to_owned(),
            epoch: hosted.epoch(),
            known: true,
            ..VolumeSets::default()
        })
        .collect()
}

/// Those of all groups, in the order of the volumes' names.
pub(crate) fn all_sets(cluster: &Cluster, list: bool) -> Vec<VolumeSets> {
    let known = cluster.groups.known();
    let hosted: Vec<_> = cluster.hosted.read().values().cloned().collect();
    let mut all = Vec::new();
    for hosted in hosted {
        let Some(owner) = hosted.owner() else { continue };
        for (group, status) in owner.sets(list) {
            let SetsStatus { open, sealed, under, missing, lost, known: is_known, oldest, list } = status;
            all.push(VolumeSets {
                volume: hosted.name.clone(),
                group: known.group(group).map_or_else(|| group.to_string(), |(name, _)| name.to_owned()),
                epoch: hosted.epoch(),
                open,
                sealed,
                under,
                missing,
                lost,
                known: is_known,
                oldest_s: oldest.as_secs(),
                list,
                files: Vec::new(),
            });
        }
    }
    all.sort_by(|a, b| (&a.volume, &a.group).cmp(&(&b.volume, &b.group)));
    all
}

/// Looks through all rows of the volume.
fn name_files(cluster: &Cluster, of: &mut VolumeSets) -> Result<(), Refused> {
    if of.list.is_empty() {
        return Ok(());
    }
    let hosted = cluster.hosted.read().values().find(|hosted| hosted.name == of.volume).cloned();
    if let Some(owner) = hosted.and_then(|hosted| hosted.owner()) {
        let segments = of.list.iter().map(|missing| missing.segment);
        of.files = owner.files_in(segments).map_err(unavailable)?;
    }
    Ok(())
}
