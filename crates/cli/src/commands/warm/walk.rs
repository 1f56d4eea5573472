//! All files below some paths, each once, without leaving their file system.

use std::{
    collections::HashSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::SyncSender,
    },
};

/// What went wrong with files is told of so many; of others it is counted.
const TOLD_MAX: usize = 100;

/// A file that was not brought.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct Troubles {
    told: Mutex<Vec<Trouble>>,
    count: AtomicU64,
}

impl Troubles {
    pub(super) fn add(&self, trouble: Trouble) {
        self.count.fetch_add(1, Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX {
            told.push(trouble);
        }
    }

    /// The first ones, and how many there are.
    pub(super) fn all(&self) -> (Vec<Trouble>, u64) {
        (self.told.lock().unwrap_or_else(PoisonError::into_inner).clone(), self.count.load(Relaxed))
    }
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) ino: u64,
}

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// There is no more.
    pub(super) ended: AtomicBool,
}

/// Walks, and gives the files to whoever takes them; ends early where nobody does any more.
pub(super) struct Walk<'a> {
    pub(super) device: u64,
    pub(super) counts: &'a Counts,
    pub(super) troubles: &'a Troubles,
    pub(super) found: SyncSender<Found>,
    /// Those with several names, or that may be named twice.
    pub(super) seen: HashSet<u64>,
}

impl Walk<'_> {
    pub(super) fn walk(mut self, paths: Vec<PathBuf>) {
        let several = paths.len() > 1;
        for path in paths {
            if !self.below(path, several) {
                break;
            }
        }
        self.counts.ended.store(true, Relaxed);
    }

    /// False: nobody takes files any more.
    fn below(&mut self, path: PathBuf, several: bool) -> bool {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(error) => {
                    self.troubles.add(Trouble { path, why: error.to_string() });
                    continue;
                }
            };
            if meta.dev() != self.device {
                continue;
            }
            if meta.is_dir() {
                if several && !self.seen.insert(meta.ino()) {
                    continue;
                }
                match self.entries(&path) {
                    Ok(entries) => waiting.extend(entries),
                    Err(error) => self.troubles.add(Trouble { path, why: error.to_string() }),
                }
            } else if meta.is_file() && !self.take(path, &meta, several) {
                return false;
            }
        }
        true
    }

    /// In the order in which they are taken up from the end: by inode, as small files lie in the store.
    fn entries(&self, dir: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
        use std::os::unix::fs::DirEntryExt;
        let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
        let mut entries: Vec<(u64, PathBuf)> =
            entries.into_iter().map(|entry| (entry.ino(), entry.path())).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.0));
        Ok(entries.into_iter().map(|(_, path)| path).collect())
    }

    fn take(&mut self, path: PathBuf, meta: &Metadata, several: bool) -> bool {
        if (several || meta.nlink() > 1) && !self.seen.insert(meta.ino()) {
            return true;
        }
        self.counts.files.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(meta.len(), Relaxed);
        self.found.send(Found { path, ino: meta.ino() }).is_ok()
    }
}
