//! A proxy's place in its group: it joins, renews each second, and leaves in order.
//!
//! What may be done when is decided by [`forebay_group::Membership`]; here it is asked of the metadata servers, by a thread of its own.

mod meta;

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_cluster::Moment;
use forebay_group::{
    GroupId, GroupTerms, Incarnation, Joining, Member, MemberId, Membership, NotActing, Renewal, View,
    ViewEpoch,
};
use forebay_protocol::{
    Kind,
    group::{Join, Joined, Leave, MemberNumbers, RenewMember, Renewed},
};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

pub use meta::{Meta, MetaError};

/// How often the thread looks what is to be done.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after an attempt that failed the next one is made.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long a renewal or a join may take, in milliseconds.
const ANSWER_MS: u32 = 3_000;
/// How long another process may go on to act for this member, beyond the time after which a dead one is counted out: then it is no former self of this one.
const ANOTHER_AFTER: Duration = Duration::from_secs(30);

/// Now, by a clock that goes on while the machine sleeps.
#[must_use]
pub fn now() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    Moment(secs * 1_000_000_000 + nanos)
}

/// What a member says of itself with each renewal. Nothing here waits for the disk.
pub trait Standing: Send + Sync {
    /// Up to where its log is on stable storage, and segments that the store may not have.
    ///
    /// # Errors
    /// Why it takes nothing in any more. It neither joins nor renews then, so that writers go elsewhere once it is counted out.
    fn log(&self) -> Result<(u64, u64), String>;

    /// Notes that it goes by this view, before it says so: whether that is on stable storage. It is asked again until it is.
    fn goes_by(&self, view: ViewEpoch) -> bool;

    /// The rest.
    fn numbers(&self) -> MemberNumbers;
}

#[derive(Debug)]
struct State {
    membership: Membership,
    /// Since when another process has been found to act for this member.
    contested: Option<Instant>,
    said: String,
    /// It acts no more, and says no more.
    stopped: bool,
    /// Why this member can never join.
    failure: Option<String>,
}

struct Shared {
    group: GroupId,
    id: MemberId,
    terms: GroupTerms,
    meta: Meta,
    standing: Arc<dyn Standing>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A member that is in its group, or on its way into it.
pub struct Place {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} of {})", self.shared.id, self.shared.group)
    }
}

impl Place {
    /// Begins to join. `member` is what it is to be in the view; its incarnation is drawn here.
    ///
    /// # Errors
    /// There are no random bits, or no thread.
    pub fn start(
        (group, id): (GroupId, MemberId),
        member: Member,
        terms: GroupTerms,
        meta: Meta,
        standing: Arc<dyn Standing>,
    ) -> std::io::Result<Place> {
        let member = Member { incarnation: Incarnation(forebay_env::random()?), ..member };
        let state = State {
            membership: Membership::new(id, member, terms),
            contested: None,
            said: String::new(),
            stopped: false,
            failure: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { group, id, terms, meta, standing, state, changed });
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("fb-membership".to_owned());
        let thread = thread.spawn(move || running.run())?;
        Ok(Place { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The latest view that it was told.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.shared.state.lock().membership.view().cloned()
    }

    /// Calls `with` on the membership.
    pub fn look<T>(&self, with: impl FnOnce(&Membership) -> T) -> T {
        with(&self.shared.state.lock().membership)
    }

    /// As which process it acts, or last did, by which view (0 before it was told one), and whether it is being drained.
    #[must_use]
    pub fn acts_as(&self) -> (Incarnation, ViewEpoch, bool) {
        self.look(|membership| {
            let view = membership.view().map_or(ViewEpoch(0), |view| view.epoch);
            (membership.incarnation(), view, membership.may_open(now()) == Err(NotActing::Draining))
        })
    }

    /// Waits until it acts, `patience` long at most. Says whether it does.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        while !state.membership.is_in() && state.failure.is_none() {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.membership.is_in()
    }

    /// Why it can never join, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.state.lock().failure.clone()
    }

    /// Ends. In order: the others know at once; else they count it out.
    pub fn stop(&self, in_order: bool) {
        let incarnation = {
            let mut state = self.shared.state.lock();
            state.stopped = true;
            state.membership.is_in().then(|| state.membership.incarnation())
        };
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the membership panicked");
        }
        if let Some(incarnation) = incarnation.filter(|_| in_order) {
            let Shared { group, id, ref meta, .. } = *self.shared;
            if let Err(error) = meta.tell(Kind::Leave, &Leave { group, id, incarnation }, ANSWER_MS) {
                tracing::warn!(
                    "the group counts this member out by itself, as it could not be told: {error}"
                );
            }
        }
    }
}

/// Asked under the log's lock: nobody asks the log anything under the lock that is taken here.
impl crate::writeback::Standing for Place {
    fn may(&self, opens: bool) -> Result<(), NotActing> {
        let state = self.shared.state.lock();
        match (state.stopped, opens) {
            // Another process may be let in as soon as this one has left.
            (true, _) => Err(NotActing::Out),
            (false, true) => state.membership.may_open(now()),
            (false, false) => state.membership.may_act(now()),
        }
    }

    fn now(&self) -> (Incarnation, ViewEpoch, bool) {
        self.acts_as()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop(false);
    }
}

enum Next {
    Join(Joining),
    Renew(Renewal),
    Nothing,
}

impl Shared {
    fn run(&self) {
        while let Some(next) = self.next() {
            let pause = match next {
                Next::Join(joining) => self.join(joining),
                Next::Renew(renewal) => self.renew(renewal),
                Next::Nothing => LOOK_EVERY,
            };
            let mut state = self.state.lock();
            if !state.stopped {
                self.changed.wait_for(&mut state, pause);
            }
        }
    }

    /// What is to be done now; nothing any more once it is stopped. The log is asked before the membership's lock is taken, as it asks under its own lock whether
    /// this member acts. This thread alone learns views: whatever was taken in by an older one than it says here to go by is counted.
    fn next(&self) -> Option<Next> {
        let view = self.state.lock().membership.view().map(|view| view.epoch);
        let noted = view.is_none_or(|view| self.standing.goes_by(view));
        let log = self.standing.log();
        let mut state = self.state.lock();
        if state.stopped || state.failure.is_some() {
            return None;
        }
        let (log_end, dirty) = match log {
            Ok(log) => log,
            Err(why) => {
                if state.said != why {
                    tracing::error!(
                        "the group counts this member out, as it takes nothing in any more: {why}"
                    );
                    state.said = why;
                }
                return Some(Next::Nothing);
            }
        };
        let at = now();
        Some(match state.membership.join(log_end, dirty, at) {
            Some(joining) => Next::Join(joining),
            None if noted && state.membership.is_due(at) => {
                state.membership.renew(log_end, dirty, at).map_or(Next::Nothing, Next::Renew)
            }
            None => Next::Nothing,
        })
    }

    /// How long to wait then.
    fn join(&self, joining: Joining) -> Duration {
        let (id, incarnation) = (joining.id, joining.member.incarnation);
        let Joining { member, log_end, dirty, .. } = joining;
        let (group, numbers) = (self.group, self.standing.numbers());
        let asked =
            self.meta.ask(Kind::Join, &Join { group, id, member, log_end, dirty, numbers }, ANSWER_MS);
        let mut state = self.state.lock();
        match asked {
            Ok(Joined::In(view)) => {
                tracing::info!("member {id} has joined its group, in view {}", view.epoch.0);
                state.membership.joined(incarnation, view);
                (state.contested, state.said) = (None, String::new());
                self.changed.notify_all();
                return Duration::ZERO;
            }
            Ok(Joined::Acts(address)) => self.contested(&mut state, &address),
            Ok(Joined::Never(why)) => state.failure = Some(why),
            // It was let in, or not: the same again.
            Err(MetaError::Unanswered(why)) => say(&mut state, &why),
            Err(MetaError::Refused(why) | MetaError::Unsupported(why)) => state.failure = Some(why),
        }
        self.changed.notify_all();
        AGAIN_AFTER
    }

    fn contested(&self, state: &mut State, address: &str) {
        let since = *state.contested.get_or_insert_with(Instant::now);
        if since.elapsed() > self.terms.count_out_after + ANOTHER_AFTER {
            state.failure = Some(format!(
                "the proxy at {address} goes on to act for this directory's member: two have the same directory, one of them a copy; empty one, and it begins as a new member"
            ));
            return;
        }
        let why = format!(
            "the process at {address} acted for this member a moment ago: it is waited until that is counted out"
        );
        say(state, &why);
        self.outed(state);
    }

    /// It joins anew, as somebody else.
    fn outed(&self, state: &mut State) {
        match forebay_env::random() {
            Ok(bits) => state.membership.out(Incarnation(bits)),
            Err(error) => state.failure = Some(format!("the system has no random bits: {error}")),
        }
    }

    /// How long to wait then.
    fn renew(&self, renewal: Renewal) -> Duration {
        let beat = renewal.row.beat;
        let (group, id, numbers) = (self.group, renewal.id, self.standing.numbers());
        let request = RenewMember { group, id, row: renewal.row, numbers };
        let asked = self.meta.ask(Kind::RenewMember, &request, ANSWER_MS);
        let mut state = self.state.lock();
        match asked {
            Ok(Renewed::Stays(_, view)) => {
                state.membership.renewed(beat, view);
                state.said.clear();
                Duration::ZERO
            }
            Ok(Renewed::Out) => {
                tracing::warn!("member {id} was counted out of its group: it joins again");
                self.outed(&mut state);
                Duration::ZERO
            }
            Err(MetaError::Unanswered(why) | MetaError::Refused(why) | MetaError::Unsupported(why)) => {
                say(&mut state, &why);
                AGAIN_AFTER
            }
        }
    }
}

/// Once for each reason.
fn say(state: &mut State, why: &str) {
    if state.said != why {
        tracing::warn!("the group is asked again: {why}");
        why.clone_into(&mut state.said);
    }
}
