//! The contract of all engines, asked of SlateDB, and what is SlateDB's own: writers that are shut out, stores that are away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../../../engine/tests/suite/contract.rs"]
mod contract;
#[path = "../../../engine/tests/suite/owner.rs"]
mod owner;
#[path = "../../../engine/tests/suite/place.rs"]
mod place;

mod away;
mod fencing;
mod places;
mod s3;
