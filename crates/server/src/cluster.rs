//! What the parts of one server share.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Instant,
};

use forebay_cluster::{Moment, ServerId, Terms};
use forebay_engine::{Engine, EngineHost};
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
    /// Its beats, where one server at a time has the place.
    pub(crate) tenure: Option<Tenure>,
    /// When it began to serve.
    pub(crate) began: Instant,
    /// Told of the steps of moves.
    pub(crate) watch: Mutex<Option<MigrationWatch>>,
}

/// That this server alone has the place of the registry. Its beats there renew the ownership of every volume (`Ownership::alone`).
pub(crate) struct Tenure {
    /// No other server's beat that began later was committed.
    pub(crate) alone_since: Moment,
    /// When the last beat began that was committed.
    renewed: Mutex<Option<Moment>>,
}

impl Tenure {
    /// What the registry's engine says at this moment; `None` where servers share the place.
    pub(crate) fn of(engine: &dyn Engine, ticks: &dyn Ticks) -> Option<Tenure> {
        // Read first: time that passes in between is not counted.
        let alone_for = engine.alone_for()?;
        Some(Tenure { alone_since: ticks.now() - alone_for, renewed: Mutex::default() })
    }

    /// When the last beat began that was committed.
    pub(crate) fn last(&self) -> Option<Moment> {
        *self.renewed.lock()
    }

    /// Renews the owner at this server, if there is one. Called after each beat for all, and for each volume once it has its owner.
    pub(crate) fn renew(&self, hosted: &Hosted) {
        if let (Some(owner), Some(began)) = (hosted.owner(), self.last()) {
            owner.renewed(began);
        }
    }
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

    /// Says that this server lives. Returns whether that is certain.
    pub(crate) fn beat(&self, beat: u64) -> Result<bool, RegistryError> {
        let release = MemberRow::RELEASE.to_owned();
        let row = MemberRow { address: self.address.clone(), beat, release };
        let began = self.ticks.now();
        let mut certain = self.registry.put_member(self.server, Some(&row))?;
        if !certain && self.tenure.is_some() {
            // Who was shut out hears of it by the next one.
            certain = self.registry.put_member(self.server, Some(&row))?;
        }
        if certain {
            self.renewed(began);
        }
        Ok(certain)
    }

    /// Whether this server alone has the place, for all that it knows; true where servers share it.
    pub(crate) fn has_place(&self) -> bool {
        self.tenure.as_ref().is_none_or(|tenure| self.terms.serves(tenure.last(), self.ticks.now()))
    }

    /// Hears which other servers live, and follows what has changed in the registry.
    pub(crate) fn keep_up(self: &Arc<Self>) -> Result<(), ServerError> {
        self.look()?;
        let forgotten = self.members.lock().forgotten();
        for server in forgotten {
            self.registry.put_member(server, None)?;
        }
        self.registry.refresh()?;
        self.follow()?;
        Ok(self.groups.look(self)?)
    }

    /// A beat that began then is committed: owners at this server are, where nothing else renews them.
    fn renewed(&self, began: Moment) {
        let Some(tenure) = &self.tenure else { return };
        *tenure.renewed.lock() = Some(began);
        for hosted in self.hosted.read().values() {
            tenure.renew(hosted);
        }
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
