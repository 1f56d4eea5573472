//! Addresses and sockets.

mod address;
mod gate;
mod socket;

pub(crate) use address::is_loopback;
pub use address::{Address, AddressError};
pub(crate) use gate::Gate;
pub(crate) use socket::{Listener, Socket};
