//! How the copies stand of segments that the store may not have, for those who run the volume.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use forebay_cluster::Moment;
use forebay_group::{GroupId, MemberId, SetState};
use forebay_meta::MetaError;
use forebay_protocol::{
    group::{MissingSegment, Tally},
    unconfined,
};
use forebay_types::{Ino, SegmentId};

use crate::{batch::Core, owner::VolumeOwner, sets::Held};

/// Segments that are looked at at a time.
const AT_A_TIME: usize = 512;
/// Segments that are named at a time.
const LISTED: usize = 1000;
/// Files that are named at a time.
const FILES: usize = 200;
/// Entries that are looked at for the name of one file at most, in steps.
const ENTRIES: usize = 1 << 16;
const STEP: usize = 1024;
/// How deep a file lies at most whose path is told.
const DEPTH: usize = 256;

/// The segments over the members of one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetsStatus {
    /// Writers append to these, or ended and they are recovered.
    pub open: Tally,
    /// These wait to be stored.
    pub sealed: Tally,
    /// Of both, those of which fewer members are there than there are to be copies, but one at least.
    pub under: Tally,
    /// Those of which no member is there.
    pub missing: Tally,
    /// Those that were given up.
    pub lost: Tally,
    /// Whether this owner has been told who is in the group: else nothing is said to be missing. It is, within a second.
    pub known: bool,
    /// For how long the oldest of those that are sealed has waited, as far as this owner knows.
    pub oldest: Duration,
    /// The missing, then the lost, a thousand of them at most, each in the order of their numbers.
    pub list: Vec<MissingSegment>,
}

impl SetsStatus {
    /// Counts a segment of which so many bytes are in use.
    fn counts(&mut self, one: Standing, bytes: u64, list: bool) {
        // Who is in a group is told to a new owner within a second.
        self.known = one.known;
        match one.state {
            SetState::Open => self.open.add(bytes),
            SetState::Sealed { .. } => self.sealed.add(bytes),
            SetState::Stored => return,
            SetState::Lost => self.lost.add(bytes),
        }
        let lost = one.state == SetState::Lost;
        self.oldest = self.oldest.max(one.waited);
        match one.there {
            _ if lost || !one.known => {}
            0 => self.missing.add(bytes),
            there if there < one.copies => self.under.add(bytes),
            _ => {}
        }
        if list && (lost || one.known && one.there == 0) {
            let Standing { segment, directory, members, .. } = one;
            self.names(MissingSegment { segment, bytes, lost, directory, members });
        }
    }

    /// Names a segment that nobody has who is there; those that were given up make way for those that were not.
    fn names(&mut self, segment: MissingSegment) {
        if self.list.len() == LISTED {
            match self.list.iter().rposition(|one| one.lost) {
                Some(at) if !segment.lost => drop(self.list.remove(at)),
                _ => return,
            }
        }
        self.list.push(segment);
    }
}

/// How a segment stands.
struct Standing {
    segment: SegmentId,
    group: GroupId,
    directory: Ino,
    state: SetState,
    /// Whether it is known who is in the group.
    known: bool,
    /// How many of its set are there, and how many there are to be.
    there: usize,
    copies: usize,
    /// Since it is sealed, as far as this owner knows.
    waited: Duration,
    members: Vec<MemberId>,
}

impl Core {
    /// Some segments, from this one on.
    fn standings(&self, from: SegmentId, now: Moment) -> Vec<Standing> {
        let standing = |(segment, held): (SegmentId, &Held)| {
            let (row, group) = (&held.row, held.group);
            let since = self.sets.sealed_since.get(&segment);
            Standing {
                segment,
                group,
                directory: unconfined(held.directory),
                state: row.state,
                known: self.groups.known.contains_key(&group),
                there: row.set.iter().filter(|id| self.groups.is_there(group, **id, now)).count(),
                copies: self.groups.copies(group, row.set.len()),
                waited: since.map_or(Duration::ZERO, |since| now.since(*since)),
                members: row.set.iter().chain(&row.joining).copied().collect(),
            }
        };
        self.sets.from(from).take(AT_A_TIME).map(standing).collect()
    }
}

impl VolumeOwner {
    /// How the segments stand that the store may not have, by group. `list`: those that nobody has who is there are named.
    ///
    /// Others have their turn between some and some: what changes meanwhile is counted as it was or as it is.
    #[must_use]
    pub fn sets(&self, list: bool) -> BTreeMap<GroupId, SetsStatus> {
        let mut all: BTreeMap<GroupId, SetsStatus> = BTreeMap::new();
        let mut from = SegmentId(0);
        loop {
            let some = self.core.lock().standings(from, self.ticks.now());
            let Some(last) = some.last() else { break };
            from = SegmentId(last.segment.0.saturating_add(1));
            let segments: Vec<SegmentId> = some.iter().map(|one| one.segment).collect();
            // Not inside: an operation that has its turn looks at what the owner keeps.
            let live: BTreeMap<SegmentId, u64> = self
                .ns
                .segments_of(&segments)
                .into_iter()
                .map(|(segment, row)| (segment, row.live))
                .collect();
            for one in some {
                let bytes = live.get(&one.segment).copied().unwrap_or(0);
                all.entry(one.group).or_default().counts(one, bytes, list);
            }
        }
        all.values_mut().for_each(|of| of.list.sort_by_key(|one| (one.lost, one.segment)));
        all
    }

    /// Some of the files with parts of these segments, by their paths from the root, or their inode numbers where they have none. Looks through all rows of the volume.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn files_in(&self, segments: impl Iterator<Item = SegmentId>) -> Result<Vec<String>, MetaError> {
        let found = self.ns.blocks_in(&segments.collect())?;
        let inos: BTreeSet<Ino> =
            found.iter().filter(|block| block.subvolume == self.at).map(|block| block.ino).collect();
        let name = |ino: &Ino| Ok(self.path_of(*ino)?.unwrap_or_else(|| format!("inode {ino}")));
        inos.iter().take(FILES).map(name).collect()
    }

    fn path_of(&self, ino: Ino) -> Result<Option<String>, MetaError> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != Ino::ROOT && names.len() < DEPTH {
            let parent = match self.ns.inode(self.at, at) {
                Ok(inode) => inode.row.parent,
                Err(MetaError::Stale(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let Some(name) = self.name_in(parent, at)? else { return Ok(None) };
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok((at == Ino::ROOT).then(|| format!("/{}", names.join("/"))))
    }

    /// What a directory calls an inode.
    fn name_in(&self, parent: Ino, ino: Ino) -> Result<Option<String>, MetaError> {
        let mut after: Option<Vec<u8>> = None;
        for _ in 0..ENTRIES / STEP {
            let entries = self.ns.entries(self.at, parent, after.as_deref(), STEP)?;
            if let Some(entry) = entries.iter().find(|entry| entry.ino == ino) {
                return Ok(Some(String::from_utf8_lossy(&entry.name).into_owned()));
            }
            match entries.last() {
                Some(last) => after = Some(last.name.to_vec()),
                None => break,
            }
        }
        Ok(None)
    }
}
