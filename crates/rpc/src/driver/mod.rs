//! Connections on sockets: server and client.

mod channel;
mod client;
mod complaints;
mod connect;
mod gate;
mod link;
mod peer;
mod server;
mod task;

pub use channel::{ASKED_EVERY, Call};
pub use client::{Client, ClientConfig};
pub use connect::ConnectError;
pub use gate::Gate;
pub use peer::{Handler, Handling, Peer};
pub use server::{BindError, Server, ServerConfig};
