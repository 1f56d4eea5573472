//! The protocols by which many machines share a volume, as state machines without I/O, clock or thread of their own.
//!
//! - [`Ownership`]: which metadata server may answer for a volume, and until when.
//! - [`Sessions`]: each request of a client carried out once, and what becomes of a client that is not heard of.
//! - [`LeaseTable`]: who may keep what; requests wait until leases that they conflict with are returned.
//! - [`HeldLeases`]: the same from the client's side.
//!
//! Times are passed in ([`Moment`]), what is to be sent or stored is handed out. So servers and clients drive the same code as a simulation
//! that replays a seed. What each protocol guarantees, and why, is in `docs/design/cluster.md`.

mod held;
mod leases;
mod moment;
mod ownership;
mod sessions;

pub use held::{HeldLeases, Recalled};
pub use leases::{Access, Effect, Grant, Lease, LeaseTable, Need, RequestId, Stamp};
pub use moment::{Moment, Terms};
pub use ownership::{Claim, Fence, Ownership, ServerId, Standing};
pub use sessions::{Arrival, SLOTS, SessionError, SessionId, Sessions, SlotNumber};
