//! A volume at this server: standing by, owning, giving up. One thread a volume, and one more that commits while it is owned.
//!
//! The order that must hold: the owner's committer has ended before this server stands by for the volume again, so that two owners of one volume never share
//! a process.

mod chores;
mod life;
mod stand_by;

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_engine::{DatabaseName, DatabaseNameError, MovableEngine};
use forebay_owner::VolumeOwner;
use forebay_protocol::group::WriteClass;
use forebay_types::VolumeId;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{cluster::Cluster, links::Links, migration::Migration, registry::VolumePlace};

/// What a server is for a volume.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Another server owns it, which is reached there, or nobody does, as far as is known.
    StandsBy(Option<String>),
    /// This one owns it.
    Owns(Arc<VolumeOwner>),
}

/// How a volume's thread is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum End {
    Not,
    /// The volume is given up once everything is committed and answered.
    InOrder,
    /// As a crash would.
    AtOnce,
}

/// A volume at this server.
pub(crate) struct Hosted {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) links: Arc<Links>,
    standing: RwLock<Standing>,
    /// The epoch of the fence that was seen last.
    epoch: Mutex<u64>,
    end: AtomicU8,
    /// Wakes the thread.
    bell: (Mutex<()>, Condvar),
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the owner at this server stands on.
    engine: Mutex<Option<Arc<MovableEngine>>>,
    migration: Mutex<Option<Arc<Migration>>>,
    /// Held while an owner is told of the volume: what was read of the registry later is told later.
    tells: Mutex<()>,
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hosted({}, {:?})", self.name, self.standing())
    }
}

/// The name of a volume's database.
pub(crate) fn database(id: VolumeId, at: &VolumePlace) -> Result<DatabaseName, DatabaseNameError> {
    match at.brought_by.as_str() {
        "" => format!("volume-{id}").parse(),
        brought_by => format!("volume-{id}-{brought_by}").parse(),
    }
}

impl Hosted {
    /// Begins to host a volume.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(cluster: &Arc<Cluster>, id: VolumeId, name: &str) -> std::io::Result<Arc<Hosted>> {
        let hosted = Arc::new(Hosted {
            id,
            name: name.to_owned(),
            links: Arc::new(Links::new(cluster.runtime.clone())),
            standing: RwLock::new(Standing::StandsBy(None)),
            epoch: Mutex::new(0),
            end: AtomicU8::new(End::Not as u8),
            bell: Default::default(),
            thread: Mutex::new(None),
            engine: Mutex::default(),
            migration: Mutex::default(),
            tells: Mutex::default(),
        });
        let (of, cluster) = (Arc::clone(&hosted), Arc::clone(cluster));
        let thread = std::thread::Builder::new().name("fb-volume".to_owned());
        let thread = thread.spawn(move || life::run(&cluster, &of))?;
        *hosted.thread.lock() = Some(thread);
        Ok(hosted)
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.read().clone()
    }

    /// The owner, if it is at this server.
    pub(crate) fn owner(&self) -> Option<Arc<VolumeOwner>> {
        match &*self.standing.read() {
            Standing::Owns(owner) => Some(Arc::clone(owner)),
            Standing::StandsBy(_) => None,
        }
    }

    /// Tells the owner, if it is at this server, what the registry says of the volume, as it is known here. Whoever tells anybody else of the volume's group, or
    /// asks the owner about it, does this before.
    pub(crate) fn tell_owner(&self, cluster: &Cluster) {
        if let Some(owner) = self.owner() {
            self.tell(cluster, &owner);
        }
    }

    fn tell(&self, cluster: &Cluster, owner: &VolumeOwner) {
        let _in_order = self.tells.lock();
        let (view, known) = (cluster.registry.view(), cluster.groups.known());
        let Some((_, row)) = view.volume(self.id) else { return };
        owner.set_limit(row.limit);
        // One that is not known yet may be there: then nothing is told of any.
        let groups: Option<Vec<_>> =
            row.groups().map(|name| known.groups.get(name).map(|found| found.row.id)).collect();
        if let Some(groups) = groups {
            owner.set_groups(groups);
        }
        owner.set_to_store(row.class == WriteClass::Object);
        owner.set_copies(match row.class {
            WriteClass::Object => None,
            WriteClass::Local => Some(WriteClass::COPIES_LOCAL),
            // Without a number, each group's own.
            WriteClass::Replica(copies) => copies,
        });
    }

    /// The term of the owner that is known last.
    pub(crate) fn epoch(&self) -> u64 {
        *self.epoch.lock()
    }

    /// Whether this owner is still the one at this server, and stays it.
    pub(crate) fn is_owned_by(&self, owner: &Weak<VolumeOwner>) -> bool {
        !self.ends() && self.owner().is_some_and(|present| Arc::downgrade(&present).ptr_eq(owner))
    }

    /// What the owner at this server stands on.
    pub(crate) fn engine(&self) -> Option<Arc<MovableEngine>> {
        self.engine.lock().clone()
    }

    /// The move that goes on, or the last one of the owner at this server.
    pub(crate) fn migration(&self) -> Option<Arc<Migration>> {
        self.migration.lock().clone()
    }

    /// Begins a move in a thread of its own. `None` where one goes on, or there can be no thread.
    pub(crate) fn begin_migration(
        &self,
        migration: Migration,
        work: impl FnOnce(&Migration) + Send + 'static,
    ) -> Option<Arc<Migration>> {
        let mut present = self.migration.lock();
        if self.ends() || present.as_ref().is_some_and(|present| present.goes_on()) {
            return None;
        }
        let migration = Arc::new(migration);
        migration.start(work).ok()?;
        *present = Some(Arc::clone(&migration));
        Some(migration)
    }

    /// Whether the volume is being moved.
    fn moves(&self) -> bool {
        self.migration().is_some_and(|migration| migration.goes_on())
    }

    fn stand(&self, standing: Standing) {
        *self.standing.write() = standing;
    }

    /// Ends hosting in order; [`Hosted::join`] waits for it.
    pub(crate) fn stop(&self) {
        self.end_by(End::InOrder);
    }

    /// Ends hosting as a crash would.
    pub(crate) fn abandon(&self) {
        self.end_by(End::AtOnce);
    }

    fn end_by(&self, end: End) {
        self.end.fetch_max(end as u8, SeqCst);
        if let (Some(owner), End::AtOnce) = (self.owner(), end) {
            owner.abandon();
        }
        let _awake = self.bell.0.lock();
        self.bell.1.notify_all();
    }

    /// Waits until hosting has ended.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(volume = self.name, "the thread of a volume panicked");
        }
    }

    pub(crate) fn ends(&self) -> bool {
        self.end.load(SeqCst) != End::Not as u8
    }

    pub(crate) fn ends_at_once(&self) -> bool {
        self.end.load(SeqCst) == End::AtOnce as u8
    }

    /// Waits this long, or until hosting is to end.
    pub(crate) fn pause(&self, time: Duration) {
        let mut bell = self.bell.0.lock();
        if !self.ends() {
            self.bell.1.wait_for(&mut bell, time);
        }
    }
}
