//! The metadata servers, as a sweep asks them: the owner of each volume, wherever it is.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use forebay_group::MemberId;
use forebay_protocol::{
    Kind, Message, Refusal, Wanted, WantedOf,
    group::{GroupInfo, GroupRequest},
};
use forebay_rpc::{
    Address, Client, ClientConfig, Security,
    connection::{CallError, Outgoing},
    wire::Code,
};
use parking_lot::Mutex;

use super::{Acts, Asks};
use crate::membership::{Meta, Place};

/// How long an answer may take, in milliseconds: for a page an owner looks at thousands of inodes.
const PAGE_MS: u32 = 20_000;
/// And where it is asked for the version alone.
const VERSION_MS: u32 = 5_000;
const VOLUMES_MS: u32 = 3_000;
/// Bytes of an answer.
const REPLY_MAX: u32 = 4 << 20;
/// How often it is gone where a server says that the owner is.
const REDIRECTS: usize = 4;

/// Metadata servers.
pub(crate) struct Servers {
    member: MemberId,
    group: String,
    meta: Meta,
    addresses: Vec<Address>,
    security: Security,
    place: Arc<Place>,
    /// Connections, by the address at which a volume's owner was found; the empty one is to any server.
    clients: Mutex<BTreeMap<String, Client>>,
    /// Where owners were found.
    owners: Mutex<BTreeMap<String, String>>,
}

impl Servers {
    pub(crate) fn new(
        (member, group): (MemberId, &str),
        (meta, addresses, security): (Meta, &[Address], &Security),
        place: Arc<Place>,
    ) -> Servers {
        Servers {
            member,
            group: group.to_owned(),
            meta,
            addresses: addresses.to_vec(),
            security: security.clone(),
            place,
            clients: Mutex::default(),
            owners: Mutex::default(),
        }
    }

    fn client(&self, address: &str) -> Result<Client, String> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let addresses = match address {
            "" => self.addresses.clone(),
            one => vec![one.parse().map_err(|error| format!("'{one}' is no address: {error}"))?],
        };
        let client = Client::start(ClientConfig::new(addresses, self.security.clone()), None)
            .map_err(|error| format!("no thread for a connection: {error}"))?;
        clients.insert(address.to_owned(), client.clone());
        Ok(client)
    }

    fn ask(&self, address: &str, of: &WantedOf) -> Result<Wanted, Failed> {
        let request = Outgoing {
            kind: Kind::Wanted as u16,
            body: of.encode().into(),
            bulk: Bytes::new(),
            deadline_ms: if of.from.is_some() { PAGE_MS } else { VERSION_MS },
            reply_max: REPLY_MAX,
        };
        match self.client(address).map_err(Failed::Finally)?.call_blocking(request) {
            Ok(reply) => Wanted::decode(&reply.body)
                .map_err(|error| Failed::Finally(format!("the answer cannot be read: {error}"))),
            Err(CallError::Refused(refusal)) if refusal.code == Code::NOT_OWNER => {
                Err(Failed::Elsewhere(refusal.redirect))
            }
            Err(CallError::Refused(refusal)) if refusal.code == Code(Kind::REFUSED) => {
                let said = Refusal::decode(&refusal.detail);
                Err(Failed::Finally(said.map_or_else(|_| refusal.to_string(), |said| said.to_string())))
            }
            Err(CallError::Refused(refusal)) => Err(Failed::Finally(refusal.to_string())),
            Err(error) => Err(Failed::Unanswered(error.to_string())),
        }
    }
}

/// Why a server says nothing of what is wanted.
enum Failed {
    /// Another one is asked, where its address is given.
    Elsewhere(String),
    Unanswered(String),
    Finally(String),
}

impl Asks for Servers {
    fn acts(&self) -> Option<Acts> {
        self.place.look(|membership| {
            let view = membership.view().filter(|_| membership.is_in())?;
            let listed = view.members.contains_key(&self.member);
            listed.then(|| Acts {
                incarnation: membership.incarnation(),
                view: view.epoch,
                active: view.active(),
            })
        })
    }

    fn volumes(&self) -> Result<Vec<String>, String> {
        let request = GroupRequest::Show(self.group.clone());
        let found: Vec<GroupInfo> =
            self.meta.ask(Kind::Groups, &request, VOLUMES_MS).map_err(|error| error.to_string())?;
        let names = found.into_iter().flat_map(|group| group.volumes).map(|volume| volume.name);
        Ok(names.collect())
    }

    fn wanted(&self, of: &WantedOf) -> Result<Wanted, String> {
        let known = self.owners.lock().get(&of.volume).cloned();
        let mut address = known.unwrap_or_default();
        let mut why = format!("no server owns '{}' now", of.volume);
        for _ in 0..REDIRECTS {
            match self.ask(&address, of) {
                Ok(wanted) => {
                    self.owners.lock().insert(of.volume.clone(), address);
                    return Ok(wanted);
                }
                Err(Failed::Finally(error)) => return Err(error),
                Err(Failed::Elsewhere(redirect)) if redirect == address => break,
                Err(Failed::Elsewhere(redirect)) => address = redirect,
                Err(Failed::Unanswered(error)) => {
                    why = error;
                    if std::mem::take(&mut address).is_empty() {
                        break;
                    }
                }
            }
        }
        // Where it was is the place where it is not.
        let was = self.owners.lock().remove(&of.volume);
        if let Some(was) = was {
            self.clients.lock().remove(&was);
        }
        Err(why)
    }
}
