//! Object stores behind one synchronous, thread-safe type: a directory, or a bucket of S3, Google Cloud Storage or Azure.
//!
//! Guarantees:
//! - An object that [`Backend::put_new`] acknowledged is whole and as durable as the store makes anything, and no later put of this
//!   crate changes it, except [`Backend::put_if`] under the condition that its caller names.
//! - A request that may have been carried out although its answer was lost is not reported as the work of somebody else: before
//!   "already exists" is returned after a retry, the object found is compared with the one that was being put.
//! - [`Backend::get_range`] returns the bytes asked for, all of them, or an error. Whether they are the *right* bytes is for the
//!   caller's checksums to say.
//! - Every error names the operation, the key, the store, the cause and what a person can do; see [`ObjectError`].
//!
//! Relies on: a bucket that honours `If-None-Match: *` and `If-Match`, which [`probe()`] finds out; a directory on a file system with
//! `link(2)` or `renameat2(RENAME_NOREPLACE)`, whose fsync does what it says.
//!
//! Blocking calls must not be made from inside an asynchronous runtime: [`BucketStore`] waits on one of its own.

mod backend;
pub mod bucket;
mod counters;
pub mod directory;
mod error;
mod faulty;
mod key;
pub mod late;
mod options;
pub mod probe;
mod random;
mod store;
mod url;

pub use backend::{Backend, ETag, Expected, Meta, Page, PutOutcome};
pub use bucket::BucketStore;
pub use counters::{Counters, LastError, OperationCounts};
pub use directory::{DirectoryStore, Swept};
pub use error::{Ability, ErrorKind, ObjectError, Operation};
pub use faulty::{Fault, Faults, FaultyStore};
pub use key::check_key;
pub use options::{Limits, Patience, StoreOptions};
pub use probe::{ProbeReport, probe};
pub use store::ObjectStore;
pub use url::{StoreUrl, StoreUrlError};
