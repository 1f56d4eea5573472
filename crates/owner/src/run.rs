//! Carrying requests out, one at a time on their inodes, and answering them.

use std::{mem, sync::Arc};

use forebay_cluster::{Access, Effect, Grant, Lease, Need, RequestId};
use forebay_engine::EngineError;
use forebay_format::row::Layout;
use forebay_meta::MetaError;
use forebay_protocol::{
    Answer, DirectoryEntry, Failure, InodeAnswer, Message, Operation, Refusal, Request, Response,
};
use forebay_types::Ino;
use parking_lot::MutexGuard;
use rustc_hash::FxHashSet;

use crate::{
    batch::{BatchNumber, Core, HeldBack, Pending},
    carry,
    log::CommitLog,
    owner::VolumeOwner,
    rights::Needed,
    take::may_pass,
};

/// Bytes of small files that come along with their inodes in one page of a listing: what is beyond is read when the file is. With names and inodes an answer stays within what is asked
/// for.
const LISTED_CONTENTS: u64 = 256 << 10;

/// What came of carrying a request out, besides its answer.
#[derive(Default)]
struct Done {
    changed: bool,
    /// What the client has made before.
    made: Vec<Ino>,
    /// What is told of without a lease, as it stays so.
    sealed: FxHashSet<Ino>,
}

impl VolumeOwner {
    /// Carries out a request, or puts it off. Returns what becomes possible by that.
    pub(crate) fn run(&self, id: RequestId) -> Vec<Effect> {
        let mut core = self.core.lock();
        let Some(pending) = core.requests.get(&id) else { return Vec::new() };
        let (request, declared) = (Arc::clone(&pending.request), pending.needs.clone());
        let Some(rights) = core.rights.get(&request.session).copied() else {
            // Its session has ended: nothing of it is to happen any more.
            let effects = self.finish(core, id, &request, Answer::Done, Done::default());
            return effects;
        };
        if !request.operation.changes() && !core.ownership.may_look_up(self.ticks.now()) {
            core.late.push(id);
            drop(core);
            self.work.notify_one();
            return Vec::new();
        }
        drop(core);
        // Names may have come to stand for other inodes while it waited. From here on they cannot.
        let (needs, forbidden) = match self.needs(request.session, &rights, &request.operation) {
            Ok(Needed::Leases(needs)) => (with_wish(needs, request.wish), None),
            // Nobody else is asked for a lease by what is refused.
            Ok(Needed::Forbidden(failure)) => (Vec::new(), Some(failure)),
            Err(MetaError::Engine(error)) if may_pass(&error) => return self.put_off(id, &error),
            Err(error) => (Vec::new(), Some(logged(&error))),
        };
        let covers =
            |need: &Need| declared.iter().any(|known| known.ino == need.ino && known.access >= need.access);
        if !needs.iter().all(covers) {
            let mut core = self.core.lock();
            if let Some(pending) = core.requests.get_mut(&id) {
                pending.needs.clone_from(&needs);
            }
            return core.table.again(id, &needs);
        }
        let closing = self.batch.read();
        if !self.core.lock().requests.contains_key(&id) {
            // Refused meanwhile, as the owner stops: it is for the next one.
            return Vec::new();
        }
        let (done, changed) = match forbidden {
            Some(failure) => (Ok(Answer::Failed(failure)), false),
            None => {
                CommitLog::watch(|| self.perform((request.session, id), &rights, &request.operation, &needs))
            }
        };
        if let Some(effects) = self.ask_writers(id, &request, &done) {
            return effects;
        }
        let made = self.made_ahead(&request, &done);
        let sealed = match &done {
            // One with a root of its own may see a file by its lease alone.
            Ok(answer) if request.wish.is_some() && rights.root == Ino::ROOT => {
                carry::sealed(&request.operation, answer, &self.ns, self.at)
            }
            _ => FxHashSet::default(),
        };
        let mut core = self.core.lock();
        let answer = match done {
            Ok(answer) => answer,
            Err(MetaError::Engine(error)) if may_pass(&error) && (!changed || cleans(&request.operation)) => {
                core.dirty |= changed;
                drop((core, closing));
                return self.put_off(id, &error);
            }
            Err(error) => failed(&error),
        };
        let effects = self.finish(core, id, &request, answer, Done { changed, made, sealed });
        drop(closing);
        self.tell_all();
        effects
    }

    /// Puts a request off until the engine answers.
    fn put_off(&self, id: RequestId, error: &EngineError) -> Vec<Effect> {
        tracing::warn!(%error, "a request waits for the metadata engine");
        self.core.lock().late.push(id);
        self.work.notify_one();
        Vec::new()
    }

    /// Says that a request was carried out, and answers it once everything is committed that it has changed or seen.
    fn finish<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        id: RequestId,
        request: &Request,
        mut answer: Answer,
        Done { changed, made, sealed }: Done,
    ) -> Vec<Effect> {
        let Some(Pending { needs, reply, .. }) = core.requests.remove(&id) else { return Vec::new() };
        let mut batch: BatchNumber = core.last_change(needs.iter().map(|need| need.ino));
        let lives = core.sessions.lives(request.session);
        if changed {
            (batch, core.dirty) = (core.open, true);
            let written = needs.iter().filter(|need| need.access == Access::Write);
            core.changed.extend(written.map(|need| (need.ino, batch)));
        }
        if matches!(request.operation, Operation::TestLock(..)) {
            batch = batch.max(core.locks_in);
        }
        if matches!(request.operation, Operation::Offer(_)) {
            batch = batch.max(core.sets_in);
        }
        if matches!(request.operation, Operation::Classes(_) | Operation::GroupRules(_)) {
            batch = batch.max(core.policies.changed_in);
        }
        if lives && request.slot.is_some() {
            core.keep_answer(request, &answer.encode());
            batch = core.open;
        }
        let wishes = match request.wish.filter(|_| lives) {
            Some(lease) => carry::leases(&request.operation, &answer, lease, &sealed),
            None => Vec::new(),
        };
        let mut grants: Vec<Grant> = Vec::new();
        if lives {
            grants.extend(made.into_iter().map(|ino| core.table.made(request.session, ino)));
        }
        let (wished, effects) = core.table.done(id, &wishes);
        grants.extend(wished);
        core.put_leases(self.at);
        batch = batch.max(core.batch_of(&grants));
        if let (Operation::Entries { inodes: true, .. }, Answer::Entries(entries)) =
            (&request.operation, &mut answer)
        {
            let inos: Vec<Ino> = grants.iter().map(|grant| grant.ino).chain(sealed).collect();
            batch = batch.max(core.last_change(inos.iter().copied()));
            drop(core);
            self.tell_inodes(entries, &inos);
            core = self.core.lock();
        }
        let response = if lives { Ok(Response { answer, grants }) } else { Err(Refusal::SessionEnded) };
        self.answer(core, HeldBack { batch, reply, response });
        effects
    }

    /// Puts a listing with inodes off, once, until those who write to what it names have stored that: they are all asked at the same time, where whoever lists would ask for one
    /// after the other. `None`: nobody does, or they were asked. What was taken by a writer again since then is told without its inode.
    fn ask_writers(
        &self,
        id: RequestId,
        request: &Request,
        done: &Result<Answer, MetaError>,
    ) -> Option<Vec<Effect>> {
        let (Operation::Entries { inodes: true, .. }, Some(_), Ok(Answer::Entries(entries))) =
            (&request.operation, request.wish, done)
        else {
            return None;
        };
        let mut core = self.core.lock();
        let is_written = |ino: &Ino| core.table.is_written_beside(request.session, *ino);
        let written: Vec<Ino> = entries.iter().map(|entry| entry.ino).filter(is_written).collect();
        let pending = core.requests.get_mut(&id)?;
        if written.is_empty() || mem::replace(&mut pending.listed, true) {
            return None;
        }
        pending.needs.extend(written.into_iter().map(|ino| Need { ino, access: Access::Read }));
        let needs = pending.needs.clone();
        Some(core.table.again(id, &needs))
    }

    /// Puts inodes into a listing: those on which the session has got a lease, and sealed ones, which need none. They are read after that, so none of the former changes
    /// before the session is asked to forget it; what is told of any other might be old before it is told.
    fn tell_inodes(&self, entries: &mut [DirectoryEntry], leased: &[Ino]) {
        let leased: FxHashSet<Ino> = leased.iter().copied().collect();
        let wanted = || entries.iter().map(|entry| entry.ino).filter(|ino| leased.contains(ino));
        if let Err(error) = self.ns.prefetch_inodes(self.at, wanted()) {
            tracing::warn!(%error, "inodes of a listing cannot be read");
            return;
        }
        let mut room = LISTED_CONTENTS;
        for entry in entries.iter_mut().filter(|entry| leased.contains(&entry.ino)) {
            // One that cannot be read is asked for by itself.
            let Ok(inode) = self.ns.inode(self.at, entry.ino) else { continue };
            let in_row = if inode.row.layout == Layout::Inline { inode.row.size } else { 0 };
            let told = match room.checked_sub(in_row) {
                Some(left) => {
                    room = left;
                    carry::told(&self.ns, self.at, &inode)
                }
                None => Ok(InodeAnswer::of(&inode)),
            };
            entry.inode = told.ok().map(Box::new);
        }
    }
}

/// Whether records that an operation has made although it failed are none of its own: rows that were cut off a file before, and are removed first. Of what a client has done only the first step
/// fails so: the others are tried until they are done, or all is over.
fn cleans(operation: &Operation) -> bool {
    match operation {
        Operation::Ahead(steps) => steps.first().is_some_and(|step| cleans(&step.operation)),
        Operation::SetAttr(..) | Operation::Punch { .. } | Operation::Share { .. } | Operation::Commit(_) => {
            true
        }
        _ => false,
    }
}

fn failed(error: &MetaError) -> Answer {
    Answer::Failed(logged(error))
}

fn logged(error: &MetaError) -> Failure {
    let failure = Failure::from(error);
    if failure == Failure::Io {
        tracing::error!(%error, "an operation failed");
    }
    failure
}

/// A lease to write needs the inodes like a change does.
pub(crate) fn with_wish(mut needs: Vec<Need>, wish: Option<Lease>) -> Vec<Need> {
    if let Some(lease) = wish {
        needs.iter_mut().for_each(|need| need.access = need.access.max(lease.access()));
    }
    needs
}
