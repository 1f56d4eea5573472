//! Batches: from layers to objects in the store, and to the owner.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use forebay_meta::WriteAttr;
use forebay_protocol::{Answer, Commit, Failure, FileCommit, Operation};
use forebay_types::Ino;

use super::{
    Shared, Within,
    classes::Batch,
    file::{Base, File, Taken},
    lanes::{Bound, LanePacking, Lanes, Used},
    line::{BATCH_MAX, Place, weight},
    packing::Stored,
    put::Tries,
};
use crate::ClientError;

/// How long members and the store are asked in turn, where either may take a batch again soon; and the pause before the next turn.
const IN_TURN_FOR: Duration = Duration::from_mins(1);
const TURN: Duration = Duration::from_millis(200);

/// Why a batch was not committed.
pub(super) struct Failed {
    pub(super) error: ClientError,
    /// Whether it passes only when somebody does something.
    pub(super) lasting: bool,
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        let lasting = matches!(error, ClientError::Failed(_) | ClientError::Denied(_));
        Failed { error, lasting }
    }
}

impl Shared {
    /// Takes the open layers of these files, stores and commits them. What goes wrong is told to those who wait for the files.
    pub(super) fn send(&self, places: &[Place]) {
        let session = self.asks.session();
        let taken = self.take(session, places);
        if taken.is_empty() {
            return;
        }
        // Taken all at once: of two that share files, all that one has is older.
        for batch in self.by_class(taken) {
            self.send_taken(session, &batch);
        }
    }

    fn send_taken(&self, session: u64, batch: &Batch) {
        let taken = &batch.taken;
        match self.store_and_commit(session, batch) {
            Ok(()) => self.line.lock().succeeded(),
            Err(Failed { error, lasting }) => {
                tracing::warn!(%error, files = taken.len(), "what was written could not be stored: it is kept, and tried again");
                let back: Vec<_> = taken.iter().map(|taken| Arc::clone(&taken.file)).collect();
                self.take_back(&back, &error, lasting);
            }
        }
    }

    /// The open layers of these files. Taken all at once among batches: of two that share files, one has the older layer of each.
    fn take(&self, session: u64, places: &[Place]) -> Vec<Taken> {
        let mut files = Vec::with_capacity(places.len());
        for (.., ino) in places {
            let Some(file) = self.files.get(*ino) else { continue };
            if file.state.lock().is_of_another(session) {
                self.lose(&file, ClientError::SessionEnded);
            } else if let Err(error) = self.know_base(&file) {
                self.take_back(&[file], &error, false);
            } else {
                files.push(file);
            }
        }
        let (mut taken, mut added, mut again) = (Vec::with_capacity(files.len()), 0, Vec::new());
        {
            let _all_at_once = self.taking.lock();
            for file in files {
                let mut state = file.state.lock();
                if let Some((layer, more)) = state.take(&file) {
                    added += more;
                    taken.push(layer);
                }
                // There was too much for one commit, or its layers came back since it was asked for.
                if let Some(open) = &state.open {
                    again.push((Arc::clone(&file), weight(open.cost(), open.count())));
                }
            }
        }
        let mut line = self.line.lock();
        line.kept += added;
        line.allowance.take(added);
        for (file, weight) in again {
            let place = file.place();
            line.dirty(place, weight, std::time::Instant::now(), true);
            line.want(place);
        }
        taken
    }

    /// Asks the owner what a file's layers rest on, where that is not known.
    fn know_base(&self, file: &Arc<File>) -> Result<(), ClientError> {
        use forebay_format::row::Layout;
        let needed = {
            let state = file.state.lock();
            state.base == Base::Unknown && state.open.is_some()
        };
        if !needed {
            return Ok(());
        }
        let response = self.asks.ask(Operation::Inode(file.ino), None)?;
        let base = match response.answer {
            Answer::Inode(inode) => match (inode.row.layout, inode.contents) {
                (Layout::Empty, _) => Base::Empty,
                (Layout::Inline, Some(forebay_protocol::Contents::Inline(bytes))) => Base::Inline(bytes),
                (Layout::Inline, _) => {
                    return Err(ClientError::Unexpected("a tiny file without its bytes".to_owned()));
                }
                (Layout::Single(..) | Layout::Extents, _) => Base::Extents,
            },
            Answer::Failed(forebay_protocol::Failure::Stale) => {
                self.drop_file(file);
                return Ok(());
            }
            Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
            other => return Err(ClientError::Unexpected(format!("{other:?} to a request for an inode"))),
        };
        let mut state = file.state.lock();
        if state.base == Base::Unknown {
            state.base = base;
        }
        Ok(())
    }

    /// Members or the store have it, whichever take it first: while members of a set have failed, the store is asked, and where that does not answer, members are again.
    fn store_and_commit(&self, session: u64, batch: &Batch) -> Result<(), Failed> {
        let Batch { class, policy, taken, .. } = batch;
        let mut within = batch.within;
        let mut bound = class.copies().map(|copies| Bound { copies, within, policy: *policy });
        let until = Instant::now() + IN_TURN_FOR;
        loop {
            match bound.map(|bound| self.over_members(session, bound, taken)) {
                Some(Ok(true)) => return Ok(()),
                // Somebody has said meanwhile that more is to be promised. The store is enough for everything.
                Some(Err(Failed { error: ClientError::Failed(Failure::BelowClass), .. })) => {
                    tracing::debug!(files = taken.len(), "a policy says more than was known: it is put");
                    self.classes.forget();
                    // Members were given them by what was known here.
                    let mut said = taken.iter().map(|taken| self.within(taken.policy));
                    within = said.find(|within| *within != Within::Any).unwrap_or(within);
                    bound = None;
                }
                Some(Err(failed)) => return Err(failed),
                Some(Ok(false)) | None => {}
            }
            let in_turn = bound.is_some_and(|bound| Lanes::may_have_set(&self.options.members, bound));
            let tries = if in_turn { Tries::Few } else { Tries::All };
            match self.put_objects(session, (within, tries), taken) {
                Ok((files, stored)) => return self.commit(session, taken, (files, &stored), Used::default()),
                // It passes: by then there may be a set again.
                Err(Failed { error: ClientError::Store(why), lasting: false })
                    if in_turn && Instant::now() < until && self.goes_on(session) =>
                {
                    tracing::warn!(
                        why,
                        files = taken.len(),
                        "neither members nor the store take what was written: they are asked again"
                    );
                    thread::sleep(TURN);
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Whether what is of this session may still be committed, and nobody waits for the end.
    fn goes_on(&self, session: u64) -> bool {
        self.asks.session() == session && !self.line.lock().stop
    }

    /// Has members take a batch, and commits it. Returns whether there was a set.
    fn over_members(&self, session: u64, bound: Bound, taken: &[Taken]) -> Result<bool, Failed> {
        let Some((files, used)) = LanePacking::pack(self, (session, bound), taken)? else {
            return Ok(false);
        };
        self.commit(session, taken, (files, &[]), used).map(|()| true)
    }

    /// Tells the owner what files consist of now. All of it is in the store, or on stable storage of all members of its set.
    fn commit(
        &self,
        session: u64,
        taken: &[Taken],
        (files, stored): (Vec<FileCommit>, &[Stored]),
        used: Used,
    ) -> Result<(), Failed> {
        self.await_turn(taken);
        let told = self.losses.told();
        let mut commit = Commit { objects: Vec::with_capacity(stored.len()), files: Vec::new() };
        let mut committed = Vec::with_capacity(taken.len());
        for (taken, file) in taken.iter().zip(files) {
            if taken.begins() {
                commit.files.push(file);
                committed.push(taken);
            }
        }
        if committed.is_empty() {
            self.lanes.done(session, used);
            self.numbers.spend(session, stored.iter().map(Stored::pair));
            return Ok(());
        }
        commit.objects.extend(stored.iter().map(|stored| stored.commit.clone()));
        let response = self.asks.ask_in(session, Operation::Commit(Box::new(commit)), None);
        // Before those are told who wait for this batch: the next one goes on with the same segment.
        match &response {
            Ok(_) => self.lanes.done(session, used),
            Err(_) => self.lanes.unknown(&self.options.members, session, used),
        }
        let gone = match response.map(|response| response.answer) {
            Ok(Answer::Committed(gone)) => Ok(gone),
            Ok(Answer::Failed(failure)) => {
                self.numbers.spend(session, stored.iter().map(Stored::pair));
                Err(ClientError::Failed(failure))
            }
            Ok(other) => Err(ClientError::Unexpected(format!("{other:?} to a commit"))),
            Err(error) => Err(error),
        };
        let gone = gone.inspect_err(|_| self.is_told(&committed))?;
        self.source.learn(stored.iter().map(|stored| stored.place));
        if stored.is_empty() {
            let over_members = committed.iter().filter(|taken| taken.inline.is_none());
            self.losses.wrote(over_members.map(|taken| taken.file.ino), told);
        }
        self.land(&committed, &gone);
        if !stored.is_empty() {
            self.numbers.stock_up(self.asks.as_ref(), session);
        }
        Ok(())
    }

    /// Waits until each of these layers is its file's oldest, of which nothing else is being told, or was taken back.
    fn await_turn(&self, taken: &[Taken]) {
        let mut line = self.line.lock();
        for taken in taken {
            while taken.waits() {
                self.changed.wait(&mut line);
            }
        }
    }

    /// Forgets layers that are committed: first the maps, then the layers, as readers look the other way round.
    fn land(&self, committed: &[&Taken], gone: &[Ino]) {
        let mut freed = 0;
        for taken in committed {
            let ino = taken.file.ino;
            self.maps.forget(ino);
            if gone.contains(&ino) {
                taken.file.state.lock().telling = false;
                self.drop_file(&taken.file);
                continue;
            }
            let mut state = taken.file.state.lock();
            state.telling = false;
            if state.flying.front().is_some_and(|first| Arc::ptr_eq(first, &taken.layer)) {
                state.flying.pop_front();
                state.settled = taken.layer.number;
                freed += taken.layer.cost();
            }
        }
        self.counts.committed(committed.len());
        self.free(freed);
    }

    /// It is known what became of a commit of these that was not taken in.
    fn is_told(&self, committed: &[&Taken]) {
        committed.iter().for_each(|taken| taken.file.state.lock().telling = false);
        self.free(0);
    }

    /// Makes open layers of those of `files` again.
    pub(super) fn take_back(&self, files: &[Arc<File>], error: &ClientError, lasting: bool) {
        let mut line = self.line.lock();
        let now = std::time::Instant::now();
        for file in files {
            let mut state = file.state.lock();
            let freed = state.take_back(error);
            line.kept = line.kept.saturating_sub(freed);
            if let Some(open) = &state.open {
                let place = file.place();
                line.dirty(place, weight(open.cost(), open.count()), now, open.cost() >= BATCH_MAX);
            }
        }
        line.failed(now, lasting.then_some(error));
        drop(line);
        self.changed.notify_all();
    }
}

impl Taken {
    /// Whether an older layer of its file is on its way, or being told although it came back.
    fn waits(&self) -> bool {
        let state = self.file.state.lock();
        let at = state.flying.iter().position(|layer| Arc::ptr_eq(layer, &self.layer));
        at.is_some_and(|at| at > 0 || state.telling)
    }

    /// Whether it is still on its way, and the oldest: the owner is told of it next.
    fn begins(&self) -> bool {
        let mut state = self.file.state.lock();
        let first = state.flying.front().is_some_and(|first| Arc::ptr_eq(first, &self.layer));
        state.telling |= first;
        first
    }
}

/// What the owner is told of a file, without its extents.
pub(super) fn file_commit(taken: &Taken) -> FileCommit {
    let layer = &taken.layer;
    FileCommit {
        ino: taken.file.ino,
        inline: taken.inline.clone(),
        extents: Vec::new(),
        size: layer.size,
        attr: WriteAttr { mode: layer.mode },
        mtime: layer.mtime,
    }
}
