use std::time::Duration;

use forebay_protocol::Failure;
use forebay_types::Ino;

/// What of a file is lost for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostBytes {
    /// The file.
    pub ino: Ino,
    /// The first byte that is lost.
    pub from: u64,
    /// Behind the last one.
    pub to: u64,
    /// How many are: not all between the two need be.
    pub bytes: u64,
}

/// Why a shared volume did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answered for the volume as long as the mount's `timeout` says.
    #[error("the owner of the volume did not answer for {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The caller gave up.
    #[error("interrupted while waiting for the owner of the volume")]
    Interrupted,
    /// The session under which something was asked or kept back is over: it was perhaps not done.
    #[error("the session with the owner ended before this was done: what was not durable is lost")]
    SessionEnded,
    /// The token is none of this volume, or is expired or revoked.
    #[error("the volume's owner refuses this client: {0}")]
    Denied(String),
    /// No server knows the volume.
    #[error("there is no volume {0:?}")]
    NoVolume(String),
    /// The owner carried nothing out, and says why.
    #[error("the owner refuses: {0:?}")]
    Failed(Failure),
    /// The owner said something that is no answer.
    #[error("unexpected answer of the owner: {0}")]
    Unexpected(String),
    /// Bytes could not be stored or had.
    #[error("{0}")]
    Store(String),
    /// They were acknowledged by members of the volume's group, and these were all given up.
    #[error("{} bytes of inode {} between {} and {} are lost for good", .0.bytes, .0.ino, .0.from, .0.to)]
    Lost(LostBytes),
    /// The client is being closed.
    #[error("the volume is being unmounted")]
    Closed,
}
