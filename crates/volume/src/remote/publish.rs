//! Publishing: the rows of each checkpoint go to the bucket as a delta, and then what nothing needs any more is removed.
//!
//! The delta is durable in the outbox *before* the engine gets the rows: the engine cannot give them again afterwards. One of which the engine did not
//! get the rows is harmless: its records are all in the journal, so the next delta has the same rows or newer ones.

use std::sync::atomic::Ordering;

use forebay_env::durable::Point;
use forebay_meta::Checkpoint;
use forebay_types::{Epoch, Sequence};

use super::{
    Kind, Remote,
    base::{Base, Found},
    container::put_row,
    names::{ChunkName, DeltaName},
};
use crate::{
    Volume,
    error::VolumeError,
    upkeep::{Doomed, For},
};

/// Bytes of deltas that are not worth a base, however small the last one was.
const BASE_MIN: u64 = 256 << 10;
/// So many deltas are worth a base that is at most [`BASE_RATIO`] times as long, and so many more are worth any.
const DELTAS_MANY: usize = 64;
const BASE_RATIO: u64 = 16;
const DELTAS_MAX: usize = 4096;

/// What may be removed once a delta of record `sequence` or later is in the bucket.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) sequence: Sequence,
    pub(crate) doomed: Doomed,
    pub(crate) chunks: Vec<String>,
}

/// A delta in the bucket.
#[derive(Clone, Debug)]
pub(super) struct Delta {
    pub(super) name: DeltaName,
    pub(super) bytes: u64,
}

/// What the bucket has of the metadata. Whoever has it is the one who publishes.
#[derive(Debug)]
pub(super) struct Publish {
    pub(super) base: Option<Base>,
    pub(super) deltas: Vec<Delta>,
    pub(super) attempts: u64,
}

impl Publish {
    /// `last` is the last record that this machine has: what is later does not count.
    pub(super) fn new(found: &Found, last: Sequence) -> Publish {
        let deltas = found.deltas.iter().filter(|delta| delta.name.last <= last).cloned().collect();
        Publish { base: found.bases.iter().rfind(|base| base.to <= last).cloned(), deltas, attempts: 0 }
    }

    pub(super) fn covered(&self) -> Sequence {
        let base = self.base.as_ref().map(|base| base.to).unwrap_or_default();
        self.deltas.iter().map(|delta| delta.name.last).max().unwrap_or_default().max(base)
    }

    fn wants_base(&self) -> bool {
        let Some(base) = &self.base else { return true };
        let newer = self.deltas.iter().filter(|delta| delta.name.last > base.name.from);
        let (count, bytes) = newer.fold((0, 0), |(count, bytes), delta| (count + 1, bytes + delta.bytes));
        bytes > base.bytes.max(BASE_MIN)
            || (count >= DELTAS_MANY && bytes >= base.bytes / BASE_RATIO)
            || count >= DELTAS_MAX
    }
}

/// Refuses a directory that has less than what its own last opening put into the bucket: what is put is on the local disk first, so this is an older
/// copy, and to go on from it would lose what came after.
///
/// # Errors
/// [`VolumeError::Option`].
pub(super) fn refuse_older_copy(
    found: &Found,
    chunks: &[String],
    former: Option<Epoch>,
    last: Sequence,
) -> Result<(), VolumeError> {
    let chunks = chunks.iter().filter_map(|key| ChunkName::parse(key)).map(|name| (name.epoch, name.last));
    let deltas = found.deltas.iter().map(|delta| (delta.name.epoch, delta.name.last));
    let own = chunks.chain(deltas).filter(|(epoch, _)| Some(*epoch) == former);
    match own.map(|(_, last)| last).max().filter(|there| *there > last) {
        None => Ok(()),
        Some(there) => Err(VolumeError::Option(format!(
            "the volume's directory is an older copy: it ends at record {last}, its store has it up to {there}, and what came after would be \
             lost; bring the newer one back from the store (forebay create NEW --recover-from URL)"
        ))),
    }
}

impl Remote {
    /// Makes a delta of a checkpoint and puts it into the outbox. `applied` is the last record that the engine has.
    ///
    /// # Errors
    /// [`VolumeError`]; then the engine must not get the checkpoint.
    pub(crate) fn queue(&self, applied: Sequence, checkpoint: &Checkpoint<'_>) -> Result<(), VolumeError> {
        let (first, last) = (applied.next(), checkpoint.sequence());
        let mut payload = Vec::new();
        for (key, value) in checkpoint.rows() {
            put_row(&mut payload, key, value);
        }
        let bytes = self.encode(&self.head(Kind::Delta, first, last), &payload)?;
        self.outbox.add(&DeltaName { last, first, epoch: self.fence.epoch() }, &bytes)
    }

    /// Whether the bucket has the rows up to a record, and what was kept for that is removed here.
    pub(crate) fn is_settled(&self, applied: Sequence) -> bool {
        self.covered() >= applied && self.held.lock().as_ref().is_none_or(|held| held.sequence > applied)
    }

    /// Keeps what a checkpoint allows to remove, unless something is kept already.
    pub(crate) fn hold(&self, held: Held) {
        self.held.lock().get_or_insert(held);
    }
}

impl Volume {
    /// Puts the deltas of all checkpoints into the bucket, and removes what nothing needs any more. Does nothing for a volume with its own directory
    /// store.
    ///
    /// # Errors
    /// [`VolumeError`]; what was not done is done the next time.
    pub fn publish(&self) -> Result<(), VolumeError> {
        self.publish_for(For::Caller)
    }

    pub(crate) fn publish_for(&self, whom: For) -> Result<(), VolumeError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let publish = &mut *remote.publish.lock();
        if Point::BUCKET_REMOVAL.skipped() {
            self.release(remote, whom)?;
        }
        self.put_deltas(remote, publish, whom)?;
        self.release(remote, whom)?;
        if publish.wants_base() && !self.upkeep.stopping() {
            self.put_base(remote, publish, whom)?;
        }
        remote.delete_older_chunks(&|| self.upkeep.go_on(whom))
    }

    pub(super) fn put_deltas(
        &self,
        remote: &Remote,
        publish: &mut Publish,
        whom: For,
    ) -> Result<(), VolumeError> {
        for name in remote.outbox.waiting()? {
            if remote.shipped() < name.last && !Point::BUCKET_DELTA.skipped() {
                self.ship_for(whom)?;
            }
            self.upkeep.go_on(whom)?;
            let bytes = remote.outbox.read(&name)?;
            let len = bytes.len() as u64;
            remote.put(&name.key(), bytes)?;
            publish.deltas.push(Delta { name, bytes: len });
            remote.covered.fetch_max(name.last.0, Ordering::AcqRel);
            remote.outbox.remove(&name)?;
        }
        Ok(())
    }

    /// Removes what waited for the deltas that are in the bucket now.
    fn release(&self, remote: &Remote, whom: For) -> Result<(), VolumeError> {
        let held = {
            let mut held = remote.held.lock();
            let covered = remote.covered();
            let may_go = |held: &Held| held.sequence <= covered || Point::BUCKET_REMOVAL.skipped();
            if !held.as_ref().is_some_and(may_go) {
                return Ok(());
            }
            held.take()
        };
        let Some(held) = held else { return Ok(()) };
        self.remove(&held.doomed)?;
        self.upkeep.progressed();
        remote.delete_chunks(&held.chunks, &|| self.upkeep.go_on(whom))
    }
}
