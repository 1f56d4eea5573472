//! Objects of a store that is a directory of this machine: read from their files, which stay open, without a copy of their own in a cache, for
//! the kernel keeps their pages.

use std::{fs::File, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

use forebay_format::row::ObjectRef;
use quick_cache::sync::Cache;
use rustix::fs::{Advice, fadvise};

use crate::key::object_key;

/// Files that are kept open.
const OPEN_MAX: usize = 256;

/// The files of objects, open as long as they are read often enough.
#[derive(Debug)]
pub(crate) struct ObjectFiles {
    root: PathBuf,
    open: Cache<ObjectRef, Arc<File>>,
}

impl ObjectFiles {
    /// Those below `root`.
    pub(crate) fn new(root: PathBuf) -> ObjectFiles {
        ObjectFiles { root, open: Cache::new(OPEN_MAX) }
    }

    /// The file of an object; `None` where it cannot be opened, for which the store has the reason.
    fn file(&self, object: ObjectRef) -> Option<Arc<File>> {
        if let Some(file) = self.open.get(&object) {
            return Some(file);
        }
        let file = Arc::new(File::open(self.root.join(object_key(object))).ok()?);
        self.open.insert(object, Arc::clone(&file));
        // One that was deleted meanwhile must not keep its space.
        if !file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            self.open.remove(&object);
        }
        Some(file)
    }

    /// Fills `out` from byte `offset` of an object. False: that failed, the store can say why.
    pub(crate) fn read(&self, object: ObjectRef, offset: u64, out: &mut [u8]) -> bool {
        let Some(file) = self.file(object) else { return false };
        let read = std::os::unix::fs::FileExt::read_exact_at(&*file, out, offset).is_ok();
        if !read {
            self.open.remove(&object);
        }
        read
    }

    /// Has the kernel read a range that will be wanted soon.
    pub(crate) fn prefetch(&self, object: ObjectRef, offset: u64, len: u64) {
        if let Some(file) = self.file(object) {
            // Advice only: who reads the bytes later waits for them, or is told why not.
            let _ = fadvise(&*file, offset, std::num::NonZeroU64::new(len), Advice::WillNeed);
        }
    }

    /// The object was deleted.
    pub(crate) fn forget(&self, object: ObjectRef) {
        self.open.remove(&object);
    }
}
