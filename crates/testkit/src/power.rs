//! Crash tests: lost power under a volume and `kill -9` of its daemon, and an oracle that says what may be left.
//!
//! From below: [`disk`] emulates the disk under a volume and logs every change and sync as a numbered point; [`layer`]
//! mounts it; [`cut`] computes, for any point, what a power cut there leaves, and [`image`] lays that out in a directory.
//! From above: [`workload`] drives a mounted volume with several threads and records a [`history`]; [`oracle`] compares it
//! with what is [`observe`]d after the crash. [`campaign`] puts the two around a real daemon. One run of a workload gives as many
//! crashes as wanted, because the disk's log never forgets.
//!
//! Everything that is random comes from a seed; only the timing of threads is not repeated.

mod beside;
mod bucket;
pub mod campaign;
mod crash;
pub mod cut;
pub mod daemon;
pub mod disk;
pub mod history;
pub mod image;
pub mod layer;
pub mod log;
mod mapped;
mod names;
pub mod observe;
pub mod oracle;
mod pair;
pub mod pattern;
mod pieces;
pub mod place;
mod rich;
pub mod rng;
mod slow;
pub mod sparse;
pub mod target;
mod worker;
pub mod workload;

#[cfg(test)]
mod standin;
#[cfg(test)]
mod tests;
