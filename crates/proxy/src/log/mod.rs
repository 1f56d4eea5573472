//! The member's log: one sequential stream of all segments of all volumes, with one fdatasync for all who wait.
//!
//! Guarantees: what [`Log::synced`] has answered survives a power cut, in the order in which it was taken in; of a segment only bytes that were written are
//! handed out, each checked; after a failed write or sync nothing more is taken in or called durable. A full disk refuses what is new, and drops go on.
//!
//! Relies on: one process has the directory at a time; what is taken in is decided by [`MemberLog`], under one lock with its place in the log, so that the order of
//! decisions is the order of records.
//!
//! One thread writes and syncs. What comes while it does is written in the next round; it waits for those whom the last round served as [`Company`] says. The same
//! thread makes the next file, removes those that nothing needs any more, and moves what is left of the oldest one when the log has grown too long.

mod behind;
mod disk;
mod error;
mod open;
mod read;
mod state;
mod tidy;
mod window;
mod writer;

use std::{fmt, sync::Arc, thread::JoinHandle};

use bytes::{Bytes, BytesMut};
use forebay_group::{
    Append, Budget, Fenced, GroupId, Incarnation, Kept, MemberId, MemberLog, NotActing, Offer, Record, Step,
    Verdict, ViewEpoch,
};
use forebay_types::{Epoch, SegmentId, VolumeId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

pub use disk::{Directory, Disk, DiskFile};
pub use error::{Failure, OpenError, PutError, ReadError};
pub use open::Opened;
use state::{State, Urgency};

#[cfg(doc)]
use forebay_env::rounds::Company;

/// Bytes of a file of the log.
pub const FILE_LEN: u64 = 256 << 20;
/// Bytes of the last file that can be had which are kept for what frees space.
pub const RESERVE: u64 = 16 << 20;
/// Bytes that are written at once, or one record where that is longer.
const CHUNK: usize = 4 << 20;
/// So many bytes may wait for the disk.
const PENDING_MAX: u64 = 64 << 20;
/// Bytes of a record without bytes.
const BARE: u64 = 64;

/// What a log is, and how long it may be.
#[derive(Clone)]
pub struct LogOptions {
    /// The directory that it is in, which is there.
    pub disk: Arc<dyn Disk>,
    /// Whose it is.
    pub member: MemberId,
    /// In which group.
    pub group: GroupId,
    /// As what this process writes: not used by any other one.
    pub incarnation: Incarnation,
    /// How much may be dirty.
    pub budget: Budget,
    /// Bytes of a file: [`FILE_LEN`], less in tests. A multiple of 4096.
    pub file_len: u64,
    /// [`RESERVE`], less in tests.
    pub reserve: u64,
    /// Bytes of all files from which on what is left of the oldest is moved.
    pub len_max: u64,
    /// Bytes of a write: 4 MiB, less in tests.
    pub chunk: usize,
}

impl LogOptions {
    /// A log of a member with the usual lengths.
    #[must_use]
    pub fn new(
        disk: Arc<dyn Disk>,
        (group, member, incarnation): (GroupId, MemberId, Incarnation),
        budget: Budget,
    ) -> LogOptions {
        let len_max = budget.limit.saturating_add(4 * FILE_LEN);
        let (file_len, reserve, chunk) = (FILE_LEN, RESERVE, CHUNK);
        LogOptions { disk, member, group, incarnation, budget, file_len, reserve, len_max, chunk }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogOptions({:?} in '{}')", self.member, self.disk.path("").display())
    }
}

/// What is on stable storage.
#[derive(Clone, Debug, Default)]
pub struct Durable {
    /// Everything before this position.
    pub upto: u64,
    /// Why nothing more will be.
    pub failed: Option<Failure>,
}

/// What was counted since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogCounts {
    /// Appends that were taken in.
    pub appends: u64,
    /// Their bytes.
    pub append_bytes: u64,
    /// Rounds that ended with a sync.
    pub syncs: u64,
    /// How long these took, from the first write on, in microseconds.
    pub sync_micros: u64,
    /// Bytes that were moved from the oldest file.
    pub moved_bytes: u64,
}

/// How the log stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStatus {
    /// Where it ends.
    pub end: u64,
    /// Up to where it is on stable storage.
    pub synced: u64,
    /// Bytes of segments that may be wanted.
    pub dirty: u64,
    /// Segments that may be wanted, also empty ones.
    pub segments: u64,
    /// Bytes of its files.
    pub len: u64,
    /// The last view that was acknowledged.
    pub view: ViewEpoch,
    /// Something in it cannot be read, of segments that nobody knows.
    pub lost: bool,
}

pub(crate) struct Shared {
    options: LogOptions,
    state: Mutex<State>,
    /// There is something for the thread to do.
    work: Condvar,
    durable: watch::Sender<Durable>,
    counts: Mutex<LogCounts>,
}

/// A member's log. Shared by all threads.
pub struct Log {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({:?})", self.status())
    }
}

impl Log {
    /// Takes in bytes of a segment. `may` is asked under the log's lock whether this member takes in what belongs to a segment that it has, or opens one. What is
    /// returned may be answered once the log is synced up to there.
    ///
    /// # Errors
    /// [`PutError`]: nothing was taken in.
    pub fn append(
        &self,
        volume: VolumeId,
        append: &Append,
        may: &dyn Fn(bool) -> Result<(), NotActing>,
    ) -> Result<Step, PutError> {
        let (options, bytes) = (&self.shared.options, append.bytes.len() as u64);
        let mut state = self.shared.state.lock();
        let opens = !state.volume(volume).has(append.segment);
        may(opens)?;
        let dirty = state.dirty();
        if opens && !options.budget.opens(dirty) {
            return Err(PutError::Full);
        }
        if !options.budget.takes(dirty, bytes) {
            return Err(PutError::OverBudget);
        }
        if state.pending > PENDING_MAX {
            return Err(PutError::Behind);
        }
        state.write_owed(options);
        let record = Record::Append(append.clone());
        let place = state.place(record.size(), Urgency::Normal, options);
        // A file may have begun, whatever becomes of this; or there may be room by now for the next one.
        self.shared.work.notify_one();
        let place = place?;
        let log = state.volume(volume);
        log.begin_at(place);
        let step = log.append(append)?;
        if step.record.is_some() {
            let mut counts = self.shared.counts.lock();
            counts.appends += 1;
            counts.append_bytes += bytes;
        }
        self.write(state, volume, step.record.as_ref());
        Ok(step)
    }

    /// The segment ends here. As [`Log::append`], except that no room is needed but what is kept for this.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn seal(
        &self,
        volume: VolumeId,
        segment: SegmentId,
        epoch: Epoch,
        (len, check): (u64, u32),
    ) -> Result<Step, PutError> {
        let mut state = self.bare(volume)?;
        let step = state.volume(volume).seal(segment, epoch, len, check)?;
        self.write(state, volume, step.record.as_ref());
        Ok(step)
    }

    /// Whoever recovers a segment takes it.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn fence(
        &self,
        volume: VolumeId,
        segment: SegmentId,
        epoch: Epoch,
    ) -> Result<(Step, Fenced, Option<u64>), PutError> {
        let mut state = self.bare(volume)?;
        let log = state.volume(volume);
        let (step, fenced) = log.fence(segment, epoch)?;
        let sealed = log.kept(segment).and_then(|kept| kept.sealed).map(|(len, _)| len);
        self.write(state, volume, step.record.as_ref());
        Ok((step, fenced, sealed))
    }

    /// Takes in what the owner says of a copy. Whether it was given up.
    ///
    /// # Errors
    /// [`PutError::Failed`]. [`PutError::Full`] for a copy that is to be cut: it is offered again later.
    pub fn judged(&self, volume: VolumeId, segment: SegmentId, verdict: Verdict) -> Result<bool, PutError> {
        let mut state = match self.bare(volume) {
            // A drop needs no record: where the process ends before there is room for one, the copy comes back with the next, and is offered again.
            Err(PutError::Full)
                if matches!(verdict, Verdict::Clean | Verdict::Gone | Verdict::Unwanted(_)) =>
            {
                let mut state = self.shared.state.lock();
                let dropped = state.volume(volume).judged(segment, verdict).is_some();
                if dropped {
                    state.dropped = true;
                    state.owed.push((volume, segment));
                }
                self.shared.work.notify_one();
                return Ok(dropped);
            }
            state => state?,
        };
        let record = state.volume(volume).judged(segment, verdict);
        let dropped = matches!(record, Some(Record::Drop { .. }));
        self.write(state, volume, record.as_ref());
        Ok(dropped)
    }

    /// Notes that this view is acknowledged, before it is said. What is returned is to be synced first.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn acknowledge(&self, view: ViewEpoch) -> Result<u64, PutError> {
        let mut state = self.shared.state.lock();
        if state.view < view {
            state.place(BARE, Urgency::Reclaim, &self.shared.options)?;
            state.write_view(view, &self.shared.options);
            state.company.come();
            self.shared.work.notify_one();
        }
        Ok(state.end)
    }

    /// The state, with a place for a record without bytes of a volume.
    fn bare(&self, volume: VolumeId) -> Result<MutexGuard<'_, State>, PutError> {
        let mut state = self.shared.state.lock();
        let place = state.place(BARE, Urgency::Reclaim, &self.shared.options);
        self.shared.work.notify_one();
        state.volume(volume).begin_at(place?);
        Ok(state)
    }

    fn write(&self, mut state: MutexGuard<'_, State>, volume: VolumeId, record: Option<&Record>) {
        let Some(record) = record else { return };
        state.write(volume, record, false, &self.shared.options);
        if !matches!(record, Record::Drop { .. }) {
            // Somebody waits for its sync.
            state.company.come();
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// Waits until the log is on stable storage up to a position.
    ///
    /// # Errors
    /// [`Failure`]: nobody knows whether it is.
    pub async fn synced(&self, upto: u64) -> Result<(), Failure> {
        let mut durable = self.shared.durable.subscribe();
        let found = durable.wait_for(|durable| durable.upto >= upto || durable.failed.is_some()).await;
        match found {
            Ok(durable) if durable.upto >= upto => Ok(()),
            Ok(durable) => Err(durable.failed.clone().unwrap_or_else(|| self.shared.closed())),
            Err(_) => Err(self.shared.closed()),
        }
    }

    /// What becomes durable, and what fails: told whenever it changes.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<Durable> {
        self.shared.durable.subscribe()
    }

    /// Bytes `from..to` of a segment, and their CRC32C. Blocks.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        &self,
        volume: VolumeId,
        segment: SegmentId,
        from: u64,
        to: u64,
    ) -> Result<(Bytes, u32), ReadError> {
        let pieces = {
            let mut state = self.shared.state.lock();
            let synced = state.synced;
            let kept = state.volume(volume).kept(segment).ok_or(ReadError::EndsAt { end: 0 })?;
            match kept {
                kept if kept.damaged => return Err(ReadError::Damaged),
                kept if kept.end() < to => return Err(ReadError::EndsAt { end: kept.end() }),
                kept if kept.upto() > synced => return Err(ReadError::NotSynced { upto: kept.upto() }),
                _ => {}
            }
            let pieces = state.volume(volume).places(segment, from, to);
            pieces.into_iter().map(|piece| (piece, tidy::place_of(&state, &piece))).collect::<Vec<_>>()
        };
        let mut out = BytesMut::with_capacity((to - from) as usize);
        for (piece, place) in pieces {
            let Some(bytes) = place.and_then(|place| tidy::read_piece(&place, &piece)) else {
                tracing::error!(%segment, offset = piece.offset, "a copy cannot be read back: it counts for nothing");
                self.shared.state.lock().volume(volume).unreadable(segment, piece.offset);
                return Err(ReadError::Damaged);
            };
            let (first, last) = (from.saturating_sub(piece.offset), to.min(piece.end()) - piece.offset);
            out.extend_from_slice(&bytes[first as usize..last as usize]);
        }
        let check = crc32c::crc32c(&out);
        Ok((out.freeze(), check))
    }

    /// What it has of a volume, to be told to the owner.
    #[must_use]
    pub fn offers(&self, volume: VolumeId) -> Vec<Offer> {
        self.shared.state.lock().volumes.get(&volume).map(MemberLog::offers).unwrap_or_default()
    }

    /// What it has of a segment.
    #[must_use]
    pub fn kept(&self, volume: VolumeId, segment: SegmentId) -> Option<Kept> {
        self.shared.state.lock().volumes.get(&volume)?.kept(segment).cloned()
    }

    /// Volumes of which it has something.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeId> {
        let state = self.shared.state.lock();
        state.volumes.iter().filter(|(_, log)| log.segments() > 0).map(|(volume, _)| *volume).collect()
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let state = self.shared.state.lock();
        LogStatus {
            end: state.end,
            synced: state.synced,
            dirty: state.dirty(),
            segments: state.volumes.values().map(MemberLog::segments).sum(),
            len: state.len(),
            view: state.view,
            lost: state.lost.is_some(),
        }
    }

    /// How much may be dirty.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.shared.options.budget
    }

    /// Why it takes nothing more, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.shared.state.lock().failed.clone()
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        *self.shared.counts.lock()
    }

    /// Writes and syncs what is there, and ends the thread. Nothing is taken in any more.
    pub fn close(&self) {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.lock().take() {
            // One that panicked has said so.
            let _ = writer.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn closed(&self) -> Failure {
        let closed = std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the log is closed");
        Failure::new("go on with", self.options.disk.path(""), closed)
    }
}
