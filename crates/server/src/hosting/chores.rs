//! What is to be done for an owned volume about once a second, beside requests.

use std::{sync::Arc, time::Duration};

use forebay_object::{Backend, ErrorKind, ObjectStore, Patience};
use forebay_owner::VolumeOwner;
use forebay_protocol::Push;

use super::Hosted;
use crate::{
    admin::store_of,
    cluster::Cluster,
    registry::{TokenId, VolumeRow, now},
};

/// How often garbage is looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Chores<'a> {
    cluster: &'a Arc<Cluster>,
    hosted: &'a Arc<Hosted>,
    owner: &'a Arc<VolumeOwner>,
    /// What failed last: it is said once.
    warned: String,
}

impl<'a> Chores<'a> {
    /// The chores of an owner that has just begun.
    pub(super) fn new(
        cluster: &'a Arc<Cluster>,
        hosted: &'a Arc<Hosted>,
        owner: &'a Arc<VolumeOwner>,
    ) -> Chores<'a> {
        collect(cluster, hosted, owner);
        Chores { cluster, hosted, owner, warned: String::new() }
    }

    pub(super) fn run(&mut self) {
        self.hosted.tell(self.cluster, self.owner);
        self.end_sessions_without_token();
        self.forget_sessions_that_are_over();
        match self.owner.tidy() {
            Ok(()) => self.warned.clear(),
            Err(error) if error.to_string() == self.warned => {}
            Err(error) => {
                self.warned = error.to_string();
                tracing::warn!(volume = self.hosted.name, "a volume is not tidied: {error}");
            }
        }
    }

    fn forget_sessions_that_are_over(&self) {
        self.hosted.links.keep_rooms(|session| self.owner.lives(session));
        for (session, link) in self.hosted.links.all() {
            if !self.owner.lives(session) {
                self.hosted.links.push(session, Push::Ended { session });
                self.hosted.links.drop_of(session, &link.peer);
            }
        }
    }

    /// Sessions whose token was revoked or has expired.
    fn end_sessions_without_token(&self) {
        let (view, now) = (self.cluster.registry.view(), now());
        for (session, token) in self.owner.tokens() {
            let token = TokenId(token);
            if view.tokens.get(&token).is_none_or(|row| row.has_expired(now)) {
                tracing::warn!(volume = self.hosted.name, %token, "a session ends with its token");
                self.owner.end_session(session);
            }
        }
    }
}

/// Begins to delete garbage from the store for as long as the owner is there, in a thread of its own: a store that does not answer holds up
/// nothing else. Whoever owns the volume later may delete the same; an object that is garbage never becomes anything else.
fn collect(cluster: &Arc<Cluster>, hosted: &Arc<Hosted>, owner: &Arc<VolumeOwner>) {
    let (cluster, hosted, owner) = (Arc::clone(cluster), Arc::clone(hosted), Arc::downgrade(owner));
    let thread = std::thread::Builder::new().name("fb-garbage".to_owned());
    let thread = thread.spawn(move || {
        let mut open: Option<(VolumeRow, ObjectStore)> = None;
        while hosted.is_owned_by(&owner) {
            hosted.pause(COLLECT_EVERY);
            let Some(owner) = owner.upgrade() else { return };
            let row = cluster.registry.view().volume(hosted.id).map(|(_, row)| row.clone());
            let Some(row) = row.filter(|_| hosted.is_owned_by(&Arc::downgrade(&owner))) else { return };
            if let Err(error) = collect_once(&hosted, &owner, row, &mut open) {
                tracing::warn!(
                    volume = hosted.name,
                    "garbage could not be deleted, and is tried again: {error}"
                );
            }
        }
    });
    if let Err(error) = thread {
        tracing::warn!("no garbage is deleted: there can be no thread for it: {error}");
    }
}

fn collect_once(
    hosted: &Hosted,
    owner: &Arc<VolumeOwner>,
    row: VolumeRow,
    open: &mut Option<(VolumeRow, ObjectStore)>,
) -> Result<(), String> {
    let garbage = owner.garbage().map_err(|error| error.to_string())?;
    if garbage.is_empty() {
        return Ok(());
    }
    let store = match open {
        Some((of, store)) if *of == row => store,
        _ => &open.insert((row.clone(), store_of(&row)?.patient(Patience::Quick))).1,
    };
    let mut deleted = Vec::with_capacity(garbage.len());
    let mut trouble = Ok(());
    for object in garbage {
        match store.delete(&object.key()) {
            Ok(()) => deleted.push(object),
            Err(error) if error.kind() == ErrorKind::NotFound => deleted.push(object),
            Err(error) => {
                trouble = Err(error.to_string());
                break;
            }
        }
        if hosted.ends() {
            break;
        }
    }
    owner.garbage_deleted(&deleted).map_err(|error| error.to_string())?;
    trouble
}
