//! Offering what is here, doing what the owner says of it, and fencing what it asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
    time::Instant,
};

use forebay_client::{ClientError, Patience};
use forebay_group::{MemberId, Offer, Verdict, ViewEpoch};
use forebay_protocol::{
    Answer, FencedCopies, FencedCopy, Judged, OfferCopies, Operation, SEGMENTS_MAX, SegmentPlace,
};
use forebay_types::{Epoch, Ino, SegmentId};
use rustc_hash::FxHashMap;
use tokio::runtime::Runtime;

use super::session::{PATIENCE, Session};
use crate::log::PutError;

/// A segment that is this member's to put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) segment: SegmentId,
    pub(super) epoch: Epoch,
    pub(super) len: u64,
    pub(super) check: u32,
    pub(super) since: Instant,
}

/// A segment that another member is to be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Copying {
    pub(super) segment: SegmentId,
    pub(super) to: MemberId,
    pub(super) epoch: Epoch,
}

/// What the owner said that there is to do.
#[derive(Default)]
pub(super) struct Desk {
    /// As what each copy was offered last.
    told: BTreeMap<SegmentId, Offer>,
    /// By directory and number: so they are put.
    pub(super) due: BTreeMap<(Ino, SegmentId), Due>,
    /// Those that are being put.
    pub(super) busy: BTreeSet<SegmentId>,
    /// The owner has these in a later epoch: nothing is put before that is here, too.
    pub(super) late: BTreeMap<SegmentId, Epoch>,
    pub(super) copies: BTreeMap<SegmentId, Copying>,
    /// What is clean: it is cached, and given up then.
    pub(super) clean: BTreeMap<SegmentId, SegmentPlace>,
    /// Since when puts yield to streams of this machine, now or a while ago.
    pub(super) yields: Option<Instant>,
    /// The view that was looked at last, and when it changed.
    pub(super) view: Option<ViewEpoch>,
    pub(super) view_changed: Option<Instant>,
    /// Nothing is put before.
    pub(super) rest_until: Option<Instant>,
    /// Puts that failed in a row.
    pub(super) failed: u32,
    pub(super) stopped: bool,
}

impl Desk {
    /// Takes in what was said of a copy that stays.
    fn judged(&mut self, judged: &Judged, offer: &Offer) {
        let key = (judged.directory, judged.segment);
        self.told.insert(judged.segment, *offer);
        let sealed = offer.sealed.filter(|(len, _)| *len > 0 && judged.puts && !offer.damaged);
        let late = self.late.get(&judged.segment).is_some_and(|epoch| offer.epoch < *epoch);
        match sealed.filter(|_| !late) {
            Some((len, check)) => {
                let (segment, epoch) = (judged.segment, offer.epoch);
                let since = self.due.get(&key).map_or_else(Instant::now, |due| due.since);
                self.due.insert(key, Due { segment, epoch, len, check, since });
            }
            None => drop(self.due.remove(&key)),
        }
        if let Some((to, epoch)) = judged.copy_to {
            let copying = Copying { segment: judged.segment, to, epoch };
            self.copies.insert(judged.segment, copying);
        }
    }

    /// Whether the owner has not heard of a copy as it is. What is open is told of with everything.
    fn is_news(&self, offer: &Offer) -> bool {
        offer.sealed.is_some() && self.told.get(&offer.segment) != Some(offer)
    }

    /// A copy is to be offered again.
    pub(super) fn asks_again(&mut self, segment: SegmentId) {
        self.told.remove(&segment);
    }

    /// These are all that there are.
    fn keep_only(&mut self, offers: &[Offer]) {
        let here: BTreeSet<SegmentId> = offers.iter().map(|offer| offer.segment).collect();
        self.told.retain(|segment, _| here.contains(segment));
        self.due.retain(|(_, segment), _| here.contains(segment));
        self.late.retain(|segment, _| here.contains(segment));
    }
}

impl Session {
    /// Offers everything, also that there is nothing: so the owner knows where the member is reached.
    pub(super) fn offer_all(&self) -> Result<(), ClientError> {
        let offers = self.shared.log.offers(self.volume);
        self.desk.lock().keep_only(&offers);
        if offers.is_empty() {
            return self.offer(&[]);
        }
        offers.chunks(SEGMENTS_MAX).try_for_each(|some| self.offer(some))
    }

    /// Offers what was sealed, or changed, since it was offered.
    pub(super) fn offer_fresh(&self) -> Result<(), ClientError> {
        let mut offers = self.shared.log.offers(self.volume);
        {
            let desk = self.desk.lock();
            offers.retain(|offer| desk.is_news(offer));
        }
        offers.chunks(SEGMENTS_MAX).try_for_each(|some| self.offer(some))
    }

    fn offer(&self, offers: &[Offer]) -> Result<(), ClientError> {
        let (member, group) = (self.shared.member, self.shared.group);
        let operation = Operation::Offer(OfferCopies { member, group, offers: offers.to_vec() });
        let patience = Patience::new(Some(PATIENCE), None);
        let judged = match self.link.ask(operation, None, None, (), &patience)?.response.answer {
            Answer::Judged(judged) => judged,
            Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
            other => return Err(ClientError::Unexpected(format!("{other:?} to an offer"))),
        };
        let offered: FxHashMap<SegmentId, &Offer> =
            offers.iter().map(|offer| (offer.segment, offer)).collect();
        for one in &judged {
            // What was not offered is not judged.
            if let Some(offer) = offered.get(&one.segment) {
                self.act(one, offer);
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    fn act(&self, judged: &Judged, offer: &Offer) {
        let segment = judged.segment;
        if let (Verdict::Clean, Some(place)) = (judged.verdict, judged.place)
            && offer.sealed.is_some_and(|(len, _)| len == place.len && len > 0)
            && !offer.damaged
        {
            let mut desk = self.desk.lock();
            desk.clean.insert(segment, place);
            desk.told.insert(segment, *offer);
            return;
        }
        self.obey(segment, judged.verdict);
        if matches!(judged.verdict, Verdict::Wanted | Verdict::SealedAt { .. }) {
            self.desk.lock().judged(judged, offer);
        }
    }

    /// Does with a copy as the owner says.
    pub(super) fn obey(&self, segment: SegmentId, verdict: Verdict) {
        match self.shared.log.judged(self.volume, segment, verdict) {
            Ok(true) => {
                self.shared.counts.dropped.fetch_add(1, Relaxed);
                tracing::debug!(%segment, ?verdict, "a copy is given up");
            }
            Ok(false) => {}
            // It is offered again.
            Err(PutError::Full) => tracing::debug!(%segment, "there is no room to cut a copy"),
            // That the log takes nothing more it has said itself, once; this is tried for each copy, again and again.
            Err(error @ PutError::Failed(_)) => tracing::debug!(%segment, "a copy stays as it is: {error}"),
            Err(error) => tracing::warn!(%segment, "a copy stays as it is: {error}"),
        }
    }

    /// Fences what the owner asked for, and says so. What cannot be fenced now it asks for again.
    pub(super) fn fence(&self, runtime: &Runtime, fences: &[(SegmentId, Epoch)]) {
        let (mut copies, mut upto) = (Vec::new(), 0);
        for &(segment, epoch) in fences {
            match self.shared.log.fence(self.volume, segment, epoch) {
                Ok((step, fenced, _)) => {
                    upto = upto.max(step.upto);
                    copies.push(FencedCopy { segment, epoch, fenced });
                }
                Err(error) => tracing::warn!(%segment, "a segment is not fenced: {error}"),
            }
        }
        if copies.is_empty() || !self.is_synced(runtime, upto) {
            return;
        }
        self.shared.counts.fenced.fetch_add(copies.len() as u64, Relaxed);
        for some in copies.chunks(SEGMENTS_MAX) {
            self.tell(FencedCopies { member: self.shared.member, copies: some.to_vec() });
        }
    }

    fn tell(&self, fenced: FencedCopies) {
        let patience = Patience::new(Some(PATIENCE), None);
        let told = self.link.ask(Operation::Fenced(fenced), None, None, (), &patience);
        match told.map(|answered| answered.response.answer) {
            Ok(Answer::Done) => {}
            Ok(other) => tracing::debug!(?other, "the owner asked for something, and does not want it"),
            Err(error) => tracing::debug!(%error, "the owner is not told what it asked for"),
        }
    }
}
