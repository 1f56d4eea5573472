//! A store whose syncs take their time, so that at many more points something is on its way into it.

use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::layer::Syncing;
use super::log::{Ino, ROOT};

/// Half of the time that a sync takes: what it makes durable is so in the middle.
const HALF: Duration = Duration::from_millis(10);

/// Syncs of files and directories below the directory `path` of the root take 20 ms, all others no time. A file is where it got its last name.
pub(super) fn slow_below(path: &'static str) -> Syncing {
    Arc::new(move |disk, ino| {
        if !lies_below(disk, ino, path) {
            return Ok(disk.sync(ino)?);
        }
        std::thread::sleep(HALF);
        disk.sync(ino)?;
        std::thread::sleep(HALF);
        Ok(())
    })
}

fn lies_below(disk: &Disk, ino: Ino, path: &str) -> bool {
    let found = path.split('/').try_fold(ROOT, |dir, name| disk.lookup(dir, name.as_bytes()));
    let Ok(top) = found else { return false };
    let mut at = ino;
    while at != top && at != ROOT {
        let Ok(parent) = disk.parent(at) else { return false };
        at = parent;
    }
    at == top
}

#[cfg(test)]
mod tests {
    use super::super::log::Kind;
    use super::*;

    #[test]
    fn only_what_lies_in_the_store_is_slow() {
        let disk = Disk::default();
        let make = |dir, name: &[u8], kind| disk.make(dir, name, kind, 0o755).unwrap();
        let volume = make(ROOT, b"vol", Kind::Directory);
        assert!(!lies_below(&disk, volume, "vol/objects"), "it is not there yet");
        let store = make(volume, b"objects", Kind::Directory);
        let inside = make(make(store, b"data", Kind::Directory), b"1", Kind::File);
        let staged = make(volume, b"staged", Kind::File);
        for ino in [store, inside] {
            assert!(lies_below(&disk, ino, "vol/objects"));
        }
        for ino in [ROOT, volume, staged] {
            assert!(!lies_below(&disk, ino, "vol/objects"));
        }
        disk.link(staged, store, b"2").unwrap();
        assert!(lies_below(&disk, staged, "vol/objects"));
    }
}
