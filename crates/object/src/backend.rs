//! The narrow interface that every store offers.

use std::{fmt, ops::Range, path::Path, sync::Arc, time::SystemTime};

use bytes::Bytes;

use crate::{ObjectError, Patience, StoreUrl, Swept};

/// Names one version of an object: two different contents put under one key have different tags (of equal contents, S3's have the same
/// one). Opaque; comparable only within one store.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ETag(pub String);

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a put left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutOutcome {
    /// The version that was stored.
    pub etag: ETag,
    /// Whether the store says that it keeps former versions of objects, deleted ones too.
    pub versioned: bool,
}

/// What must be there for [`Backend::put_if`] to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing.
    Absent,
    /// This version.
    Etag(ETag),
}

/// What a store says about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The key, relative to the store's prefix.
    pub key: String,
    /// In bytes.
    pub size: u64,
    /// The version. Listings of Google's and Azure's give tags of another form than puts and heads, which no condition takes.
    pub etag: ETag,
    /// When this version was stored, by the store's clock.
    pub modified: SystemTime,
}

/// A part of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Ascending by the bytes of the key.
    pub entries: Vec<Meta>,
    /// What to pass as `after` to get the next page; `None` when there is none.
    pub next: Option<String>,
}

/// A store of objects under keys. All calls block, may come from any thread at the same time, and retry as the store's
/// [`Patience`] says.
///
/// Keys are relative to the store's prefix: parts of `A-Z a-z 0-9 . _ = + -` joined by `/`, none of them `.` or `..`, the first
/// not `.forebay`, at most 900 bytes in all; see [`check_key`](crate::check_key).
///
/// Every call fails with the kinds of [`ErrorKind`](crate::ErrorKind); those named below have a meaning of their own.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Where this store is.
    fn url(&self) -> &StoreUrl;

    /// Stores a new object. When this returns, the object is durable and visible to every later call.
    ///
    /// # Errors
    /// `AlreadyExists` when the key is taken, by whatever content, unless it was taken by this very call, its answer lost.
    /// After a transient error the object may be there or not.
    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError>;

    /// Stores the content of a file as a new object. A directory store on the same file system links the file instead of copying
    /// it, so the file must not be written again; a bucket holds the whole file in memory while it is sent.
    ///
    /// # Errors
    /// As [`Backend::put_new`].
    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError>;

    /// Stores an object if what is there now is what is expected, atomically among all clients of the store.
    ///
    /// # Errors
    /// `AlreadyExists` when nothing was expected and something is there; `PreconditionFailed` when another version is there, or
    /// none. After a transient error the object may be replaced or not. When an answer was lost and somebody else replaced the
    /// object before this call could look, `PreconditionFailed` may be said of a put that took place: a caller for whom this
    /// matters puts something into the content by which it knows its own.
    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError>;

    /// Reads exactly the bytes of a range. Meant for objects that are never replaced.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when the object ends before the range does.
    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError>;

    /// Reads a whole object, with the version that the bytes are of.
    ///
    /// # Errors
    /// `NotFound`.
    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError>;

    /// Describes an object.
    ///
    /// # Errors
    /// `NotFound`.
    fn head(&self, key: &str) -> Result<Meta, ObjectError>;

    /// Removes an object; one that is not there is as good as removed.
    ///
    /// # Errors
    /// After a transient error the object may be there or not.
    fn delete(&self, key: &str) -> Result<(), ObjectError>;

    /// Lists the objects below a prefix, which is empty or whole parts of a key (`objects/ab` lists `objects/ab/x`, not
    /// `objects/abc`), from the first key greater than `after`. A page is not a snapshot: an object put or deleted meanwhile may
    /// be listed or not, every other is listed once.
    ///
    /// # Errors
    /// A prefix below which nothing is gives an empty page.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError>;

    /// What interrupted calls of this process or any other left behind, which no listing shows; removed where `remove` says so. Nothing by
    /// default: a bucket has no such leftovers.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn sweep(&self, _remove: bool) -> Result<Swept, ObjectError> {
        Ok(Swept::default())
    }

    /// The same store with another patience, sharing connections, limits and credentials; `None` when the store never waits.
    fn with_patience(&self, _patience: Patience) -> Option<Arc<dyn Backend>> {
        None
    }
}
