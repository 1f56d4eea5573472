//! A shared volume as the vfs sees it: names under leases, bytes, and what becomes of both when somebody else wants them.

mod ahead;
mod connect;
mod contents;
mod core;
mod desk;
mod errors;
mod expected;
mod files;
mod jobs;
mod locks;
mod names;
mod opens;
mod root;
mod seals;
mod together;
mod warm;

use std::{fmt, sync::Arc};

use forebay_protocol::{Rights, VolumeInfo};
use forebay_vfs::KernelCaches;

pub use connect::{ConnectOptions, Settings};
pub use warm::Nearby;

use self::core::Core;
use crate::{
    error::ClientError,
    group::{GroupStatus, ReadFrom, WrittenTo},
};

/// A volume that other machines use, too. Closed by [`SharedVolume::close`], or when it is dropped: then what is kept back is lost.
pub struct SharedVolume {
    core: Arc<Core>,
}

impl fmt::Debug for SharedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedVolume({}, {:?})", self.core.info.name, self.core.bytes)
    }
}

impl SharedVolume {
    /// What the owner says of the volume.
    #[must_use]
    pub fn info(&self) -> &VolumeInfo {
        &self.core.info
    }

    /// What this client may.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.core.rights
    }

    /// The mount's copies, to be dropped when leases go. Given once, before the mount answers anything.
    pub fn set_kernel(&self, kernel: Arc<dyn KernelCaches>) {
        if self.core.kernel.set(self.core.root.kernel(kernel)).is_err() {
            tracing::error!("a shared volume has one mount, and was given another");
        }
    }

    /// Which session is the present one, counted from 1.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.core.desk.link.number()
    }

    /// Why the servers refuse this client, while they do: its token was revoked or has expired, or shows something else by now.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.core.desk.link.refused().map(|why| why.to_string())
    }

    /// The group of proxies through which it is read, if it has one, and where bytes came from since the start.
    #[must_use]
    pub fn read_from(&self) -> (Option<String>, ReadFrom) {
        let group = self.core.bytes.group();
        (group.and_then(|group| group.name()), group.map(|group| group.read_from()).unwrap_or_default())
    }

    /// The groups of proxies that the volume has, in its order.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.core.bytes.group().map(|group| group.all()).unwrap_or_default()
    }

    /// Where bytes of files were written to since the start: each once.
    #[must_use]
    pub fn written_to(&self) -> WrittenTo {
        let stats = self.core.bytes.stats();
        WrittenTo { node: stats.node_bytes, group: stats.group_bytes, store: stats.object_bytes }
    }

    /// Bytes that were written here and that the owner does not have.
    #[must_use]
    pub fn unsettled_bytes(&self) -> u64 {
        self.core.bytes.stats().kept
    }

    /// Empties the caches of what was read, and says in words which. Names and attributes that it holds leases of stay.
    pub fn empty_caches(&self) -> Vec<&'static str> {
        self.core.bytes.empty_caches()
    }

    /// Sends what is kept back.
    ///
    /// # Errors
    /// [`ClientError`]: some of it could not be sent, and is still kept.
    pub fn settle(&self) -> Result<(), ClientError> {
        self.core.settle_all()
    }

    /// Sends what is kept back, and ends the session.
    ///
    /// # Errors
    /// [`ClientError`]: what was kept back is lost.
    pub fn close(&self) -> Result<(), ClientError> {
        let settled = self.core.settle_all();
        self.end();
        settled
    }

    /// Ends everything as it is: what is kept back is lost.
    fn end(&self) {
        self.core.jobs.close();
        self.core.desk.link.close();
        self.core.desk.ahead.stop();
        self.core.bytes.stop();
    }
}

impl Drop for SharedVolume {
    fn drop(&mut self) {
        self.end();
    }
}
