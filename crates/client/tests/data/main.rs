//! The bytes of a shared volume's files, over a namespace in the place of the owner and a directory in the place of the store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it cannot go on")]

mod failing;
mod fleet;
mod flushing;
mod lanes;
mod late;
mod over_members;
mod owner;
mod policies;
mod random;
mod reading;
mod remote;
mod served;
mod several;
mod sites;
mod store;
mod world;
