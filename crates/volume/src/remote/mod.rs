//! The store as a volume sees it: objects of data, and, where the store is elsewhere, everything that is needed to bring the volume back from the
//! bucket alone. `docs/design/bucket.md` has the layout, the invariants and why they hold.
//!
//! Order that must hold:
//! 1. A chunk is put after the bytes that its records name: in streams (the same chunk or one before), in the store.
//! 2. A delta is put after the chunks of all records that it contains.
//! 3. An object, a chunk or a local file is removed only after a delta that does not need it is in the bucket.
//! 4. An fsync of class `object` is answered after its chunk was put, and after the owner was asked for once more.

mod base;
mod chunk;
mod container;
mod names;
mod outbox;
mod owner;
mod publish;
mod restore;
mod ship;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_format::{FormatError, RunSealer};
use forebay_object::{Backend, ErrorKind, Meta, ObjectError, ObjectStore};
use forebay_types::{Compression, Durability, Sequence, VolumeId};
use parking_lot::Mutex;

pub(crate) use base::{Found, put_first_base};
pub(crate) use chunk::StoredAt;
pub(crate) use container::{Head, Kind};
pub(crate) use names::{CONFIG, OWNER};
pub(crate) use outbox::Outbox;
pub(crate) use owner::{Fence, Owner, Successor, claim, take, taken_over};
pub(crate) use publish::Held;
pub(crate) use restore::{Restored, restore, try_keys};

use crate::error::VolumeError;

/// All objects below a prefix.
pub(crate) fn list(store: &ObjectStore, prefix: &str) -> Result<Vec<Meta>, ObjectError> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list(prefix, after.as_deref())?;
        all.extend(page.entries);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// What a volume keeps in its bucket besides data, and how far that has come.
pub(crate) struct Remote {
    store: ObjectStore,
    volume: VolumeId,
    /// The first record of this opening.
    start: Sequence,
    class: Durability,
    sealer: Option<Arc<RunSealer>>,
    pub(crate) fence: Arc<Fence>,
    pub(crate) outbox: Outbox,
    ship: Mutex<ship::Ship>,
    /// Rounds of shipping for an fsync that have begun.
    rounds_begun: AtomicU64,
    /// Chunks that may be in the bucket, oldest first.
    chunks: Mutex<Vec<ship::Chunk>>,
    publish: Mutex<publish::Publish>,
    /// What is to be removed once a delta is in the bucket.
    pub(crate) held: Mutex<Option<Held>>,
    /// The last record that chunks in the bucket have.
    shipped: AtomicU64,
    /// The last record that was the owner's when it was in the bucket.
    acknowledged: AtomicU64,
    /// The last record that deltas in the bucket have.
    covered: AtomicU64,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shipped, covered) = (self.shipped(), self.covered());
        write!(f, "Remote({}, shipped {shipped}, covered {covered})", self.store.url())
    }
}

/// What an opening knows when it has replayed the journal.
pub(crate) struct Opening {
    pub(crate) store: ObjectStore,
    pub(crate) volume: VolumeId,
    pub(crate) class: Durability,
    pub(crate) sealer: Option<Arc<RunSealer>>,
    pub(crate) fence: Arc<Fence>,
    pub(crate) outbox: Outbox,
    /// The last record that was replayed.
    pub(crate) last: Sequence,
}

impl Remote {
    /// Looks at what the bucket has, and goes on from there.
    ///
    /// # Errors
    /// [`VolumeError::Object`]; [`VolumeError::Option`] where the bucket has more from this directory than the directory has.
    pub(crate) fn open(opening: Opening) -> Result<Remote, VolumeError> {
        let Opening { store, volume, class, sealer, fence, outbox, last } = opening;
        let found = Found::look(&store)?;
        let publish = publish::Publish::new(&found, last);
        let older: Vec<String> = list(&store, names::CHUNKS)?.into_iter().map(|meta| meta.key).collect();
        publish::refuse_older_copy(&found, &older, fence.former(), last)?;
        let covered = publish.covered();
        Ok(Remote {
            store,
            volume,
            start: last.next(),
            class,
            sealer,
            fence,
            outbox,
            ship: Mutex::new(ship::Ship::new(older)),
            rounds_begun: AtomicU64::new(0),
            chunks: Mutex::default(),
            publish: Mutex::new(publish),
            held: Mutex::default(),
            shipped: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            covered: AtomicU64::new(covered.0),
        })
    }

    /// The last record that was replayed when this opening began.
    pub(crate) fn replayed(&self) -> Sequence {
        Sequence(self.start.0.saturating_sub(1))
    }

    /// The last record that the bucket has as journal.
    pub(crate) fn shipped(&self) -> Sequence {
        Sequence(self.shipped.load(Ordering::Acquire))
    }

    /// The last record that the rows in the bucket contain.
    pub(crate) fn covered(&self) -> Sequence {
        Sequence(self.covered.load(Ordering::Acquire))
    }

    pub(crate) fn head(&self, kind: Kind, first: Sequence, last: Sequence) -> Head {
        Head { kind, volume: self.volume, epoch: self.fence.epoch(), start: self.start, first, last }
    }

    pub(crate) fn encode(&self, head: &Head, payload: &[u8]) -> Result<Vec<u8>, FormatError> {
        let compression = match head.kind {
            Kind::Chunk => Compression::Lz4,
            Kind::BasePart | Kind::BaseWhole | Kind::Delta => Compression::Zstd,
        };
        container::encode(head, payload, compression, self.sealer.as_deref())
    }

    /// Puts an object of a name that is used for nothing else. One that is there with the same bytes was put before the answer was lost.
    fn put(&self, key: &str, bytes: Vec<u8>) -> Result<(), VolumeError> {
        self.fence.check_recent()?;
        put_same(&self.store, key, bytes.into())
    }

    fn delete(&self, key: &str) -> Result<(), VolumeError> {
        self.fence.check()?;
        Ok(self.store.delete(key)?)
    }
}

/// Puts an object, or finds it there already with the same bytes.
fn put_same(store: &ObjectStore, key: &str, bytes: Bytes) -> Result<(), VolumeError> {
    match store.put_new(key, bytes.clone()) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let (found, _) = store.get(key)?;
            if found == bytes { Ok(()) } else { Err(error.into()) }
        }
        put => put.map(|_| ()).map_err(VolumeError::from),
    }
}
