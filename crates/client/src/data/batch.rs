//! Batches: from layers to objects in the store, and to the owner.

use std::sync::Arc;

use bytes::Bytes;
use forebay_data::SegmentBuffer;
use forebay_format::{
    footer::RunEntry,
    row::{Extent, ObjectRef},
    run::{RunEncoder, Trial},
};
use forebay_meta::WriteAttr;
use forebay_protocol::{Answer, Commit, FileCommit, ObjectCommit, Operation, SegmentCommit, SegmentPlace};
use forebay_types::{Generation, Ino, SegmentId, SubvolumeId};

use super::{
    Shared,
    file::{Base, File, Taken},
    lanes::{LanePacking, Used},
    line::{BATCH_MAX, Place, weight},
    numbers::Pair,
    put,
};
use crate::ClientError;

/// Why a batch was not committed.
struct Failed {
    error: ClientError,
    /// Whether it passes only when somebody does something.
    lasting: bool,
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        let lasting = matches!(error, ClientError::Failed(_) | ClientError::Denied(_));
        Failed { error, lasting }
    }
}

/// An object that is in the store and that the owner does not know yet.
struct Stored {
    commit: ObjectCommit,
    place: (SegmentId, SegmentPlace),
}

/// Runs of one batch on their way into objects.
struct Packing<'a> {
    shared: &'a Shared,
    session: u64,
    encoder: RunEncoder,
    scratch: Vec<u8>,
    /// Bytes of a segment at which the next one is begun: equal parts of the batch.
    part: u64,
    open: Option<(ObjectRef, SegmentBuffer)>,
    stored: Vec<Stored>,
}

impl Shared {
    /// Takes the open layers of these files, stores and commits them. What goes wrong is told to those who wait for the files.
    pub(super) fn send(&self, places: &[Place]) {
        let session = self.asks.session();
        let taken = self.take(session, places);
        if taken.is_empty() {
            return;
        }
        match self.store_and_commit(session, &taken) {
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
        for (_, ino) in places {
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
        for (file, weight) in again {
            let place = (file.parent, file.ino);
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

    fn store_and_commit(&self, session: u64, taken: &[Taken]) -> Result<(), Failed> {
        let (files, stored, used) = match LanePacking::pack(self, session, taken)? {
            Some((files, used)) => (files, Vec::new(), used),
            None => {
                let (files, stored) = self.put_objects(session, taken)?;
                (files, stored, Used::default())
            }
        };
        self.commit(session, taken, (files, &stored), used)
    }

    /// Puts the runs of a batch as objects.
    fn put_objects(&self, session: u64, taken: &[Taken]) -> Result<(Vec<FileCommit>, Vec<Stored>), Failed> {
        let mut packing = Packing {
            shared: self,
            session,
            encoder: RunEncoder::default(),
            scratch: Vec::new(),
            part: part(taken, self.block_size()),
            open: None,
            stored: Vec::new(),
        };
        let mut files = Vec::with_capacity(taken.len());
        for taken in taken {
            files.push(packing.file(taken)?);
        }
        packing.close()?;
        Ok((files, packing.stored))
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
        let mut commit = Commit { objects: Vec::with_capacity(stored.len()), files: Vec::new() };
        let mut committed = Vec::with_capacity(taken.len());
        for (taken, file) in taken.iter().zip(files) {
            if taken.is_first() {
                commit.files.push(file);
                committed.push(taken);
            }
        }
        if committed.is_empty() {
            self.lanes.done(&self.options.members, session, used);
            return Ok(());
        }
        commit.objects.extend(stored.iter().map(|stored| stored.commit.clone()));
        let response = self.asks.ask_in(session, Operation::Commit(Box::new(commit)), None);
        // Before those are told who wait for this batch: the next one goes on with the same segment.
        match &response {
            Ok(_) => self.lanes.done(&self.options.members, session, used),
            Err(_) => self.lanes.unknown(&self.options.members, session, used),
        }
        let response = response?;
        let gone = match response.answer {
            Answer::Committed(gone) => gone,
            Answer::Failed(failure) => return Err(ClientError::Failed(failure).into()),
            other => return Err(ClientError::Unexpected(format!("{other:?} to a commit")).into()),
        };
        self.source.learn(stored.iter().map(|stored| stored.place));
        self.land(&committed, &gone);
        if !stored.is_empty() {
            self.numbers.stock_up(self.asks.as_ref(), session);
        }
        Ok(())
    }

    /// Waits until each of these layers is its file's oldest, or was taken back.
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
                self.drop_file(&taken.file);
                continue;
            }
            let mut state = taken.file.state.lock();
            if state.flying.front().is_some_and(|first| Arc::ptr_eq(first, &taken.layer)) {
                state.flying.pop_front();
                state.settled = taken.layer.number;
                freed += taken.layer.cost();
            }
        }
        self.counts.committed(committed.len());
        self.free(freed);
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
                let place = (file.parent, file.ino);
                line.dirty(place, weight(open.cost(), open.count()), now, open.cost() >= BATCH_MAX);
            }
        }
        line.failed(now, lasting.then_some(error));
        drop(line);
        self.changed.notify_all();
    }
}

/// Bytes of one object, where as few as have room for a batch are made of it. What tables of frames and the last run of each add must not leave a
/// small one over.
fn part(taken: &[Taken], block_size: u64) -> u64 {
    let in_objects = taken.iter().filter(|taken| taken.inline.is_none());
    let bytes: u64 = in_objects.map(|taken| taken.layer.cost()).sum();
    bytes / bytes.div_ceil(BATCH_MAX).max(1) + block_size
}

impl Taken {
    /// Whether an older layer of its file is on its way.
    fn waits(&self) -> bool {
        let state = self.file.state.lock();
        let at = state.flying.iter().position(|layer| Arc::ptr_eq(layer, &self.layer));
        at.is_some_and(|at| at > 0)
    }

    /// Whether it is still on its way, and the oldest.
    fn is_first(&self) -> bool {
        let state = self.file.state.lock();
        state.flying.front().is_some_and(|first| Arc::ptr_eq(first, &self.layer))
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

impl Packing<'_> {
    /// What the owner is told of a file, its runs being in objects or in the one that is open.
    fn file(&mut self, taken: &Taken) -> Result<FileCommit, Failed> {
        let layer = &taken.layer;
        let mut extents = Vec::new();
        if taken.inline.is_none() {
            let mut trial = Trial::default();
            for (offset, parts) in layer.runs(self.shared.block_size()) {
                extents.push((offset, self.run(taken, offset, &parts, &mut trial)?));
            }
        }
        Ok(FileCommit { extents, ..file_commit(taken) })
    }

    fn run(
        &mut self,
        taken: &Taken,
        offset: u64,
        parts: &[&[u8]],
        trial: &mut Trial,
    ) -> Result<Extent, Failed> {
        if self.open.as_ref().is_some_and(|(_, segment)| segment.len() >= self.part) {
            self.close()?;
        }
        if self.open.is_none() {
            let Pair { segment, object } =
                self.shared.numbers.next(self.shared.asks.as_ref(), self.session)?;
            self.open = Some((object, SegmentBuffer::new(self.shared.volume.id, segment)));
        }
        let raw: &[u8] = match parts {
            [only] => only,
            several => {
                self.scratch.clear();
                several.iter().for_each(|part| self.scratch.extend_from_slice(part));
                &self.scratch
            }
        };
        let (compression, sealer) = (self.shared.volume.compression, self.shared.sealer.as_ref());
        let run = self.encoder.encode(raw, compression, sealer, trial);
        let run = run.map_err(|error| ClientError::Store(format!("cannot encode data: {error}")))?;
        let block_size = self.shared.block_size();
        let len = raw.len() as u32;
        let entry = RunEntry {
            subvolume: SubvolumeId::FIRST,
            generation: Generation::FIRST,
            ino: taken.file.ino,
            block: (offset / block_size) as u32,
            offset: (offset % block_size) as u32,
            run_len: len,
            run_offset: 0,
            stored_len: run.about.stored_len,
            form: run.about.form,
            check: run.about.check,
        };
        let Some((_, segment)) = &mut self.open else {
            return Err(ClientError::Store("no segment is open".to_owned()).into());
        };
        let run_offset = segment.add(&entry, run.parts);
        Ok(Extent {
            len,
            segment: segment.segment(),
            run_offset,
            stored_len: run.about.stored_len,
            run_len: len,
            skip: 0,
            form: run.about.form,
            check: run.about.check,
        })
    }

    /// Puts the open object, if there is one.
    fn close(&mut self) -> Result<(), Failed> {
        let Some((object, segment)) = self.open.take() else { return Ok(()) };
        let whole = segment.finish();
        let bytes = Bytes::from(whole.bytes);
        put::put(&self.shared.store, object, &bytes).map_err(|error| {
            let lasting = !error.is_transient();
            Failed { error: put::told(&error), lasting }
        })?;
        self.shared.source.objects().uploaded_bytes(object, &bytes);
        self.shared.counts.object(bytes.len() as u64);
        let (segment, len) = (whole.segment, whole.len);
        let segments = vec![SegmentCommit { id: segment, offset: 0, len, raw: whole.raw }];
        self.stored.push(Stored {
            commit: ObjectCommit { object, segments },
            place: (segment, SegmentPlace { object, offset: 0, len }),
        });
        Ok(())
    }
}
