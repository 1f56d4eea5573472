//! Every layout: what is encoded decodes to the same, other bytes are refused without a panic, and version 1 keeps its bytes.

#![allow(clippy::expect_used)]

mod damage;
mod fixtures;
mod keys;
mod member_log;
mod records;
mod rows;
mod runs;
mod values;
