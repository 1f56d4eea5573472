//! Volumes that many machines share, as a mount gets them.

mod access;
mod open;
mod url;

use std::{fmt::Debug, path::PathBuf, sync::Arc, time::Duration};

use forebay_client::WarmInto;
use forebay_protocol::Rights;
use forebay_rpc::Security;
use forebay_vfs::{Files, KernelCaches};
use forebay_volume::Warming;
use serde_json::Value;

pub(crate) use access::access;
pub(crate) use open::open_shared;
pub(crate) use url::SharedUrl;

/// How a shared volume is reached and used.
#[derive(Clone, Debug)]
pub(crate) struct SharedOptions {
    pub(crate) access: Access,
    /// How long an operation waits for the servers; `None`: until they answer.
    pub(crate) patience: Option<Duration>,
    pub(crate) read_only: bool,
    /// Whether directories that nobody else works in are worked in without waiting for the servers.
    pub(crate) ahead: bool,
    pub(crate) cache_dir: Option<PathBuf>,
    /// Bytes.
    pub(crate) cache_size: u64,
}

/// By what the servers know this machine, and this machine them.
#[derive(Clone)]
pub(crate) struct Access {
    /// How connections are protected.
    pub(crate) security: Security,
    /// The secret of a token.
    pub(crate) token: Option<String>,
}

impl Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("security", &self.security)
            .field("token", &self.token.is_some())
            .finish()
    }
}

/// A shared volume that can be mounted.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) keeper: Arc<dyn Keeper>,
    /// What the servers let this mount do.
    pub(crate) rights: Rights,
}

/// What a mount asks of a shared volume besides its files.
pub(crate) trait Keeper: Debug + Send + Sync {
    /// Gives it the kernel's copies of the mount, before the first request. `None`: it need not tell the kernel anything.
    fn serve(&self, kernel: Option<Arc<dyn KernelCaches>>);

    /// What is to be shown of it, as an object: its servers, the session, caches.
    fn status(&self) -> Value;

    /// Where bytes of objects came from: the proxy of this machine, others of the group, the store. `None` where nobody counts them.
    fn read_from(&self) -> Option<[(&'static str, u64); 3]> {
        None
    }

    /// Where bytes of files were written to, as [`Keeper::read_from`] says where they came from.
    fn written_to(&self) -> Option<[(&'static str, u64); 3]> {
        None
    }

    /// Where its files can be brought near.
    fn can_warm(&self) -> WarmInto {
        WarmInto { here: false, group: false }
    }

    /// Who brings them.
    fn warming(&self, into: WarmInto) -> Option<Box<dyn Warming + '_>> {
        let WarmInto { .. } = into;
        None
    }

    /// Chunks that have left the cache on this machine's disk since the mount.
    fn evictions(&self) -> u64 {
        0
    }

    /// Empties the caches of what was read, and says in words which.
    fn empty_caches(&self) -> Vec<&'static str>;

    /// Bytes that were written here and that the servers do not have.
    fn unsettled_bytes(&self) -> u64;

    /// Brings all of them there.
    ///
    /// # Errors
    /// Why some are not.
    fn settle(&self) -> Result<(), String>;

    /// Ends the session. What is not settled is lost.
    ///
    /// # Errors
    /// It ended otherwise, or something was lost.
    fn close(&self) -> Result<(), String>;
}
