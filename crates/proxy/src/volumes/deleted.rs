//! Copies of volumes that were deleted.
//!
//! Guarantees: a copy is given up only where a metadata server has on record that its volume was deleted. No error says that, nor a server that knows of no such volume:
//! it may not have heard of it yet.

use std::sync::atomic::Ordering::Relaxed;

use forebay_group::Verdict;
use forebay_protocol::Refusal;
use forebay_types::VolumeId;

use super::Shared;

impl Shared {
    /// Gives up what is here of a volume, where that was deleted. Returns whether it was.
    pub(super) fn drops_if_deleted(&self, volume: VolumeId) -> bool {
        // What servers list is there.
        if !matches!(self.around.volume(volume), Err(Refusal::NoVolume(_))) {
            return false;
        }
        match self.around.was_deleted(volume) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(refusal) => {
                tracing::debug!(%volume, %refusal, "whether a volume was deleted is asked again");
                return false;
            }
        }
        let (offers, mut dropped) = (self.log.offers(volume), 0);
        for offer in &offers {
            match self.log.judged(volume, offer.segment, Verdict::Gone) {
                Ok(true) => dropped += 1,
                Ok(false) => {}
                Err(error) => tracing::warn!(%volume, segment = %offer.segment, "a copy stays: {error}"),
            }
        }
        self.counts.dropped.fetch_add(dropped, Relaxed);
        tracing::info!(%volume, copies = offers.len(), "what is here of a volume that was deleted is given up");
        true
    }
}
