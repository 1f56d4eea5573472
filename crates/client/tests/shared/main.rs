//! Several clients of one volume in one process, over real owners.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where it cannot go on")]

mod ahead;
mod bursts;
mod coherence;
mod faults;
mod given_up;
mod listing;
mod locking;
mod modes;
mod orphans;
mod policies;
mod random;
mod replaced;
mod room;
mod rooted;
mod side_by_side;
mod times;
mod watched;
mod world;
