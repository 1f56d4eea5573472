//! What the operating system gives, in the form in which Forebay relies on it: files whose bytes are on stable storage, a
//! clock, random bits, memory that is used again, direct I/O, locks
//! on files, and rounds in which one syncs for all who wait.
//!
//! Guarantees: after a function of [`durable`] returned `Ok`, what its documentation names survives a power cut. Each of them names its
//! *point*, so that a test can take one away and show that the crash tests notice.

pub mod buffers;
mod clock;
pub mod direct;
pub mod durable;
mod file_lock;
pub mod rounds;
pub mod threads;

pub use clock::{Clock, ManualClock, SystemClock};
pub use file_lock::FileLock;

/// Fills an array with random bits of the operating system.
///
/// # Errors
/// When the system has no random source.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bits = [0; N];
    getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
    Ok(bits)
}
