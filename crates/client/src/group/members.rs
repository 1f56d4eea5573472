//! The members of a volume's group as those who write see them.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_group::{Append, GroupId, MemberId, MemberState};
use forebay_protocol::{Bounds, SealedSegment, group::Copies};
use forebay_types::{SegmentId, SyncClass};

use super::{VolumeGroup, groups::Known, link::MemberLink, writes::Asking};
use crate::data::{Appended, MemberFailed, Members, Within, WriteGroup};

/// How long all of a set may take to have an append on stable storage.
const ALL_WITHIN: Duration = Duration::from_secs(8);
/// And how long nothing may come from the others after the first one, beside what their bytes take.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);
/// How often these are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long one member may take to read something back: others may have it, too.
const READ_WITHIN: Duration = Duration::from_secs(2);

type Answer = Result<Appended, String>;

/// A member's group, as it is known, and how it is reached: not at all who is in no view.
type Reached = Option<(Arc<Known>, Arc<MemberLink>)>;

fn failed(member: MemberId, why: impl Into<String>) -> MemberFailed {
    MemberFailed { member, why: why.into() }
}

impl VolumeGroup {
    /// These members, as they are known now. A set is of the group that was chosen when it was opened, whichever is chosen by now.
    fn reach(&self, set: &[MemberId]) -> Vec<Reached> {
        let groups = self.shared.groups();
        let reached = |(known, link): (&Arc<Known>, &Arc<MemberLink>)| (Arc::clone(known), Arc::clone(link));
        set.iter().map(|member| groups.link(*member).map(reached)).collect()
    }

    /// Asks each of a set in a thread of its own. The answers come with the place of the member.
    fn ask_all(
        &self,
        set: &[MemberId],
        reached: &[Reached],
        ask: impl Fn(&MemberLink, &Asking<'_>) -> Answer + Clone + Send + 'static,
    ) -> Receiver<(usize, Answer)> {
        let (tell, answers) = channel();
        let until = Instant::now() + ALL_WITHIN;
        for (at, (member, reached)) in set.iter().zip(reached).enumerate() {
            let Some((known, link)) = reached.clone() else {
                // The receiver lives.
                let _ = tell.send((at, Err("it is not in the view of its group".to_owned())));
                continue;
            };
            let (group, view) = (known.id, known.view.epoch);
            let (shared, member) = (Arc::clone(&self.shared), *member);
            let (heard, ask) = (tell.clone(), ask.clone());
            let put = self.shared.crew.put(move || {
                let answer = ask(&link, &Asking { reader: &shared.reader, group, view, member, until });
                // Whoever asked may have given up.
                let _ = heard.send((at, answer));
            });
            if let Err(error) = put {
                let _ = tell.send((at, Err(format!("no thread to ask it: {error}"))));
            }
        }
        answers
    }
}

/// One of a set that has not answered although another one has.
#[derive(Debug)]
struct Behind {
    /// Bytes that had come from it when it was last looked, and when that was more than before, or an answer came.
    received: u64,
    moved: Instant,
}

impl Behind {
    /// Whether it counts as failed: nothing has come from it for a second, and for as long as the bytes that are on their way to it may take. A member whose cable is full is not one
    /// that is gone: it answers what was sent before.
    fn is_late(&mut self, received: u64, carries: Duration, now: Instant) -> bool {
        if received != self.received {
            (self.received, self.moved) = (received, now);
        }
        now.saturating_duration_since(self.moved) >= OTHERS_WITHIN + carries
    }
}

/// What came in time. Once one has answered, who is late has failed; each is judged by itself.
fn gather(reached: &[Reached], answers: &Receiver<(usize, Answer)>) -> Vec<Option<Answer>> {
    let received = |at: usize| reached[at].as_ref().map_or(0, |(_, link)| link.writes.received_bytes());
    let carries = |at: usize| reached[at].as_ref().map_or(Duration::ZERO, |(_, link)| link.writes.carries());
    let mut gathered: Vec<Option<Answer>> = vec![None; reached.len()];
    let until = Instant::now() + ALL_WITHIN;
    let mut behind: Option<Vec<Behind>> = None;
    while gathered.iter().any(Option::is_none) {
        let left = until.saturating_duration_since(Instant::now());
        let wait = if behind.is_some() { left.min(LOOK_EVERY) } else { left };
        match answers.recv_timeout(wait) {
            Ok((at, answer)) => {
                gathered[at] = Some(answer);
                let all = 0..reached.len();
                behind.get_or_insert_with(|| {
                    all.map(|at| Behind { received: received(at), moved: Instant::now() }).collect()
                });
                continue;
            }
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => break,
        }
        let now = Instant::now();
        for (at, behind) in behind.iter_mut().flatten().enumerate() {
            if gathered[at].is_none() && behind.is_late(received(at), carries(at), now) {
                gathered[at] = Some(late());
            }
        }
    }
    gathered
}

fn late() -> Answer {
    Err("it does not answer in time".to_owned())
}

impl Members for VolumeGroup {
    fn groups(&self) -> Arc<[GroupId]> {
        Arc::clone(self.shared.groups().ids())
    }

    fn within(&self, bounds: &Bounds) -> Within {
        let groups = self.shared.groups();
        let may = |id: GroupId| bounds.groups.contains(&id);
        if bounds.here && groups.all().iter().all(|known| may(known.id)) {
            return Within::Any;
        }
        self.shared.near.nearest(may).map_or(Within::Nowhere, Within::Group)
    }

    fn writes_over(&self, within: Within) -> Option<WriteGroup> {
        let known = self.gone_by(within)?;
        // A number that this release does not know is none to write by.
        let copies = known.writes.filter(|copies| SyncClass::of_copies(*copies).is_some())?;
        let active = |id: &&MemberId| {
            known.view.members.get(id).is_some_and(|member| member.state == MemberState::Active)
        };
        let near = known.here.iter().filter(active).copied().collect();
        Some(WriteGroup { group: known.id, copies, members: known.view.active(), near })
    }

    fn append(&self, set: &[MemberId], append: &Append) -> Vec<Result<Appended, MemberFailed>> {
        let (sent, shared) = (append.clone(), Arc::downgrade(&self.shared));
        let copies = if set.len() > 1 { Copies::Several } else { Copies::One };
        let reached = self.reach(set);
        let answers = self.ask_all(set, &reached, move |link, asking| {
            let (appended, epoch) = link.writes.append((&sent, copies), asking)?;
            if let Some(shared) = shared.upgrade() {
                shared.told(epoch, asking.view);
            }
            Ok(appended)
        });
        let gathered = gather(&reached, &answers).into_iter().map(|answer| answer.unwrap_or_else(late));
        let results: Vec<_> = set
            .iter()
            .zip(gathered)
            .map(|(member, answer)| answer.map_err(|why| failed(*member, why)))
            .collect();
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            self.shared.suspects_member(error.member);
        }
        results
    }

    fn seal(&self, set: &[MemberId], sealed: &SealedSegment) {
        let sealed = *sealed;
        // In the background.
        let _ = self.ask_all(set, &self.reach(set), move |link, asking| {
            if let Err(why) = link.writes.seal(&sealed, asking) {
                let (segment, member) = (sealed.segment, asking.member);
                tracing::debug!(%segment, %member, why, "a member learns of the end of a segment later");
            }
            Err(String::new())
        });
    }

    fn read(
        &self,
        set: &[MemberId],
        segment: SegmentId,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, MemberFailed> {
        let mut last = failed(set.first().copied().unwrap_or_default(), "nobody knows its group");
        if self.shared.groups().all().is_empty() {
            return Err(last);
        }
        let mut asked: Vec<_> = set.iter().zip(self.reach(set)).collect();
        // Of this machine first; those that are connected; by their round trips.
        asked.sort_by_key(|(_, to)| to.as_ref().map(|(_, link)| (!link.on_node, link.writes.cost())));
        for (member, reached) in asked {
            let Some((known, link)) = reached else {
                last = failed(*member, "it is not in the view of its group");
                continue;
            };
            let (reader, until) = (&self.shared.reader, Instant::now() + READ_WITHIN);
            let (group, view) = (known.id, known.view.epoch);
            let asking = Asking { reader, group, view, member: *member, until };
            match link.writes.read(segment, (offset, len), &asking) {
                Ok(bytes) => {
                    let count =
                        if link.on_node { &self.shared.counts.node } else { &self.shared.counts.group };
                    count.fetch_add(u64::from(len), std::sync::atomic::Ordering::Relaxed);
                    return Ok(bytes);
                }
                Err(why) => {
                    self.shared.suspects(group, *member);
                    last = failed(*member, why);
                }
            }
        }
        self.shared.look_soon();
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_or_has_much_to_take_is_no_member_that_is_gone() {
        let began = Instant::now();
        let after = |millis: u64| began + Duration::from_millis(millis);
        let mut mute = Behind { received: 7, moved: began };
        assert!(!mute.is_late(7, Duration::ZERO, after(999)));
        assert!(mute.is_late(7, Duration::ZERO, after(1_000)));
        assert!(!mute.is_late(7, Duration::from_millis(500), after(1_499)), "its cable is full");
        assert!(mute.is_late(7, Duration::from_millis(500), after(1_500)));
        let mut slow = Behind { received: 7, moved: began };
        assert!((1..9).all(|second| !slow.is_late(7 + second, Duration::ZERO, after(second * 990))));
        assert!(slow.is_late(15, Duration::ZERO, after(8 * 990 + 1_000)));
        let mut anew = Behind { received: 7, moved: began };
        assert!(!anew.is_late(0, Duration::ZERO, after(1_000)), "over another connection");
    }
}
