//! What the owner says unasked.

use std::sync::Weak;

use forebay_client::Events;
use forebay_cluster::{Grant, Lease, Moment, Stamp};
use forebay_group::MemberId;
use forebay_protocol::Welcome;
use forebay_types::{Epoch, Ino, SegmentId};
use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What the owner asks to have fenced: each once, however often it was asked for.
    pub(super) fences: Vec<(SegmentId, Epoch)>,
    /// An owner answers that has not heard what there is.
    pub(super) greeted: bool,
    /// There is something that it was not told of.
    pub(super) news: bool,
    pub(super) stopped: bool,
}

/// Hears the link, and rings.
pub(super) struct Ears {
    /// For whom: what others are asked over the same session is theirs.
    member: MemberId,
    epoch: Mutex<Epoch>,
    pub(super) heard: Mutex<Heard>,
    pub(super) bell: Condvar,
}

impl Ears {
    pub(super) fn of(member: MemberId) -> Ears {
        Ears { member, epoch: Mutex::default(), heard: Mutex::default(), bell: Condvar::new() }
    }

    pub(super) fn weak(self: &std::sync::Arc<Ears>) -> Weak<dyn Events> {
        std::sync::Arc::downgrade(self) as _
    }
}

impl Events for Ears {
    fn begun(&self, _: u64, welcome: &Welcome, _: Moment) {
        *self.epoch.lock() = welcome.epoch;
    }

    fn over(&self) {}

    fn heard(&self, _: u64, _: Moment) {}

    fn epoch(&self) -> Epoch {
        *self.epoch.lock()
    }

    /// A member takes no leases.
    fn to_reclaim(&self, _: Epoch) -> Vec<(Ino, Lease)> {
        Vec::new()
    }

    fn reclaimed(&self, epoch: Epoch, _: &[Grant]) {
        *self.epoch.lock() = epoch;
    }

    fn recalled(&self, _: Ino, _: Option<Lease>, _: Stamp) {}

    fn lock_free(&self, _: Ino) {}

    fn greeted(&self) {
        self.heard.lock().greeted = true;
        self.bell.notify_all();
    }

    fn fence(&self, member: MemberId, segment: SegmentId, epoch: Epoch) {
        if member != self.member {
            return;
        }
        let (mut heard, fence) = (self.heard.lock(), (segment, epoch));
        if !heard.fences.contains(&fence) {
            heard.fences.push(fence);
        }
        self.bell.notify_all();
    }
}
