//! The byte layout of everything that a volume stores: keys and rows of the metadata, runs and frames of the data, objects, the journal.
//!
//! Guarantees: what was encoded decodes to the same value; any other bytes decode to an error, never to a panic and never to an allocation
//! larger than the input justifies. Keys are big-endian, so that their byte order is the order that scans rely on; numbers in values are
//! LEB128 unless said otherwise. `docs/design/metadata.md`, `data.md`, `journal.md` and `proxy-group.md` are the specification; every structure that
//! stands alone carries magic, version and checksum.

mod cipher;
mod codec;
pub mod footer;
pub mod key;
pub mod member_log;
pub mod moving_row;
pub mod policy_row;
pub mod record;
pub mod row;
pub mod run;
pub mod set_row;
pub mod shared_row;
pub mod stream;

pub use cipher::{Keyring, MasterKey, RunSealer};
pub use codec::{Decoder, Encoder, FormatError};
