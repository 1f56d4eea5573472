//! Bringing files near: into the caches of the group's members, and into that of this machine.

use std::ops::Range;

use forebay_meta::Inode;
use forebay_reading::{NotWarm, Stored, Warmed, stored_runs};
use forebay_types::SegmentId;

use super::{Contents, StoreCache, Within};
use crate::ClientError;

/// How often the owner is asked where the bytes of a file are.
const ATTEMPTS: u32 = 4;

/// Where files are to be near.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarmInto {
    /// In the cache on this machine's disk.
    pub here: bool,
    /// In the caches of the members of the volume's group.
    pub group: bool,
}

impl Contents {
    /// Where files of this volume can be near: whether there is a cache on this machine's disk, and a group.
    #[must_use]
    pub fn can_warm(&self) -> WarmInto {
        let here = matches!(self.shared.options.cache, StoreCache::Directory(..));
        WarmInto { here, group: self.group().is_some_and(|group| group.name().is_some()) }
    }

    /// Where the stored bytes of a range of a file are. What members have that the store does not is left out: it is near. `leased` as for [`Contents::read`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stored(
        &self,
        inode: &Inode,
        range: &Range<u64>,
        leased: &dyn Fn() -> bool,
    ) -> Result<Vec<Stored>, ClientError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (shared, ino) = (&self.shared, inode.ino);
        for _ in 0..ATTEMPTS {
            let pieces = shared.map(ino, range, leased)?;
            if let Some(lost) = shared.source.lost_of(ino, &pieces) {
                return Err(ClientError::Lost(lost));
            }
            shared.source.confine(&pieces, shared.within(inode.row.policy));
            let runs = stored_runs(&pieces);
            let places: Vec<_> = runs.iter().map(|run| shared.source.in_store(run)).collect();
            if let Some(places) = places.into_iter().collect::<Option<Vec<_>>>() {
                return Ok(places.into_iter().flatten().collect());
            }
            // The map is older than what was found out about a place in it.
            shared.maps.forget(ino);
        }
        Err(ClientError::Store(format!("inode {ino}: the owner does not say where its bytes are")))
    }

    /// Where a segment's bytes may be, as a number: what is brought by one request goes by one of them.
    #[must_use]
    pub fn warm_rule(&self, segment: SegmentId) -> u8 {
        match self.shared.source.apart().within(segment) {
            Within::Any => 0,
            Within::Nowhere => 1,
            Within::Group(group) => {
                let groups = self.shared.options.members.as_ref().map(|members| members.groups());
                let at = groups.and_then(|all| all.iter().position(|id| *id == group));
                // One that is not the volume's any more is asked for nothing.
                at.and_then(|at| u8::try_from(at + 2).ok()).unwrap_or(1)
            }
        }
    }

    /// Has stored bytes near, at most 8 MiB, and waits for that. What the group then has this machine gets from there.
    ///
    /// # Errors
    /// [`NotWarm`].
    pub fn warm(&self, stored: &Stored, into: WarmInto) -> Result<Warmed, NotWarm> {
        let shared = &self.shared;
        let within = shared.source.apart().within(stored.segment);
        let here = into.here && within == Within::Any;
        let group = into.group && within != Within::Nowhere;
        if within != Within::Any && !here && !group {
            let why = "its policy says that it is on no disk there";
            return Err(NotWarm::Failed(why.to_owned()));
        }
        let into = WarmInto { here, group };
        let warmed = (|| {
            let mut warmed = Warmed::default();
            if let Some(group) = self.group().filter(|_| into.group) {
                let forebay_protocol::group::Warmed { cached, fetched, lost } = group.warm(stored, within)?;
                warmed += Warmed { cached, fetched, lost };
            }
            if into.here {
                warmed += shared.source.objects().warm(stored)?.unwrap_or_default();
            }
            Ok(warmed)
        })();
        if let Err(NotWarm::Moved(segment)) = &warmed {
            shared.source.forget(*segment);
        }
        warmed
    }

    /// Chunks that have left the cache of this machine since the start, for want of room.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shared.source.objects().stats().map_or(0, |stats| stats.evictions)
    }
}
