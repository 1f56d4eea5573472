//! Telling a person what became of a file when an application only gets `EIO` or `ENOSPC`.
//!
//! Guarantee: what is lost for good of a file has one line, not one for each read of it.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Mutex,
    time::{Duration, Instant},
};

use forebay_fuse::Errno;
use forebay_types::Ino;
use forebay_vfs::{Vfs, VfsError};

use crate::errno::errno;

/// So many messages in so long; what is beyond is counted.
const BURST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    told: u32,
    kept_back: u64,
}

impl Window {
    /// Whether a message at `now` may be told; and how many were not since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            self.began = Some(now);
            self.told = 0;
        }
        if self.told == BURST {
            self.kept_back += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.kept_back))
    }
}

/// Files of which it is remembered what was told to be lost. Beyond that all are forgotten, and told of again.
const LOST_MAX: usize = 4096;

/// What was told to be lost for good.
#[derive(Debug, Default)]
struct LostFiles(BTreeMap<Ino, Range<u64>>);

impl LostFiles {
    /// Whether it was not told yet that something of this range is lost.
    fn is_new(&mut self, ino: Ino, range: &Range<u64>) -> bool {
        let known = self.0.get(&ino);
        if known.is_some_and(|known| known.start <= range.start && range.end <= known.end) {
            return false;
        }
        let all = known.map_or(range.clone(), |known| known.start.min(range.start)..known.end.max(range.end));
        if self.0.len() >= LOST_MAX {
            self.0.clear();
        }
        self.0.insert(ino, all);
        true
    }
}

/// What failed because of the volume.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    window: Mutex<Window>,
    lost: Mutex<LostFiles>,
}

impl Trouble {
    /// The error number to answer; what is wrong with the volume goes to the log.
    pub(crate) fn answer(&self, vfs: &Vfs, op: &'static str, ino: u64, error: &VfsError) -> Errno {
        let errno = errno(error);
        if let VfsError::Lost { ino, from, to, .. } = error {
            // It stays so, however often it is read: one line for it.
            if let Ok(mut lost) = self.lost.lock()
                && lost.is_new(*ino, &(*from..*to))
                && !self.tell(vfs, op, ino.0, errno, error)
            {
                lost.0.remove(ino);
            }
        } else if matches!(errno, Errno::EIO | Errno::ENOSPC) {
            self.tell(vfs, op, ino, errno, error);
        }
        errno
    }

    /// Returns whether there was no flood of them.
    fn tell(&self, vfs: &Vfs, op: &'static str, ino: u64, errno: Errno, error: &VfsError) -> bool {
        let admitted = match self.window.lock() {
            Ok(mut window) => window.admit(Instant::now()),
            Err(_) => Some(0),
        };
        let Some(kept_back) = admitted else { return false };
        let path = vfs.path_of(Ino(ino)).map_or_else(
            || format!("inode {ino}"),
            |path| format!("'{}' (inode {ino})", String::from_utf8_lossy(&path)),
        );
        if kept_back > 0 {
            tracing::error!("{kept_back} further errors were not logged");
        }
        tracing::error!("{op} of {path} failed with {}: {error}", errno.name());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_instead_of_told() {
        let mut window = Window::default();
        let now = Instant::now();
        for _ in 0..BURST {
            assert_eq!(window.admit(now), Some(0));
        }
        assert_eq!(window.admit(now), None);
        assert_eq!(window.admit(now + WINDOW / 2), None);
        assert_eq!(window.admit(now + WINDOW), Some(2));
        assert_eq!(window.admit(now + WINDOW), Some(0));
    }

    #[test]
    fn what_is_lost_is_told_once() {
        let mut lost = LostFiles::default();
        assert!(lost.is_new(Ino(5), &(100..200)));
        assert!(!lost.is_new(Ino(5), &(100..200)) && !lost.is_new(Ino(5), &(120..130)));
        assert!(lost.is_new(Ino(6), &(100..200)));
        assert!(lost.is_new(Ino(5), &(150..300)), "more of it is lost by now");
        assert!(!lost.is_new(Ino(5), &(100..300)));
    }
}
