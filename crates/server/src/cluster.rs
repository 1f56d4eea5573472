//! What the parts of one server share.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Instant,
};

use forebay_cluster::{ServerId, Terms};
use forebay_engine::EngineHost;
use forebay_owner::Ticks;
use forebay_types::VolumeId;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::{
    counts::Counts,
    error::ServerError,
    groups::Groups,
    hosting::Hosted,
    members::{HEAD_START, Members, SETTLED_AFTER},
    migration::MigrationWatch,
    places::Places,
    registry::{MemberRow, Registry, RegistryError, VolumeState},
};

/// A server among those of one place of engines.
pub(crate) struct Cluster {
    pub(crate) host: Arc<dyn EngineHost>,
    pub(crate) places: Places,
    pub(crate) registry: Registry,
    pub(crate) server: ServerId,
    pub(crate) members: Mutex<Members>,
    pub(crate) hosted: RwLock<BTreeMap<VolumeId, Arc<Hosted>>>,
    pub(crate) groups: Groups,
    pub(crate) terms: Terms,
    pub(crate) ticks: Arc<dyn Ticks>,
    pub(crate) runtime: Handle,
    pub(crate) counts: Counts,
    /// Whether this machine needs no token, and no certificate.
    pub(crate) insecure: bool,
    /// Names of certificates that may administer; empty: all.
    pub(crate) admins: Vec<String>,
    pub(crate) address: String,
    /// When it began to serve.
    pub(crate) began: Instant,
    /// Told of the steps of moves.
    pub(crate) watch: Mutex<Option<MigrationWatch>>,
}

impl Cluster {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The volume with this identity, where it is at this server.
    pub(crate) fn hosted(&self, id: VolumeId) -> Option<Arc<Hosted>> {
        self.hosted.read().get(&id).cloned()
    }

    /// Where a volume should be, if that is another server.
    pub(crate) fn preferred_elsewhere(&self, volume: VolumeId) -> Option<String> {
        self.members.lock().preferred_elsewhere(volume).map(str::to_owned)
    }

    /// Whether a volume has been to be with this server for so long that another one has given it up.
    pub(crate) fn prefers_itself(&self, volume: VolumeId) -> bool {
        self.members.lock().alone_or_settled(volume, SETTLED_AFTER + HEAD_START)
    }

    /// Says that this server lives, hears which others do, and follows what has changed in the registry.
    pub(crate) fn beat(self: &Arc<Self>, beat: u64) -> Result<(), ServerError> {
        let release = env!("CARGO_PKG_VERSION").to_owned();
        let row = MemberRow { address: self.address.clone(), beat, release };
        self.registry.put_member(self.server, Some(&row))?;
        self.look()?;
        let forgotten = self.members.lock().forgotten();
        for server in forgotten {
            self.registry.put_member(server, None)?;
        }
        self.registry.refresh()?;
        self.follow()?;
        Ok(self.groups.look(self)?)
    }

    /// Reads who is there.
    pub(crate) fn look(&self) -> Result<(), RegistryError> {
        let began = self.ticks.now();
        let rows = self.registry.members()?;
        self.members.lock().saw(rows, (began, self.ticks.now()));
        Ok(())
    }

    /// Hosts the volumes that there are, and no others.
    pub(crate) fn follow(self: &Arc<Self>) -> Result<(), ServerError> {
        let view = self.registry.view();
        let ready = |id: &VolumeId| view.volume(*id).is_some_and(|(_, row)| row.state == VolumeState::Ready);
        let mut hosted = self.hosted.write();
        for (name, row) in view.volumes.iter().filter(|(_, row)| row.state == VolumeState::Ready) {
            if let Entry::Vacant(free) = hosted.entry(row.id) {
                free.insert(Hosted::start(self, row.id, name)?);
            }
        }
        let gone: Vec<VolumeId> = hosted.keys().filter(|id| !ready(id)).copied().collect();
        // They end by themselves; who waits for that has them still.
        gone.iter().filter_map(|id| hosted.remove(id)).for_each(|hosted| hosted.stop());
        Ok(())
    }
}
