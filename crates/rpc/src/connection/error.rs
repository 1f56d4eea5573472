use crate::wire::{Class, Code, Refusal};

/// What ended a connection: a rule of `docs/design/wire.md` that the peer broke, or a time that it let pass.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ProtocolError {
    #[error("the peer does not speak Forebay's protocol")]
    NotForebay,
    #[error(
        "no common version: the peer (release {release}) speaks {theirs_oldest} to {theirs_newest}, we speak {ours_oldest} to {ours_newest}; upgrade the older one"
    )]
    Version { release: String, theirs_oldest: u16, theirs_newest: u16, ours_oldest: u16, ours_newest: u16 },
    #[error(
        "the peer (release {release}) lacks or requires features that the other side has not: {missing:#x}"
    )]
    Features { release: String, missing: u64 },
    #[error("the peer refused the connection: {0}")]
    Refused(Refusal),
    #[error("a checksum of a header is {found:08x}, not {expected:08x}")]
    HeaderChecksum { expected: u32, found: u32 },
    #[error("the checksum of the payload of {id} is {found:08x}, not {expected:08x}")]
    PayloadChecksum { id: u64, expected: u32, found: u32 },
    #[error("the payload of {id} has no checksum")]
    NoChecksum { id: u64 },
    #[error("a frame has type {number}, which is not known")]
    UnknownFrame { number: u8 },
    #[error("a frame has flags {flags:02x}, which are not known")]
    UnknownFlags { flags: u8 },
    #[error("{what} is malformed")]
    Malformed { what: &'static str },
    #[error("a {what} has {found} bytes, of at most {max}")]
    Oversized { what: &'static str, found: u64, max: u64 },
    #[error("request {id} came again or out of order: the last was {last}")]
    Replayed { id: u64, last: u64 },
    #[error("request {id} has a deadline of {deadline_ms} ms")]
    Deadline { id: u64, deadline_ms: u32 },
    #[error("there are more than {max} requests in flight")]
    TooManyRequests { max: u32 },
    #[error("requests in flight have more than {max} bytes")]
    TooManyBytes { max: u32 },
    #[error("an answer to request {id}, which is not in flight")]
    UnknownAnswer { id: u64 },
    #[error("request {id} was cancelled before it was made")]
    UnknownCancel { id: u64 },
    #[error("a pong with {id} answers no ping")]
    UnknownPong { id: u64 },
    #[error("there are more than {max} unanswered pings")]
    TooManyPings { max: u32 },
    #[error("the peer ended the connection: {0}")]
    Ended(Refusal),
    #[error("the peer said nothing for {0} ms at the start")]
    NoPreface(u32),
    #[error("the peer is silent for {0} ms")]
    Silent(u32),
    #[error("the peer does not read: nothing of a frame was taken for {0} ms")]
    SlowReader(u32),
    #[error("the peer does not write: a frame did not end for {0} ms")]
    SlowWriter(u32),
    #[error("the peer does not answer request {id}, whose deadline passed")]
    Unanswered { id: u64 },
    #[error("the peer did not close for {0} ms after the last answer")]
    NotClosed(u32),
}

/// Why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The peer refused it.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The deadline passed.
    #[error("no answer before the deadline{}", if *.sent { "" } else { ": it could not be sent" })]
    Deadline {
        /// Whether any of it was sent.
        sent: bool,
    },
    /// The caller waits no longer.
    #[error("nobody waits for the answer any more")]
    GivenUp,
    /// The connection was lost.
    #[error("connection lost: {why}")]
    Lost {
        /// Whether any of it was sent.
        sent: bool,
        /// What happened to the connection.
        why: String,
    },
    /// It is larger than the peer takes.
    #[error("the {what} has {found} bytes, the peer takes {max}")]
    TooLarge {
        /// Body, bulk, or all together with the largest reply.
        what: &'static str,
        /// Its size in bytes.
        found: u64,
        /// What the peer takes, in bytes.
        max: u64,
    },
}

impl CallError {
    /// What the caller may believe and do.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            CallError::Refused(refusal) => refusal.code.class(),
            CallError::Deadline { sent: true } | CallError::Lost { sent: true, .. } | CallError::GivenUp => {
                Class::Unknown
            }
            CallError::Deadline { sent: false } => Class::Here,
            CallError::Lost { sent: false, .. } => Class::Elsewhere,
            CallError::TooLarge { .. } => Class::Never,
        }
    }

    /// Whether it is certain that the peer did nothing.
    #[must_use]
    pub fn not_done(&self) -> bool {
        matches!(self.class(), Class::Never | Class::Here | Class::Elsewhere)
    }
}

impl ProtocolError {
    /// The code for the peer.
    pub(crate) fn code(&self) -> Code {
        match self {
            ProtocolError::Version { .. } => Code::VERSION,
            ProtocolError::Features { .. } => Code::FEATURE,
            _ => Code::PROTOCOL,
        }
    }
}
