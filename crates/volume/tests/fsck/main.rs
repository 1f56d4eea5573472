//! Checking and repairing volumes.

#![allow(clippy::unwrap_used)]

mod clean;
mod cuts;
mod elsewhere;
mod faults;
mod interrupted;
mod journal;
mod leaked;
mod live;
mod plant;
mod unreadable;
mod volumes;
