//! A file system in memory that does as little as can be: the floor that benchmarks measure against, and what the
//! transport's own tests mount.
//!
//! It keeps names, attributes, extended attributes and locks and checks what POSIX checks; written data is counted and
//! thrown away, and reads give zeros. Its replies have the sizes of a real file system's.

mod locks;
mod ops;
mod tree;

use std::time::Duration;

use crate::flags::{Capabilities, OpenFlags};
use crate::init::InitConfig;

/// What the kernel is told to cache, so that two file systems can be compared under the same terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullConfig {
    /// Lifetime of names.
    pub entry_ttl: Duration,
    /// Lifetime of attributes.
    pub attr_ttl: Duration,
    /// What is asked for at INIT.
    pub init: InitConfig,
    /// Flags of every opened file.
    pub open_flags: OpenFlags,
    /// Flags of every opened directory.
    pub dir_flags: OpenFlags,
}

impl Default for NullConfig {
    /// A second's lifetimes, locks, O_TRUNC in open, readdirplus and the rest of [`InitConfig::default`].
    fn default() -> NullConfig {
        let plain = InitConfig::default();
        let wanted = Capabilities::POSIX_LOCKS
            | Capabilities::FLOCK_LOCKS
            | Capabilities::ATOMIC_O_TRUNC
            | Capabilities::DO_READDIRPLUS
            | Capabilities::READDIRPLUS_AUTO
            | Capabilities::CACHE_SYMLINKS;
        NullConfig {
            entry_ttl: Duration::from_secs(1),
            attr_ttl: Duration::from_secs(1),
            init: InitConfig { capabilities: plain.capabilities | wanted, ..plain },
            open_flags: OpenFlags::NONE,
            dir_flags: OpenFlags::NONE,
        }
    }
}

/// The do-nothing file system.
#[derive(Debug)]
pub struct NullFs {
    config: NullConfig,
    tree: tree::Tree,
    locks: locks::LockTables,
}

impl NullFs {
    /// An empty one.
    pub fn new(config: NullConfig) -> NullFs {
        NullFs { config, tree: tree::Tree::new(), locks: locks::LockTables::default() }
    }

    /// Lock requests that wait.
    pub fn waiting_locks(&self) -> usize {
        self.locks.waiting()
    }

    /// Inodes that exist or are held by the kernel, the root among them.
    pub fn inodes(&self) -> usize {
        self.tree.len()
    }
}
