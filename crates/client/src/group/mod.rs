//! Reading a volume through a group of proxies, and writing it over their logs; through which one, where it has several.
//!
//! Guarantees: whatever becomes of proxies, a read is answered as the store answers it: where no member answers in time, the store is asked, and where that fails,
//! members once more. Bytes are not verified here; who finds them wrong says so, and has them from the store for a while. Bytes that
//! a member has taken in are at the member that they were meant for. Relies on placement: who knows the same view asks the same members.

mod choice;
mod crew;
mod fetch;
mod groups;
mod here;
mod link;
mod members;
mod near;
mod pace;
mod reader;
mod route;
mod store;
mod warm;
mod writes;
mod wrong;

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, MemberId, View, ViewEpoch};
use forebay_protocol::{
    SegmentPlace,
    group::{GroupView, ViewOf, ViewsOf},
};
use forebay_rpc::Address;
use forebay_types::SegmentId;
use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;

pub use reader::Reader;
pub use store::GroupStore;

use crate::{
    data::Within,
    group::{
        crew::Crew,
        groups::{Groups, Known},
        link::MemberLink,
        near::Near,
        route::Pieces,
    },
    transport::{Transport, Trouble},
};

/// How often it is asked whether the view has changed, and how soon at most where a member says so or does not answer.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long the servers may take to tell of a group.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long what was found wrong is read from the store.
const WRONG_FOR: Duration = Duration::from_secs(60);
/// How long what is said to members in the background is waited for at the end.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Ranges that were found wrong and are remembered; the oldest are forgotten.
const WRONG_MAX: usize = 64;

/// Where bytes of objects came from, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadFrom {
    /// From the proxy of this machine.
    pub node: u64,
    /// From other members of the group.
    pub group: u64,
    /// From the store.
    pub store: u64,
}

/// Where bytes were written to, since the start, as they are stored: each once, however many copies there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WrittenTo {
    /// To members of the group, of whom one is the proxy of this machine.
    pub node: u64,
    /// To members of the group on other machines.
    pub group: u64,
    /// To the store.
    pub store: u64,
}

/// A group of a volume, as a mount sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Whether it is the one that is gone by.
    pub chosen: bool,
    /// How long it takes to answer, where that is measured: where the volume has several, and this one answers.
    pub round_trip: Option<Duration>,
}

#[derive(Debug, Default)]
struct Counts {
    node: AtomicU64,
    group: AtomicU64,
    store: AtomicU64,
}

#[derive(Debug, Default)]
struct Looking {
    /// A member knows of a later view, or does not answer.
    wanted: bool,
    /// The servers have said which group the volume has, or that it has none.
    heard: bool,
    /// Members are to be told that these bytes were wrong.
    wrong: Vec<(ObjectRef, u64, u32)>,
    stopped: bool,
}

struct Shared {
    transport: Arc<dyn Transport>,
    reader: Reader,
    /// Changed while [`Near`] is held alone.
    groups: RwLock<Arc<Groups>>,
    near: Near,
    pieces: Pieces,
    /// What was found wrong, and when.
    wrong: Mutex<Vec<(ObjectRef, u64, u64, Instant)>>,
    counts: Counts,
    looking: Mutex<Looking>,
    changed: Condvar,
    crew: Crew,
}

/// The group of a volume, or none as long as it has none.
pub struct VolumeGroup {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for VolumeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or_default();
        write!(f, "VolumeGroup({name}, {:?})", self.read_from())
    }
}

impl VolumeGroup {
    /// Asks for the group of a volume, and goes on to follow it in a thread.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(transport: Arc<dyn Transport>, reader: Reader) -> std::io::Result<Arc<VolumeGroup>> {
        let shared = Arc::new(Shared {
            transport,
            reader,
            groups: RwLock::default(),
            near: Near::default(),
            pieces: Pieces::default(),
            wrong: Mutex::default(),
            counts: Counts::default(),
            looking: Mutex::default(),
            changed: Condvar::new(),
            crew: Crew::default(),
        });
        let goes_on = shared.look();
        if goes_on && !shared.looking.lock().heard {
            tracing::warn!(
                "no server tells of the volume's group yet: all is read from the store and written to it until one does"
            );
        }
        let following = Arc::downgrade(&shared);
        let thread = match goes_on {
            true => {
                let thread = std::thread::Builder::new().name("forebay-group".to_owned());
                let begun = thread.spawn(move || follow(&following));
                // Nobody is measured any more.
                Some(begun.inspect_err(|_| shared.go_by(Vec::new()))?)
            }
            // Servers that know nothing of groups will not tomorrow.
            false => None,
        };
        Ok(Arc::new(VolumeGroup { shared, thread: Mutex::new(thread) }))
    }

    /// The name of the group that is gone by; of the first one while none answers. `None`: the volume has none.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let groups = self.shared.groups();
        groups.chosen().or_else(|| groups.all().first()).map(|known| known.name.clone())
    }

    /// All groups of the volume, in its order.
    #[must_use]
    pub fn all(&self) -> Vec<GroupStatus> {
        let groups = self.shared.groups();
        let chosen = groups.chosen().map(|known| known.id);
        let status = |known: &Arc<Known>| GroupStatus {
            name: known.name.clone(),
            chosen: Some(known.id) == chosen,
            round_trip: self.shared.near.round_trip(known.id),
        };
        groups.all().iter().map(status).collect()
    }

    /// Where bytes of objects came from.
    #[must_use]
    pub fn read_from(&self) -> ReadFrom {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let counts = &self.shared.counts;
        ReadFrom { node: of(&counts.node), group: of(&counts.group), store: of(&counts.store) }
    }

    /// Takes note of where a segment is: pieces are placed by segments.
    pub(crate) fn learn(&self, segment: SegmentId, place: &SegmentPlace) {
        self.shared.pieces.learn(segment, place);
    }

    /// Forgets where an object's segments were.
    pub(crate) fn forget(&self, object: ObjectRef) {
        self.shared.pieces.forget(object);
    }

    /// Bytes that came were not what was written: members are told, and these are read from the store for a while.
    pub(crate) fn distrust(&self, object: ObjectRef, offset: u64, len: u32) {
        let shared = &self.shared;
        if shared.groups().all().is_empty() {
            return;
        }
        let mut wrong = shared.wrong.lock();
        wrong.push((object, offset, offset.saturating_add(u64::from(len)), Instant::now()));
        let surplus = wrong.len().saturating_sub(WRONG_MAX);
        wrong.drain(..surplus);
        drop(wrong);
        shared.looking.lock().wrong.push((object, offset, len));
        shared.changed.notify_all();
    }

    /// The group that new reads go through of what may be there.
    fn gone_by(&self, within: Within) -> Option<Arc<Known>> {
        self.shared.groups().within(within).cloned()
    }

    /// Why there is none, in words.
    fn goes_by_none(&self) -> String {
        match self.shared.groups().all() {
            [] => "the volume is read through no group".to_owned(),
            _ => "of the volume's groups none that may have it answers".to_owned(),
        }
    }

    fn count_store(&self, bytes: usize) {
        self.shared.counts.store.fetch_add(bytes as u64, Relaxed);
    }

    /// Ends the connections.
    pub(crate) fn stop(&self) {
        self.shared.looking.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows the group panicked");
        }
        // Members that do not hear that a segment ends learn it later.
        self.shared.crew.rest(STOP_WITHIN);
        self.shared.go_by(Vec::new());
    }
}

impl Drop for VolumeGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

fn follow(shared: &Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let wrong = {
            let mut looking = shared.looking.lock();
            if !looking.wanted && looking.wrong.is_empty() && !looking.stopped {
                shared.changed.wait_for(&mut looking, LOOK_EVERY);
            }
            if looking.stopped {
                return;
            }
            looking.wanted = false;
            std::mem::take(&mut looking.wrong)
        };
        shared.tell_wrong(&wrong);
        if !shared.look() {
            return;
        }
        let mut looking = shared.looking.lock();
        if !looking.stopped {
            // Not more often than that, whatever members say.
            shared.changed.wait_for(&mut looking, LOOK_AGAIN);
        }
    }
}

impl Shared {
    fn groups(&self) -> Arc<Groups> {
        Arc::clone(&self.groups.read())
    }

    /// Asks for the view. `false` where the servers know of no groups.
    fn look(self: &Arc<Self>) -> bool {
        let before = self.groups();
        match self.told_of(&before) {
            Ok(told) => {
                let all = told.into_iter().filter_map(|view| self.follow(view, &before)).collect();
                self.go_by(all);
            }
            // What is known goes on to count.
            Err(Trouble::Never(why)) => {
                tracing::debug!("the servers tell of no group: {why}");
                return false;
            }
            Err(trouble) => {
                tracing::debug!("the servers do not tell of the group: {trouble:?}");
                // As long as nothing was ever told, all is read from the store and written to it.
                let mut looking = self.looking.lock();
                looking.wanted |= !looking.heard;
                return true;
            }
        }
        self.looking.lock().heard = true;
        true
    }

    /// What a server tells of the groups, to who knows these. One of an older release tells of one alone; the next one that is asked may be of a later one.
    fn told_of(&self, before: &Groups) -> Result<Vec<GroupView>, Trouble> {
        let Reader { volume, token, .. } = self.reader.clone();
        let known = before.all().iter().map(|known| (known.id, known.view.epoch)).collect();
        match self.transport.views_of(&ViewsOf { volume, token, known }, PATIENCE) {
            Err(Trouble::Never(_)) => {}
            told => return told,
        }
        let Reader { volume, token, .. } = self.reader.clone();
        let known = before.all().first().map_or(ViewEpoch(0), |known| known.view.epoch);
        let told = self.transport.view_of(&ViewOf { volume, token, known }, PATIENCE)?;
        Ok(told.into_iter().collect())
    }

    /// A group as it is by what was told. `None` where that is not enough: it is asked for again.
    fn follow(&self, told: GroupView, before: &Groups) -> Option<Arc<Known>> {
        let GroupView { name, id, view, writes } = told;
        let same = before.of(id);
        match (view, same) {
            (Some(view), same) => {
                let next = self.next(name, id, view, same.map(|known| &**known));
                Some(Arc::new(Known { writes, ..next }))
            }
            // The view is the same; who is on this machine may not be.
            (None, Some(same)) if same.writes != writes || self.moved(same) => {
                let next = self.next(name, id, same.view.clone(), Some(same));
                Some(Arc::new(Known { writes, ..next }))
            }
            (None, Some(same)) => Some(Arc::clone(same)),
            // Another group, of which no view was told: it is asked for all of it.
            (None, None) => {
                self.looking.lock().wanted = true;
                None
            }
        }
    }

    /// The group with this view; members that stay keep their connections.
    fn next(&self, name: String, id: GroupId, view: View, before: Option<&Known>) -> Known {
        let mut links = FxHashMap::default();
        for (member, shape) in &view.members {
            let here = here::of(&self.reader.here, *member);
            let same = before.and_then(|before| before.links.get(member));
            let same = same.filter(|link| link.address == shape.address && link.on_node == here.is_some());
            let on_node = here.is_some();
            let link = match (same, here.map_or_else(|| shape.address.parse::<Address>(), Ok)) {
                (Some(link), _) => Arc::clone(link),
                (None, Ok(at)) => {
                    Arc::new(MemberLink::new(at, &shape.address, on_node, &self.reader.security))
                }
                (None, Err(error)) => {
                    tracing::warn!("a member of the group '{name}': {error}");
                    continue;
                }
            };
            links.insert(*member, link);
        }
        let here = links.iter().filter(|(_, link)| link.on_node).map(|(id, _)| *id).collect();
        let widths = before.map(|before| Arc::clone(&before.widths)).unwrap_or_default();
        Known { name, id, view, links, here, writes: None, widths }
    }

    /// A member goes by this view.
    fn told(&self, epoch: ViewEpoch, known: ViewEpoch) {
        if epoch > known {
            self.look_soon();
        }
    }

    /// A member failed: there may be a later view, and where the volume has several groups it is measured at once.
    fn suspects(&self, group: GroupId, member: MemberId) {
        self.near.measure_soon(group, member);
        self.look_soon();
    }

    /// The same, of whichever group it is.
    fn suspects_member(&self, member: MemberId) {
        if let Some((known, _)) = self.groups().link(member) {
            self.near.measure_soon(known.id, member);
        }
        self.look_soon();
    }

    fn look_soon(&self) {
        let mut looking = self.looking.lock();
        if !std::mem::replace(&mut looking.wanted, true) {
            self.changed.notify_all();
        }
    }

    /// Whether another member is on this machine than was before.
    fn moved(&self, known: &Known) -> bool {
        // Whose socket is connected has not gone anywhere.
        let stays = |link: &MemberLink| link.on_node && link.down().is_none();
        let mut links = known.links.iter().filter(|(_, link)| !stays(link));
        links.any(|(member, link)| here::of(&self.reader.here, *member).is_some() != link.on_node)
    }
}
