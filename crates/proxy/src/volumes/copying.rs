//! Copies that others are given, and copies that become a cache's.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use forebay_client::Patience;
use forebay_group::Verdict;
use forebay_protocol::{Answer, Operation, Reseat, SegmentPlace, group::Seal};
use forebay_types::SegmentId;

use super::{
    offering::Copying,
    session::{PATIENCE, Session},
};

enum Next {
    Clean(SegmentId, SegmentPlace),
    Copy(Copying),
}

impl Session {
    pub(super) fn copy_until_stopped(&self) {
        loop {
            let next = {
                let mut desk = self.desk.lock();
                if desk.stopped {
                    return;
                }
                // What makes room is first.
                let clean =
                    desk.clean.first_key_value().map(|(segment, place)| Next::Clean(*segment, *place));
                let next =
                    clean.or_else(|| desk.copies.first_key_value().map(|(_, copying)| Next::Copy(*copying)));
                if next.is_none() {
                    self.changed.wait_for(&mut desk, self.shared.pace.look_every);
                }
                next
            };
            match next {
                Some(Next::Clean(segment, place)) => {
                    if let Some((bytes, _)) = self.sealed(segment, place.len) {
                        self.shared.around.keep(&self.info, segment, &place, &bytes);
                    }
                    self.obey(segment, Verdict::Clean);
                    self.desk.lock().clean.remove(&segment);
                }
                Some(Next::Copy(copying)) => {
                    self.copy(&copying);
                    let mut desk = self.desk.lock();
                    // It may have been asked for in a later epoch meanwhile.
                    if desk.copies.get(&copying.segment) == Some(&copying) {
                        desk.copies.remove(&copying.segment);
                    }
                }
                None => {}
            }
        }
    }

    /// A sealed segment of this length, and its CRC32C.
    fn sealed(&self, segment: SegmentId, len: u64) -> Option<(Bytes, u32)> {
        let kept = self.shared.log.kept(self.volume, segment)?;
        let (_, check) = kept.sealed.filter(|(sealed, _)| *sealed == len)?;
        let (bytes, found) = self.shared.log.read(self.volume, segment, 0, len).ok()?;
        (found == check).then_some((bytes, check))
    }

    /// Gives another member a copy, and tells the owner once it has all of it. What does not succeed is said again with the next offer.
    fn copy(&self, copying: &Copying) {
        let Copying { segment, to, epoch } = *copying;
        let kept = self.shared.log.kept(self.volume, segment);
        let len = kept.and_then(|kept| kept.sealed).map(|(len, _)| len);
        let Some((len, (bytes, check))) = len.and_then(|len| Some((len, self.sealed(segment, len)?))) else {
            return;
        };
        let seal = Seal { segment, epoch, len, check };
        if let Err(why) = self.shared.around.copy_to(to, self.volume, &seal, bytes) {
            tracing::warn!(%segment, "a copy for member {to} is made later: {why}");
            return;
        }
        let operation = Operation::Reseat(Reseat { segment, epoch, member: to });
        let told = self.link.ask(operation, None, None, (), &Patience::new(Some(PATIENCE), None));
        match told.map(|answered| answered.response.answer) {
            Ok(Answer::Done) => {
                self.shared.counts.repaired.fetch_add(1, Relaxed);
                tracing::info!(%segment, "member {to} has a copy in the place of one that is gone");
            }
            Ok(other) => tracing::debug!(?other, %segment, "a copy is not wanted any more"),
            Err(error) => tracing::debug!(%error, %segment, "the owner is not told of a copy"),
        }
    }
}
