//! The member's log: what was acknowledged is there after whatever stop, and nothing else is offered as good.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod cutting;
mod damage;
mod disk;
mod failing;
mod files;
mod model;
mod moving;
mod setting;
