//! What every engine promises, asked of each of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod contract;
mod cuts;
mod embedded;
mod hosts;
mod memory;
mod moving;
mod owner;
mod place;
mod postgres;
