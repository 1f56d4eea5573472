use std::fmt;

use bytes::Bytes;
use forebay_data::SourceError;
use forebay_format::row::ObjectRef;
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore};
use forebay_types::SegmentId;

use crate::source::object_key;

/// Reads ranges of objects.
pub(crate) struct ObjectReader {
    store: ObjectStore,
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectReader({})", self.store.url())
    }
}

impl ObjectReader {
    pub(crate) fn new(store: ObjectStore) -> ObjectReader {
        ObjectReader { store }
    }

    /// Bytes of an object, for a segment that is in it.
    pub(crate) fn read(
        &self,
        segment: SegmentId,
        object: ObjectRef,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, SourceError> {
        self.store
            .get_range(&object_key(object), offset..offset + u64::from(len))
            .map_err(|error| explain(segment, offset, &error))
    }

    /// Says that bytes that were read are not what was written.
    pub(crate) fn distrust(&self, _object: ObjectRef, _offset: u64, _len: u32) {}
}

fn explain(segment: SegmentId, offset: u64, error: &ObjectError) -> SourceError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NoBucket => SourceError::NotFound { segment, detail },
        ErrorKind::Corrupt => SourceError::Corrupt { segment, offset, detail },
        _ => SourceError::Unavailable { segment, detail },
    }
}
