//! A store whose objects are read through a group.

use std::{fmt, ops::Range, path::Path, sync::Arc, time::SystemTime};

use bytes::{Bytes, BytesMut};
use forebay_object::{
    Backend, ETag, Expected, Meta, ObjectError, ObjectStore, Page, Patience, PutOutcome, StoreUrl,
};
use forebay_reading::parse_key;

use super::VolumeGroup;
use crate::data::Within;

/// Bytes of one fetch at most.
const FETCH_MAX: u64 = 8 << 20;

/// The store of a volume: objects of data are read through its group as long as it has one, everything else goes to the store. Of an object's attributes only
/// the length comes from the group.
#[derive(Clone)]
pub struct GroupStore {
    group: Arc<VolumeGroup>,
    store: ObjectStore,
    within: Within,
}

impl fmt::Debug for GroupStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupStore({:?}, {:?})", self.group, self.store.url())
    }
}

impl GroupStore {
    /// `store`, read through the group that is gone by or, of what may be there alone, another one.
    #[must_use]
    pub fn over(group: Arc<VolumeGroup>, store: &ObjectStore, within: Within) -> ObjectStore {
        ObjectStore::over(Arc::new(GroupStore { group, store: store.clone(), within }))
    }

    fn read_store(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let bytes = self.store.get_range(key, range)?;
        self.group.count_store(bytes.len());
        Ok(bytes)
    }
}

impl Backend for GroupStore {
    fn url(&self) -> &StoreUrl {
        self.store.url()
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.store.put_new(key, bytes)
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        self.store.put_new_file(key, file)
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.store.put_if(key, bytes, expected)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let Some(object) = parse_key(key).filter(|_| !range.is_empty()) else {
            return self.read_store(key, range);
        };
        // A read ends in the group in which it began.
        let Some(known) = self.group.gone_by(self.within) else { return self.read_store(key, range) };
        let mut whole = BytesMut::new();
        let mut start = range.start;
        while start < range.end {
            let end = self.group.part(object, start, range.end.min(start + FETCH_MAX));
            // Not above 8 MiB.
            let fetched = self.group.fetch(&known, object, start, (end - start) as u32);
            let bytes = match fetched {
                Some(bytes) => bytes,
                None => self.read_store(key, start..end).or_else(|error| {
                    // Who was late when it was asked may have it: the store need not be there for what is cached.
                    let cached = || self.group.peek(&known, object, start, (end - start) as u32);
                    error.is_transient().then(cached).flatten().ok_or(error)
                })?,
            };
            if start == range.start && end == range.end {
                return Ok(bytes);
            }
            whole.reserve((range.end - range.start) as usize - whole.len());
            whole.extend_from_slice(&bytes);
            start = end;
        }
        Ok(whole.freeze())
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        self.store.get(key)
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        let (known, object) = (self.group.gone_by(self.within), parse_key(key));
        let Some((known, object)) = known.zip(object) else { return self.store.head(key) };
        let meta = |size| Meta {
            key: key.to_owned(),
            size,
            etag: ETag::default(),
            modified: SystemTime::UNIX_EPOCH,
        };
        let not_given = match self.group.length(&known, object) {
            Ok(size) => return Ok(meta(size)),
            Err(not_given) => not_given,
        };
        self.store.head(key).or_else(|error| {
            // As of bytes.
            let again = not_given.late && error.is_transient();
            let length = again.then(|| self.group.length(&known, object)).and_then(Result::ok);
            length.map(meta).ok_or(error)
        })
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.store.delete(key)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.store.list(prefix, after)
    }

    fn with_patience(&self, patience: Patience) -> Option<Arc<dyn Backend>> {
        let store = self.store.patient(patience);
        Some(Arc::new(GroupStore { group: Arc::clone(&self.group), store, within: self.within }))
    }
}
