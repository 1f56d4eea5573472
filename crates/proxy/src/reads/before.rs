//! A miss asks the member that had the piece before, or the first of several that have it now: never more than one, and never for long.

use bytes::Bytes;
use forebay_cache::{CHUNK_BYTES, ObjectKey};
use forebay_group::{GroupId, MemberId, PieceKey, View, placement};
use forebay_protocol::{
    Kind, Message,
    group::{Fetch, Greet, Peek},
};
use forebay_rpc::{
    Client, ClientConfig, Security,
    connection::{CallError, Outgoing},
    wire::Code,
};
use forebay_types::VolumeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    counts::Counts,
    door::{Guest, Pass},
    store::Objects,
};
use crate::membership::Place;

/// How long another member may take, in milliseconds: the store is not much slower.
const PEEK_MS: u32 = 10;
/// How long it may take to let this one in.
const GREET_MS: u32 = 1_000;
/// Connections to other members at most; all are given up when there are more.
const CONNECTIONS_MAX: usize = 256;

/// Connections to other members: each for one volume, and by the token of somebody who reads it here.
#[derive(Debug)]
pub(crate) struct Before {
    group: GroupId,
    security: Security,
    name: String,
    connections: Mutex<FxHashMap<(MemberId, String, VolumeId), Client>>,
}

/// Who is asked by a member that misses: the first of those that have the piece, where this one is not it; else the first of those that had it before.
fn other(view: &View, own: MemberId, piece: PieceKey) -> Option<MemberId> {
    let now = placement::first(piece, &view.active()).filter(|first| *first != own);
    let before = || placement::first(piece, &view.before).filter(|first| *first != own);
    now.or_else(before).filter(|id| view.members.contains_key(id))
}

impl Before {
    pub(crate) fn new(group: GroupId, security: Security, name: String) -> Before {
        Before { group, security, name, connections: Mutex::default() }
    }

    /// Keeps the chunks that another member has of what is wanted. Nothing comes where it does not have all of them, or does not answer at once.
    pub(crate) fn bring(
        &self,
        objects: &Objects,
        place: &Place,
        guest: &Guest,
        (key, object_len): (ObjectKey, u64),
        fetch: &Fetch,
        counts: &Counts,
    ) {
        let piece = PieceKey::of(fetch.segment, fetch.at);
        let target = place.look(|membership| {
            let view = membership.view()?;
            let id = other(view, membership.id(), piece)?;
            view.members.get(&id).map(|member| (id, member.address.clone()))
        });
        let Some((id, address)) = target else { return };
        let end = fetch.offset.saturating_add(u64::from(fetch.len)).min(object_len);
        let start = fetch.offset - fetch.offset % CHUNK_BYTES;
        let end = end.next_multiple_of(CHUNK_BYTES).min(object_len);
        let Ok(len) = u32::try_from(end.saturating_sub(start)) else { return };
        let peek = Peek { object: fetch.object, offset: start, len };
        if let Some(bytes) = self.peek(guest, id, address, &peek)
            && bytes.len() == len as usize
        {
            objects.insert(key, object_len, start, &bytes);
            counts.had();
        }
    }

    fn peek(&self, guest: &Guest, id: MemberId, address: String, peek: &Peek) -> Option<Bytes> {
        let client = self.client(guest, id, address)?;
        let ask = |kind: Kind, body: Vec<u8>, deadline_ms: u32| {
            let reply_max = peek.len.saturating_add(4096);
            let (kind, body, bulk) = (kind as u16, body.into(), Bytes::new());
            client.call_blocking(Outgoing { kind, body, bulk, deadline_ms, reply_max })
        };
        match ask(Kind::Peek, peek.encode(), PEEK_MS) {
            Ok(reply) => Some(reply.bulk).filter(|bulk| !bulk.is_empty()),
            Err(CallError::Refused(refusal)) if refusal.code == Code::DENIED => {
                let Pass { volume, token } = guest.pass.clone();
                let greet = Greet { group: self.group, volume, token, client: self.name.clone() };
                ask(Kind::Greet, greet.encode(), GREET_MS).ok()?;
                let reply = ask(Kind::Peek, peek.encode(), PEEK_MS).ok()?;
                Some(reply.bulk).filter(|bulk| !bulk.is_empty())
            }
            Err(_) => None,
        }
    }

    /// The connection to a member; nothing where it is not there by now.
    fn client(&self, guest: &Guest, id: MemberId, address: String) -> Option<Client> {
        let key = (id, address, guest.pass.volume);
        let mut connections = self.connections.lock();
        if let Some(client) = connections.get(&key) {
            return client.down().is_none().then(|| client.clone());
        }
        if connections.len() >= CONNECTIONS_MAX {
            connections.clear();
        }
        let config = ClientConfig::new(vec![key.1.parse().ok()?], self.security.clone());
        match Client::start(config, None) {
            // It is asked once it is connected.
            Ok(client) => drop(connections.insert(key, client)),
            Err(error) => tracing::warn!("no thread for a connection to another member: {error}"),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_group::{Candidate, Incarnation, Member, MemberState};
    use forebay_types::SegmentId;

    use super::*;

    fn id(number: u8) -> MemberId {
        MemberId([number; 16])
    }

    fn view(members: &[u8], before: &[u8]) -> View {
        let member = || Member {
            incarnation: Incarnation([1; 16]),
            address: "a:1".to_owned(),
            node: "n".to_owned(),
            zone: "z".to_owned(),
            weight: 1,
            state: MemberState::Active,
        };
        let candidate = |number: &u8| Candidate { id: id(*number), weight: 1, zone: "z".to_owned() };
        View {
            epoch: forebay_group::ViewEpoch(9),
            copies: 2,
            members: members.iter().map(|number| (id(*number), member())).collect::<BTreeMap<_, _>>(),
            before: before.iter().map(candidate).collect(),
        }
    }

    #[test]
    fn a_miss_asks_who_had_it_before_and_nobody_who_is_gone() {
        let pieces: Vec<PieceKey> = (0..200).map(|number| PieceKey::of(SegmentId(number << 8), 0)).collect();
        let joined = view(&[1, 2, 3], &[1, 2]);
        let mut asked = 0;
        for piece in &pieces {
            let first = placement::first(*piece, &joined.active());
            let found = other(&joined, id(3), *piece);
            if first == Some(id(3)) {
                assert_eq!(found, placement::first(*piece, &joined.before), "the one before");
                asked += 1;
            } else {
                assert_eq!(found, first, "one of several that have it");
            }
        }
        assert!(asked > 20);
        let gone = view(&[3], &[1, 2]);
        assert!(pieces.iter().all(|piece| other(&gone, id(3), *piece).is_none()));
        assert!(pieces.iter().all(|piece| other(&view(&[3], &[3]), id(3), *piece).is_none()));
    }
}
