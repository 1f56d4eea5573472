use forebay_format::row::ObjectRef;
use forebay_types::{Epoch, ObjectId};

/// The key of an object of data in the store.
#[must_use]
pub fn object_key(object: ObjectRef) -> String {
    object.key()
}

/// The object of data that has a key, if one can have it.
#[must_use]
pub fn parse_key(key: &str) -> Option<ObjectRef> {
    let (epoch, id) = key.rsplit('/').next()?.split_once('-')?;
    let epoch = Epoch(u64::from_str_radix(epoch, 16).ok()?);
    let object = ObjectRef { epoch, id: ObjectId(u64::from_str_radix(id, 16).ok()?) };
    (object.key() == key).then_some(object)
}
