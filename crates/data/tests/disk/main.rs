//! Bytes on a real disk: what a stop at any byte leaves, what threads do to each other, what a full or failing disk does.

#![allow(clippy::expect_used)]

mod appending;
mod failing;
mod full;
mod headless;
mod reading;
mod replaying;
mod setting;
mod staging;
