//! Asking members for bytes of an object, or for its length.
//!
//! Guarantees: while one of those that are asked for a piece has it and answers, a read of it needs no store. One alone is made to ask the store; the others are asked
//! meanwhile, and where the store fails, for what they have ([`Kind::Peek`](forebay_protocol::Kind::Peek)): one that was late may have it all the same.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_format::row::ObjectRef;
use forebay_group::{MemberId, PieceKey};
use forebay_protocol::group::{Fetch, Walk};

use super::{
    Shared, VolumeGroup,
    groups::Known,
    link::{Answered, MemberLink},
    route,
};

/// How long one that asks the store is waited for before those that were late are asked what they have: from then on twice as long each time.
const ASK_AFTER: Duration = Duration::from_millis(200);
/// How often these are looked at again where the store fails.
const LOOK_TIMES: u32 = 3;

/// A member, and how it is reached.
type Link = (MemberId, Arc<MemberLink>);

/// Why nobody has given a length.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotGiven {
    /// Somebody did not answer in time, and may know it.
    pub(super) late: bool,
}

/// Bytes or a length, and who gave them.
type Found<'a> = (&'a MemberLink, Answered);

/// What became of asking members.
struct Asked<'a> {
    found: Option<Found<'a>>,
    /// Somebody did not answer in time.
    late: bool,
}

/// What became of waiting for one that asks the store.
enum Waited<'a> {
    Found(Found<'a>),
    /// It is gone: another one may be asked.
    Lost,
    /// The store has no such object.
    NotThere,
    /// The store does not answer, or refuses.
    StoreFails,
}

impl VolumeGroup {
    /// Bytes of an object, all of one piece, from a member of a group. `None`: the store is to be asked.
    pub(super) fn fetch(&self, known: &Known, object: ObjectRef, offset: u64, len: u32) -> Option<Bytes> {
        let fetch = self.wanted(object, offset, len)?;
        let links = self.asked_for(known, &fetch);
        let found = self.shared.ask(known, &links, &fetch).found?;
        self.given(known, found, &fetch)
    }

    /// The same from what members have, for where the store has failed: nobody is made to ask it.
    pub(super) fn peek(&self, known: &Known, object: ObjectRef, offset: u64, len: u32) -> Option<Bytes> {
        let fetch = self.wanted(object, offset, len)?;
        let links = self.asked_for(known, &fetch);
        let found = self.shared.look_at(known, links.iter(), &fetch)?;
        self.given(known, found, &fetch)
    }

    /// Takes note of what was given. `None`: the object is shorter than it should be; the store says so in its own words.
    fn given(&self, known: &Known, (link, answered): Found<'_>, fetch: &Fetch) -> Option<Bytes> {
        let Answered::Bytes(bytes, width, epoch) = answered else { return None };
        if bytes.len() != fetch.len as usize {
            return None;
        }
        let (shared, piece) = (&self.shared, PieceKey::of(fetch.segment, fetch.at));
        known.widths.learn(piece, width);
        shared.told(epoch, known.view.epoch);
        let count = if link.on_node { &shared.counts.node } else { &shared.counts.group };
        count.fetch_add(u64::from(fetch.len), Relaxed);
        Some(bytes)
    }

    /// The length of an object, from a member.
    pub(super) fn length(&self, known: &Known, object: ObjectRef) -> Result<u64, NotGiven> {
        let (segment, at, _) = self.shared.pieces.of(object, 0);
        let fetch = Fetch { object, offset: 0, len: 0, segment, at, walk: Walk::Nearby, waits: false };
        let links = self.asked_for(known, &fetch);
        let asked = self.shared.ask(known, &links, &fetch);
        match asked.found {
            Some((_, Answered::Length(len))) => Ok(len),
            _ => Err(NotGiven { late: asked.late }),
        }
    }

    /// `None`: these bytes were wrong lately.
    fn wanted(&self, object: ObjectRef, offset: u64, len: u32) -> Option<Fetch> {
        let (segment, at, _) = self.shared.pieces.of(object, offset);
        let wrong = self.shared.is_wrong(object, offset, u64::from(len));
        (!wrong).then_some(Fetch { object, offset, len, segment, at, walk: Walk::Nearby, waits: false })
    }

    /// Who is asked, in this order.
    fn asked_for(&self, known: &Known, fetch: &Fetch) -> Vec<Link> {
        let piece = PieceKey::of(fetch.segment, fetch.at);
        let cost = |id: MemberId| known.links.get(&id).map_or(u64::MAX, |link| link.cost());
        // Of several that have a piece the first one alone is sure to know how long the object is.
        let width = if fetch.len == 0 { 1 } else { known.widths.of(piece) };
        let ids = route::candidates(&known.view, &known.here, piece, width, cost);
        ids.into_iter().filter_map(|id| Some((id, Arc::clone(known.links.get(&id)?)))).collect()
    }
}

impl Shared {
    /// Asks one after the other.
    fn ask<'a>(&self, known: &Known, links: &'a [Link], fetch: &Fetch) -> Asked<'a> {
        let mut late = Vec::new();
        for asked in links {
            let (id, link) = asked;
            let waited = match link.fetch(fetch, &self.reader, known.id) {
                Answered::Late => {
                    late.push(asked);
                    Waited::Lost
                }
                Answered::Nothing => Waited::Lost,
                Answered::Coming => self.await_store(known, link, &late, fetch),
                Answered::StoreFails => Waited::StoreFails,
                Answered::NotThere => Waited::NotThere,
                answered => Waited::Found((link, answered)),
            };
            let found = match waited {
                Waited::Lost => {
                    self.suspects(known.id, *id);
                    continue;
                }
                Waited::NotThere => None,
                Waited::Found(found) => Some(found),
                Waited::StoreFails => {
                    let others = links.iter().filter(|link| link.0 != *id);
                    self.look_at(known, others, fetch).or_else(|| self.look_again(known, &late, fetch))
                }
            };
            return Asked { found, late: !late.is_empty() };
        }
        Asked { found: None, late: !late.is_empty() }
    }

    /// Waits for one that asks the store, and looks meanwhile at what those have that were late.
    fn await_store<'a>(
        &self,
        known: &Known,
        link: &'a MemberLink,
        late: &[&'a Link],
        fetch: &Fetch,
    ) -> Waited<'a> {
        let (began, next, found) = (Instant::now(), Cell::new(ASK_AFTER), RefCell::new(None));
        let goes_on = || {
            if began.elapsed() < next.get() {
                return true;
            }
            next.set(next.get() * 2);
            *found.borrow_mut() = self.look_at(known, late.iter().copied(), fetch);
            found.borrow().is_none()
        };
        let goes_on: Option<&dyn Fn() -> bool> = if late.is_empty() { None } else { Some(&goes_on) };
        let brought = link.brought(fetch, goes_on);
        if let Some(found) = found.take() {
            return Waited::Found(found);
        }
        match brought {
            Answered::Bytes(..) | Answered::Length(_) => Waited::Found((link, brought)),
            Answered::NotThere => Waited::NotThere,
            // It has had its time for the store.
            Answered::Late | Answered::StoreFails => Waited::StoreFails,
            Answered::Coming | Answered::Nothing => Waited::Lost,
        }
    }

    /// Looks a few times more, with pauses, at what those have that were late: the store is of no use.
    fn look_again<'a>(&self, known: &Known, late: &[&'a Link], fetch: &Fetch) -> Option<Found<'a>> {
        let times = if late.is_empty() { 0 } else { LOOK_TIMES };
        (0..times).find_map(|time| {
            thread::sleep(ASK_AFTER * (1 << time));
            self.look_at(known, late.iter().copied(), fetch)
        })
    }

    /// What one of these has: nobody is made to ask the store for bytes. A length is not looked for among what is cached, so it is asked for.
    fn look_at<'a>(
        &self,
        known: &Known,
        mut links: impl Iterator<Item = &'a Link>,
        fetch: &Fetch,
    ) -> Option<Found<'a>> {
        links.find_map(|(_, link)| {
            let answered = match fetch.len {
                0 => link.fetch(fetch, &self.reader, known.id),
                _ => link.peek(fetch, &self.reader, known.id)?,
            };
            matches!(answered, Answered::Bytes(..) | Answered::Length(_)).then_some((&**link, answered))
        })
    }
}
