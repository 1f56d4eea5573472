//! Volumes whose store is elsewhere: lost machines, deposed owners, stores that fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bucket;
mod faults;
mod fencing;
mod leaked;
mod loss;
mod reading;
mod world;
