//! Volumes on disks that are full, and in directories with which something is wrong.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod full;
mod places;
mod setting;
