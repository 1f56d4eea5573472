//! Carrying an operation out, with all that it changes besides the namespace: what the session has open, its numbers, its locks.
//!
//! Runs while no batch can be closed, so that rows of sessions are in the same batch as the record that they go with.

use std::collections::BTreeSet;

use forebay_cluster::{Need, RequestId, SessionId};
use forebay_format::row::{Extent, ObjectRef};
use forebay_group::SetState;
use forebay_meta::{Inode, MetaError, NewContents, NewSegment, Piece, PieceSource, Removed};
use forebay_protocol::{
    Answer, Commit, Failure, InodeAnswer, Numbers, ObjectCommit, Operation, Rights, SetPlace, SpaceAnswer,
};
use forebay_types::{Ino, SegmentId};
use rustc_hash::FxHashSet;

use crate::{batch::Core, carry, owner::VolumeOwner, rights};

/// Numbers of each kind that one request is given at most.
const NUMBERS_MAX: u32 = 4096;
/// Segments, and objects, that a session may have numbers of and not have committed.
const OUTSTANDING_MAX: u64 = 1 << 16;

/// Of a session that does not see everything, the inodes that were needed: what it has come to see since then is not carried out.
fn needed(rights: &Rights, needs: &[Need]) -> Option<FxHashSet<Ino>> {
    (rights.root != Ino::ROOT).then(|| needs.iter().map(|need| need.ino).collect())
}

fn is_needed(needed: Option<&FxHashSet<Ino>>, ino: Ino) -> bool {
    needed.is_none_or(|needed| needed.contains(&ino))
}

fn extents_of(commit: &Commit) -> impl Iterator<Item = &Extent> {
    commit.files.iter().flat_map(|file| file.extents.iter().map(|(_, extent)| extent))
}

/// Whether an object has nothing in it, so that only its numbers are given back.
fn is_empty(object: &ObjectCommit) -> bool {
    !object.segments.is_empty() && object.segments.iter().all(|segment| segment.len == 0)
}

fn inode(inode: &Inode) -> Answer {
    Answer::Inode(Box::new(InodeAnswer::of(inode)))
}

impl VolumeOwner {
    /// Carries an operation of a session out, which came by this request, as far as it may, with what it needs.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed.
    pub(crate) fn perform(
        &self,
        (session, by): (SessionId, RequestId),
        rights: &Rights,
        operation: &Operation,
        needs: &[Need],
    ) -> Result<Answer, MetaError> {
        if let Some(failure) = self.forbids(session, rights, operation)? {
            return Ok(Answer::Failed(failure));
        }
        let mut answer = match rights::limited(operation, rights).as_ref() {
            Operation::MakeNameless(parent, new) => {
                let made = self.ns.make_nameless(self.at, *parent, new)?;
                self.core.lock().opened(session, self.at, made.ino);
                inode(&made)
            }
            Operation::Unlink(parent, name, open) => {
                let in_use = self.in_use(open);
                self.removed(session, open, self.ns.unlink(self.at, *parent, name, &in_use)?)
            }
            Operation::Rmdir(parent, name, open) => {
                let in_use = self.in_use(open);
                self.removed(session, open, self.ns.rmdir(self.at, *parent, name, &in_use)?)
            }
            Operation::Rename { from, name, to, new_name, mode, open } => {
                let in_use = self.in_use(open);
                let replaced = self.ns.rename(self.at, (*from, name), (*to, new_name), *mode, &in_use)?;
                let moved = self.ns.lookup(self.at, *to, new_name)?;
                let moved = Box::new(InodeAnswer::of(&moved));
                match replaced.map(|removed| self.removed(session, open, removed)) {
                    Some(Answer::Orphaned(orphaned)) => Answer::RenamedOver(moved, orphaned),
                    Some(Answer::Inode(replaced)) => Answer::Renamed(moved, Some(replaced)),
                    _ => Answer::Renamed(moved, None),
                }
            }
            Operation::Numbers(segments, objects) => self.give(session, *segments, *objects)?,
            Operation::Runs(runs) => self.give_runs(session, *runs)?,
            Operation::Ahead(steps) => self.carry_out_ahead((session, by), rights, (steps, needs))?,
            Operation::Commit(commit) => self.take_in(session, rights, (commit, needs))?,
            Operation::Seal(inos) => self.seal(session, rights, (inos, needs))?,
            Operation::Space => self.space(),
            Operation::Reserve { needs, spare } => self.reserve((session, by), (*needs, *spare)),
            Operation::Hold(inos) => self.hold(session, rights, (inos, needs))?,
            Operation::Share { source, from, len, .. } if self.exceeds(*source, *from, *len)? => {
                Answer::Failed(Failure::NoSpace)
            }
            Operation::Share { source, from, len, .. } if self.shares_lost((*source, *from, *len))? => {
                Answer::Failed(Failure::Io)
            }
            Operation::Share { source, from, target, len, .. }
                if self.shares_below_class(*target, (*source, *from, *len))? =>
            {
                Answer::Failed(Failure::BelowClass)
            }
            Operation::Release(inos) => self.release(session, inos),
            Operation::Map(ino, from, len) => self.map(*ino, *from, *len)?,
            Operation::Offer(offer) => self.offer(session, offer),
            Operation::Fenced(fenced) => self.fenced(session, fenced),
            Operation::OpenSegments(open) => self.open_segments(session, open)?,
            Operation::Store(store) => self.store(session, store)?,
            Operation::Reseat(reseat) => self.reseat(session, *reseat),
            Operation::Settle(settle) => self.settle(session, settle)?,
            Operation::Classes(policies) => self.tell_of(policies, Core::rules),
            Operation::GroupRules(policies) => self.tell_of(policies, Core::group_rules),
            Operation::ChangePolicy(change) => self.perform_policy(change)?,
            Operation::TestLock(ino, request) => {
                Answer::Conflict(self.core.lock().locks.conflict(session, *ino, request))
            }
            Operation::Lock(ino, request, wait) => {
                // Nothing is locked that is not there.
                self.ns.inode(self.at, *ino)?;
                let now = self.ticks.now();
                self.core.lock().lock((session, self.at), *ino, request, *wait, now)
            }
            Operation::Unlock(ino, space, owner, range) => {
                let now = self.ticks.now();
                self.core.lock().unlock((session, self.at), *ino, (*space, *owner), *range, now)
            }
            Operation::UnlockHandle(ino, handle) => {
                let now = self.ticks.now();
                self.core.lock().unlock_handle((session, self.at), *ino, *handle, now);
                Answer::Done
            }
            other => carry::carry_out(other, &self.ns, self.at, rights.root)?,
        };
        rights::seen(&mut answer, rights);
        Ok(answer)
    }

    /// Whether an inode that loses its last name is to stay: somebody has it open, or may have.
    fn in_use<'a>(&'a self, open: &'a [Ino]) -> impl Fn(Ino) -> bool + 'a {
        move |ino| {
            let core = self.core.lock();
            open.contains(&ino) || core.opens.is_open(ino) || core.table.recovers()
        }
    }

    /// Notes what lost its last name and is open at the session, and says whether it is elsewhere. Whoever looks at it meanwhile waits for this request, and who has a lease on it
    /// has said so.
    fn removed(&self, session: SessionId, open: &[Ino], removed: Removed) -> Answer {
        let ino = removed.inode.ino;
        if !removed.orphan {
            return inode(&removed.inode);
        }
        let mut core = self.core.lock();
        if open.contains(&ino) {
            core.opened(session, self.at, ino);
        }
        if core.opens.is_open_beside(session, ino) || core.table.recovers() {
            Answer::Orphaned(Box::new(InodeAnswer::of(&removed.inode)))
        } else {
            inode(&removed.inode)
        }
    }

    /// Notes that a session has these open no longer. What has no name and is open nowhere goes, or some of it, before anybody else can come to have it open.
    fn release(&self, session: SessionId, inos: &[Ino]) -> Answer {
        self.core.lock().released(session, self.at, inos);
        let is_gone = |ino: &Ino| {
            let nameless = match self.ns.inode(self.at, *ino) {
                Ok(inode) => inode.row.nlink == 0,
                Err(MetaError::Stale(_)) => return true,
                // It is seen to later, and nobody drops anything of it.
                Err(_) => return false,
            };
            let free = nameless && {
                let core = self.core.lock();
                !core.opens.is_open(*ino) && !core.table.is_wanted_beside(session, *ino)
            };
            if free && let Err(error) = self.ns.purge(self.at, *ino) {
                tracing::debug!(%error, %ino, "an inode without a name is removed later");
            }
            free
        };
        let gone: Vec<Ino> = inos.iter().copied().filter(is_gone).collect();
        if gone.is_empty() { Answer::Done } else { Answer::Committed(gone) }
    }

    fn give(&self, session: SessionId, segments: u32, objects: u32) -> Result<Answer, MetaError> {
        let has = self.core.lock().given.outstanding(session);
        let exceeds = |has: u64, more: u32| has + u64::from(more) > OUTSTANDING_MAX;
        if segments.max(objects) > NUMBERS_MAX || exceeds(has.0, segments) || exceeds(has.1, objects) {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        let (first_segment, first_object) = self.ns.new_numbers(segments, objects);
        self.ns.record_numbers()?;
        let numbers = Numbers { first_segment, segments, first_object, objects };
        let mut core = self.core.lock();
        if core.sessions.lives(session) {
            core.give_numbers(session, &numbers);
        }
        Ok(Answer::Numbers(numbers))
    }

    /// Notes that a session has these open. What it does not see is gone, as far as it is concerned.
    fn hold(
        &self,
        session: SessionId,
        rights: &Rights,
        (inos, needs): (&[Ino], &[Need]),
    ) -> Result<Answer, MetaError> {
        let (needed, mut gone) = (needed(rights, needs), Vec::new());
        for ino in inos {
            let there = match self.ns.inode(self.at, *ino) {
                Ok(_) => is_needed(needed.as_ref(), *ino) && self.sees(session, rights, *ino)?,
                Err(MetaError::Stale(_)) => false,
                Err(error) => return Err(error),
            };
            if there {
                self.core.lock().opened(session, self.at, *ino);
            } else {
                gone.push(*ino);
            }
        }
        Ok(Answer::Committed(gone))
    }

    /// Makes the contents of files final. What the session does not see it leaves alone.
    fn seal(
        &self,
        session: SessionId,
        rights: &Rights,
        (inos, needs): (&[Ino], &[Need]),
    ) -> Result<Answer, MetaError> {
        let (needed, mut seen) = (needed(rights, needs), Vec::with_capacity(inos.len()));
        for ino in inos {
            if is_needed(needed.as_ref(), *ino) && self.sees(session, rights, *ino)? {
                seen.push(*ino);
            }
        }
        self.ns.seal(self.at, &seen)?;
        Ok(Answer::Done)
    }

    /// Whether there is no room for a range of a file to be there twice.
    fn exceeds(&self, source: Ino, from: u64, len: u64) -> Result<bool, MetaError> {
        if self.limit().is_none() {
            return Ok(false);
        }
        let shared = |piece: &Piece| matches!(piece.source, PieceSource::Extent(_));
        let pieces = self.ns.map(self.at, source, from, len)?;
        let more: u64 = pieces.iter().filter(|piece| shared(piece)).map(|piece| piece.len).sum();
        Ok(self.is_too_much(more))
    }

    /// Takes in what a session has put into the store. Files that it does not see are gone, as far as it is concerned.
    fn take_in(
        &self,
        session: SessionId,
        rights: &Rights,
        (commit, needs): (&Commit, &[Need]),
    ) -> Result<Answer, MetaError> {
        if !self.core.lock().given.has(session, &commit.objects) {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        let empty: Vec<_> = commit.objects.iter().filter(|object| is_empty(object)).collect();
        if !empty.is_empty() {
            return self.take_back_numbers(session, commit, &empty);
        }
        let Some(lanes) = self.lanes_of(session, commit) else {
            // What was to be committed is at its writer still, which writes it elsewhere.
            return Ok(Answer::Failed(Failure::Io));
        };
        let only_at_members = !lanes.is_empty() && self.core.lock().groups.to_store;
        if only_at_members || self.commits_below_class(commit)? {
            return Ok(Answer::Failed(Failure::BelowClass));
        }
        let segments = || commit.objects.iter().flat_map(|object| &object.segments);
        let raw: u64 = segments().fold(0, |sum, segment| sum.saturating_add(segment.raw));
        let raw = extents_of(commit)
            .filter(|extent| lanes.contains(&extent.segment))
            .fold(raw, |sum, extent| sum.saturating_add(u64::from(extent.len)));
        // Else room would be set aside that is being taken.
        let _one_at_a_time = self.limit().map(|_| self.reserving.lock());
        if self.has_no_room(session, raw) {
            return Ok(Answer::Failed(Failure::NoSpace));
        }
        if rights.root != Ino::ROOT {
            // Bytes of others are not to be had by naming them.
            let own = segments().map(|segment| segment.id).chain(lanes.iter().copied());
            let own: FxHashSet<SegmentId> = own.collect();
            if !extents_of(commit).all(|extent| own.contains(&extent.segment)) {
                return Ok(Answer::Failed(Failure::NotPermitted));
            }
        }
        let needed = needed(rights, needs);
        let (mut files, mut gone) = (Vec::with_capacity(commit.files.len()), Vec::new());
        for file in &commit.files {
            if !is_needed(needed.as_ref(), file.ino) || !self.sees(session, rights, file.ino)? {
                gone.push(file.ino);
                continue;
            }
            files.push(NewContents {
                ino: file.ino,
                inline: file.inline.as_deref(),
                extents: &file.extents,
                size: file.size,
                attr: file.attr,
                mtime: file.mtime,
            });
        }
        let objects: Vec<_> = commit
            .objects
            .iter()
            .map(|object| {
                let segments = object.segments.iter().map(|segment| NewSegment {
                    id: segment.id,
                    offset: segment.offset,
                    len: segment.len,
                    raw: segment.raw,
                });
                (object.object, segments.collect::<Vec<_>>())
            })
            .collect();
        let lanes: Vec<SegmentId> = lanes.into_iter().collect();
        gone.extend(self.ns.take_in_with(self.at, &objects, &lanes, &files)?);
        let used: Vec<Vec<u64>> = objects
            .iter()
            .map(|(_, segments)| segments.iter().map(|segment| segment.id.0).collect())
            .collect();
        let used = objects.iter().zip(&used).map(|((object, _), segments)| (*object, segments.as_slice()));
        let mut core = self.core.lock();
        core.use_numbers(session, used);
        core.reserved.spend(session, raw);
        Ok(Answer::Committed(gone))
    }

    /// Objects of nothing: the session has put something under these names, or tried to, and nothing comes of it. Whatever is there is garbage.
    fn take_back_numbers(
        &self,
        session: SessionId,
        commit: &Commit,
        empty: &[&ObjectCommit],
    ) -> Result<Answer, MetaError> {
        if empty.len() < commit.objects.len() || !commit.files.is_empty() {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        let names: Vec<ObjectRef> = empty.iter().map(|object| object.object).collect();
        self.ns.abandon_objects(&names)?;
        let segments: Vec<Vec<u64>> =
            empty.iter().map(|object| object.segments.iter().map(|segment| segment.id.0).collect()).collect();
        let used = names.iter().zip(&segments).map(|(object, segments)| (*object, segments.as_slice()));
        self.core.lock().use_numbers(session, used);
        Ok(Answer::Committed(Vec::new()))
    }

    /// The segments of a commit that its session writes over the logs of members, and may still name. `None` where it names bytes that nobody has any more.
    fn lanes_of(&self, session: SessionId, commit: &Commit) -> Option<BTreeSet<SegmentId>> {
        let mut named: BTreeSet<SegmentId> = extents_of(commit).map(|extent| extent.segment).collect();
        let core = self.core.lock();
        if named.iter().any(|segment| core.sets.is_lost(*segment)) {
            return None;
        }
        named.retain(|segment| core.sets.may_name(session, *segment));
        Some(named)
    }

    /// What a range of a file consists of. Of what the store does not have, who has it.
    fn map(&self, ino: Ino, from: u64, len: u64) -> Result<Answer, MetaError> {
        let mut mapped = carry::map(&self.ns, self.at, ino, from, len)?;
        let mut sets: Vec<SetPlace> = Vec::new();
        for piece in &mapped.pieces {
            let PieceSource::Extent(extent) = piece.source else { continue };
            let segment = extent.segment;
            let placed = mapped.places.iter().any(|(known, _)| *known == segment);
            if placed || sets.iter().any(|known| known.segment == segment) {
                continue;
            }
            let set = self.core.lock().sets.get(segment).and_then(|held| {
                let set = match held.row.state {
                    SetState::Open | SetState::Sealed { .. } => held.row.set.clone(),
                    // Nobody has it.
                    SetState::Lost => Vec::new(),
                    SetState::Stored => return None,
                };
                Some(SetPlace { segment, group: held.group, set })
            });
            match set {
                Some(set) => sets.push(set),
                // It may have been stored since it was mapped.
                None => mapped.places.extend(carry::place(&self.ns, segment).map(|place| (segment, place))),
            }
        }
        Ok(if sets.is_empty() { Answer::Mapped(mapped) } else { Answer::MappedSets(mapped, sets) })
    }

    fn space(&self) -> Answer {
        let limit = self.limit();
        let (used, inodes) = (self.ns.segment_totals().live, self.ns.inodes().unwrap_or_default());
        Answer::Space(SpaceAnswer { used, limit, inodes })
    }
}
