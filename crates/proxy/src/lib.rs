//! A member of a proxy group: the process around the state machines of `forebay-group`.
//!
//! - [`log`]: the member's log on its disk.
//! - [`writeback`]: what it answers to writers, and what it does with what they wrote.
//!
//! The protocol, the bytes and the failure cases are in `docs/design/proxy-group.md`.

pub mod log;
pub mod writeback;
