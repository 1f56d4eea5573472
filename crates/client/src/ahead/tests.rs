#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test ends where it cannot go on")]

mod along;
mod cluster;
mod gate;
mod large;
mod model;
mod nameless;
mod order;
mod several;
mod telling;
mod trouble;
