//! The session with a volume's owner: who it is, whether it lives, and its requests.
//!
//! Guarantees: a request that changes something is carried out once, whoever owns the volume meanwhile, or its caller is told that nobody knows
//! ([`ClientError::SessionEnded`], [`ClientError::TimedOut`]); in the latter case it is repeated in the background until it is known, and its slot and what
//! the caller gave along are kept so long. No caller waits for another, except for a slot; what others wait for has slots of its own.
//!
//! One thread, the keeper, greets, renews, reclaims and begins new sessions. Callers make their requests by themselves, and wait for the keeper
//! when something is wrong.

mod ask;
mod keeper;
mod patience;
mod slots;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::Duration,
};

use forebay_cluster::{Grant, Lease, Moment, SessionId, Stamp, Terms};
use forebay_group::MemberId;
use forebay_protocol::{Push, RETURNS_MAX, Recall, Refusal, Return, Rights, VolumeInfo, Welcome};
use forebay_types::{Epoch, Ino, SegmentId};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use ask::Answered;
pub use patience::Patience;

use crate::{
    error::ClientError,
    ticks::Ticks,
    transport::{Listener, Transport, Trouble},
};
use slots::Slots;

/// How long the owner has to take a returned lease in, and the pause before it is told again.
const RETURN_PATIENCE: Duration = Duration::from_secs(5);
const RETURN_AGAIN: Duration = Duration::from_millis(20);

/// Who is told what becomes of the session. Its methods do not wait for the owner.
pub trait Events: Send + Sync {
    /// A session was begun by a message sent at `sent`: the one with this number. Nothing is asked in it before this returns.
    fn begun(&self, number: u64, welcome: &Welcome, sent: Moment);

    /// The session is over. What was kept back in it is lost.
    fn over(&self);

    /// What was sent at `sent` in the session with this number was answered.
    fn heard(&self, number: u64, sent: Moment);

    /// The owner's term that the leases are of.
    fn epoch(&self) -> Epoch;

    /// The leases to be reclaimed from the owner of this term.
    fn to_reclaim(&self, epoch: Epoch) -> Vec<(Ino, Lease)>;

    /// It has given these.
    fn reclaimed(&self, epoch: Epoch, grants: &[Grant]);

    /// The owner recalls a lease.
    fn recalled(&self, ino: Ino, keep: Option<Lease>, stamp: Stamp);

    /// It recalls several at once.
    fn all_recalled(&self, leases: Vec<Recall>) {
        leases.into_iter().for_each(|Recall { ino, keep, stamp }| self.recalled(ino, keep, stamp));
    }

    /// A lock may be free.
    fn lock_free(&self, ino: Ino);

    /// Requests are answered (again).
    fn greeted(&self);

    /// What some files have is lost for good. Who has no files is not told anything by this.
    fn lost(&self) {}

    /// The volume has a limit from now on, or none: told with each greeting, and when it changes. Who writes nothing does nothing.
    fn limited(&self, _limited: bool) {}

    /// A member of a group that uses this session is to fence a segment. Who is no member is not asked.
    fn fence(&self, _member: MemberId, _segment: SegmentId, _epoch: Epoch) {}
}

/// How often what waits for a server that refuses this client looks whether the session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a link is for.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The volume's name.
    pub volume: String,
    /// The secret of a token.
    pub token: Option<String>,
    /// What the client calls itself, for people.
    pub client: String,
    /// How long a request waits for the owner; `None`: until it has an answer.
    pub timeout: Option<Duration>,
}

/// The session with a volume's owner. It ends with [`Link::close`].
pub struct Link {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    transport: Arc<dyn Transport>,
    events: Weak<dyn Events>,
    config: LinkConfig,
    ticks: Arc<dyn Ticks>,
    state: Mutex<State>,
    changed: Condvar,
    slot_freed: Condvar,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Nobody has greeted yet, or again.
    Down,
    Up,
    /// The owner does not want this client.
    Refused(ClientError),
}

struct State {
    phase: Phase,
    session: SessionId,
    /// Which session it is, or will be.
    number: u64,
    /// Whether it was begun.
    begun: bool,
    /// The owner says that it is over.
    ended: bool,
    /// Raised whenever it goes down, so that what happened before is not taken for new.
    round: u64,
    /// Where to go before greeting again.
    go: Option<Option<String>>,
    slots: Slots,
    /// When the last message that was answered had been sent.
    asked: Moment,
    terms: Terms,
    volume: Option<(VolumeInfo, Rights)>,
    closed: bool,
}

/// In which session, and between which changes of the connection, something was sent.
#[derive(Clone, Copy, Debug)]
struct At {
    session: SessionId,
    number: u64,
    round: u64,
}

impl Link {
    /// Begins a session, in the background.
    ///
    /// # Errors
    /// When there can be no thread, or no random number.
    pub fn start(
        transport: Arc<dyn Transport>,
        config: LinkConfig,
        events: Weak<dyn Events>,
        ticks: Arc<dyn Ticks>,
    ) -> io::Result<Link> {
        let state = State {
            phase: Phase::Down,
            session: new_session()?,
            number: 1,
            begun: false,
            ended: false,
            round: 0,
            go: None,
            slots: Slots::new(),
            asked: ticks.now(),
            terms: Terms::default(),
            volume: None,
            closed: false,
        };
        let shared = Arc::new(Shared {
            transport,
            events,
            config,
            ticks,
            state: Mutex::new(state),
            changed: Condvar::new(),
            slot_freed: Condvar::new(),
        });
        let listener: Weak<dyn Listener> = Arc::downgrade(&shared) as _;
        shared.transport.listen(listener);
        let keeping = Arc::clone(&shared);
        let keeper = std::thread::Builder::new().name("forebay-link".to_owned());
        let keeper = keeper.spawn(move || keeping.keep())?;
        Ok(Link { shared, keeper: Mutex::new(Some(keeper)) })
    }

    /// What the owner says of the volume, once there is a session.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn volume(&self, patience: &Patience<'_>) -> Result<(VolumeInfo, Rights), ClientError> {
        self.shared.enter(patience)?;
        let volume = self.shared.state.lock().volume.clone();
        volume.ok_or_else(|| ClientError::Unexpected("a session without a volume".to_owned()))
    }

    /// The present session's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.shared.state.lock().number
    }

    /// Why the owner does not want this client, while that is so.
    #[must_use]
    pub fn refused(&self) -> Option<ClientError> {
        match &self.shared.state.lock().phase {
            Phase::Refused(why) => Some(why.clone()),
            Phase::Up | Phase::Down => None,
        }
    }

    /// How long a request waits that the calling thread makes: as the mount's options say, and no longer than the thread lives that it serves.
    #[must_use]
    pub fn patience(&self) -> Patience<'static> {
        Patience::new(self.shared.config.timeout, None).of_served()
    }

    /// Returns leases, each with its grant, what is kept, and whether the inode is open, once the owner is there: one that is recalled while a session is greeted or reclaims would
    /// else be waited for until it ends. What belongs to an earlier owner's term is passed over by the next one.
    pub fn give_back(&self, leases: &[(Ino, Stamp, Option<Lease>, bool)]) {
        leases.chunks(RETURNS_MAX).for_each(|some| self.give_some_back(some));
    }

    fn give_some_back(&self, leases: &[(Ino, Stamp, Option<Lease>, bool)]) {
        let number = self.number();
        // Until the session changes or is closed.
        while let Ok(at) = self.shared.enter(&Patience::FOREVER) {
            if at.number != number {
                return;
            }
            let session = at.session;
            let returned = leases.iter().map(|(ino, stamp, kept, open)| Return {
                session,
                ino: *ino,
                stamp: *stamp,
                kept: *kept,
                open: *open,
            });
            let returned: Vec<Return> = returned.collect();
            match self.shared.transport.give_back(&returned, RETURN_PATIENCE) {
                Ok(()) => return,
                Err(trouble) => {
                    tracing::debug!(?trouble, leases = leases.len(), "returned leases did not arrive");
                    self.shared.trouble(at.round, &trouble);
                    std::thread::sleep(RETURN_AGAIN);
                }
            }
        }
    }

    /// Ends the session and everything that waits. What was kept back is sent before this is called.
    pub fn close(&self) {
        let at = {
            let mut state = self.shared.state.lock();
            let up = state.phase == Phase::Up && !state.closed;
            state.closed = true;
            up.then_some(state.session)
        };
        self.shared.changed.notify_all();
        self.shared.slot_freed.notify_all();
        if let Some(session) = at {
            // Where it does not arrive, the session ends by itself.
            let _ = self.shared.transport.end(session, Duration::from_secs(2));
        }
        self.shared.transport.close();
        if let Some(keeper) = self.keeper.lock().take() {
            // A keeper that panicked has said so.
            let _ = keeper.join();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

fn new_session() -> io::Result<SessionId> {
    Ok(SessionId(u128::from_le_bytes(forebay_env::random::<16>()?)))
}

impl Listener for Shared {
    fn pushed(&self, push: Push) {
        let Some(events) = self.events.upgrade() else { return };
        match push {
            Push::Recall { ino, keep, stamp } => events.recalled(ino, keep, stamp),
            Push::Recalls(leases) => events.all_recalled(leases),
            Push::LockFree { ino } => events.lock_free(ino),
            Push::Fence { member, segment, epoch } => events.fence(member, segment, epoch),
            Push::Lost => events.lost(),
            Push::Limited(limited) => events.limited(limited),
            Push::Ended { session } => {
                let round = {
                    let state = self.state.lock();
                    (state.session == session).then_some(state.round)
                };
                // What is said late of an earlier session takes nothing from this one.
                if let Some(round) = round {
                    self.trouble(round, &Trouble::Refused(Refusal::SessionEnded));
                }
            }
        }
    }

    fn lost(&self) {
        let round = self.state.lock().round;
        self.trouble(round, &Trouble::Lost("the connection was lost".to_owned()));
    }
}

impl Shared {
    /// Waits until requests are answered.
    fn enter(&self, patience: &Patience<'_>) -> Result<At, ClientError> {
        let mut state = self.state.lock();
        loop {
            match &state.phase {
                _ if state.closed => return Err(ClientError::Closed),
                Phase::Up => {
                    return Ok(At { session: state.session, number: state.number, round: state.round });
                }
                Phase::Refused(why) => return Err(why.clone()),
                Phase::Down => {}
            }
            patience.wait(&self.changed, &mut state)?;
        }
    }

    /// The same for what is to be tried until the session with this number ends. One that the servers have refused for its whole term has ended as far as this client can
    /// tell, and is not gone on with: then nothing of it is taken for undone that is done later.
    fn enter_again(&self, number: u64, patience: &Patience<'_>) -> Result<At, ClientError> {
        let mut state = self.state.lock();
        loop {
            match &state.phase {
                _ if state.closed => return Err(ClientError::Closed),
                _ if state.number != number => return Err(ClientError::SessionEnded),
                Phase::Up => return Ok(At { session: state.session, number, round: state.round }),
                Phase::Refused(_) if self.ticks.now().since(state.asked) >= state.terms.session => {
                    state.ended = true;
                }
                Phase::Refused(_) | Phase::Down => {}
            }
            MutexGuard::unlocked(&mut state, || patience.go_on())?;
            self.changed.wait_for(&mut state, patience.left(LOOK_EVERY));
        }
    }

    /// Something of this round did not work: the keeper is to see to it. What is told of an earlier round has been seen to.
    fn trouble(&self, round: u64, trouble: &Trouble) {
        let mut state = self.state.lock();
        if state.round != round || state.phase != Phase::Up {
            return;
        }
        state.phase = Phase::Down;
        state.round += 1;
        match trouble {
            Trouble::Refused(Refusal::SessionEnded) => state.ended = true,
            Trouble::Refused(Refusal::NotOwner { address }) => state.go = Some(address.clone()),
            _ => {}
        }
        tracing::info!(?trouble, "the volume's owner is asked again");
        drop(state);
        self.changed.notify_all();
    }
}
