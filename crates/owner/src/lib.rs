//! The owner of a shared volume.
//!
//! Guarantees: a request that changes something is answered once the batch with its record is committed, and one that only looked once everything that it may
//! have seen is; each is carried out once; no lease is granted or request run against another session's lease. Relies on: the engine's
//! fences; clocks that keep the terms (`docs/design/cluster.md`).
//!
//! [`take`] waits until the volume is to be had, [`VolumeOwner::open`] makes its owner of that, [`VolumeOwner::submit`] takes requests, and one thread runs
//! [`VolumeOwner::commit_until_stopped`]. Replies and recalls leave through closures: this crate knows no network.

mod ahead;
mod batch;
mod beat;
mod beside;
mod carry;
mod commit;
mod copies;
mod keeping;
mod lanes;
mod locks;
mod log;
mod losses;
mod numbers;
mod offers;
mod open;
mod opens;
mod owner;
mod perform;
mod policies;
mod recover;
mod request;
mod reserve;
mod rights;
mod run;
mod sets;
mod spread;
mod take;
mod ticks;
mod tidy;
mod told;
mod unread;

pub use beside::{OwnerStatus, SessionStatus};
pub use copies::SetsStatus;
pub use keeping::WantedPage;
pub use open::OpenError;
pub use owner::VolumeOwner;
pub use policies::{PolicyFound, PolicyPage};
pub use recover::Missing;
pub use request::{Reply, Tell};
pub use take::{StandsBy, Taken, stand_by, take};
pub use ticks::{SystemTicks, Ticks};
