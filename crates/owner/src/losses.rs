//! Segments that nobody has any more: all members that had them were given up by the operator (`docs/design/proxy-group.md`, "What is lost for good").
//!
//! Guarantees: a segment is given up only once each member of its set was, and whoever was being given a copy has said, in an epoch in which no more comes there, that it
//! has not got all of it. What is given up stays so, and is never read as anything: files that have a part of it say so. A segment that recovery has sealed at what somebody had who is
//! gone is sealed again at what is left, which has all that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use forebay_group::{Gone, Hope, Inquiry, Left, MemberId, SetRow, SetState};
use forebay_meta::{MetaError, PieceSource};
use forebay_protocol::{FencedCopy, Push};
use forebay_types::{Epoch, Ino, SegmentId};

use crate::{
    batch::{BatchNumber, Core},
    offers::Groups,
    owner::VolumeOwner,
    sets::{Held, Sets},
};

/// Segments that one call looks at, beside those that are asked about.
const AT_A_TIME: usize = 4096;
/// Segments of one call that have a line each in the log.
const LINES: usize = 64;

/// What is left of segments is asked for, and which are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// What is asked, and the batch that has its epoch.
    asking: BTreeMap<SegmentId, (Inquiry, BatchNumber)>,
    /// Members that have not all of a sealed segment, as they said.
    lacking: BTreeMap<SegmentId, BTreeSet<MemberId>>,
    /// Of these something is otherwise since they were looked at.
    changed: BTreeSet<SegmentId>,
    /// Those that nobody has any more.
    lost: BTreeSet<SegmentId>,
    /// All from this one on are to be looked at: it is otherwise who was given up.
    from: Option<SegmentId>,
}

impl Losses {
    /// Of a segment something is otherwise.
    pub(crate) fn look_at(&mut self, segment: SegmentId, row: &SetRow) {
        self.changed.insert(segment);
        if row.state == SetState::Lost {
            self.lost.insert(segment);
        }
    }

    /// What was found of a segment could not be carried out.
    fn look_again(&mut self, segment: SegmentId) {
        self.changed.insert(segment);
    }

    /// Whether nobody has a segment any more.
    pub(crate) fn has(&self, segment: SegmentId) -> bool {
        self.lost.contains(&segment)
    }

    /// It is otherwise who was given up.
    pub(crate) fn look_at_all(&mut self) {
        self.from = Some(SegmentId(0));
    }

    /// There is no row of a segment any more.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.asking.remove(&segment);
        self.lacking.remove(&segment);
        self.changed.remove(&segment);
        self.lost.remove(&segment);
    }

    /// A member offers what it has of a segment, which it is to have all of by this row.
    pub(crate) fn offered(&mut self, segment: SegmentId, member: MemberId, lacks: bool) {
        if lacks {
            if self.lacking.entry(segment).or_default().insert(member) {
                self.changed.insert(segment);
            }
        } else if let Some(lacking) = self.lacking.get_mut(&segment) {
            lacking.remove(&member);
            if lacking.is_empty() {
                self.lacking.remove(&segment);
            }
        }
    }
}

impl Sets {
    /// Who is to be asked what it has of which segment, in which epoch: that is committed.
    pub(crate) fn asked(&self, committed: BatchNumber) -> Vec<(MemberId, SegmentId, Epoch)> {
        let due = self.losses.asking.iter().filter(|(_, (_, batch))| *batch <= committed);
        let asks = due.flat_map(|(segment, (inquiry, _))| {
            inquiry.to_ask().map(|member| (member, *segment, inquiry.epoch()))
        });
        asks.collect()
    }

    /// A member says what it has of a segment that is asked about.
    pub(crate) fn answered(&mut self, member: MemberId, copy: &FencedCopy) {
        if let Some((inquiry, _)) = self.losses.asking.get_mut(&copy.segment) {
            inquiry.answered(member, copy.epoch, copy.fenced);
        }
    }

    /// The segments to be looked at: those that are asked about, and some of the others.
    fn in_question(&mut self) -> BTreeSet<SegmentId> {
        let mut found: BTreeSet<SegmentId> = self.losses.asking.keys().copied().collect();
        let limit = found.len() + AT_A_TIME;
        if let Some(from) = self.losses.from.take() {
            found.extend(self.from(from).map(|(segment, _)| segment).take(AT_A_TIME));
            if found.len() >= limit {
                self.losses.from = found.last().copied();
            }
        }
        while found.len() < limit
            && let Some(segment) = self.losses.changed.pop_first()
        {
            found.insert(segment);
        }
        found
    }
}

/// What becomes of a segment.
struct Verdict {
    segment: SegmentId,
    /// As it is.
    row: SetRow,
    /// As it becomes.
    next: SetRow,
}

fn gone_of<'a>(groups: &'a Groups, held: &Held, none: &'a BTreeSet<MemberId>) -> Gone<'a> {
    let known = groups.known.get(&held.group);
    Gone {
        given_up: known.map_or(none, |known| &known.given_up),
        removed: known.map_or(none, |known| &known.removed),
    }
}

impl Core {
    /// Looks at segments of which something is otherwise, and begins to ask about those that nobody who is left may have all of. Returns what becomes of others.
    fn judge_losses(&mut self) -> Vec<Verdict> {
        let none = BTreeSet::new();
        let mut verdicts = Vec::new();
        for segment in self.sets.in_question() {
            let Some(held) = self.sets.get(segment) else { continue };
            let (row, gone) = (held.row.clone(), gone_of(&self.groups, held, &none));
            let asked = self.sets.losses.asking.get(&segment).filter(|(inquiry, _)| inquiry.is_of(&row));
            let left = match asked {
                Some((inquiry, _)) => inquiry.left(gone),
                None => match row.hope(gone, self.sets.losses.lacking.get(&segment)) {
                    Hope::There => Left::Whole,
                    Hope::None => Left::Nothing,
                    Hope::Asking => {
                        if self.change_set(segment, SetRow::asking)
                            && let Some(row) = self.sets.row(segment).cloned()
                        {
                            self.sets.losses.asking.insert(segment, (Inquiry::new(row), self.open));
                        }
                        continue;
                    }
                },
            };
            let next = match left {
                Left::Unknown | Left::Unsound => continue,
                Left::Whole => None,
                Left::Row(next) => Some(next),
                Left::Nothing => row.given_up(),
            };
            match next {
                Some(next) => verdicts.push(Verdict { segment, row, next }),
                None => drop(self.sets.losses.asking.remove(&segment)),
            }
        }
        verdicts
    }

    /// Carries out what was found, where that is still so.
    fn carry_out_losses(&mut self, verdicts: Vec<Verdict>) -> Vec<Verdict> {
        let mut done = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            let segment = verdict.segment;
            let same = |row: &SetRow| (*row == verdict.row).then(|| verdict.next.clone());
            if !self.change_set(segment, same) {
                self.sets.losses.look_again(segment);
                continue;
            }
            self.sets.losses.asking.remove(&segment);
            self.sets.losses.lacking.remove(&segment);
            if verdict.next.state == SetState::Lost {
                self.recoveries.remove(&segment);
            }
            done.push(verdict);
        }
        // Whoever has written to the files that have it: a session knows what it wrote, also in an earlier one.
        if done.iter().any(|one| one.next.state == SetState::Lost) {
            self.tell.extend(self.sessions.all().into_iter().map(|session| (session, Push::Lost)));
        }
        done
    }
}

impl VolumeOwner {
    /// Gives up what nobody has any more, and ends where it ends now what nobody has all of any more.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed that was found, and the next call finds it again.
    pub(crate) fn see_to_losses(&self) -> Result<(), MetaError> {
        let _turn = self.lanes.lock();
        let verdicts = self.core.lock().judge_losses();
        if verdicts.is_empty() {
            return Ok(());
        }
        let ends = |verdict: &Verdict| match (verdict.row.state, verdict.next.state) {
            (SetState::Sealed { len: before, .. }, SetState::Sealed { len, .. }) if len < before => {
                Some((verdict.segment, len))
            }
            _ => None,
        };
        let shorter: Vec<(SegmentId, u64)> = verdicts.iter().filter_map(ends).collect();
        if !shorter.is_empty()
            && let Err(error) = self.ns.shorten_segments(&shorter)
        {
            let mut core = self.core.lock();
            verdicts.iter().for_each(|verdict| core.sets.losses.look_again(verdict.segment));
            return Err(error);
        }
        let done = self.core.lock().carry_out_losses(verdicts);
        self.tell_of_losses(&done);
        self.tell_all();
        Ok(())
    }

    /// Whether some of what is to be shared from a range of a file is lost: nobody is to take that for a copy.
    pub(crate) fn shares_lost(&self, (source, from, len): (Ino, u64, u64)) -> Result<bool, MetaError> {
        if self.core.lock().sets.losses.lost.is_empty() {
            return Ok(false);
        }
        let pieces = self.ns.map(self.at, source, from, len)?;
        let core = self.core.lock();
        Ok(pieces.iter().any(|piece| match &piece.source {
            PieceSource::Extent(extent) => core.sets.is_lost(extent.segment),
            PieceSource::Hole | PieceSource::Inline(_) => false,
        }))
    }

    fn tell_of_losses(&self, done: &[Verdict]) {
        let segments: Vec<SegmentId> = done.iter().map(|one| one.segment).collect();
        let live = self.ns.segments_of(&segments);
        let bytes = |segment| live.iter().find(|(id, _)| *id == segment).map_or(0, |(_, row)| row.live);
        let (mut lost, mut all) = (0_usize, 0);
        for (at, Verdict { segment, row, next }) in done.iter().enumerate() {
            let (bytes, members) = (bytes(*segment), names(&row.set));
            match (row.state, next.state) {
                (SetState::Sealed { len: before, .. }, SetState::Sealed { len, .. }) => {
                    let left = names(&next.set);
                    tracing::warn!(
                        %segment, before, len, members, left,
                        "those are gone who had all of a segment that a client left: it ends where it does at who is left"
                    );
                    if bytes > len {
                        tracing::error!(%segment, bytes, len, "files have more of it than that: it reads as an I/O error");
                    }
                }
                _ => {
                    (lost, all) = (lost + 1, all + bytes);
                    if at < LINES {
                        tracing::error!(
                            %segment, bytes, members,
                            "a segment is lost: its members were given up, and what files have of it reads as an I/O error"
                        );
                    }
                }
            }
        }
        if lost > 0 {
            tracing::error!(segments = lost, bytes = all, "what only members had that were given up is lost");
        }
    }
}

fn names(members: &[MemberId]) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
