//! Segments over the logs of a group's members: opened and settled by their writers, stored by members.
//!
//! Guarantees: an object counts for a segment once, at the length and with the bytes that were sealed; numbers are given to one segment each. What looks at rows and then
//! changes them has its turn (`VolumeOwner::lanes`): of two who put one segment, one is told that it was late.

use forebay_cluster::SessionId;
use forebay_group::{MemberId, NotTaken, PieceKey, SetRow, SetState, placement};
use forebay_meta::{MetaError, StoredPlace};
use forebay_protocol::{
    Answer, Failure, OpenSegments, OpenedSegment, Placing, Reseat, Settle, StoreSegments, StoredSegment,
};
use forebay_types::{Ino, SegmentId};

use crate::{
    owner::VolumeOwner,
    sets::Held,
    spread::{CHOICES, Choice},
};

/// Segments of one session that the store may not have, or that a request of it may name.
const SEGMENTS_MAX: usize = 1 << 16;
/// Numbers in a run: those of one lie together.
const RUN: u64 = 256;

impl VolumeOwner {
    /// Opens segments of a session.
    ///
    /// # Errors
    /// [`MetaError`]; none was opened.
    pub(crate) fn open_segments(&self, session: SessionId, open: &OpenSegments) -> Result<Answer, MetaError> {
        let OpenSegments { directory, apart, count, group, ref placing } = *open;
        if !placing.is_sound() || count == 0 || count > forebay_protocol::OPEN_MAX {
            return Ok(Answer::Failed(Failure::Invalid));
        }
        let _turn = self.lanes.lock();
        if self.core.lock().groups.to_store {
            return Ok(Answer::Failed(Failure::BelowClass));
        }
        if self.core.lock().sets.len_of(session) + count as usize > SEGMENTS_MAX {
            return Ok(Answer::Failed(Failure::NoSpace));
        }
        let numbers = self.segment_numbers(placing, directory, apart, count);
        let opened = |segment: &SegmentId| (*segment, set_of(placing, *segment));
        let opened: Vec<(SegmentId, Vec<MemberId>)> = numbers.iter().map(opened).collect();
        {
            // Before others can see that nothing is in use of them.
            let mut core = self.core.lock();
            if !core.sessions.lives(session) {
                return Ok(Answer::Failed(Failure::Invalid));
            }
            for (segment, set) in &opened {
                let row = SetRow::open(session, set.clone());
                core.sets.insert(*segment, Held { row, directory, group });
            }
        }
        let made = self.ns.open_segments(&numbers);
        let mut core = self.core.lock();
        if let Err(error) = made {
            numbers.iter().for_each(|segment| core.forget_set(*segment));
            return Err(error);
        }
        // The session may have ended meanwhile: then its segments are in a later epoch already.
        numbers.iter().for_each(|segment| core.put_set(*segment));
        let epoch = |segment| core.sets.row(segment).map(|row| row.epoch);
        let opened = opened
            .into_iter()
            .filter_map(|(segment, set)| epoch(segment).map(|epoch| OpenedSegment { segment, epoch, set }));
        Ok(Answer::Opened(opened.collect()))
    }

    fn segment_numbers(&self, placing: &Placing, directory: Ino, apart: bool, count: u32) -> Vec<SegmentId> {
        if apart {
            return self.new_runs(placing, count).into_iter().map(SegmentId).collect();
        }
        let count = u64::from(count);
        let mut numbers = self.core.lock().sets.next_numbers(directory, count);
        let missing = count - numbers.len() as u64;
        if missing > 0 {
            for first in self.new_runs(placing, 1) {
                numbers.extend((first..first + missing).map(SegmentId));
                self.core.lock().sets.has_numbers(directory, first + missing, first + RUN);
            }
        }
        numbers
    }

    /// The first numbers of so many runs, such that members get these in turn. Those that are passed over nobody gets.
    fn new_runs(&self, placing: &Placing, count: u32) -> Vec<u64> {
        let each = if matches!(placing, Placing::Set(_)) { 1 } else { CHOICES };
        let first = self.ns.new_segment_runs(count * each).0;
        let runs: Vec<u64> = (0..u64::from(count * each)).map(|run| first + run * RUN).collect();
        let choices: Vec<Choice> = runs.iter().map(|run| choice(placing, SegmentId(*run))).collect();
        let (mut core, each) = (self.core.lock(), each as usize);
        let chosen = choices.chunks(each).map(|choices| core.sets.spread.choose(choices));
        chosen.zip(runs.chunks(each)).map(|(chosen, runs)| runs[chosen]).collect()
    }

    /// Takes in what a writer says of its segments. One that is open yet is not settled: it stays whatever names it, until its writer's session ends.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed.
    pub(crate) fn settle(&self, session: SessionId, settle: &Settle) -> Result<Answer, MetaError> {
        let _turn = self.lanes.lock();
        let (mut ends, mut sealed) = (Vec::new(), Vec::new());
        {
            let core = self.core.lock();
            for one in &settle.sealed {
                let row = core.sets.row(one.segment).filter(|row| row.writer == session);
                if row.and_then(|row| row.sealed(one.epoch, one.len, one.check)).is_some() {
                    ends.push((one.segment, one.len));
                    sealed.push(one);
                }
            }
        }
        if !ends.is_empty() {
            self.ns.seal_segments(&ends)?;
        }
        let mut core = self.core.lock();
        for one in sealed {
            core.change_set(one.segment, |row| row.sealed(one.epoch, one.len, one.check));
        }
        for segment in &settle.settled {
            core.change_set(*segment, |row| {
                let settles = row.writer == session && row.state != SetState::Open && !row.settled;
                settles.then(|| SetRow { settled: true, ..row.clone() })
            });
        }
        Ok(Answer::Done)
    }

    /// Takes in an object that a member has put.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed.
    pub(crate) fn store(&self, session: SessionId, store: &StoreSegments) -> Result<Answer, MetaError> {
        let _turn = self.lanes.lock();
        let (mut places, mut not_taken) = (Vec::new(), Vec::new());
        {
            let core = self.core.lock();
            if !core.given.has_object(session, store.object) {
                return Ok(Answer::Failed(Failure::Invalid));
            }
            // Of a member that was given up nothing counts: what it has put is garbage.
            let counts = !core.groups.is_of_given_up(session);
            for StoredSegment { segment, epoch, len, check, offset, raw } in store.segments.iter().copied() {
                let row = core.sets.row(segment).filter(|_| counts).ok_or(NotTaken::Over);
                match row.and_then(|row| row.stored(epoch, len, check)) {
                    Ok(_) => places.push(StoredPlace { id: segment, offset, len, raw }),
                    Err(why) => not_taken.push((segment, why)),
                }
            }
        }
        let taken = self.ns.object_stored(store.object, &places)?;
        let mut core = self.core.lock();
        for StoredPlace { id, .. } in places {
            if taken.contains(&id) {
                core.change_set(id, |row| {
                    Some(SetRow { state: SetState::Stored, joining: None, ..row.clone() })
                });
            } else {
                not_taken.push((id, NotTaken::Over));
            }
        }
        core.use_numbers(session, std::iter::once((store.object, &[][..])));
        Ok(Answer::Stored(not_taken))
    }

    /// A member has all of a segment that it was to be given: it stands for those of the set who are gone. Who has copied it to that member is not, whatever the group says.
    pub(crate) fn reseat(&self, session: SessionId, reseat: Reseat) -> Answer {
        let _turn = self.lanes.lock();
        let mut core = self.core.lock();
        let Reseat { segment, epoch, member } = reseat;
        let Some(group) = core.sets.get(segment).map(|held| held.group) else {
            return Answer::Failed(Failure::Invalid);
        };
        if core.groups.is_given_up(member) || core.groups.is_of_given_up(session) {
            return Answer::Failed(Failure::NotPermitted);
        }
        let stays = core.groups.staying(group, session);
        let seated = core.change_set(segment, |row| {
            let left: Vec<MemberId> = row.set.iter().copied().filter(|one| stays(*one)).collect();
            row.seated(epoch, member, &left)
        });
        if seated { Answer::Done } else { Answer::Failed(Failure::Invalid) }
    }

    /// Removes rows that nobody needs any more, and segments of which nothing is in use. Returns whether more may follow.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed by the step that failed.
    pub(crate) fn sweep_sets(&self, some: usize) -> Result<bool, MetaError> {
        let _turn = self.lanes.lock();
        let (doubtful, looked): (Vec<SegmentId>, usize) = {
            let mut core = self.core.lock();
            let ending = core.ending_writers();
            let sets = &core.sets;
            let waits =
                |segment: &SegmentId| sets.row(*segment).is_some_and(|row| ending.contains(&row.writer));
            let mut some: Vec<SegmentId> =
                sets.doubtful.iter().copied().filter(|segment| !waits(segment)).take(some).collect();
            for segment in &some {
                core.sets.doubtful.remove(segment);
            }
            let looked = some.len();
            some.retain(|segment| core.sets.row(*segment).is_some_and(|row| row.settled));
            (some, looked)
        };
        // What is of no use to files from here on stays so: these are settled, and no request is under way that may name them.
        let live = self.ns.segments_of(&doubtful);
        let mut core = self.core.lock();
        for segment in &doubtful {
            let live = live.iter().find(|(id, _)| id == segment).map_or(0, |(_, row)| row.live);
            if core.sets.row(*segment).is_some_and(|row| row.is_over(live)) {
                core.forget_set(*segment);
            }
        }
        Ok(looked > 0 && !core.sets.doubtful.is_empty())
    }
}

/// Who would have a segment of this number.
fn choice(placing: &Placing, segment: SegmentId) -> Choice {
    let asked = match placing {
        Placing::Set(set) => set.first().copied(),
        Placing::Best { members, .. } => placement::first(PieceKey::of(segment, 0), members),
    };
    Choice { set: set_of(placing, segment), asked }
}

fn set_of(placing: &Placing, segment: SegmentId) -> Vec<MemberId> {
    match placing {
        Placing::Set(set) => set.clone(),
        Placing::Best { members, copies, near } => {
            placement::choose(PieceKey::of(segment, 0), members, usize::from(*copies), *near)
        }
    }
}
