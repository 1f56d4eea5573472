//! What the thread of a volume does, over and over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_cluster::{Moment, Ownership};
use forebay_engine::{Engine, EngineError, MovableEngine, Writers};
use forebay_env::SystemClock;
use forebay_owner::{Taken, VolumeOwner, stand_by};
use forebay_types::SubvolumeId;

use super::{Hosted, Standing, chores::Chores, database, stand_by::Waits};
use crate::{
    cluster::Cluster, error::ServerError, members::KEPT_AFTER_RETURN, migration, registry::VolumeRow,
};

/// How often an owner's server does what is to be done beside requests.
const CHORES_EVERY: Duration = Duration::from_secs(1);
/// How long a volume is left alone that could not be opened.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

pub(super) fn run(cluster: &Arc<Cluster>, hosted: &Arc<Hosted>) {
    // Since when nobody wanted back what this server gave up.
    let mut gave_up: Option<Moment> = None;
    let mut warned = String::new();
    while !hosted.ends() {
        match once(cluster, hosted, &mut gave_up) {
            Ok(()) => warned.clear(),
            Err(error) => {
                let error = error.to_string();
                if error != warned {
                    tracing::error!(
                        volume = hosted.name,
                        "a volume cannot be served, and is tried again: {error}"
                    );
                }
                warned = error;
                hosted.stand(Standing::StandsBy(None));
                hosted.pause(AGAIN_AFTER);
            }
        }
    }
    hosted.stand(Standing::StandsBy(None));
}

/// Stands by, owns the volume, and gives it up or loses it.
fn once(
    cluster: &Arc<Cluster>,
    hosted: &Arc<Hosted>,
    gave_up: &mut Option<Moment>,
) -> Result<(), ServerError> {
    let row = volume_row(cluster, hosted)?;
    let Some(engine) = open(cluster, hosted, &row)? else { return Ok(()) };
    if let Some(closed) = migration::closed(engine.as_ref())? {
        drop(engine);
        return migration::follow(cluster, hosted, &row, &closed);
    }
    let movable = Arc::new(MovableEngine::new(engine));
    let engine: Arc<dyn Engine> = Arc::clone(&movable) as _;
    let mut ownership = Ownership::new(cluster.server, cluster.address().to_owned(), cluster.terms);
    if let Some(tenure) = &cluster.tenure {
        ownership = ownership.alone(tenure.alone_since);
    }
    let mut waits = Waits::new(cluster, hosted);
    let taken = stand_by(&engine, ownership, cluster.ticks.as_ref(), &mut waits)?;
    let Some(taken) = taken else { return Ok(()) };
    let owner = own(cluster, hosted, taken, engine, &row)?;
    *hosted.epoch.lock() = owner.epoch().map_or(0, |epoch| epoch.0);
    tracing::info!(volume = hosted.name, epoch = hosted.epoch(), "this server owns the volume");
    let ended = Arc::new(AtomicBool::new(false));
    let committer = {
        let (owner, hosted, ended) = (Arc::clone(&owner), Arc::clone(hosted), Arc::clone(&ended));
        std::thread::Builder::new().name("fb-commit".to_owned()).spawn(move || {
            let _rings = Rings { hosted: &hosted, ended: &ended };
            if let Err(error) = owner.commit_until_stopped() {
                tracing::error!(volume = hosted.name, "nothing can be committed any more: {error}");
            }
        })?
    };
    *hosted.engine.lock() = Some(movable);
    hosted.tell(cluster, &owner);
    hosted.stand(Standing::Owns(Arc::clone(&owner)));
    if let Some(tenure) = &cluster.tenure {
        tenure.renew(hosted);
    }
    migration::clean_up(cluster, hosted, &owner);
    if serve(cluster, hosted, &owner, &ended, *gave_up) {
        *gave_up = Some(cluster.ticks.now());
    }
    match hosted.ends_at_once() {
        true => owner.abandon(),
        false => owner.stop(),
    }
    if committer.join().is_err() {
        tracing::error!(volume = hosted.name, "the committer panicked");
    }
    hosted.stand(Standing::StandsBy(None));
    let moved = hosted.migration.lock().take();
    if let Some(moved) = moved {
        moved.join();
    }
    *hosted.engine.lock() = None;
    tracing::info!(volume = hosted.name, "this server no longer owns the volume");
    Ok(())
}

/// Says that the committer has ended, however it did.
struct Rings<'a> {
    hosted: &'a Hosted,
    ended: &'a AtomicBool,
}

impl Drop for Rings<'_> {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        let _awake = self.hosted.bell.0.lock();
        self.hosted.bell.1.notify_all();
    }
}

/// Does the chores until the ownership is to end or is over. Returns whether the volume is given up for another server.
fn serve(
    cluster: &Arc<Cluster>,
    hosted: &Arc<Hosted>,
    owner: &Arc<VolumeOwner>,
    ended: &AtomicBool,
    gave_up: Option<Moment>,
) -> bool {
    let mut chores = Chores::new(cluster, hosted, owner);
    while !hosted.ends() && !ended.load(SeqCst) {
        let now = cluster.ticks.now();
        let kept = gave_up.is_some_and(|gave_up| now.since(gave_up) < KEPT_AFTER_RETURN);
        if let Some(other) = cluster.members.lock().gives_up_for(hosted.id, now)
            && !kept
            && !hosted.moves()
        {
            tracing::info!(volume = hosted.name, "the volume is given up for the server at {other}");
            return true;
        }
        chores.run();
        hosted.pause(CHORES_EVERY);
    }
    false
}

/// The volume's database. `None` where it is not to be opened now, or is not there any more.
fn open(
    cluster: &Arc<Cluster>,
    hosted: &Hosted,
    row: &VolumeRow,
) -> Result<Option<Arc<dyn Engine>>, ServerError> {
    let name = database(hosted.id, &row.place).map_err(|error| ServerError::Told(error.to_string()))?;
    let host = cluster.places.host(&row.place.address)?;
    // Opening would take it from the server that has it; where the cluster's own place has one writer, there is no other server.
    let shuts_out = host.writers() == Writers::One && cluster.host.writers() == Writers::Many;
    if shuts_out && !cluster.prefers_itself(hosted.id) {
        hosted.stand(Standing::StandsBy(None));
        hosted.pause(AGAIN_AFTER / 10);
        return Ok(None);
    }
    // And a server that has lost its own place, or may have, would take it from the one that has.
    if !cluster.has_place() {
        hosted.stand(Standing::StandsBy(None));
        hosted.pause(AGAIN_AFTER / 10);
        return Ok(None);
    }
    match host.open(&name) {
        Ok(engine) => Ok(Some(engine)),
        Err(error @ EngineError::Missing { .. }) => {
            // It may have moved a moment ago.
            let view = cluster.registry.refresh()?;
            match view.volume(hosted.id) {
                Some((_, found)) if found.place == row.place => Err(error.into()),
                _ => Ok(None),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn volume_row(cluster: &Cluster, hosted: &Hosted) -> Result<VolumeRow, ServerError> {
    let view = cluster.registry.view();
    let row = view.volume(hosted.id).map(|(_, row)| row.clone());
    row.ok_or_else(|| ServerError::Told(format!("the registry has no volume '{}' any more", hosted.name)))
}

fn own(
    cluster: &Arc<Cluster>,
    hosted: &Arc<Hosted>,
    taken: Taken,
    engine: Arc<dyn Engine>,
    row: &VolumeRow,
) -> Result<Arc<VolumeOwner>, ServerError> {
    let links = Arc::clone(&hosted.links);
    let push = Box::new(move |session, push| links.push(session, push));
    let owner = VolumeOwner::open(
        taken,
        engine,
        SubvolumeId::FIRST,
        row.block_size,
        cluster.terms,
        Arc::new(SystemClock),
        Arc::clone(&cluster.ticks),
        push,
    )?;
    Ok(Arc::new(owner))
}
