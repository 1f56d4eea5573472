//! Tests of the namespace against a model, over a log in memory and both engines.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod cached;
mod checks;
mod coherence;
mod cuts;
mod data_ops;
mod faulty;
mod log;
mod model;
mod name_ops;
mod random;
mod rows;
mod take_in;
mod threads;
mod upkeep;
mod world;
