//! Metadata servers over a directory and over a real PostgreSQL, and clients that ask them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it cannot go on")]

mod bed;
mod garbage;
mod groups;
mod matrix;
mod migrating;
mod places;
mod policies;
mod rights;
mod sets;
mod sharing;
mod using;
