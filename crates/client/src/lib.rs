//! A mount of a shared volume: the session with its owner, what is kept of names and inodes under leases, and the bytes of files.
//!
//! Guarantees: those of `docs/design/cluster.md`: each change is carried out once; nothing is answered from memory but under a lease; a lease is returned only when
//! what was changed under it is at the owner and the kernel has dropped what it had by it. Why no two of them wait for each other is in
//! `docs/design/shared-client.md`.

pub mod ahead;
mod asks;
mod data;
mod error;
mod group;
mod link;
mod names;
mod ticks;
mod transport;
mod volume;

pub use asks::Asks;
pub use data::{
    Appended, Contents, ContentsOptions, ContentsStats, MemberFailed, Members, Room, StoreCache, TellsLoss,
    WarmInto, Within, WriteGroup,
};
pub use error::{ClientError, LostBytes};
pub use group::{GroupStatus, GroupStore, ReadFrom, Reader, VolumeGroup, WrittenTo};
pub use link::{Answered, Events, Link, LinkConfig, Patience};
pub use ticks::{SystemTicks, Ticks};
pub use transport::{Listener, RpcTransport, Transport, Trouble};
pub use volume::{ConnectOptions, Nearby, Settings, SharedVolume};
