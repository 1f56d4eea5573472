//! A volume on one machine: the namespace, the bytes on the local disk and the store, joined.
//!
//! Guarantees: what an operation returned is seen by every later one; what [`Volume::sync`] returned for survives what the volume's class
//! promises; after a crash the volume is a prefix of what was done to it, with no repair step. Relies on the crates below for atomic
//! records, checked frames and conditional puts.
//!
//! Order that must hold, everywhere in this crate:
//! 1. A stream's bytes are synced before the journal records that name them count as durable.
//! 2. The journal is synced up to a checkpoint's last record before the engine gets the checkpoint.
//! 3. A segment is synced before a record names it; an object is in the store before a record says so.
//! 4. A local file or an object is removed only after a checkpoint without it is stored; in the bucket, where the store is elsewhere (see `remote`).

mod assembled;
mod caches;
mod config;
mod create;
mod data_lock;
mod error;
mod file;
mod files;
pub mod fsck;
mod journal_log;
mod listing;
mod open;
mod read;
mod recover;
mod remote;
mod settle;
mod source;
mod space;
mod status;
mod sync;
mod upkeep;
mod warm;

use std::{fmt, sync::Arc};

use forebay_cache::ReadAhead;
use forebay_data::{Journal, RunReader, Streams};
use forebay_env::FileLock;
use forebay_format::RunSealer;
use forebay_meta::{EmbeddedEngine, Namespace};
use forebay_object::ObjectStore;
use forebay_types::{Epoch, Ino, SubvolumeId};
pub use forebay_vfs::{Space, Whence};

pub use assembled::{ASSEMBLED_MIN, AssembledLease, AssembledStatus, PlainFile, SealedFiles, SealedLease};
pub use caches::CacheCounts;
pub use config::{FORMAT, VolumeConfig, VolumePaths};
pub use create::{CreateOptions, create};
pub use error::VolumeError;
pub use forebay_data::{ReadPiece, ReadPieces};
pub use forebay_reading::{Progress as WarmProgress, Warmer, Warming};
pub use open::OpenOptions;
pub use recover::{RecoverOptions, RecoverProgress, RecoverReport, recover};
pub use status::{Activity, BucketStatus, CacheStatus, Status, UpkeepStatus};
pub use upkeep::{Drain, Leaked, SHIP_INTERVAL};

use crate::{assembled::Assembled, data_lock::DataLocks, remote::Remote, upkeep::Upkeep};

/// An open volume. Shared by all threads; closed by [`Volume::close`], or as by a crash when it is dropped.
pub struct Volume {
    pub(crate) paths: VolumePaths,
    pub(crate) config: VolumeConfig,
    pub(crate) read_only: bool,
    pub(crate) subvolume: SubvolumeId,
    pub(crate) epoch: Epoch,
    pub(crate) ns: Arc<Namespace>,
    pub(crate) engine: Arc<EmbeddedEngine>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) store: ObjectStore,
    pub(crate) source: Arc<source::Source>,
    pub(crate) reader: RunReader,
    /// How the reads of each inode follow each other.
    pub(crate) ahead: ReadAhead,
    pub(crate) sealer: Option<Arc<RunSealer>>,
    /// What is kept in the bucket besides data; `None` where the store is the volume's own.
    pub(crate) remote: Option<Remote>,
    /// Files that the kernel may read by itself; `None` where there are to be none.
    pub(crate) assembled: Option<Assembled>,
    pub(crate) data_locks: DataLocks,
    /// Pages of directories that are being listed, read ahead.
    pub(crate) listing: listing::Listing,
    pub(crate) upkeep: Upkeep,
    /// Holds the lock that keeps other processes out; released when the volume is dropped.
    pub(crate) _lock: FileLock,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({}, {})", self.paths.root.display(), self.config.id)
    }
}

impl Volume {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.ns
    }

    /// The subvolume that is shown.
    #[must_use]
    pub fn subvolume(&self) -> SubvolumeId {
        self.subvolume
    }

    /// What was chosen when the volume was made.
    #[must_use]
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Where its files are.
    #[must_use]
    pub fn paths(&self) -> &VolumePaths {
        &self.paths
    }

    /// Whether changes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The term of this opening.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The store that the data rests in.
    #[must_use]
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    /// Says that an inode without a name is no longer in use: what is left of it is removed in the background.
    pub fn purge(&self, ino: Ino) {
        self.forget_assembled(ino);
        self.upkeep.purge(ino);
    }

    pub(crate) fn may_write(&self) -> Result<(), VolumeError> {
        if let Some(remote) = &self.remote {
            remote.fence.intact()?;
        }
        if self.read_only { Err(VolumeError::ReadOnly) } else { Ok(()) }
    }
}
