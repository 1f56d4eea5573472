//! Asking members for bytes of an object, or for its length.
//!
//! Guarantees: while one of those that are asked for a piece has it and answers, a read of it needs no store. One that was late is asked again while another one
//! waits for the store, for that may be away. Of those that do not have it one alone is made to ask the store, unless one before it was late.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_format::row::ObjectRef;
use forebay_group::MemberId;
use forebay_protocol::group::{Fetch, Walk};

use super::{
    Shared, VolumeGroup,
    groups::Known,
    link::{Answered, MemberLink},
    route,
};

/// How long one that asks the store is waited for before those that were late are asked again: twice as long each time, and so long in all.
const STORE_FIRST: Duration = Duration::from_millis(100);
const STORE_STEP_MAX: Duration = Duration::from_secs(2);
const STORE_WITHIN: Duration = Duration::from_secs(10);
/// How often those are asked again once it has said that the store fails, with such pauses: by then none of them is left alone any more for having been late.
const AGAIN: u32 = 4;

/// Members in the order in which they are asked.
type Links = [(MemberId, Arc<MemberLink>)];
/// Bytes or a length, and who gave them.
type Found<'a> = (&'a MemberLink, Answered);

/// What became of waiting for one that asks the store.
enum Waited<'a> {
    Found(Found<'a>),
    /// It is gone; another one may be asked.
    Lost,
    /// The store does not give it, and nobody that was late has it.
    NotGiven,
}

impl VolumeGroup {
    /// Bytes of an object, all of one piece, from a member of a group. `None`: the store is to be asked.
    pub(super) fn fetch(&self, known: &Known, object: ObjectRef, offset: u64, len: u32) -> Option<Bytes> {
        let shared = &self.shared;
        if shared.is_wrong(object, offset, u64::from(len)) {
            return None;
        }
        let (segment, at, piece) = shared.pieces.of(object, offset);
        let fetch = Fetch { object, offset, len, segment, at, walk: Walk::Nearby, waits: false };
        let width = known.widths.of(piece);
        let cost = |id: MemberId| known.links.get(&id).map_or(u64::MAX, |link| link.cost());
        let links = links(known, &route::candidates(&known.view, &known.here, piece, width, cost));
        match shared.ask(known, &links, &fetch)? {
            (link, Answered::Bytes(bytes, width, epoch)) if bytes.len() == len as usize => {
                known.widths.learn(piece, width);
                shared.told(epoch, known.view.epoch);
                let count = if link.on_node { &shared.counts.node } else { &shared.counts.group };
                count.fetch_add(u64::from(len), Relaxed);
                Some(bytes)
            }
            // The object is shorter than it should be, or not there: the store says so in its own words.
            _ => None,
        }
    }

    /// The length of an object, from a member.
    pub(super) fn length(&self, known: &Known, object: ObjectRef) -> Option<u64> {
        let shared = &self.shared;
        let (segment, at, piece) = shared.pieces.of(object, 0);
        let fetch = Fetch { object, offset: 0, len: 0, segment, at, walk: Walk::Nearby, waits: false };
        let links = links(known, &route::candidates(&known.view, &known.here, piece, 1, |_| 0));
        match shared.ask(known, &links, &fetch)? {
            (_, Answered::Length(len)) => Some(len),
            _ => None,
        }
    }
}

fn links(known: &Known, ids: &[MemberId]) -> Vec<(MemberId, Arc<MemberLink>)> {
    ids.iter().filter_map(|id| Some((*id, Arc::clone(known.links.get(id)?)))).collect()
}

impl Shared {
    /// Asks one after the other. `None`: nobody gives any.
    fn ask<'a>(&self, known: &Known, links: &'a Links, fetch: &Fetch) -> Option<Found<'a>> {
        for (at, (id, link)) in links.iter().enumerate() {
            let late = &links[..at];
            match link.fetch(fetch, &self.reader, known.id) {
                Answered::Nothing => self.suspects(known.id, *id),
                Answered::Coming => match self.await_store(known, link, late, fetch) {
                    Waited::Found(found) => return Some(found),
                    Waited::Lost => self.suspects(known.id, *id),
                    Waited::NotGiven => return None,
                },
                Answered::StoreFails => return self.ask_again(known, late, fetch),
                answered => return Some((link, answered)),
            }
        }
        None
    }

    /// Waits for one that asks the store, and asks those again in between that were late.
    fn await_store<'a>(
        &self,
        known: &Known,
        link: &'a MemberLink,
        late: &'a Links,
        fetch: &Fetch,
    ) -> Waited<'a> {
        let began = Instant::now();
        let mut step = if late.is_empty() { STORE_WITHIN } else { STORE_FIRST };
        while let Some(left) = STORE_WITHIN.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            match link.brought(fetch, step.min(left)) {
                Answered::Coming => {}
                Answered::Nothing => return Waited::Lost,
                Answered::StoreFails => {
                    return self.ask_again(known, late, fetch).map_or(Waited::NotGiven, Waited::Found);
                }
                answered => return Waited::Found((link, answered)),
            }
            if let Some(found) = self.ask_late(known, late, fetch) {
                return Waited::Found(found);
            }
            step = (step * 2).min(STORE_STEP_MAX);
        }
        Waited::NotGiven
    }

    /// Asks those a few times that were late: there is no store to be asked.
    fn ask_again<'a>(&self, known: &Known, late: &'a Links, fetch: &Fetch) -> Option<Found<'a>> {
        let rounds = if late.is_empty() { 0 } else { AGAIN };
        (0..rounds).find_map(|round| {
            thread::sleep(STORE_FIRST * (1 << round));
            self.ask_late(known, late, fetch)
        })
    }

    fn ask_late<'a>(&self, known: &Known, late: &'a Links, fetch: &Fetch) -> Option<Found<'a>> {
        late.iter().find_map(|(_, link)| match link.fetch(fetch, &self.reader, known.id) {
            Answered::Nothing | Answered::Coming | Answered::StoreFails => None,
            answered => Some((&**link, answered)),
        })
    }
}
