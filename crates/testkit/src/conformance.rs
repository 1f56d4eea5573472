//! The conformance suite: the same system calls on the file system under test and on a reference, compared one by one.
//!
//! Guarantees: every step's result (value or errno) is compared, and so is the tree that a case leaves behind. A
//! difference is either in [`allowed::ALLOWED`], with its reason, and printed, or it fails the run.
//! Relies on: root (it acts as several users), and a reference directory on ext4 that is not under test.
//! Order: within a case one step is finished on both sides before the next starts, so both sides see one history.
//!
//! A step is an [`op::Op`]; a [`worker`] process per user and side carries it out; [`runner`] plays steps and compares.
//! Cases written by hand are under [`cases`]; [`random`] makes up steps from a seed and shrinks what differs.

pub mod allowed;
pub mod cases;
mod exec;
mod exec_data;
mod exec_dir;
pub mod op;
pub mod random;
pub mod runner;
pub mod tree;
pub mod worker;
