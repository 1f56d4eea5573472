//! The member's sessions with volumes: for each of which its log has something, one with the volume's owner.
//!
//! Guarantees: a copy is given up only as the owner says in the answer to an offer; what is put is what was sealed, under a number that the session was given for
//! it; nobody who reads or appends waits for a store or an owner. What is told late or not at all costs time: everything is offered again.
//!
//! Relies on: [`Surroundings`] for the process around it; the owner's rows, which decide; one process that acts for the member, which is why nothing is offered
//! before it has joined its group for the first time.

mod copying;
mod deleted;
mod ears;
mod numbers;
mod object;
mod offering;
mod peers;
mod putting;
mod session;

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_client::Transport;
use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, Incarnation, MemberId, ViewEpoch};
use forebay_object::ObjectStore;
use forebay_protocol::{Refusal, SegmentPlace, VolumeInfo, group::Seal};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::{Condvar, Mutex};

pub use peers::Peers;

use crate::log::Log;
use session::Session;

/// As what the member acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acting {
    /// As which process it is known to its group.
    pub incarnation: Incarnation,
    /// Its view.
    pub view: ViewEpoch,
    /// It takes nothing new, and puts what it has.
    pub draining: bool,
}

/// What sessions need of the process around them.
pub trait Surroundings: Send + Sync {
    /// As what the member acts, or last did. Nothing before it has joined for the first time: what it has may be an older copy till then.
    fn acting(&self) -> Option<Acting>;

    /// What a volume is called and where its store is. Blocks.
    ///
    /// # Errors
    /// The server's refusal; [`Refusal::Unavailable`] where none answers.
    fn volume(&self, volume: VolumeId) -> Result<VolumeInfo, Refusal>;

    /// Whether it is on record that a volume was deleted: then nobody ever needs anything of it. That nobody knows of it is no record. Blocks.
    ///
    /// # Errors
    /// The server's refusal; [`Refusal::Unavailable`] where none answers.
    fn was_deleted(&self, volume: VolumeId) -> Result<bool, Refusal>;

    /// A way to the owners of volumes, for one session.
    ///
    /// # Errors
    /// When there can be no thread.
    fn transport(&self) -> io::Result<Arc<dyn Transport>>;

    /// A volume's store, opened to be put into.
    ///
    /// # Errors
    /// Why not, in words.
    fn store(&self, volume: &VolumeInfo) -> Result<ObjectStore, String>;

    /// An object that this member has put is known to the owner by now: where a client of this machine wrote one of these segments, all of it is cached.
    fn stored(&self, volume: &VolumeInfo, object: ObjectRef, segments: &[SegmentId], bytes: &Bytes);

    /// A copy that is clean: it is cached, where its piece belongs here, or a client of this machine wrote it.
    fn keep(&self, volume: &VolumeInfo, segment: SegmentId, place: &SegmentPlace, bytes: &Bytes);

    /// Whether clients of this machine stream into the log what other members get as well: those copies go by the machine's cable, as puts do.
    fn writers_stream(&self) -> bool;

    /// Gives another member a sealed segment, and waits until it has all of it on stable storage.
    ///
    /// # Errors
    /// Why it has not, in words.
    fn copy_to(&self, member: MemberId, volume: VolumeId, seal: &Seal, bytes: Bytes) -> Result<(), String>;
}

/// How long things last, and how much is put at once.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often everything is offered: 10 s.
    pub offer_every: Duration,
    /// How often it is looked what is new: 500 ms.
    pub look_every: Duration,
    /// How long what is to be put waits for company at most: 2 s.
    pub put_after: Duration,
    /// How long puts yield to streams of this machine at most, until all has been put: 10 s. Less than the owner gives a member to put a segment, so that nobody else begins, too.
    pub yields_for: Duration,
    /// Bytes of one directory that wait for no more: 16 MiB.
    pub put_bytes: u64,
    /// Bytes of segments in one object at most: 64 MiB.
    pub object_bytes: u64,
    /// The pause after a put that failed; it doubles up to `again_max`: 1 s and 10 s.
    pub again_after: Duration,
    /// See there.
    pub again_max: Duration,
    /// How long the session with a volume of which nothing is left goes on: 10 s.
    pub linger: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            offer_every: Duration::from_secs(10),
            look_every: Duration::from_millis(500),
            put_after: Duration::from_secs(2),
            yields_for: Duration::from_secs(10),
            put_bytes: 16 << 20,
            object_bytes: 64 << 20,
            again_after: Duration::from_secs(1),
            again_max: Duration::from_secs(10),
            linger: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    puts: AtomicU64,
    put_bytes: AtomicU64,
    not_taken: AtomicU64,
    dropped: AtomicU64,
    fenced: AtomicU64,
    repaired: AtomicU64,
}

/// What was counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Objects that were put.
    pub puts: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Segments that owners did not take from objects: somebody was faster, or their epoch was over.
    pub not_taken: u64,
    /// Copies that were given up.
    pub dropped: u64,
    /// Segments that owners had fenced.
    pub fenced: u64,
    /// Segments that were copied to other members.
    pub repaired: u64,
}

/// What all sessions share.
struct Shared {
    group: GroupId,
    member: MemberId,
    log: Arc<Log>,
    around: Arc<dyn Surroundings>,
    pace: Pace,
    counts: Counts,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<VolumeId, Kept>,
    /// What went wrong last with a volume: it is said once.
    said: BTreeMap<VolumeId, String>,
    stopped: bool,
}

/// A session, and since when nothing is left of its volume.
struct Kept {
    session: Arc<Session>,
    idle: Option<Instant>,
}

/// All sessions of a member.
pub struct Volumes {
    shared: Arc<Shared>,
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volumes({} sessions of {:?})", self.state.0.lock().sessions.len(), self.shared.member)
    }
}

impl Volumes {
    /// Begins to look what the log has, and to begin sessions.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(
        (group, member): (GroupId, MemberId),
        log: Arc<Log>,
        around: Arc<dyn Surroundings>,
        pace: Pace,
    ) -> io::Result<Volumes> {
        let shared = Arc::new(Shared { group, member, log, around, pace, counts: Counts::default() });
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let (of, looks) = (Arc::clone(&shared), Arc::clone(&state));
        let thread = std::thread::Builder::new().name("fb-volumes".to_owned());
        let thread = thread.spawn(move || look_until_stopped(&of, &looks))?;
        Ok(Volumes { shared, state, thread: Mutex::new(Some(thread)) })
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let counts = &self.shared.counts;
        Counted {
            puts: counts.puts.load(Relaxed),
            put_bytes: counts.put_bytes.load(Relaxed),
            not_taken: counts.not_taken.load(Relaxed),
            dropped: counts.dropped.load(Relaxed),
            fenced: counts.fenced.load(Relaxed),
            repaired: counts.repaired.load(Relaxed),
        }
    }

    /// Ends all sessions. A put that is under way ends by itself; its object is one of a session that has ended, and garbage.
    pub fn stop(&self) {
        self.state.0.lock().stopped = true;
        self.state.1.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that begins sessions with volumes panicked");
        }
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.stop();
    }
}

fn look_until_stopped(shared: &Arc<Shared>, (state, changed): &(Mutex<State>, Condvar)) {
    loop {
        if let Some(acting) = shared.around.acting() {
            look(shared, state, &acting);
        }
        let mut state = state.lock();
        if !state.stopped {
            changed.wait_for(&mut state, shared.pace.look_every);
        }
        if state.stopped {
            let sessions = std::mem::take(&mut state.sessions);
            drop(state);
            sessions.into_values().for_each(|kept| kept.session.stop());
            return;
        }
    }
}

/// Begins and ends sessions, by what the log has.
fn look(shared: &Arc<Shared>, state: &Mutex<State>, acting: &Acting) {
    let (volumes, now) = (shared.log.volumes(), Instant::now());
    let mut over = Vec::new();
    {
        let mut state = state.lock();
        for (volume, kept) in &mut state.sessions {
            kept.idle = if volumes.contains(volume) { None } else { kept.idle.or(Some(now)) };
        }
        let linger = shared.pace.linger;
        let ends = |_: &VolumeId, kept: &mut Kept| {
            let another = kept.session.incarnation != acting.incarnation;
            another
                || kept.session.is_stopped()
                || kept.idle.is_some_and(|idle| now.duration_since(idle) >= linger)
        };
        over.extend(state.sessions.extract_if(.., ends).map(|(_, kept)| kept.session));
    }
    over.iter().for_each(|session| session.stop());
    for volume in volumes {
        if state.lock().sessions.contains_key(&volume) {
            continue;
        }
        match Session::start(shared, volume, acting.incarnation) {
            Ok(session) => {
                let mut state = state.lock();
                state.said.remove(&volume);
                state.sessions.insert(volume, Kept { session, idle: None });
            }
            Err(_) if shared.drops_if_deleted(volume) => {}
            Err(why) => {
                let mut state = state.lock();
                if state.said.get(&volume) != Some(&why) {
                    tracing::warn!(%volume, "what is here of a volume waits: {why}");
                    state.said.insert(volume, why);
                }
            }
        }
    }
}
