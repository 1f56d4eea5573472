#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test ends where it cannot go on")]

mod cluster;
mod gate;
mod model;
mod order;
mod several;
mod trouble;
