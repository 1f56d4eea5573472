//! Measures any mounted directory, and a second one beside it, and writes the report.
//!
//! [`run`] takes a [`Plan`] and returns a [`Report`], which is JSON by serde, a page by [`Report::to_html`] and a
//! table by [`Report::to_text`].
//!
//! What the figures guarantee:
//!
//! - Target and reference are measured in alternation: every step of every round runs on both before the next step
//!   begins, and the one that goes first changes from round to round. Ratios are ratios of medians over rounds.
//! - Only the operations are timed. Making directories, warming, dropping caches and removing are outside.
//! - Nothing is pending when a step begins: each step that changes something is followed by a drain (fsync, syncfs and
//!   the caller's callback), whose time and processor time are reported beside the acknowledged ones.
//! - A cold step that cannot be made cold on this machine is left out with the reason, never reported warm.
//! - Data that is read back is checked: every 4 KiB page carries its place.
//! - What the benchmark made is removed at the end, also after an error or a stop.
//!
//! It relies on nothing but POSIX calls on the directories and `/proc`, and knows no other crate of the workspace.
//!
//! Order that must hold within a step: chill or warm, processor time, operations, processor time, drain, processor time.
//! No file of a measured directory is open between two steps, so that a callback may remount it.

mod chart;
mod churn;
mod crew;
mod error;
mod files;
mod html;
mod large;
mod machine;
mod many;
mod names;
mod pattern;
mod plan;
mod process;
mod programs;
mod progress;
mod ratios;
mod report;
mod run;
mod shards;
mod small;
mod stage;
mod streams;
pub mod targets;
mod text;
mod tree;
mod words;
mod workload;

pub use error::Error;
pub use machine::{Machine, Place};
pub use plan::{Callback, Chill, Observe, Plan, Probe, Requests, Rival, Sizes, Warmed};
pub use progress::Progress;
pub use report::{
    Cache, Comparison, Latency, Measurement, Processor, Rates, Ratio, Report, Settings, Side, SideReport,
};
pub use run::run;
pub use shards::load;
pub use workload::{Family, Unit, Workload};
