//! Which bytes are to be in the caches of a group, or are not to be, by policies (`docs/design/policies.md`); and what members say of that.
//!
//! Members ask: nothing here knows what they have, and what they say is kept in memory for people alone.

use std::time::Duration;

use forebay_cluster::Moment;
use forebay_format::{policy_row::PolicyKeep, row::Extent};
use forebay_group::{GroupId, Incarnation, MemberId, MemberState};
use forebay_meta::{MetaError, PieceSource};
use forebay_protocol::{
    Answer, Bounds, Disks, GroupRule, PolicyKept, PolicyReport, PolicyRule, PolicySums, PolicyVersion,
    SegmentPlace, WantedPlace, Wish,
};
use forebay_types::{Epoch, Ino, PolicyId, SegmentId, SyncClass};
use rustc_hash::FxHashMap;

use crate::{batch::Core, carry, owner::VolumeOwner, policies::Policies, unread::Lacking};

/// Inodes that one page looks at, about.
const INODES: usize = 4096;
/// Inodes that are looked at without others having their turn.
const STEP: usize = 512;
/// Places that one page has, about.
const PLACES: usize = 1024;
/// Pieces of files that one page looks at, about: bytes and holes between them, however many lie side by side in a segment.
const PIECES: usize = 16 << 10;
/// Pieces of a file that are looked at at a time.
const AT_A_TIME: usize = 512;
/// How long what a member said counts.
const COUNTS_FOR: Duration = Duration::from_secs(120);
/// Bytes of what a store said that are kept.
const WHY_MAX: usize = 300;

/// What members have said, the last time.
pub(crate) type Reports = FxHashMap<MemberId, Said>;

/// What a member said, as which process, and when.
pub(crate) struct Said {
    by: Incarnation,
    at: Moment,
    report: PolicyReport,
}

impl Policies {
    /// Where bytes are kept, by what this policy says and what it came after.
    pub(crate) fn keep(&self, id: PolicyId) -> PolicyKeep {
        let mut all = PolicyKeep::default();
        for row in self.chain(id).filter_map(|id| self.row(id)) {
            let PolicyKeep { pin, confine, place, exclude } = row.keep;
            all.pin |= pin;
            all.confine = all.confine.or(confine);
            all.place = all.place.or(place);
            all.exclude = all.exclude.or(exclude);
        }
        all
    }

    /// A policy and those that it came after.
    fn chain(&self, id: PolicyId) -> impl Iterator<Item = PolicyId> {
        let next = |id: &PolicyId| self.row(*id).map(|row| row.before).filter(|before| before < id);
        std::iter::successors(Some(id), next).filter(|id| *id != PolicyId::NONE)
    }

    /// Where bytes may be, where the volume is read through any of these groups; nowhere while that is not known. `None`: nothing is said of disks.
    fn bounds(&self, id: PolicyId, read_through: Option<&[GroupId]>) -> Option<Bounds> {
        if self.chain(id).any(|id| self.row(id).is_none()) {
            // Nobody knows what it says: the most that it could.
            return Some(Bounds::default());
        }
        let keep = self.keep(id);
        if keep.confine.is_none() && keep.exclude.is_none() {
            return None;
        }
        let Some(all) = read_through else { return Some(Bounds::default()) };
        let groups: Vec<GroupId> = all.iter().filter(|group| !keep.bars(group.0)).copied().collect();
        // What one of the groups may not have is on no disk outside of groups.
        Some(Bounds { here: keep.confine.is_none() && groups.len() == all.len(), groups })
    }

    /// On which disks bytes may be, for who does not tell groups apart: on none where one of them may not have them.
    pub(crate) fn disks(&self, id: PolicyId, read_through: Option<&[GroupId]>) -> Disks {
        match self.bounds(id, read_through) {
            None | Some(Bounds { here: true, .. }) => Disks::Any,
            Some(Bounds { groups, .. }) if groups.is_empty() => Disks::None,
            Some(Bounds { groups, .. }) if groups.len() < read_through.map_or(0, <[GroupId]>::len) => {
                Disks::None
            }
            Some(_) => Disks::Members,
        }
    }

    /// What is to become of bytes in the caches of a group.
    fn wish(&self, id: PolicyId, group: GroupId) -> Option<Wish> {
        let keep = self.keep(id);
        if keep.bars(group.0) {
            return Some(Wish::Nowhere);
        }
        let placed = (keep.place == Some(group.0)).then_some(Wish::Near);
        if keep.pin { Some(Wish::Stay) } else { placed }
    }

    /// Whether any policy says anything of caches.
    fn say_of_caches(&self) -> bool {
        self.all().any(|(_, row)| row.is_some_and(|row| row.keep != PolicyKeep::default()))
    }
}

/// A page of what is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WantedPage {
    /// Stored bytes, in the order of inodes.
    pub places: Vec<WantedPlace>,
    /// From which inode, and which byte of it, to go on; `None` at the end.
    pub next: Option<(Ino, u64)>,
}

impl Core {
    /// What `fsync` waits for at least by a policy: the store, where bytes may be nowhere else.
    pub(crate) fn class(&self, id: PolicyId) -> Option<SyncClass> {
        self.class_where(id, self.groups.read_through.as_deref())
    }

    /// The same of bytes that are over members of this group. One that is not the volume's is told of no policy, so nothing of one that says anything of disks may be there.
    pub(crate) fn class_in(&self, id: PolicyId, group: GroupId) -> Option<SyncClass> {
        let is_its = self.groups.read_through.as_ref().is_some_and(|groups| groups.contains(&group));
        self.class_where(id, is_its.then_some(&[group]))
    }

    fn class_where(&self, id: PolicyId, read_through: Option<&[GroupId]>) -> Option<SyncClass> {
        match self.policies.disks(id, read_through) {
            Disks::None => Some(SyncClass::Object),
            Disks::Any | Disks::Members => self.policies.class(id),
        }
    }

    fn rule(&self, policy: PolicyId) -> PolicyRule {
        let disks = self.policies.disks(policy, self.groups.read_through.as_deref());
        PolicyRule { policy, class: self.class(policy), disks }
    }

    /// What these policies say to those who write and read.
    pub(crate) fn rules(&self, policies: &[PolicyId]) -> Answer {
        let rules: Vec<PolicyRule> = policies.iter().map(|id| self.rule(*id)).collect();
        if rules.iter().any(|rule| rule.disks != Disks::Any) {
            return Answer::Rules(rules);
        }
        let class = |rule: &PolicyRule| rule.class.map(|class| (rule.policy, class));
        Answer::Classes(rules.iter().filter_map(class).collect())
    }
}

impl Core {
    /// The same to who tells groups apart.
    pub(crate) fn group_rules(&self, policies: &[PolicyId]) -> Answer {
        let rule = |policy: &PolicyId| {
            let bounds = self.policies.bounds(*policy, self.groups.read_through.as_deref());
            GroupRule { policy: *policy, class: self.policies.class(*policy), bounds }
        };
        Answer::GroupRules(policies.iter().map(rule).collect())
    }
}

impl VolumeOwner {
    /// Says through which groups the volume is read, if it is through any.
    pub fn set_groups(&self, groups: Vec<GroupId>) {
        self.core.lock().groups.read_through = Some(groups);
    }

    /// On which disks bytes may be by a policy: on members' of one of the volume's groups at least, or of the one that is named.
    #[must_use]
    pub fn disks_of(&self, policy: PolicyId, group: Option<GroupId>) -> Disks {
        let core = self.core.lock();
        let its = core.groups.read_through.as_deref();
        match (core.policies.bounds(policy, its), group) {
            (None, _) | (Some(Bounds { here: true, .. }), _) => Disks::Any,
            (Some(Bounds { groups, .. }), Some(group)) if groups.contains(&group) => Disks::Members,
            (Some(Bounds { groups, .. }), None) if !groups.is_empty() => Disks::Members,
            (Some(_), _) => Disks::None,
        }
    }

    /// What changes whenever a policy does.
    #[must_use]
    pub fn policy_version(&self) -> PolicyVersion {
        let epoch = self.epoch().unwrap_or(Epoch(0));
        PolicyVersion { epoch, batch: self.core.lock().policies.changed_in }
    }

    /// Which stored bytes are to be in the caches of a group, or are not to be, from a byte of an inode on: some of them.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn wanted(&self, group: GroupId, from: (Ino, u64)) -> Result<WantedPage, MetaError> {
        if !self.core.lock().policies.say_of_caches() {
            return Ok(WantedPage::default());
        }
        let mut unread = Vec::new();
        let page = self.page(group, from, &mut unread)?;
        let upto = page.next.map(|(ino, _)| ino);
        let new = self.core.lock().unread.found((from.0, upto), unread);
        for (ino, why) in new {
            tracing::warn!(%ino, "no member keeps what is not told of an inode: {why}");
        }
        Ok(page)
    }

    /// A page, and what of it could not be read: it would keep members from all that comes after it, for as long as nobody mends it.
    fn page(
        &self,
        group: GroupId,
        (mut ino, mut offset): (Ino, u64),
        unread: &mut Vec<(Ino, Lacking)>,
    ) -> Result<WantedPage, MetaError> {
        let mut page = WantedPage::default();
        let mut left = PIECES;
        for _ in 0..INODES / STEP {
            let found = self.ns.policy_files(self.at, ino, STEP)?;
            unread.extend(
                found.unreadable.into_iter().map(|(ino, error)| (ino, lacking(None, 0, ino, &error))),
            );
            for (file, policy, size) in found.files {
                let wish = self.core.lock().policies.wish(policy, group);
                let start = if file == ino { offset } else { 0 };
                if let Some(wish) = wish
                    && let Some(stopped) =
                        self.want((&mut page.places, &mut left, unread), (file, policy, wish), start..size)?
                {
                    page.next = Some((file, stopped));
                    return Ok(page);
                }
            }
            match found.next {
                Some(next) => (ino, offset) = (next, 0),
                None => return Ok(page),
            }
        }
        page.next = Some((ino, offset));
        Ok(page)
    }

    /// The stored bytes of a file. Says where it stopped, if there are enough of them, or it was gone through enough pieces.
    fn want(
        &self,
        (places, left, unread): (&mut Vec<WantedPlace>, &mut usize, &mut Vec<(Ino, Lacking)>),
        (ino, policy, wish): (Ino, PolicyId, Wish),
        range: std::ops::Range<u64>,
    ) -> Result<Option<u64>, MetaError> {
        let mut at = range.start;
        while at < range.end {
            if places.len() >= PLACES || *left == 0 {
                return Ok(Some(at));
            }
            // By pieces, not by bytes: a hole is one, however large.
            let pieces = match self.ns.map_up_to(self.at, ino, at, range.end - at, AT_A_TIME) {
                Ok(pieces) => pieces,
                // It was removed meanwhile, and with it what is wanted.
                Err(MetaError::Stale(_)) => return Ok(None),
                Err(error @ MetaError::Damaged { .. }) => {
                    let bytes = if wish == Wish::Nowhere { 0 } else { range.end - at };
                    unread.push((ino, lacking(Some(policy), bytes, ino, &error)));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            *left = left.saturating_sub(pieces.len());
            // One after the other of a file lies mostly in one segment.
            let mut last: Option<(SegmentId, Option<SegmentPlace>)> = None;
            for piece in &pieces {
                let PieceSource::Extent(extent) = &piece.source else { continue };
                let known = last.filter(|(segment, _)| *segment == extent.segment);
                let (_, place) =
                    known.unwrap_or_else(|| (extent.segment, carry::place(&self.ns, extent.segment)));
                last = Some((extent.segment, place));
                // What the store does not have is with members, or on its way.
                if let Some(place) = place {
                    add(places, (policy, wish), extent, place);
                }
            }
            // It is shorter by now, where there are none.
            at = pieces.last().map_or(range.end, |last| last.offset.saturating_add(last.len));
        }
        Ok(None)
    }

    /// Takes in what a member has found. Not kept anywhere but in memory.
    pub fn member_found(&self, (member, by): (MemberId, Incarnation), mut report: PolicyReport) {
        let at = self.ticks.now();
        let mut core = self.core.lock();
        report.sums.retain(|(policy, _)| core.policies.row(*policy).is_some());
        for (_, sums) in &mut report.sums {
            sums.why.truncate(sums.why.floor_char_boundary(WHY_MAX));
        }
        core.kept.insert(member, Said { by, at, report });
    }

    /// How far what a policy says of the caches of a group is so, as members have said, with all that came after it; of all policies where none is given. `None` where
    /// nothing is said of them.
    #[must_use]
    pub fn kept(&self, policy: Option<PolicyId>, group: GroupId) -> Option<PolicyKept> {
        let now = self.ticks.now();
        let mut core = self.core.lock();
        core.kept.retain(|_, said| now.since(said.at) < COUNTS_FOR);
        let concerns = match policy {
            Some(policy) => core.policies.keep(policy) != PolicyKeep::default(),
            None => core.policies.say_of_caches(),
        };
        if !concerns {
            return None;
        }
        let mut kept = PolicyKept { whole: true, ..PolicyKept::default() };
        let of = |id: PolicyId| policy.is_none_or(|policy| core.policies.chain(id).any(|id| id == policy));
        let members = core.groups.known.get(&group).map(|known| &known.view.members);
        for (id, member) in members.into_iter().flatten() {
            if member.state != MemberState::Active {
                continue;
            }
            kept.members += 1;
            // One that was started anew has gone through nothing.
            let said = core.kept.get(id).filter(|said| said.by == member.incarnation);
            let Some(Said { report, .. }) = said else { continue };
            kept.heard += 1;
            kept.whole &= report.whole;
            report.sums.iter().filter(|(id, _)| of(*id)).for_each(|(_, sums)| join(&mut kept.sums, sums));
        }
        core.unread.tell(&mut kept, of);
        Some(kept)
    }
}

fn lacking(policy: Option<PolicyId>, bytes: u64, ino: Ino, error: &dyn std::fmt::Display) -> Lacking {
    Lacking {
        policy,
        bytes,
        why: format!("rows of inode {ino} cannot be read ({error}): `forebay fsck` tells more"),
    }
}

fn join(all: &mut PolicySums, one: &PolicySums) {
    let PolicySums { wanted, kept, no_room, failed, dropped, why } = one;
    for (to, from) in [
        (&mut all.wanted, wanted),
        (&mut all.kept, kept),
        (&mut all.no_room, no_room),
        (&mut all.failed, failed),
        (&mut all.dropped, dropped),
    ] {
        *to = to.saturating_add(*from);
    }
    if all.why.is_empty() {
        all.why.clone_from(why);
    }
}

/// Adds the run of an extent; those that lie side by side are one.
fn add(
    places: &mut Vec<WantedPlace>,
    (policy, wish): (PolicyId, Wish),
    extent: &Extent,
    place: SegmentPlace,
) {
    let (from, len) = (extent.run_offset, u64::from(extent.stored_len));
    if let Some(last) = places.last_mut()
        && last.segment == extent.segment
        && (last.policy, last.place) == (policy, place)
    {
        let end = last.from.saturating_add(last.len);
        if end == from {
            last.len = last.len.saturating_add(len);
            return;
        }
        // Another part of the same run.
        if last.from <= from && from.saturating_add(len) <= end {
            return;
        }
    }
    places.push(WantedPlace { policy, wish, segment: extent.segment, place, from, len });
}
