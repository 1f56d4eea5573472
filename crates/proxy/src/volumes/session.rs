//! The session with one volume's owner: its threads, and how it ends.
//!
//! One thread speaks: it offers, acts on verdicts, and fences what the owner asks for. Others put; one more copies and caches. None of them waits for another's
//! store or peer.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use forebay_client::{ClientError, Link, LinkConfig, Patience, SystemTicks};
use forebay_group::{Incarnation, ViewEpoch};
use forebay_object::{ObjectStore, Patience as StorePatience};
use forebay_protocol::{VolumeInfo, group::Vouch};
use forebay_types::{Epoch, SegmentId, VolumeId};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Runtime;

use super::{Shared, ears::Ears, numbers::Numbers, offering::Desk};

/// Objects of one volume that are put at a time.
const PUTTERS: usize = 2;
/// How long the owner has to answer an offer before it is made anew.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A thread's name, and what it does until the session ends.
type Does = (&'static str, fn(&Session));

/// A session with a volume's owner. It ends with [`Session::stop`].
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) volume: VolumeId,
    pub(super) info: VolumeInfo,
    /// As whom the member began it.
    pub(super) incarnation: Incarnation,
    pub(super) link: Link,
    pub(super) ears: Arc<Ears>,
    pub(super) numbers: Numbers,
    pub(super) desk: Mutex<Desk>,
    /// The desk has something new.
    pub(super) changed: Condvar,
    store: Mutex<Option<ObjectStore>>,
}

impl Session {
    /// Begins a session, in the background.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) fn start(
        shared: &Arc<Shared>,
        volume: VolumeId,
        incarnation: Incarnation,
    ) -> Result<Arc<Session>, String> {
        let info = shared.around.volume(volume).map_err(|refusal| refusal.to_string())?;
        let (group, member) = (shared.group, shared.member);
        let ears = Arc::new(Ears::of(member));
        let config = LinkConfig {
            volume: info.name.clone(),
            token: Some(Vouch::member(group, member, incarnation)),
            client: format!("member {member} of a proxy group"),
            timeout: None,
        };
        let failed = |error: std::io::Error| format!("no session with '{}': {error}", info.name);
        let transport = shared.around.transport().map_err(failed)?;
        let link = Link::start(transport, config, ears.weak(), Arc::new(SystemTicks)).map_err(failed)?;
        let session = Arc::new(Session {
            shared: Arc::clone(shared),
            volume,
            info: info.clone(),
            incarnation,
            link,
            ears,
            numbers: Numbers::default(),
            desk: Mutex::default(),
            changed: Condvar::new(),
            store: Mutex::new(None),
        });
        let puts: Does = ("fb-puts", Session::put_until_stopped);
        let others: [Does; 2] = [("fb-offers", Session::speak), ("fb-copies", Session::copy_until_stopped)];
        let threads = others.into_iter().chain([puts; PUTTERS]);
        for (name, does) in threads {
            let of = Arc::clone(&session);
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || does(&of));
            if let Err(error) = spawned {
                session.stop();
                return Err(failed(error));
            }
        }
        Ok(session)
    }

    /// Ends it. Its threads end by themselves.
    pub(super) fn stop(&self) {
        self.ears.heard.lock().stopped = true;
        self.desk.lock().stopped = true;
        self.ears.bell.notify_all();
        self.changed.notify_all();
        self.link.close();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.ears.heard.lock().stopped
    }

    /// Where objects are put.
    ///
    /// # Errors
    /// Why nowhere, in words.
    pub(super) fn store(&self) -> Result<ObjectStore, String> {
        let mut store = self.store.lock();
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = self.shared.around.store(&self.info)?.patient(StorePatience::Patient);
        *store = Some(opened.clone());
        Ok(opened)
    }

    fn speak(&self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!("nothing can be offered to the owner of '{}': {error}", self.info.name);
                return self.stop();
            }
        };
        // When everything is offered next.
        let (mut all_at, mut view) = (Instant::now(), ViewEpoch(0));
        let (mut said, mut looked) = (None, Instant::now());
        while let Some((fences, greeted)) = self.next_heard() {
            if let Err(error) = self.is_with_this_volume() {
                self.say(&mut said, &error);
                all_at = Instant::now();
                if looked.elapsed() >= self.shared.pace.offer_every {
                    looked = Instant::now();
                    self.ends_if_deleted();
                }
                continue;
            }
            self.fence(&runtime, &fences);
            let (now, acting) = (Instant::now(), self.shared.around.acting());
            let changed = acting.is_some_and(|acting| acting.view != view);
            let all = greeted || changed || now >= all_at;
            let offered = if all { self.offer_all() } else { self.offer_fresh() };
            match offered {
                Ok(()) if all => {
                    said = None;
                    view = acting.map_or(view, |acting| acting.view);
                    all_at = now + self.shared.pace.offer_every;
                }
                Ok(()) => {}
                Err(error) => {
                    self.say(&mut said, &error);
                    all_at = now;
                }
            }
        }
    }

    /// Nothing is put or offered any more of a volume that was deleted.
    fn ends_if_deleted(&self) {
        if self.shared.drops_if_deleted(self.volume) {
            self.stop();
        }
    }

    /// Once for each reason.
    fn say(&self, said: &mut Option<ClientError>, error: &ClientError) {
        if said.as_ref() != Some(error) && *error != ClientError::Closed {
            tracing::warn!("what is here of '{}' is offered later: {error}", self.info.name);
            *said = Some(error.clone());
        }
    }

    /// What the owner asked to have fenced, and whether it answers anew; once there is something to do, or after a while. Nothing at the end.
    fn next_heard(&self) -> Option<(Vec<(SegmentId, Epoch)>, bool)> {
        let mut heard = self.ears.heard.lock();
        if heard.fences.is_empty() && !heard.greeted && !heard.news && !heard.stopped {
            self.ears.bell.wait_for(&mut heard, self.shared.pace.look_every);
        }
        heard.news = false;
        let greeted = std::mem::take(&mut heard.greeted);
        (!heard.stopped).then(|| (std::mem::take(&mut heard.fences), greeted))
    }

    /// Whether the owner is that of this very volume: the name may be another one's by now, and its owner knows nothing of what is here.
    fn is_with_this_volume(&self) -> Result<(), ClientError> {
        let (found, _) = self.link.volume(&Patience::new(Some(PATIENCE), None))?;
        if found.id == self.volume {
            return Ok(());
        }
        self.stop();
        Err(ClientError::Denied(format!("'{}' is another volume by now", self.info.name)))
    }

    /// Waits until the log is on stable storage up to there. Whether it is.
    pub(super) fn is_synced(&self, runtime: &Runtime, upto: u64) -> bool {
        runtime.block_on(self.shared.log.synced(upto)).is_ok()
    }
}
