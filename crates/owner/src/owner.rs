//! Requests of clients: who they are, what they wait for, how they are carried out.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use forebay_cluster::{
    Arrival, Effect, Grant, Lease, Moment, RequestId, SessionError, SessionId, Stamp, Standing,
};
use forebay_format::{
    key::Key,
    row::Row,
    shared_row::{SessionRow, TEXT_MAX},
};
use forebay_meta::Namespace;
use forebay_protocol::{
    Answer, Message, Operation, Push, RETURNS_MAX, Recall, Refusal, Request, Response, Return, Rights,
};
use forebay_types::{Epoch, Ino, SubvolumeId};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{
    batch::{Core, HeldBack, Pending},
    beside::Batches,
    carry,
    commit::commits_here,
    log::CommitLog,
    request::{Reply, Tell},
    rights::Needed,
    run::with_wish,
    ticks::Ticks,
};

/// The owner of one volume. Its methods may be called from any thread; none but [`VolumeOwner::submit_and_commit`] waits for the engine's commits.
pub struct VolumeOwner {
    pub(crate) ns: Namespace,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) at: SubvolumeId,
    pub(crate) core: Mutex<Core>,
    /// Signalled when there is something to commit.
    pub(crate) work: Condvar,
    /// Held shared from an operation's record until its slot's row is in the same batch, and alone while a batch is closed.
    pub(crate) batch: RwLock<()>,
    pub(crate) ticks: Arc<dyn Ticks>,
    pub(crate) batches: Batches,
    /// Held by who commits, from the close of a batch until those are told who waited for it. Taken before all others.
    pub(crate) committing: Mutex<()>,
    /// Held by who looks at rows of sets and changes them with what he has seen. Taken inside of `batch`, and before `core`.
    pub(crate) lanes: Mutex<()>,
    /// Bytes that the files of the volume may have.
    pub(crate) limit: AtomicU64,
    /// Held while room is set aside: else two would be given the same.
    pub(crate) reserving: Mutex<()>,
    push: Tell,
}

impl fmt::Debug for VolumeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeOwner({:?})", self.core.lock().ownership.standing())
    }
}

impl VolumeOwner {
    pub(crate) fn new(
        ns: Namespace,
        log: Arc<CommitLog>,
        at: SubvolumeId,
        core: Core,
        ticks: Arc<dyn Ticks>,
        push: Tell,
    ) -> VolumeOwner {
        let (work, batch) = (Condvar::new(), RwLock::new(()));
        let batches = Batches::default();
        VolumeOwner {
            ns,
            log,
            at,
            core: Mutex::new(core),
            work,
            batch,
            ticks,
            batches,
            committing: Mutex::default(),
            lanes: Mutex::default(),
            limit: AtomicU64::new(u64::MAX),
            reserving: Mutex::default(),
            push,
        }
    }

    /// The owner's term; `None` once another server has taken the volume.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self.core.lock().ownership.standing() {
            Standing::Owns(epoch) => Some(epoch),
            Standing::StandsBy => None,
        }
    }

    /// Says that a beat of this server, which began at `begun`, was committed to the place that it has alone ([`Ownership::alone`]).
    ///
    /// [`Ownership::alone`]: forebay_cluster::Ownership::alone
    pub fn renewed(&self, begun: Moment) {
        let mut core = self.core.lock();
        core.note_deafness(self.ticks.now());
        core.ownership.renew(begun);
        let waits = !core.late.is_empty();
        drop(core);
        if waits {
            self.work.notify_one();
        }
    }

    /// Begins a session of a client that calls itself `client`, with these rights. The reply says the owner's term in no grant: [`VolumeOwner::epoch`] does;
    /// its answer is [`Answer::Done`]. A session that lives already is begun again as it is, with the rights that it has.
    pub fn begin_session(&self, session: SessionId, client: &str, rights: Rights, reply: Reply) {
        self.begin_session_by(session, client, (rights, None), reply);
    }

    /// [`VolumeOwner::begin_session`] by a token, which the session remembers ([`VolumeOwner::token`]).
    pub fn begin_session_by(
        &self,
        session: SessionId,
        client: &str,
        (rights, token): (Rights, Option<u64>),
        reply: Reply,
    ) {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        if let Some(refusal) = refuse_all(&core, now) {
            drop(core);
            return reply(Err(refusal));
        }
        // The row of one that lives already may still be on its way.
        let row = Key::Session(session.0).encode();
        let mut batch = if core.rows.contains_key(&row) { core.open } else { core.open - 1 };
        if !core.sessions.lives(session)
            && let Standing::Owns(epoch) = core.ownership.standing()
        {
            let Rights { root, read_only, no_exec, root_squash } = rights;
            core.sessions.begin(session, epoch, now);
            core.rights.insert(session, rights);
            core.tokens.extend(token.map(|token| (session, token)));
            let client = client[..client.floor_char_boundary(TEXT_MAX)].to_owned();
            let row = SessionRow { epoch, client, root, read_only, no_exec, root_squash, token };
            batch = core.put(&Key::Session(session.0), Some(row.encode()));
        }
        let response = Ok(Response { answer: Answer::Done, grants: Vec::new() });
        self.answer(core, HeldBack { batch, reply, response });
    }

    /// What a session that lives may.
    #[must_use]
    pub fn rights(&self, session: SessionId) -> Option<Rights> {
        self.core.lock().rights.get(&session).copied()
    }

    /// The token by which a session began that lives, where it did by one.
    #[must_use]
    pub fn token(&self, session: SessionId) -> Option<u64> {
        self.core.lock().tokens.get(&session).copied()
    }

    /// The sessions that live and began by a token, in order.
    #[must_use]
    pub fn tokens(&self) -> Vec<(SessionId, u64)> {
        let mut all: Vec<_> =
            self.core.lock().tokens.iter().map(|(session, token)| (*session, *token)).collect();
        all.sort_unstable();
        all
    }

    /// Hears of a session that asks nothing else.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn renew(&self, session: SessionId) -> Result<(), Refusal> {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        refuse_all(&core, now).map_or(Ok(()), Err)?;
        hear(&mut core, session, now)
    }

    /// Takes in a request. The reply is called once: at once where it is refused, else when the request was carried out and what it changed or
    /// saw is committed. A repeated request that is still under way is not replied to: the first one's reply answers both.
    pub fn submit(&self, request: Request, reply: Reply) {
        let now = self.ticks.now();
        if request.slot.is_some() != request.operation.changes() {
            return reply(Err(Refusal::WrongSlot));
        }
        carry::read_ahead(&request.operation, &self.ns, self.at);
        let rights = self.rights(request.session).unwrap_or(Rights::ALL);
        let needs = match self.needs(request.session, &rights, &request.operation) {
            Ok(Needed::Leases(needs)) => needs,
            // What it may not do, and what cannot be read, is said in its turn.
            Ok(Needed::Forbidden(_)) | Err(_) => Vec::new(),
        };
        let mut request = request;
        let mut core = self.core.lock();
        if rights.read_only {
            request.wish = request.wish.map(|_| Lease::Read);
        }
        let heard =
            refuse_all(&core, now).map_or(Ok(()), Err).and_then(|()| hear(&mut core, request.session, now));
        if let Err(refusal) = heard {
            drop(core);
            return reply(Err(refusal));
        }
        if let Some((slot, number)) = request.slot {
            match core.sessions.arrive(request.session, slot, number, now) {
                Ok(Arrival::New) => {}
                Ok(Arrival::UnderWay) => return,
                Ok(Arrival::Repeated((bytes, batch))) => {
                    let response = repeated(&bytes);
                    return self.answer(core, HeldBack { batch, reply, response });
                }
                Err(late @ SessionError::Late { .. }) => {
                    drop(core);
                    return reply(Err(Refusal::Invalid(late.to_string())));
                }
                Err(ended @ (SessionError::Ended | SessionError::OutOfOrder { .. })) => {
                    if let SessionError::OutOfOrder { .. } = ended {
                        tracing::warn!(session = ?request.session, "a session is ended: {ended}");
                    }
                    core.end_session(request.session, self.at, now);
                    return self
                        .answer(core, HeldBack { batch: 0, reply, response: Err(Refusal::SessionEnded) });
                }
            }
        }
        core.next_request += 1;
        let id = RequestId(core.next_request);
        let mut needs = with_wish(needs, request.wish);
        if matches!(request.operation, Operation::Ahead(_)) && core.lacks_lease(request.session, &needs) {
            // It has lost one meanwhile: what it needs is looked at again in its turn, and nobody else is asked for anything.
            needs.clear();
        }
        let effects = core.table.arrive(id, request.session, &needs);
        core.requests.insert(id, Pending { request: Arc::new(request), needs, listed: false, reply });
        drop(core);
        self.carry_out(effects);
    }

    /// A session returns a lease, or all of it but what it keeps. `open`: it has the inode open, which then lives until [`Operation::Release`].
    ///
    /// [`Operation::Release`]: forebay_protocol::Operation::Release
    pub fn returned(&self, session: SessionId, ino: Ino, stamp: Stamp, kept: Option<Lease>, open: bool) {
        self.all_returned(&[Return { session, ino, stamp, kept, open }]);
    }

    /// The same of many leases.
    pub fn all_returned(&self, leases: &[Return]) {
        let mut core = self.core.lock();
        let mut effects = Vec::new();
        for leases in leases.chunk_by(|one, next| one.session == next.session) {
            let session = leases[0].session;
            if hear(&mut core, session, self.ticks.now()).is_err() {
                continue;
            }
            for Return { ino, open, .. } in leases {
                // Before anybody can take the last name away. Who has no lease has not seen the inode lately, and perhaps never.
                if *open && core.table.lease(session, *ino).is_some() {
                    core.opened(session, self.at, *ino);
                }
            }
            let returned: Vec<_> = leases.iter().map(|lease| (lease.ino, lease.stamp, lease.kept)).collect();
            effects.extend(core.table.all_returned(session, &returned));
            for Return { ino, .. } in leases {
                if !core.table.is_recalled(session, *ino) {
                    core.recalled.remove(&(session, *ino));
                }
            }
        }
        core.put_leases(self.at);
        drop(core);
        self.work.notify_one();
        self.carry_out(effects);
    }

    /// A session of a former owner says which leases it has. Returns those that it is given again, and the owner's term. Asked again, it returns what the
    /// session has by then.
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::MustReclaim`] where the rows of such leases are still on their way, or one in the way is of a session that has yet to say which it
    /// has: the client asks again. Its session was heard of.
    pub fn reclaim(
        &self,
        session: SessionId,
        leases: &[(Ino, Lease)],
    ) -> Result<(Epoch, Vec<Grant>), Refusal> {
        let leases = &self.seen_leases(session, leases)?;
        let now = self.ticks.now();
        let mut core = self.core.lock();
        refuse_all(&core, now).map_or(Ok(()), Err)?;
        core.sessions.heard(session, now).map_err(|_| Refusal::SessionEnded)?;
        let Standing::Owns(epoch) = core.ownership.standing() else { return Err(not_owner(&core)) };
        if !core.table.must_reclaim(session) {
            let given = core.table.leases_of(session);
            let known = core.batch_of(&given) <= core.committed;
            return if known { Ok((epoch, given)) } else { Err(Refusal::MustReclaim { epoch }) };
        }
        let (given, effects) = core.table.reclaim(session, leases);
        core.put_leases(self.at);
        drop(core);
        self.work.notify_one();
        self.carry_out(effects);
        given.map(|given| (epoch, given)).ok_or(Refusal::MustReclaim { epoch })
    }

    /// Those of the leases that a session may have at all.
    fn seen_leases(&self, session: SessionId, leases: &[(Ino, Lease)]) -> Result<Vec<(Ino, Lease)>, Refusal> {
        let Some(rights) = self.rights(session) else { return Ok(leases.to_vec()) };
        let mut seen = Vec::with_capacity(leases.len());
        for (ino, lease) in leases {
            match self.sees(session, &rights, *ino) {
                Ok(true) => seen.push((*ino, if rights.read_only { Lease::Read } else { *lease })),
                Ok(false) => {}
                Err(error) => return Err(Refusal::Unavailable(error.to_string())),
            }
        }
        Ok(seen)
    }

    /// Tells sessions what has collected for them.
    pub(crate) fn tell_all(&self) {
        let tell = std::mem::take(&mut self.core.lock().tell);
        tell.into_iter().for_each(|(session, push)| (self.push)(session, push));
    }

    /// Does what has become possible, and tells recalls.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Run(id) => effects.extend(self.run(id)),
                Effect::Recall { session, ino, keep, stamp } => {
                    let mut leases = vec![Recall { ino, keep, stamp }];
                    // Those of one session that come one after the other are told at once.
                    while leases.len() < RETURNS_MAX
                        && let Some(Effect::Recall { session: of, ino, keep, stamp }) =
                            effects.front().copied()
                        && of == session
                    {
                        leases.push(Recall { ino, keep, stamp });
                        effects.pop_front();
                    }
                    self.recall(session, leases);
                }
            }
        }
    }

    fn recall(&self, session: SessionId, leases: Vec<Recall>) {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        for Recall { ino, stamp, .. } in leases.iter().copied() {
            let recalled = core.recalled.entry((session, ino)).or_insert((stamp, now));
            if recalled.0 != stamp {
                *recalled = (stamp, now);
            }
        }
        drop(core);
        let push = match leases[..] {
            [Recall { ino, keep, stamp }] => Push::Recall { ino, keep, stamp },
            _ => Push::Recalls(leases),
        };
        (self.push)(session, push);
    }

    /// Gives a response once its batch is committed.
    pub(crate) fn answer(&self, mut core: parking_lot::MutexGuard<'_, Core>, held: HeldBack) {
        if held.batch <= core.committed {
            drop(core);
            (held.reply)(held.response);
        } else {
            core.held_back.push(held);
            drop(core);
            if !commits_here() {
                self.work.notify_one();
            }
        }
    }
}

fn repeated(bytes: &[u8]) -> Result<Response, Refusal> {
    match Answer::decode(bytes) {
        Ok(answer) => Ok(Response { answer, grants: Vec::new() }),
        Err(error) => {
            tracing::error!(%error, "the kept answer of a slot cannot be read");
            Err(Refusal::SessionEnded)
        }
    }
}

pub(crate) fn not_owner(core: &Core) -> Refusal {
    Refusal::NotOwner { address: core.ownership.other_owner().map(|fence| fence.address.clone()) }
}

/// Nothing is answered, and no session renewed, that a later owner might not know of.
fn refuse_all(core: &Core, now: Moment) -> Option<Refusal> {
    (core.over || core.stops || !core.ownership.may_look_up(now)).then(|| not_owner(core))
}

fn hear(core: &mut Core, session: SessionId, now: Moment) -> Result<(), Refusal> {
    core.sessions.heard(session, now).map_err(|_| Refusal::SessionEnded)?;
    match core.ownership.standing() {
        Standing::Owns(epoch) if core.table.must_reclaim(session) => Err(Refusal::MustReclaim { epoch }),
        _ => Ok(()),
    }
}
