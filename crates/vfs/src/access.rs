//! Access times: kept in memory and written along with the next change of the inode's attributes, or with many others.
//!
//! An access is worth less than a record in the journal: what is not written yet is lost in a crash, and nothing else is.

use forebay_types::{Attr, Ino, Timespec};
use rustc_hash::FxHashMap;

use crate::{options::AtimeMode, shards::Shards};

/// A relative access time is renewed when it is older than this.
const DAY_SECS: i64 = 24 * 60 * 60;
/// So many are kept before they are written.
const PENDING_MAX: usize = 4096;
const SHARD_MAX: usize = PENDING_MAX / Shards::<()>::COUNT;

/// Access times that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct PendingAtimes(Shards<FxHashMap<Ino, Timespec>>);

impl PendingAtimes {
    pub(crate) fn get(&self, ino: Ino) -> Option<Timespec> {
        self.0.of(ino).lock().get(&ino).copied()
    }

    /// Notes an access. Returns what is to be written now because too many wait.
    #[must_use]
    pub(crate) fn note(&self, ino: Ino, atime: Timespec) -> Vec<(Ino, Timespec)> {
        let mut pending = self.0.of(ino).lock();
        pending.insert(ino, atime);
        if pending.len() > SHARD_MAX { pending.drain().collect() } else { Vec::new() }
    }

    /// Takes one out, because it is written or no longer true.
    pub(crate) fn take(&self, ino: Ino) -> Option<Timespec> {
        self.0.of(ino).lock().remove(&ino)
    }

    pub(crate) fn take_all(&self) -> Vec<(Ino, Timespec)> {
        self.0.iter().flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }
}

/// Whether an access at `now` changes the access time of an inode with these attributes.
pub(crate) fn is_due(mode: AtimeMode, attr: &Attr, now: Timespec) -> bool {
    match mode {
        AtimeMode::Off => false,
        AtimeMode::Strict => attr.atime != now,
        AtimeMode::Relative => {
            attr.atime <= attr.mtime
                || attr.atime <= attr.ctime
                || now.secs.saturating_sub(attr.atime.secs) >= DAY_SECS
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::FileKind;

    use super::*;

    fn at(secs: i64) -> Timespec {
        Timespec { secs, nanos: 0 }
    }

    fn times(atime: i64, mtime: i64, ctime: i64) -> Attr {
        Attr {
            ino: Ino(5),
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: at(atime),
            mtime: at(mtime),
            ctime: at(ctime),
            btime: at(0),
        }
    }

    #[test]
    fn a_relative_access_counts_after_a_change_or_a_day() {
        let due = |attr: Attr, now: i64| is_due(AtimeMode::Relative, &attr, at(now));
        assert!(due(times(10, 10, 5), 11));
        assert!(due(times(10, 5, 10), 11));
        assert!(!due(times(10, 9, 9), 11));
        assert!(!due(times(10, 9, 9), 10 + DAY_SECS - 1));
        assert!(due(times(10, 9, 9), 10 + DAY_SECS));
    }

    #[test]
    fn strict_counts_always_and_off_never() {
        assert!(is_due(AtimeMode::Strict, &times(10, 9, 9), at(11)));
        assert!(!is_due(AtimeMode::Off, &times(1, 9, 9), at(11)));
    }

    #[test]
    fn too_many_are_handed_out_at_once() {
        let pending = PendingAtimes::default();
        for ino in 0..PENDING_MAX as u64 {
            assert!(pending.note(Ino(ino), at(1)).is_empty());
        }
        let overflow = pending.note(Ino(PENDING_MAX as u64), at(1));
        assert_eq!(overflow.len(), SHARD_MAX + 1);
        for (ino, _) in &overflow {
            assert_eq!(pending.get(*ino), None);
        }
        assert_eq!(pending.take_all().len(), PENDING_MAX - SHARD_MAX);
        assert!(pending.take_all().is_empty());
    }
}
