//! A member's sessions with volumes: real logs on disks, a real owner, a real directory as the store.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;
mod failing;
mod judged;
mod putting;
mod wire;
mod writer;
