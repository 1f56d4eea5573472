//! Every backend passes the same suite; each then shows what is its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod attacks;
mod bucket;
mod directory;
mod emulators;
mod faulty;
mod lost_answers;
mod s3;
mod server;
mod suite;
