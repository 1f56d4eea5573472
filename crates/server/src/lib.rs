//! The metadata server of shared volumes: `forebay meta`.
//!
//! Guarantees: any number of servers work over one place of engines; each volume has one owner among them, and the others send clients there; a server that
//! dies is followed by another after [`forebay_cluster::Terms::take_after`], one that stops in order at once; nobody uses a volume without a token, but on the
//! machine of a server that allows it. Relies on the engine's fences, and on `forebay-owner` for all that concerns one volume. `docs/design/servers.md` has the
//! rows, the rules of who serves what, and what happens when parts fail.
//!
//! [`MetaServer`] is a server; [`registry`] and [`members`] are its parts without a network.

mod admin;
mod cluster;
mod counts;
mod error;
mod groups;
mod hosting;
mod links;
pub mod members;
mod metrics;
mod migration;
mod place;
mod places;
pub mod registry;
mod secret;
mod server;
mod service;
mod standby;

pub use error::ServerError;
pub use migration::{MigrationStep, MigrationWatch};
pub use place::{DatabasePlace, DatabasePlaceError};
pub use server::{MetaServer, ServerOptions, Ticking};
