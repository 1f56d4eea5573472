//! The process behind a mount.
//!
//! Order that must hold: everything that can be refused is looked at ([`preflight`]) before the volume is opened; the volume is open before
//! anything is mounted; success is reported only once the mount answers. At the end: unmounted first, so that nothing new comes, then
//! drained, then closed, and only then do those who asked for the end get their answer.

mod control;
mod life;
mod metrics;
mod preflight;
mod report;
mod serve;
mod settle;
mod signals;

pub(crate) use life::IO_URING;
pub(crate) use preflight::{Setup, check};
pub(crate) use report::{Reported, Reporter};
pub(crate) use serve::serve;
pub(crate) use settle::settle;
