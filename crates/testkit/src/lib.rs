//! Conformance, stress and crash tests of any mounted directory

pub mod conformance;
pub mod power;
