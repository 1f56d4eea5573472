//! Conformance, stress and crash tests of any mounted directory; servers and networks for tests of a cluster.

pub mod conformance;
pub mod far;
pub mod postgres;
pub mod power;
pub mod relay;
