//! An owner with clients, over an engine whose commits a test holds back, loses or refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it cannot go on")]

mod ahead;
mod along;
mod beats;
mod committing;
mod contents;
mod held;
mod leasing;
mod listing;
mod locking;
mod once;
mod opens;
mod reserve;
mod rights;
mod sets;
mod world;
