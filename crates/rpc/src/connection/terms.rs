use crate::wire::{FEATURES_REQUIRED, Preface, Refusal, UNCHECKED, VERSION, VERSION_OLDEST};

use super::{Agreed, ProtocolError};

/// What a side takes. The other keeps to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body: u32,
    /// Largest bulk, in bytes.
    pub bulk: u32,
    /// Requests in flight.
    pub requests: u32,
    /// Bytes in flight: body, bulk and largest reply of each request.
    pub bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body: 1 << 20, bulk: 8 << 20, requests: 1024, bytes: 64 << 20 }
    }
}

/// How long things may take, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// From the start to the peer's preface.
    pub preface_ms: u32,
    /// Silence after which the peer is asked.
    pub ping_ms: u32,
    /// Silence after which the peer is dead.
    pub silent_ms: u32,
    /// A frame that does not end, or an answer that does not come.
    pub stall_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { preface_ms: 10_000, ping_ms: 5_000, silent_ms: 15_000, stall_ms: 30_000 }
    }
}

impl Timeouts {
    /// From a ping to the end.
    pub(super) fn patience(&self) -> u32 {
        self.silent_ms.saturating_sub(self.ping_ms)
    }
}

/// What a connection's bytes go over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// TCP, plain.
    Tcp,
    /// TCP under TLS.
    Tls,
    /// A Unix socket.
    Unix,
}

/// What a side offers and asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The oldest version spoken.
    pub oldest: u16,
    /// The newest version spoken.
    pub newest: u16,
    /// Feature bits known.
    pub features: u64,
    /// What is taken.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Whether payloads have a checksum: where nothing below has one. Both may agree that they have none ([`UNCHECKED`]).
    pub checksums: bool,
    /// Our release, for the peer's log.
    pub release: String,
    /// The peer is refused, for this reason.
    pub refuse: Option<Refusal>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            oldest: VERSION_OLDEST,
            newest: VERSION,
            features: 0,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            checksums: true,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            refuse: None,
        }
    }
}

impl Terms {
    /// The same for a connection over `carrier`: with checksums, but under TLS, which has its own; and on one machine without, if the peer knows that.
    #[must_use]
    pub fn over(&self, carrier: Carrier) -> Terms {
        let others = self.features & !UNCHECKED;
        let features = if carrier == Carrier::Unix { others | UNCHECKED } else { others };
        Terms { checksums: carrier != Carrier::Tls, features, ..self.clone() }
    }

    pub(super) fn preface(&self) -> Preface {
        Preface {
            oldest: self.oldest,
            newest: self.newest,
            refused: None,
            features: self.features,
            limits: self.limits,
            release: self.release.clone(),
            text: String::new(),
        }
    }

    /// The answer to a peer that connected, and what it makes both agree on.
    pub(super) fn answer(&self, theirs: Preface) -> Result<(Preface, Agreed), ProtocolError> {
        if let Some(refusal) = &self.refuse {
            return Err(ProtocolError::Refused(refusal.clone()));
        }
        let version = self.newest.min(theirs.newest);
        if version < self.oldest.max(theirs.oldest) {
            return Err(ProtocolError::Version {
                release: theirs.release,
                theirs_oldest: theirs.oldest,
                theirs_newest: theirs.newest,
                ours_oldest: self.oldest,
                ours_newest: self.newest,
            });
        }
        let missing = (self.features ^ theirs.features) & FEATURES_REQUIRED;
        if missing != 0 {
            return Err(ProtocolError::Features { release: theirs.release, missing });
        }
        let features = self.features & theirs.features;
        let answer = Preface { oldest: version, newest: version, features, ..self.preface() };
        Ok((answer, Agreed { version, features, release: theirs.release, limits: theirs.limits }))
    }

    /// What the peer's answer makes both agree on.
    pub(super) fn accept(&self, answer: Preface) -> Result<Agreed, ProtocolError> {
        if let Some(code) = answer.refused {
            return Err(ProtocolError::Refused(Refusal::new(code, answer.text)));
        }
        let version = answer.newest;
        let chosen = answer.oldest == version && (self.oldest..=self.newest).contains(&version);
        let missing = self.features & FEATURES_REQUIRED & !answer.features;
        let invented = answer.features & !self.features;
        if !chosen {
            return Err(ProtocolError::Malformed { what: "the answer's version" });
        }
        if missing | invented != 0 {
            return Err(ProtocolError::Features { release: answer.release, missing: missing | invented });
        }
        let Preface { features, release, limits, .. } = answer;
        Ok(Agreed { version, features, release, limits })
    }
}
