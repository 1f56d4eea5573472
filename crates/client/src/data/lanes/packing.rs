//! Runs of one batch on their way into segments over the logs of members.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_format::{footer::RunEntry, run::Trial, stream};
use forebay_group::MemberId;
use forebay_protocol::{FileCommit, confined_in};
use forebay_types::PolicyId;

use super::{
    Members, WriteGroup,
    pool::{APPEND_MAX, FULL, Filling, Lying, Used},
};
use crate::{
    ClientError,
    data::{
        Shared, Within, batch,
        file::Taken,
        runs::{Runs, extent},
    },
};

/// Raw bytes of one run at most: a member is not kept from others for longer.
const RUN_MAX: u32 = 1 << 20;
/// Bytes that are gathered before they are appended.
const GATHER: usize = 512 << 10;
/// A batch with more than this is a stream: its segments lie apart.
const STREAM: u64 = 4 << 20;
/// Segments that are opened at a time at most.
const OPENED: u64 = 64;

/// To what a batch is bound.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct Bound {
    /// So many copies at least.
    pub(in crate::data) copies: u8,
    pub(in crate::data) within: Within,
    /// By which policy that is; none where it may be on any disk. What goes by another one has other segments.
    pub(in crate::data) policy: PolicyId,
}

/// A run that no member has yet: of which file of the batch, where in it, and its bytes.
struct Waiting {
    file: usize,
    offset: u64,
    entry: RunEntry,
    body: Bytes,
}

/// Runs of one batch on their way into segments.
pub(in crate::data) struct LanePacking<'a> {
    shared: &'a Shared,
    members: &'a dyn Members,
    group: WriteGroup,
    session: u64,
    bound: Bound,
    runs: Runs,
    place: Lying,
    count: u32,
    gathered: usize,
    waiting: Vec<Waiting>,
    files: Vec<FileCommit>,
    used: Used,
}

impl<'a> LanePacking<'a> {
    /// Appends the runs of a batch, to so many members at least each; those that may not be on all disks to segments that have nothing else. Returns what the owner is to be told of the files, and what was appended to. `None` where there is no set: the batch is to be put as
    /// objects, and nothing that was appended is named.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(in crate::data) fn pack(
        shared: &'a Shared,
        (session, bound): (u64, Bound),
        taken: &[Taken],
    ) -> Result<Option<(Vec<FileCommit>, Used)>, ClientError> {
        let Some(members) = &shared.options.members else { return Ok(None) };
        let Some(first) = taken.iter().find(|taken| taken.inline.is_none()) else { return Ok(None) };
        let Some(group) = shared.lanes.group(&shared.options.members, session, bound) else {
            return Ok(None);
        };
        let bytes: u64 = taken.iter().map(|taken| taken.layer.cost()).sum();
        let parent = first.file.parent;
        let directory = if bound.within == Within::Any { parent } else { confined_in(parent) };
        let mut packing = LanePacking {
            shared,
            members: Arc::as_ref(members),
            group,
            session,
            bound,
            runs: Runs::default(),
            place: Lying { directory, stream: bytes > STREAM, policy: bound.policy },
            count: (bytes / FULL + 1).min(OPENED) as u32,
            gathered: 0,
            waiting: Vec::new(),
            files: Vec::with_capacity(taken.len()),
            used: Used::default(),
        };
        match packing.all(taken) {
            Ok(true) => Ok(Some((packing.files, packing.used))),
            Ok(false) => {
                shared.lanes.done(&shared.options.members, session, packing.used);
                Ok(None)
            }
            Err(error) => {
                shared.lanes.done(&shared.options.members, session, packing.used);
                Err(error)
            }
        }
    }

    fn all(&mut self, taken: &[Taken]) -> Result<bool, ClientError> {
        let cut = self.shared.block_size();
        // Inside one block each.
        let cut = cut.min(1 << cut.trailing_zeros().min(RUN_MAX.trailing_zeros()));
        for (file, taken) in taken.iter().enumerate() {
            self.files.push(batch::file_commit(taken));
            if taken.inline.is_some() {
                continue;
            }
            let mut trial = Trial::default();
            for (offset, parts) in taken.layer.runs(cut) {
                let run = self.encode(file, taken, (offset, &parts), &mut trial)?;
                let len = run.body.len() + stream::STREAM_HEAD_LEN;
                // What is gathered with it may be more than one append.
                if (self.gathered + len) as u64 > APPEND_MAX && !self.append()? {
                    return Ok(false);
                }
                self.gathered += len;
                self.waiting.push(run);
                if self.gathered >= GATHER && !self.append()? {
                    return Ok(false);
                }
            }
        }
        self.append()
    }

    fn encode(
        &mut self,
        file: usize,
        taken: &Taken,
        (offset, parts): (u64, &[&[u8]]),
        trial: &mut Trial,
    ) -> Result<Waiting, ClientError> {
        let (entry, stored) = self.runs.encode(self.shared, taken.file.ino, (offset, parts), trial)?;
        let mut body = BytesMut::with_capacity(entry.stored_len as usize);
        stored.iter().for_each(|part| body.extend_from_slice(part));
        Ok(Waiting { file, offset, entry, body: body.freeze() })
    }

    /// Appends what waits, to one segment after the other until all of a set have it. Returns whether there was a set.
    fn append(&mut self) -> Result<bool, ClientError> {
        while !self.waiting.is_empty() {
            let Some(mut filling) = self.segment()? else { return Ok(false) };
            let places = self.append_to(&mut filling);
            match places {
                Some(places) => {
                    let waiting = std::mem::take(&mut self.waiting);
                    self.gathered = 0;
                    for (run, place) in waiting.into_iter().zip(places) {
                        self.files[run.file]
                            .extents
                            .push((run.offset, extent(&run.entry, filling.replication.segment(), place)));
                    }
                    if filling.is_full() {
                        self.used.full.push(filling);
                    } else {
                        self.used.open = Some(filling);
                    }
                }
                None => {
                    let segment = self.shared.lanes.abandon(self.members, self.session, filling);
                    self.used.abandoned.push(segment);
                }
            }
        }
        Ok(true)
    }

    fn segment(&mut self) -> Result<Option<Filling>, ClientError> {
        if let Some(open) = self.used.open.take() {
            return Ok(Some(open));
        }
        let (shared, session) = (self.shared, self.session);
        let Some(group) = shared.lanes.group(&shared.options.members, session, self.bound) else {
            return Ok(None);
        };
        self.group = group;
        shared.lanes.next(shared.asks.as_ref(), (session, &self.group), self.place, self.count)
    }

    /// Appends all that waits as one, and waits for the set. Returns where each run is; `None` where a member failed.
    fn append_to(&self, filling: &mut Filling) -> Option<Vec<u64>> {
        let segment = filling.replication.segment();
        let (mut bytes, mut places) = (BytesMut::with_capacity(self.gathered), Vec::new());
        let start = filling.replication.end();
        for run in &self.waiting {
            let run_offset = start + (bytes.len() + stream::STREAM_HEAD_LEN) as u64;
            bytes.extend_from_slice(&stream::encode(segment, &RunEntry { run_offset, ..run.entry }));
            bytes.extend_from_slice(&run.body);
            places.push(run_offset);
        }
        let append = filling.replication.append(bytes.freeze());
        let set: Vec<MemberId> = filling.replication.set();
        let mut pace = std::time::Duration::ZERO;
        for (member, answer) in set.iter().zip(self.members.append(&set, &append)) {
            match answer {
                Ok(appended) => {
                    filling.replication.synced(*member, appended.end);
                    pace = pace.max(appended.pace);
                    if appended.draining {
                        filling.ends_soon();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, %segment, "a member does not take what is written: others do, or the store");
                    self.shared.lanes.avoid(self.session, *member);
                }
            }
        }
        let all = filling.replication.acknowledged() == append.end();
        if all {
            filling.has_appended();
            let here = set.iter().any(|member| self.group.near.contains(member));
            self.shared.counts.appended(append.bytes.len() as u64, here);
        }
        if all && !pace.is_zero() {
            std::thread::sleep(pace.min(PACE_MAX));
        }
        all.then_some(places)
    }
}

/// How long a writer waits at most because a member says so.
const PACE_MAX: std::time::Duration = std::time::Duration::from_millis(100);
