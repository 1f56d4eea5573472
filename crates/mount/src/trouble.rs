//! Telling a person what became of a file when an application only gets `EIO` or `ENOSPC`.

use std::{
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

/// What failed because of the volume.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Window>);

impl Trouble {
    /// The error number to answer; what is wrong with the volume goes to the log.
    pub(crate) fn answer(&self, vfs: &Vfs, op: &'static str, ino: u64, error: &VfsError) -> Errno {
        let errno = errno(error);
        if matches!(errno, Errno::EIO | Errno::ENOSPC) {
            self.tell(vfs, op, ino, errno, error);
        }
        errno
    }

    fn tell(&self, vfs: &Vfs, op: &'static str, ino: u64, errno: Errno, error: &VfsError) {
        let admitted = match self.0.lock() {
            Ok(mut window) => window.admit(Instant::now()),
            Err(_) => Some(0),
        };
        let Some(kept_back) = admitted else { return };
        let path = vfs.path_of(Ino(ino)).map_or_else(
            || format!("inode {ino}"),
            |path| format!("'{}' (inode {ino})", String::from_utf8_lossy(&path)),
        );
        if kept_back > 0 {
            tracing::error!("{kept_back} further errors were not logged");
        }
        tracing::error!("{op} of {path} failed with {}: {error}", errno.name());
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
}
