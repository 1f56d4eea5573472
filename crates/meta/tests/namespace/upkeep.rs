//! Random upkeep beside the operations: checkpoints, moves, segments, snapshots, clones, collection.

use std::collections::BTreeSet;

use forebay_format::row::{Extent, SegmentKind, SegmentState};
use forebay_meta::{Candidate, Moved, PlannedRow};
use forebay_types::{SegmentId, SubvolumeId};

use crate::{
    faulty::Fault,
    model::Refusal,
    rows::{self, versions},
    world::{Move, World},
};

const KEPT_SNAPSHOTS: usize = 6;
const KEPT_SUBVOLUMES: usize = 5;

impl World {
    pub fn checkpoint(&mut self) {
        let before = forebay_meta::Namespace::applied(self.engine.as_ref()).unwrap().sequence;
        let faults = [None, None, Some(Fault::Fails), Some(Fault::UnknownLost), Some(Fault::UnknownDone)];
        let fault = self.random.pick(&faults).unwrap();
        let ns = std::sync::Arc::clone(&self.ns);
        let Some(checkpoint) = ns.checkpoint().unwrap() else { return };
        let sequence = checkpoint.sequence();
        assert!(ns.checkpoint().is_err(), "two at a time");
        for _ in 0..self.random.below(4) {
            self.operation();
        }
        if self.random.one_in(4) {
            drop(checkpoint);
            return;
        }
        *self.engine.next.lock() = fault;
        let stored = checkpoint.store();
        let applied = forebay_meta::Namespace::applied(self.engine.as_ref()).unwrap().sequence;
        match fault {
            None | Some(Fault::UnknownDone) => assert_eq!((stored.unwrap(), applied), (sequence, sequence)),
            _ => assert_eq!((stored.is_err(), applied), (true, before)),
        }
        let known = self.ns.known_segments();
        self.log.trim(applied, |file| !known.contains(&file));
    }

    /// Blocks that have, or may have, extents in a segment: those that the segment's list, the shares and the journal's table name.
    pub fn candidates(&self, segment: SegmentId) -> BTreeSet<Candidate> {
        let mut all: BTreeSet<_> = self.named.get(&segment).cloned().unwrap_or_default();
        all.extend(self.ns.shares(segment).unwrap());
        all.extend(self.ns.journal_candidates(segment));
        all
    }

    /// Copies what a block has in one or two segments to a new one.
    pub fn plan_move(&mut self) {
        let segments: Vec<_> = self.ns.segments().into_iter().filter(|(_, row)| row.live > 0).collect();
        let mut segments: Vec<_> = segments.into_iter().map(|(id, _)| id).collect();
        segments.sort_unstable();
        let Some(first) = self.random.pick(&segments) else { return };
        let also = self.random.pick(&segments).unwrap();
        let candidates: Vec<_> = self.candidates(first).into_iter().collect();
        let Some(candidate) = self.random.pick(&candidates) else { return };
        let plan = self.ns.plan_move(candidate, &|id| id == first || id == also).unwrap();
        assert_eq!(plan.candidate, candidate);
        let target = match self.moves.last() {
            Some(last) if self.random.one_in(3) => last.target,
            _ => self.ns.new_segment(),
        };
        let moved = self.copy(&plan.rows, target);
        self.named.entry(target).or_default().insert(candidate);
        self.moves.push(Move { candidate, moved, target });
    }

    /// Writes runs for planned rows: one for rows of a generation that follow each other.
    fn copy(&mut self, rows: &[PlannedRow], target: SegmentId) -> Vec<Moved> {
        let follows = |a: &PlannedRow, b: &PlannedRow| {
            a.generation == b.generation && a.offset + a.extent.len == b.offset
        };
        let mut moved = Vec::new();
        for group in rows.chunk_by(follows) {
            let tokens: Vec<u32> = group.iter().flat_map(|row| self.resolve(&row.extent)).copied().collect();
            let from = (target, 0)..=(target, u64::MAX);
            let last = self.runs.range(from).next_back();
            let run_offset = last.map_or(0, |((_, offset), run)| offset + run.len() as u64 + 8);
            let (run_len, mut skip) = (tokens.len() as u32, 0);
            self.token += 1;
            let (stored_len, check) = (run_len + 8, self.token);
            self.runs.insert((target, run_offset), tokens);
            for row in group {
                let len = row.extent.len;
                let extent =
                    Extent { len, segment: target, run_offset, stored_len, run_len, skip, form: 5, check };
                moved.push(Moved { row: row.clone(), extent });
                skip += len;
            }
        }
        moved
    }

    pub fn finish_move(&mut self) {
        if self.moves.is_empty() {
            return;
        }
        let at = self.random.below(self.moves.len() as u64) as usize;
        let one = self.moves.swap_remove(at);
        self.tick();
        let together = self.moves.iter().position(|other| {
            other.target == one.target
                && other.candidate.subvolume == one.candidate.subvolume
                && other.candidate != one.candidate
        });
        match together {
            Some(other) => {
                let other = self.moves.swap_remove(other);
                let moves =
                    [(one.candidate, one.moved.as_slice()), (other.candidate, other.moved.as_slice())];
                self.ns.finish_moves(one.candidate.subvolume, &moves, one.target).unwrap();
            }
            None => self.ns.finish_move(one.candidate, &one.moved, one.target).unwrap(),
        }
    }

    /// Segments that somebody still puts something in.
    fn in_hand(&self) -> BTreeSet<SegmentId> {
        let file = self.log.state.lock().file;
        self.moves.iter().map(|one| one.target).chain(self.open_stream()).chain(file).collect()
    }

    pub fn seal_and_store(&mut self) {
        let in_hand = self.in_hand();
        self.tick();
        let mut all = self.ns.segments();
        all.sort_by_key(|(id, _)| *id);
        let idle: Vec<_> = all.into_iter().filter(|(id, _)| !in_hand.contains(id)).collect();
        for (id, row) in &idle {
            if row.state == SegmentState::Open && row.kind != SegmentKind::Journal && self.random.one_in(2) {
                self.ns.segment_sealed(*id, row.kind, 900, 800).unwrap();
                let sealed = self.ns.segment(*id).unwrap();
                assert_eq!((sealed.state, sealed.live, sealed.len), (SegmentState::Sealed, row.live, 900));
            }
        }
        let sealed = idle.iter().map(|(id, _)| *id);
        let sealed = sealed.filter(|id| self.ns.segment(*id).unwrap().state == SegmentState::Sealed);
        let some: Vec<_> = sealed.take(1 + self.random.below(3) as usize).collect();
        if some.is_empty() {
            return;
        }
        let object = self.ns.new_object();
        let places: Vec<_> = some.iter().map(|id| (*id, id.0 * 100)).collect();
        self.ns.segments_stored(object, &places).unwrap();
        assert!(
            self.objects.insert(object, some.into_iter().collect()).is_none(),
            "an object's number again"
        );
    }

    /// Forgets what is dead, and deletes some of what is garbage.
    pub fn forget(&mut self) {
        let in_hand = self.in_hand();
        self.tick();
        let mut all = self.ns.segments();
        all.sort_by_key(|(id, _)| *id);
        let ids: Vec<_> = all.iter().map(|(id, _)| *id).filter(|id| !in_hand.contains(id)).collect();
        let forgotten = self.ns.forget_dead(&ids).unwrap();
        let dead = all.iter().filter(|(id, row)| row.live == 0 && ids.contains(id)).map(|(id, _)| *id);
        let forgotten: Vec<_> = forgotten.into_iter().map(|(id, _)| id).collect();
        assert_eq!(forgotten, dead.collect::<Vec<_>>());
        self.runs.retain(|(segment, _), _| !forgotten.contains(segment));
        self.named.retain(|segment, _| !forgotten.contains(segment));
        // What a plan read from a segment that is gone is none of that segment's any more.
        for object in self.objects.values_mut() {
            object.retain(|segment| !forgotten.contains(segment));
        }
        let garbage: Vec<_> =
            self.objects.iter().filter(|(_, left)| left.is_empty()).map(|(object, _)| *object).collect();
        self.objects.retain(|_, left| !left.is_empty());
        self.garbage.extend(garbage);
        let found: BTreeSet<_> = self.ns.garbage().unwrap().into_iter().collect();
        assert_eq!(found, self.garbage);
        if self.random.one_in(2) {
            let some: Vec<_> = self.garbage.iter().copied().take(2).collect();
            self.ns.garbage_deleted(&some).unwrap();
            self.garbage.retain(|object| !some.contains(object));
        }
    }

    pub fn snapshot(&mut self) {
        let at = self.subvolume();
        self.tick();
        match self.random.below(4) {
            0 | 1 if self.snapshots.len() < KEPT_SNAPSHOTS => {
                let generation = self.ns.take_snapshot(at).unwrap();
                assert!(self.snapshots.insert((at, generation), self.trees[&at].clone()).is_none());
            }
            2 if self.trees.len() < KEPT_SUBVOLUMES => {
                let all: Vec<_> = self.snapshots.keys().copied().collect();
                let Some((of, generation)) = self.random.pick(&all) else { return };
                let id = self.ns.clone_snapshot(of, generation).unwrap();
                let tree = self.snapshots[&(of, generation)].clone();
                assert!(self.trees.insert(id, tree).is_none(), "a subvolume's number again");
                self.origins.insert(id, (of, generation));
            }
            _ => {
                let all: Vec<_> = self.snapshots.keys().copied().collect();
                let Some(which) = self.random.pick(&all) else { return };
                self.drop_snapshot(which);
            }
        }
    }

    pub fn drop_snapshot(&mut self, which: (SubvolumeId, forebay_types::Generation)) {
        let based = self.origins.values().any(|origin| *origin == which);
        let got = self.ns.drop_snapshot(which.0, which.1).map_err(Refusal::from);
        assert_eq!(got, if based { Err(Refusal::Invalid) } else { Ok(()) });
        if !based {
            self.snapshots.remove(&which);
            assert_eq!(
                self.ns.drop_snapshot(which.0, which.1).map_err(Refusal::from),
                Err(Refusal::NotFound)
            );
        }
    }

    /// One step of removing what was cut off.
    pub fn clean(&mut self) {
        self.tick();
        let all = self.ns.uncleaned();
        let Some((at, ino)) = self.random.pick(&all) else { return };
        let done = self.ns.clean(at, ino).unwrap();
        assert_eq!(done, !self.ns.uncleaned().contains(&(at, ino)));
    }

    /// One step of the collection.
    pub fn collect(&mut self) {
        self.tick();
        let (at, from) = match self.collecting.take() {
            Some((at, from)) => (at, Some(from)),
            None => (self.subvolume(), None),
        };
        let next = self.ns.collect_versions(at, from).unwrap();
        self.collecting = next.map(|next| (at, next));
    }

    /// Collects all of a subvolume: then each item has the versions that are shown, and no tombstone that hides nothing.
    pub fn collect_all(&mut self, at: SubvolumeId) {
        let mut from = None;
        loop {
            from = self.ns.collect_versions(at, from).unwrap();
            if from.is_none() {
                break;
            }
        }
        let all = &self.log.state.lock().rows;
        let row = rows::subvolume(all, at);
        let below = row.origin.map(|(id, generation)| rows::visible(all, id, Some(generation)));
        let mut views: Vec<_> = row.snapshots.clone();
        views.push(row.generation);
        let of_subvolume: Vec<_> = versions(all).filter(|(id, ..)| *id == at).collect();
        for of_item in of_subvolume.chunk_by(|a, b| a.1 == b.1) {
            let item = &of_item[0].1;
            for (at, (_, _, generation, value)) in of_item.iter().enumerate() {
                let newer = at.checked_sub(1).map(|at| of_item[at].2);
                let shown = |view| *generation <= view && newer.is_none_or(|newer| view < newer);
                assert!(views.iter().any(|view| shown(*view)), "nobody sees {item:?} of {generation}");
                let last = at + 1 == of_item.len();
                let hides = below.as_ref().is_some_and(|below| below.contains_key(item));
                assert!(!value.is_empty() || !last || hides, "{item:?} of {generation} hides nothing");
            }
        }
    }
}
