//! Which bytes the policies of a volume want in the caches of its group, told to the members of that.

use std::sync::Arc;

use forebay_protocol::{Refusal, Wanted, WantedOf};
use forebay_rpc::Peer;

use super::{Refused, Service, ask::owner_of};
use crate::{
    admin::{check, invalid, unavailable, volume_info},
    registry::VolumeState,
};

impl Service {
    /// [`forebay_protocol::Kind::Wanted`]: asked of the volume's owner, by those who may administer, which members of a group are.
    pub(super) fn wanted(&self, peer: &Arc<Peer>, of: WantedOf) -> Result<Wanted, Refused> {
        let cluster = &self.cluster;
        check(cluster, peer)?;
        self.knows_member((of.group, of.member, of.incarnation))?;
        let WantedOf { volume, group, member, incarnation, from, report } = of;
        let mut view = cluster.registry.view();
        if !view.volumes.contains_key(&volume) {
            // It may have been made a moment ago, by way of another server.
            view = cluster.registry.refresh()?;
        }
        let row = view.volumes.get(&volume).filter(|row| row.state == VolumeState::Ready);
        let row = row.ok_or_else(|| Refusal::NoVolume(volume.clone()))?;
        let hosted = cluster.hosted(row.id).ok_or(Refusal::NotOwner { address: None })?;
        let owner = owner_of(cluster, &hosted)?;
        let known = cluster.groups.known();
        let mut read_through = row.groups().filter_map(|name| Some(known.groups.get(name)?.row.id));
        if !read_through.any(|id| id == group) {
            return Err(invalid(format!("the volume '{volume}' is not read through the group {group}")));
        }
        if let Some(report) = report {
            owner.member_found((member, incarnation), report);
        }
        // Before the rows are looked at: what changes meanwhile is asked for again.
        let version = owner.policy_version();
        let page = match from {
            Some(from) => owner.wanted(group, from).map_err(unavailable)?,
            None => Default::default(),
        };
        let volume = volume_info(&volume, row);
        Ok(Wanted { volume, version, places: page.places, next: page.next })
    }
}
