//! What writers whose sessions ended have left open: how far each segment goes is asked of any survivors (`docs/design/proxy-group.md`, "Recovery").
//!
//! Order that must hold: the segment's epoch is raised and committed; then members fence it; then the least of what they have is its length. What is on its way from
//! the former writer is refused by each member that has answered, so it is never acknowledged by all.

use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupTerms, MemberId, Recovered, Recovery, SetRow, SetState};
use forebay_meta::MetaError;
use forebay_protocol::{Answer, Failure, FencedCopies, Push};
use forebay_types::SegmentId;

use crate::{batch::Core, owner::VolumeOwner};

/// Segments whose recovery goes on at a time.
const AT_A_TIME: usize = 4096;

/// Segments of which nobody has said what there is, and who could.
pub type Missing = Vec<(SegmentId, Vec<MemberId>)>;

impl Core {
    /// Begins with segments whose epoch is committed by now, and forgets those that are done.
    fn begin_recoveries(&mut self, now: Moment) {
        let Core { sets, recoveries, groups, committed, .. } = self;
        recoveries.retain(|segment, _| sets.orphaned.contains_key(segment));
        for (segment, batch) in &sets.orphaned {
            if recoveries.len() >= AT_A_TIME {
                break;
            }
            let Some(held) = sets.get(*segment).filter(|_| *batch <= *committed) else { continue };
            recoveries
                .entry(*segment)
                .or_insert_with(|| Recovery::new([(*segment, held.row.clone())], GroupTerms::default()));
        }
        // Also those that were removed, or of which this owner has heard, since it was begun.
        for (segment, recovery) in recoveries {
            let Some(held) = sets.get(*segment) else { continue };
            groups.removed(held.group).for_each(|member| recovery.removed(member, now));
        }
    }

    /// Asks members to fence what they have not said to have fenced.
    fn ask_to_fence(&mut self) {
        let Core { sets, committed, recoveries, groups, sessions, tell, .. } = self;
        let asking = sets.asked(*committed);
        for (member, segment, epoch) in recoveries.values().flat_map(Recovery::to_ask).chain(asking) {
            let session: Option<SessionId> = groups.session_of(member).filter(|id| sessions.lives(*id));
            tell.extend(session.map(|session| (session, Push::Fence { member, segment, epoch })));
        }
    }

    fn recovered(&self, now: Moment) -> Vec<Recovered> {
        self.recoveries.values().filter_map(|recovery| recovery.ready(now)).flatten().collect()
    }
}

impl VolumeOwner {
    /// A member says what it has of segments that it has fenced.
    pub(crate) fn fenced(&self, session: SessionId, fenced: &FencedCopies) -> Answer {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        // Another session may not speak for it, nor it itself once it was given up.
        let given_up = core.groups.is_given_up(fenced.member) || core.groups.is_of_given_up(session);
        if given_up || core.groups.session_of(fenced.member) != Some(session) {
            return Answer::Failed(Failure::NotPermitted);
        }
        for copy in &fenced.copies {
            core.sets.answered(fenced.member, copy);
            if let Some(recovery) = core.recoveries.get_mut(&copy.segment) {
                recovery.answered(fenced.member, copy.segment, copy.epoch, copy.fenced, now);
            }
        }
        Answer::Done
    }

    /// Goes on with what sessions that ended have left open.
    ///
    /// # Errors
    /// [`MetaError`]; the next call tries again.
    pub(crate) fn recover(&self) -> Result<(), MetaError> {
        let found = {
            let (mut core, now) = (self.core.lock(), self.ticks.now());
            core.begin_recoveries(now);
            core.ask_to_fence();
            core.recovered(now)
        };
        for found in &found {
            self.beside_requests(|| self.end_recovery(found))?;
        }
        self.tell_all();
        Ok(())
    }

    fn end_recovery(&self, found: &Recovered) -> Result<(), MetaError> {
        let _turn = self.lanes.lock();
        let segment = found.segment;
        let Some(row) = &found.row else { return Ok(()) };
        let same = |now: &SetRow| now.state == SetState::Open && now.epoch == row.epoch;
        if !self.core.lock().sets.row(segment).is_some_and(same) {
            return Ok(());
        }
        self.ns.seal_segments(&[(segment, found.len)])?;
        let mut core = self.core.lock();
        core.change_set(segment, |now| same(now).then(|| SetRow { settled: true, ..row.clone() }));
        core.recoveries.remove(&segment);
        tracing::info!(%segment, len = found.len, "a segment of a client that ended is recovered");
        Ok(())
    }

    /// The segments of clients that ended of which no member has said what it has, and who could.
    #[must_use]
    pub fn missing_segments(&self) -> Missing {
        self.core.lock().recoveries.values().flat_map(Recovery::missing).collect()
    }
}
