//! What a member has, and what it says of that with each renewal.

use std::{sync::Arc, time::Instant};

use forebay_group::{Budget, GroupId, Incarnation, ViewEpoch};
use forebay_protocol::group::MemberNumbers;
use parking_lot::Mutex;

use super::{Directory, ProxyError};
use crate::{
    log::{self, FILE_LEN, Log, LogOptions},
    membership::Standing,
    reads::{Counts, Objects},
};

/// Bytes of a file of a small member's log: what is kept of it for what frees space is half of that at most.
const FILE_LEN_MIN: u64 = 32 << 20;
/// Blocks of files, in bytes.
const BLOCK: u64 = 4096;

/// Opens the log in a member's directory, beside a cache of so many bytes: half as much may be dirty.
pub(super) fn open_log(directory: &Directory, group: GroupId, cache: u64) -> Result<Arc<Log>, ProxyError> {
    let disk = Arc::new(log::Directory::new(&directory.log()?));
    let ids = (group, directory.member, Incarnation(forebay_env::random()?));
    let budget = Budget { limit: cache / 2 };
    let file_len = (cache / 8 / BLOCK * BLOCK).clamp(FILE_LEN_MIN, FILE_LEN);
    let len_max = budget.limit.saturating_add(4 * file_len);
    let options = LogOptions { file_len, len_max, ..LogOptions::new(disk, ids, budget) };
    let (log, opened) = Log::open(options)?;
    let status = log.status();
    if opened.lost {
        tracing::error!(
            "records of this member's log are lost: what was not sealed by then counts for nothing here; drain and remove the member, and give it another disk"
        );
    }
    if opened.damaged > 0 {
        tracing::warn!(
            "{} records of this member's log are damaged: other members have their segments",
            opened.damaged
        );
    }
    if status.segments > 0 {
        tracing::info!(
            "{} segments of {} bytes in the log may not be stored yet",
            status.segments,
            status.dirty
        );
    }
    Ok(Arc::new(log))
}

/// A member's cache and log.
pub(super) struct Own {
    objects: Arc<Objects>,
    counts: Arc<Counts>,
    log: Arc<Log>,
    /// The last view that the log was told of, and where the log is to be on stable storage for that.
    noted: Mutex<(ViewEpoch, u64)>,
    /// Reads by the last time, and the load that was told then.
    last: Mutex<(u64, Instant)>,
}

impl Own {
    pub(super) fn new(objects: Arc<Objects>, counts: Arc<Counts>, log: Arc<Log>) -> Own {
        let last = Mutex::new((0, Instant::now()));
        Own { objects, counts, log, noted: Mutex::default(), last }
    }
}

impl Standing for Own {
    fn log(&self) -> Result<(u64, u64), String> {
        match self.log.failure() {
            Some(failure) => Err(failure.to_string()),
            None => {
                let status = self.log.status();
                // What is not on stable storage may be gone when this member comes back.
                Ok((status.synced, status.segments))
            }
        }
    }

    fn goes_by(&self, view: ViewEpoch) -> bool {
        let mut noted = self.noted.lock();
        if noted.0 < view {
            match self.log.acknowledge(view) {
                Ok(upto) => *noted = (view, upto),
                Err(error) => {
                    tracing::warn!("the view {} cannot be acknowledged: {error}", view.0);
                    return false;
                }
            }
        }
        self.log.status().synced >= noted.1
    }

    fn numbers(&self) -> MemberNumbers {
        let stats = self.objects.stats();
        let (reads, now) = (self.counts.reads(), Instant::now());
        let mut last = self.last.lock();
        let passed = now.duration_since(last.1).as_secs_f64().max(0.001);
        let load = ((reads - last.0) as f64 / passed) as u64;
        *last = (reads, now);
        let dirty_bytes = self.log.status().dirty;
        MemberNumbers { dirty_bytes, used: stats.used_bytes, capacity: stats.capacity_bytes, load }
    }
}
