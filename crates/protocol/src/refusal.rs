//! Why a request was not carried out, and what sessions may.

use forebay_types::{Epoch, Ino};

use crate::word::{choice, record};

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another server owns the volume, or none: the client asks there, with the same slot and number.
    #[error("another server owns the volume{}", .address.as_ref().map(|at| format!(": {at}")).unwrap_or_default())]
    NotOwner {
        /// Where, if that is known.
        address: Option<String>,
    },
    /// The session has ended: what was kept back under it is lost.
    #[error("the session has ended")]
    SessionEnded,
    /// The session is of a former owner: the client says first which leases it has.
    #[error("the leases of a former owner are to be reclaimed first")]
    MustReclaim {
        /// The owner's term.
        epoch: Epoch,
    },
    /// The request changes something and has no slot, or has a slot and changes nothing.
    #[error("a request that changes something has a slot, and no other has")]
    WrongSlot,
    /// There is no such volume.
    #[error("there is no volume {0:?}")]
    NoVolume(String),
    /// The token is none of this volume, or is expired or revoked, or the caller may not do this.
    #[error("{0}")]
    Denied(String),
    /// The caller asks for what contradicts itself or what is there.
    #[error("{0}")]
    Invalid(String),
    /// The server cannot do it now.
    #[error("{0}")]
    Unavailable(String),
}

/// What a session may, and how much of the volume it sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// The directory that is its root.
    pub root: Ino,
    /// It changes nothing.
    pub read_only: bool,
    /// Nothing is executed from it: the client mounts so.
    pub no_exec: bool,
    /// Its root user is nobody.
    pub root_squash: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights { root: Ino::ROOT, read_only: false, no_exec: false, root_squash: false };
}

record!(Rights { root, read_only, no_exec, root_squash });
choice!(Refusal {
    1 => NotOwner { address },
    2 => SessionEnded,
    3 => MustReclaim { epoch },
    4 => WrongSlot,
    5 => NoVolume(name),
    6 => Denied(why),
    7 => Invalid(why),
    8 => Unavailable(why),
});
