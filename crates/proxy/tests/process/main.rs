//! Proxies as members of a group: real metadata servers, real connections, and processes that are killed.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod cluster;
mod killed;
mod place;
mod reads;
mod rights;
mod session;
mod standing;
#[allow(dead_code, reason = "a part of it serves a member without a process around it")]
#[path = "../writeback/bed.rs"]
mod writers;
