//! A small cache of open object files, so that a read of a warm object is one `fstat` and one `pread`.

use std::{collections::HashMap, fs::File, os::unix::fs::MetadataExt, sync::Arc};

use parking_lot::Mutex;

use crate::ObjectError;

const CAPACITY: usize = 64;

#[derive(Debug, Default)]
struct Slots {
    open: HashMap<String, (Arc<File>, u64)>,
    tick: u64,
}

/// The most recently used files. One whose last name is gone (deleted or replaced, by whatever process) is opened anew, so that a
/// deleted object is not read and its space is not held.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<Slots>);

impl OpenFiles {
    pub(super) fn get(
        &self,
        key: &str,
        open: impl FnOnce() -> Result<File, ObjectError>,
    ) -> Result<Arc<File>, ObjectError> {
        if let Some(file) = self.cached(key) {
            if file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
                return Ok(file);
            }
            self.forget(key);
        }
        let file = Arc::new(open()?);
        let mut slots = self.0.lock();
        if slots.open.len() >= CAPACITY {
            let oldest = slots.open.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                slots.open.remove(&oldest);
            }
        }
        slots.tick += 1;
        let tick = slots.tick;
        slots.open.insert(key.to_owned(), (Arc::clone(&file), tick));
        Ok(file)
    }

    fn cached(&self, key: &str) -> Option<Arc<File>> {
        let mut slots = self.0.lock();
        slots.tick += 1;
        let tick = slots.tick;
        let (file, used) = slots.open.get_mut(key)?;
        *used = tick;
        Some(Arc::clone(file))
    }

    pub(super) fn forget(&self, key: &str) {
        self.0.lock().open.remove(key);
    }
}
