//! The cache over a store of its own, on disk and in memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// Lists of byte ranges, some of them of one.
#![allow(clippy::single_range_in_vec_init)]

mod bounds;
mod damage;
mod directory;
mod eviction;
mod flights;
mod model;
mod narrow;
mod prefetch;
mod reading;
mod restart;
mod store;
