//! The process behind a mount.
//!
//! Order that must hold: everything that can be refused is looked at ([`preflight`]) before the volume is opened; the volume is open before
//! anything is mounted; success is reported only once the mount answers. At the end: unmounted first, so that nothing new comes, then
//! drained, then closed, and only then do those who asked for the end get their answer.

mod control;
mod end;
mod handover;
mod kept;
mod life;
mod lives;
mod message;
mod metrics;
mod preflight;
mod report;
mod serve;
mod service;
mod settings;
mod settle;
mod shared;
mod signals;
mod takeover;
mod warm;

pub(crate) use life::IO_URING;
pub(crate) use preflight::{Setup, check, check_takeover};
pub(crate) use report::{Reported, Reporter};
pub(crate) use serve::{serve, take_over};
pub(crate) use settle::settle;
pub(crate) use shared::{SharedSetup, check_shared, serve_shared};
pub(crate) use takeover::settings;
