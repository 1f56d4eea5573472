//! A member of a proxy group: the process around the state machines of `forebay-group`, `forebay proxy`.
//!
//! - [`process`]: one proxy from its start to its end, and its directory.
//! - [`membership`]: it joins, renews and leaves.
//! - `reads`: what it caches, and what those are answered who read.
//! - `sweep`: what policies want in its cache.
//! - [`log`]: the member's log on its disk.
//! - [`writeback`]: what it answers to writers.
//! - [`volumes`]: its sessions with the owners of volumes: what it offers, puts and gives up of what they wrote.
//!
//! Guarantees: bytes that it sends were verified against the checksums that they were kept with, or come straight from the store; it acts for its member only
//! while no other process can; whoever reads through it was let in by the metadata servers. The protocol, the bytes and the failure cases are in
//! `docs/design/proxy-group.md`.

pub mod log;
pub mod membership;
pub mod process;
mod reads;
mod sweep;
pub mod volumes;
pub mod writeback;

pub use membership::{Meta, MetaError, Place, Standing};
pub use process::{CACHE_MIN, Directory, DirectoryError, Proxy, ProxyError, ProxyOptions};
pub use reads::ObjectsError;
