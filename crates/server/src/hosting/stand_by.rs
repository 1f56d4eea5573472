use std::{sync::Arc, time::Duration};

use forebay_cluster::{Fence, Moment, ServerId};
use forebay_owner::StandsBy;

use super::{Hosted, Standing};
use crate::cluster::{Cluster, Tenure};

/// A server that stands by for a volume: says who has it, and leaves it to its preferred server for a while.
pub(super) struct Waits<'a> {
    cluster: &'a Arc<Cluster>,
    hosted: &'a Hosted,
    /// Who has the volume, as its fence says.
    owner: Option<ServerId>,
    /// Since when the volume has been to be had.
    free: Option<Moment>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(cluster: &'a Arc<Cluster>, hosted: &'a Hosted) -> Waits<'a> {
        Waits { cluster, hosted, owner: None, free: None }
    }
}

impl StandsBy for Waits<'_> {
    fn pause(&mut self, time: Duration) {
        self.hosted.pause(time);
    }

    fn stopped(&self) -> bool {
        self.hosted.ends()
    }

    fn saw(&mut self, fence: Option<&Fence>) {
        self.owner = fence.and_then(|fence| fence.server);
        let owner = fence.filter(|fence| fence.server.is_some()).map(|fence| fence.address.clone());
        *self.hosted.epoch.lock() = fence.map_or(0, |fence| fence.epoch.0);
        self.hosted.stand(Standing::StandsBy(owner));
    }

    fn beat(&self) -> Option<Moment> {
        self.cluster.tenure.as_ref().and_then(Tenure::last)
    }

    fn takes(&mut self, now: Moment) -> bool {
        let free = *self.free.get_or_insert(now);
        self.cluster.members.lock().takes(self.hosted.id, self.owner, free, now)
    }
}
