//! Engines in an object store, by SlateDB: a cluster needs a bucket and no database.
//!
//! Guarantees: those of [`Engine`](forebay_engine::Engine). Whoever opens a database shuts out the one that has it open: the later commits of that
//! one are fenced, and it reads what is in the store. What one has not noticed yet, its reads do not have. Relies on: a store that refuses
//! a put of a key that is taken, which is probed when a place is made.
//!
//! ```text
//! format             the version of all this
//! registry/…         the registry
//! names/NAME         the id of a database; see the module `names`
//! rows/ID/…          its rows; ids are never used again
//! ```
//!
//! Calls block and must not be made from inside an asynchronous runtime.

mod bucket;
mod commit;
mod engine;
mod explain;
mod host;
mod names;
mod place;
mod quiet;
mod reading;
mod upload;
mod url;

pub use host::SlateHost;
pub use place::Waits;
pub use url::{SlateUrl, SlateUrlError};
