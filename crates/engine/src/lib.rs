//! Ordered rows behind one narrow interface, and the engines that keep them. No engine knows what a row means.
//!
//! Guarantees: a batch takes effect whole or not at all; [`Outcome::Committed`] and [`Outcome::Fenced`] are said only when they are true, and
//! whatever is not certain is [`Outcome::Unknown`]; an error of [`Engine::commit`] means that nothing was changed. Relies on: a server that
//! keeps what it acknowledged.

mod copying;
mod directory;
mod embedded;
mod engine;
mod error;
mod host;
mod memory;
mod movable;
mod postgres;
mod settle;
mod url;

pub use copying::{Copied, CopyError, CopyMark, compare_all, compare_rows, copy_all, copy_rows};
pub use directory::DirectoryHost;
pub use embedded::{EmbeddedEngine, EngineFault, FrozenEngine};
pub use engine::{Batch, Engine, KEY_MAX, Outcome, RowPage, Writers};
pub use error::EngineError;
pub use host::{DatabaseName, DatabaseNameError, EngineHost};
pub use memory::MemoryEngine;
pub use movable::{Keys, MovableEngine, Paused};
pub use postgres::{PostgresHost, PostgresUrl};
pub use settle::settle;
pub use url::{EngineUrl, EngineUrlError};
