//! Who may read: whoever shows a token that the metadata servers know for all of a volume that is read through this group. They are asked again, so that
//! a token that is revoked opens nothing any more.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_group::GroupId;
use forebay_protocol::{
    Refusal,
    group::{Greet, Vouch},
};
use forebay_rpc::{
    Identity, Peer,
    wire::{Code, Refusal as WireRefusal},
};
use forebay_types::VolumeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{numbers::VolumeNumber, store::Objects};
use crate::writeback::Vouching;

/// A volume and the secret by which somebody reads it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    pub(crate) volume: VolumeId,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pass({}, with a token: {})", self.volume, self.token.is_some())
    }
}

/// Somebody who was let in, on one connection.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) number: VolumeNumber,
    pub(crate) pass: Pass,
    /// Whether it is on this machine, by what the kernel says.
    pub(crate) here: bool,
    peer: std::sync::Weak<Peer>,
}

/// Who is in, and who is let in.
pub(crate) struct Door {
    vouching: Arc<dyn Vouching>,
    group: GroupId,
    /// By the address of the peer in memory, which it keeps for its lifetime.
    guests: Mutex<FxHashMap<usize, Arc<Guest>>>,
    /// Volumes as they were told, and until when that counts.
    told: Mutex<FxHashMap<Pass, (VolumeNumber, Instant)>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door(of {}, {} are in)", self.group, self.guests())
    }
}

fn place(peer: &Arc<Peer>) -> usize {
    Arc::as_ptr(peer).addr()
}

impl Door {
    pub(crate) fn new(vouching: Arc<dyn Vouching>, group: GroupId) -> Door {
        Door { vouching, group, guests: Mutex::default(), told: Mutex::default() }
    }

    /// Who is at the other end of a connection.
    pub(crate) fn guest(&self, peer: &Arc<Peer>) -> Result<Arc<Guest>, WireRefusal> {
        let guest = self.guests.lock().get(&place(peer)).cloned();
        guest.ok_or_else(|| WireRefusal::new(Code::DENIED, "the first message to a proxy is Greet"))
    }

    pub(crate) fn leave(&self, peer: &Arc<Peer>) {
        self.guests.lock().remove(&place(peer));
    }

    /// How many are in.
    pub(crate) fn guests(&self) -> usize {
        self.guests.lock().len()
    }

    /// Lets somebody in, or does not.
    pub(crate) fn greet(&self, peer: &Arc<Peer>, greet: Greet, objects: &Objects) -> Result<(), Refusal> {
        if greet.group != self.group {
            let why = format!("this proxy is a member of the group {}, not of {}", self.group, greet.group);
            return Err(Refusal::Invalid(why));
        }
        // What this process may read without a token is not for those who come from elsewhere.
        if greet.token.is_none() && matches!(peer.identity, Identity::Certificate(_)) {
            let why = format!("a token is needed for the volume {}", greet.volume);
            return Err(Refusal::Denied(why));
        }
        let pass = Pass { volume: greet.volume, token: greet.token };
        let known = self.told.lock().get(&pass).filter(|(_, until)| Instant::now() < *until).copied();
        let number = match known {
            Some((number, _)) => number,
            None => self.ask(&pass, objects)?,
        };
        let here = matches!(peer.identity, Identity::Local { .. });
        let guest = Guest { number, pass, here, peer: Arc::downgrade(peer) };
        self.guests.lock().insert(place(peer), Arc::new(guest));
        Ok(())
    }

    fn ask(&self, pass: &Pass, objects: &Objects) -> Result<VolumeNumber, Refusal> {
        let vouch = Vouch { volume: pass.volume, token: pass.token.clone(), certificate: None };
        let vouched = self.vouching.vouch(&vouch)?;
        let name = &vouched.volume.name;
        if vouched.group != Some(self.group) {
            return Err(Refusal::Denied(format!("the volume '{name}' is not read through this group")));
        }
        if !vouched.whole {
            // Whose bytes an object has nobody knows here.
            return Err(Refusal::Denied(format!(
                "the token shows a part of the volume '{name}': its bearer reads from the store"
            )));
        }
        let number = objects.volume(&vouched.volume).map_err(Refusal::Unavailable)?;
        // While they do not answer later on, it goes on to count for those who are in.
        let until = Instant::now() + Duration::from_millis(vouched.for_ms);
        self.told.lock().insert(pass.clone(), (number, until));
        Ok(number)
    }

    /// Asks again about those who are in, and sends away who may not read any more.
    pub(crate) fn look(&self, objects: &Objects) {
        let mut passes: FxHashMap<Pass, Vec<usize>> = FxHashMap::default();
        for (place, guest) in self.guests.lock().iter() {
            passes.entry(guest.pass.clone()).or_default().push(*place);
        }
        self.told.lock().retain(|pass, _| passes.contains_key(pass));
        for (pass, places) in passes {
            let told = self.told.lock().get(&pass).is_some_and(|(_, until)| Instant::now() < *until);
            if told {
                continue;
            }
            match self.ask(&pass, objects) {
                Ok(_) | Err(Refusal::Unavailable(_)) => {}
                Err(refusal) => {
                    tracing::info!("those who read the volume {} are sent away: {refusal}", pass.volume);
                    for place in places {
                        let gone = self.guests.lock().remove(&place);
                        if let Some(peer) = gone.and_then(|guest| guest.peer.upgrade()) {
                            peer.disconnect();
                        }
                    }
                }
            }
        }
    }
}
