//! Requests of clients: who they are, what they wait for, how they are carried out.

use std::{collections::VecDeque, fmt, sync::Arc};

use forebay_cluster::{
    Arrival, Effect, Grant, Lease, Moment, RequestId, SessionError, SessionId, Stamp, Standing,
};
use forebay_format::{key::Key, row::Row, shared_row::SessionRow};
use forebay_meta::{MetaError, Namespace};
use forebay_types::{Epoch, Ino, SubvolumeId};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{
    answer::Answer,
    batch::{BatchNumber, Core, HeldBack, Pending},
    log::CommitLog,
    request::{Push, Refusal, Reply, Request, Response},
    take::may_pass,
    ticks::Ticks,
};

/// The owner of one volume. Its methods may be called from any thread; none waits for the engine's commits.
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
    push: Box<dyn Fn(SessionId, Push) + Send + Sync>,
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
        push: Box<dyn Fn(SessionId, Push) + Send + Sync>,
    ) -> VolumeOwner {
        let (work, batch) = (Condvar::new(), RwLock::new(()));
        VolumeOwner { ns, log, at, core: Mutex::new(core), work, batch, ticks, push }
    }

    /// The owner's term; `None` once another server has taken the volume.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self.core.lock().ownership.standing() {
            Standing::Owns(epoch) => Some(epoch),
            Standing::StandsBy => None,
        }
    }

    /// Begins a session of a client that calls itself `client`. The reply says the owner's term in no grant: [`VolumeOwner::epoch`] does; its answer is
    /// [`Answer::Done`]. A session that lives already is begun again as it is.
    pub fn begin_session(&self, session: SessionId, client: &str, reply: Reply) {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        if let Some(refusal) = refuse_all(&core, now) {
            drop(core);
            return reply(Err(refusal));
        }
        let mut batch = 0;
        if !core.sessions.lives(session)
            && let Standing::Owns(epoch) = core.ownership.standing()
        {
            core.sessions.begin(session, epoch, now);
            let row = SessionRow { epoch, client: client.to_owned() };
            batch = core.put(&Key::Session(session.0), Some(row.encode()));
        }
        let response = Ok(Response { answer: Answer::Done, grants: Vec::new() });
        self.answer(core, HeldBack { batch, reply, response });
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
        let needs = request.operation.needs(&self.ns, self.at);
        let mut core = self.core.lock();
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
                Err(SessionError::Ended | SessionError::OutOfOrder { .. }) => {
                    core.end_session(request.session, self.at);
                    return self
                        .answer(core, HeldBack { batch: 0, reply, response: Err(Refusal::SessionEnded) });
                }
            }
        }
        core.next_request += 1;
        let id = RequestId(core.next_request);
        let needs = with_wish(needs, request.wish);
        let effects = core.table.arrive(id, request.session, &needs);
        core.requests.insert(id, Pending { request: Arc::new(request), needs, reply });
        drop(core);
        self.carry_out(effects);
    }

    /// A session returns a lease, or all of it but what it keeps.
    pub fn returned(&self, session: SessionId, ino: Ino, stamp: Stamp, kept: Option<Lease>) {
        let mut core = self.core.lock();
        if hear(&mut core, session, self.ticks.now()).is_err() {
            return;
        }
        let effects = core.table.returned(session, ino, stamp, kept);
        core.put_leases(self.at);
        drop(core);
        self.work.notify_one();
        self.carry_out(effects);
    }

    /// A session of a former owner says which leases it has. Returns those that it is given again, and the owner's term. Asked again, it returns what the
    /// session has by then.
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::MustReclaim`] where the rows of such leases are still on their way: the client asks again.
    pub fn reclaim(
        &self,
        session: SessionId,
        leases: &[(Ino, Lease)],
    ) -> Result<(Epoch, Vec<Grant>), Refusal> {
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
        Ok((epoch, given))
    }

    /// Does what has become possible, and tells recalls.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Run(id) => effects.extend(self.run(id)),
                Effect::Recall { session, ino, keep, stamp } => {
                    (self.push)(session, Push::Recall { ino, keep, stamp });
                }
            }
        }
    }

    /// Carries out a request, or puts it off. Returns what becomes possible by that.
    pub(crate) fn run(&self, id: RequestId) -> Vec<Effect> {
        let mut core = self.core.lock();
        let Some(pending) = core.requests.get(&id) else { return Vec::new() };
        let (request, declared) = (Arc::clone(&pending.request), pending.needs.clone());
        if !request.operation.changes() && !core.ownership.may_look_up(self.ticks.now()) {
            core.late.push(id);
            drop(core);
            self.work.notify_one();
            return Vec::new();
        }
        drop(core);
        // Names may have come to stand for other inodes while it waited. From here on they cannot.
        let needs = with_wish(request.operation.needs(&self.ns, self.at), request.wish);
        let covers = |need: &forebay_cluster::Need| {
            declared.iter().any(|known| known.ino == need.ino && known.access >= need.access)
        };
        if !needs.iter().all(covers) {
            let mut core = self.core.lock();
            if let Some(pending) = core.requests.get_mut(&id) {
                pending.needs.clone_from(&needs);
            }
            return core.table.again(id, &needs);
        }
        let closing = self.batch.read();
        let in_use = |ino| self.core.lock().table.is_held(ino);
        let (done, changed) = CommitLog::watch(|| request.operation.carry_out(&self.ns, self.at, &in_use));
        let mut core = self.core.lock();
        let answer = match done {
            Ok(answer) => answer,
            Err(MetaError::Engine(error)) if may_pass(&error) && !changed => {
                tracing::warn!(%error, "a request waits for the metadata engine");
                core.late.push(id);
                drop((core, closing));
                self.work.notify_one();
                return Vec::new();
            }
            Err(error) => Answer::failed(&error),
        };
        let effects = self.finish(&mut core, id, &request, answer, changed);
        let ready = core.take_ready();
        let waits = !core.held_back.is_empty();
        drop((core, closing));
        if waits {
            self.work.notify_one();
        }
        ready.into_iter().for_each(|held| (held.reply)(held.response));
        effects
    }

    fn finish(
        &self,
        core: &mut Core,
        id: RequestId,
        request: &Request,
        answer: Answer,
        changed: bool,
    ) -> Vec<Effect> {
        let Some(Pending { needs, reply, .. }) = core.requests.remove(&id) else { return Vec::new() };
        let mut batch: BatchNumber = core.last_change(needs.iter().map(|need| need.ino));
        let lives = core.sessions.lives(request.session);
        if changed {
            (batch, core.dirty) = (core.open, true);
            let written = needs.iter().filter(|need| need.access == forebay_cluster::Access::Write);
            core.changed.extend(written.map(|need| (need.ino, batch)));
        }
        if lives && request.slot.is_some() {
            core.keep_answer(request, &answer.encode());
            batch = core.open;
        }
        let wishes: Vec<(Ino, Lease)> = match request.wish.filter(|_| lives) {
            Some(lease) => request.operation.leases(&answer).into_iter().map(|ino| (ino, lease)).collect(),
            None => Vec::new(),
        };
        let (grants, effects) = core.table.done(id, &wishes);
        core.put_leases(self.at);
        batch = batch.max(core.batch_of(&grants));
        let response = if lives { Ok(Response { answer, grants }) } else { Err(Refusal::SessionEnded) };
        core.held_back.push(HeldBack { batch, reply, response });
        effects
    }

    /// Gives a response once its batch is committed.
    fn answer(&self, mut core: parking_lot::MutexGuard<'_, Core>, held: HeldBack) {
        if held.batch <= core.committed {
            drop(core);
            (held.reply)(held.response);
        } else {
            core.held_back.push(held);
            drop(core);
            self.work.notify_one();
        }
    }
}

/// A lease to write needs the inodes like a change does.
fn with_wish(mut needs: Vec<forebay_cluster::Need>, wish: Option<Lease>) -> Vec<forebay_cluster::Need> {
    if let Some(lease) = wish {
        needs.iter_mut().for_each(|need| need.access = need.access.max(lease.access()));
    }
    needs
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
