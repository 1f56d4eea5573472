//! What a member answers over the network, and what is left of it after `kill -9`.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;
mod killed;
mod serving;
