//! What can go wrong with a store, and what a person can do about it.

use std::{error::Error, fmt, sync::Arc};

use crate::StoreUrl;

/// What a store is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Open the store.
    Open,
    /// [`Backend::put_new`](crate::Backend::put_new)
    PutNew,
    /// [`Backend::put_new_file`](crate::Backend::put_new_file)
    PutNewFile,
    /// [`Backend::put_if`](crate::Backend::put_if)
    PutIf,
    /// [`Backend::get_range`](crate::Backend::get_range)
    GetRange,
    /// [`Backend::get`](crate::Backend::get)
    Get,
    /// [`Backend::head`](crate::Backend::head)
    Head,
    /// [`Backend::delete`](crate::Backend::delete)
    Delete,
    /// [`Backend::list`](crate::Backend::list)
    List,
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub const ALL: [Operation; 9] = [
        Operation::Open,
        Operation::PutNew,
        Operation::PutNewFile,
        Operation::PutIf,
        Operation::GetRange,
        Operation::Get,
        Operation::Head,
        Operation::Delete,
        Operation::List,
    ];

    /// A short name, the same in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Open => "open",
            Operation::PutNew => "put",
            Operation::PutNewFile => "put_file",
            Operation::PutIf => "put_if",
            Operation::GetRange => "get_range",
            Operation::Get => "get",
            Operation::Head => "head",
            Operation::Delete => "delete",
            Operation::List => "list",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Operation::Open => "open",
            Operation::PutNew | Operation::PutNewFile => "put",
            Operation::PutIf => "conditionally put",
            Operation::GetRange | Operation::Get => "read",
            Operation::Head => "look up",
            Operation::Delete => "delete",
            Operation::List => "list",
        }
    }
}

/// Something that Forebay needs a store to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ability {
    /// A put that is refused when the key is taken.
    ConditionalCreate,
    /// A put that is refused when another version is there.
    ConditionalReplace,
    /// Reading an object.
    Read,
    /// Describing an object.
    Describe,
    /// Reading part of an object.
    RangeRead,
    /// Version tags.
    ETag,
    /// Reading back at once what was put.
    ReadAfterWrite,
    /// Listing, which sees at once what was put.
    List,
    /// Deleting, seen at once.
    Delete,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ability::ConditionalCreate => "conditional create (If-None-Match: *)",
            Ability::ConditionalReplace => "conditional replace (If-Match)",
            Ability::Read => "reading (GET)",
            Ability::Describe => "describing (HEAD)",
            Ability::RangeRead => "range read (Range)",
            Ability::ETag => "version tags (ETag)",
            Ability::ReadAfterWrite => "reading back what was just put",
            Ability::List => "listing, of what was just put too (ListObjectsV2)",
            Ability::Delete => "deleting (DELETE)",
        })
    }
}

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// No object has this key.
    NotFound,
    /// The key is taken.
    AlreadyExists,
    /// Another version is there than was expected, or none.
    PreconditionFailed,
    /// The credential is missing, wrong or expired.
    Unauthenticated,
    /// The credential is good, but not for this.
    Denied,
    /// The bucket, container or directory itself does not exist.
    NoBucket,
    /// No answer, or none of use: network, name resolution, time-out, a server's own failure.
    Unreachable,
    /// The store asks for fewer requests.
    Throttled,
    /// The store is full or a quota is used up.
    NoSpace,
    /// The store cannot do what Forebay needs, or silently does something else.
    Unsupported {
        /// What it lacks.
        ability: Ability,
    },
    /// The bytes cannot be what was stored: too few of them.
    Corrupt,
    /// Anything else.
    Other,
}

impl ErrorKind {
    const fn says(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "there is no such object",
            ErrorKind::AlreadyExists => "the key is taken",
            ErrorKind::PreconditionFailed => "another version is there than was expected",
            ErrorKind::Unauthenticated => "the credential was not accepted",
            ErrorKind::Denied => "permission denied",
            ErrorKind::NoBucket => "the bucket or directory does not exist",
            ErrorKind::Unreachable => "the store gave no usable answer",
            ErrorKind::Throttled => "the store asks for fewer requests",
            ErrorKind::NoSpace => "the store is full",
            ErrorKind::Unsupported { .. } => "the store lacks an ability that is needed",
            ErrorKind::Corrupt => "the object is damaged",
            ErrorKind::Other => "failed",
        }
    }

    const fn advice(self, place: Place) -> &'static str {
        let directory = matches!(place, Place::Directory);
        match self {
            ErrorKind::Unauthenticated if matches!(place, Place::Google) => {
                "renew the credential: GOOGLE_APPLICATION_CREDENTIALS (or GOOGLE_SERVICE_ACCOUNT) names its file when starting"
            }
            ErrorKind::Unauthenticated if matches!(place, Place::Azure) => {
                "renew the credential: AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or one of the others that \
                 operations.md names, when starting"
            }
            ErrorKind::Unauthenticated => {
                "renew the credential: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY when starting, or at any time the file \
                 AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), which is read again while running"
            }
            ErrorKind::Denied if directory => {
                "check the owner and mode of the directory, and that it is mounted writable"
            }
            ErrorKind::Denied => {
                "allow the credential to get, put, delete and list in this bucket and prefix"
            }
            ErrorKind::NoBucket if directory => "check that its file system is mounted",
            ErrorKind::NoBucket => "create it, or correct the URL",
            ErrorKind::Unreachable if directory => "check that its file system is mounted and answers",
            ErrorKind::Unreachable => "check the endpoint, the region and the network",
            ErrorKind::Throttled => "try again later, or raise the store's request quota",
            ErrorKind::NoSpace => "free space in the store or raise its quota",
            ErrorKind::Unsupported { .. } => "use another store, or another version of this one",
            ErrorKind::Corrupt => "run forebay fsck on the volume",
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::PreconditionFailed
            | ErrorKind::Other => "",
        }
    }
}

/// What kind of store it is: they need different advice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Directory,
    S3,
    Google,
    Azure,
}

impl Place {
    const fn of(store: &StoreUrl) -> Place {
        match store {
            StoreUrl::File(_) => Place::Directory,
            StoreUrl::S3 { .. } => Place::S3,
            StoreUrl::Gs { .. } => Place::Google,
            StoreUrl::Az { .. } => Place::Azure,
        }
    }
}

type Cause = Arc<dyn Error + Send + Sync>;

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    operation: Operation,
    key: String,
    store: String,
    place: Place,
    detail: String,
    source: Option<Cause>,
}

/// A failed request: what was asked, of which object, of which store, why it failed, and what a person can try. Cheap to clone, so
/// that all who waited for one request can have it.
#[derive(Clone, Debug)]
pub struct ObjectError(Arc<Inner>);

impl ObjectError {
    /// An error without a cause underneath. An empty key stands for the store itself.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        operation: Operation,
        store: &StoreUrl,
        key: &str,
        detail: impl Into<String>,
    ) -> ObjectError {
        ObjectError::build(kind, operation, store, key, detail.into(), None)
    }

    /// An error with the one that caused it.
    #[must_use]
    pub fn caused(
        kind: ErrorKind,
        operation: Operation,
        store: &StoreUrl,
        key: &str,
        detail: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> ObjectError {
        ObjectError::build(kind, operation, store, key, detail.into(), Some(Arc::new(source)))
    }

    fn build(
        kind: ErrorKind,
        operation: Operation,
        store: &StoreUrl,
        key: &str,
        detail: String,
        source: Option<Cause>,
    ) -> ObjectError {
        let place = Place::of(store);
        let (key, store) = (key.to_owned(), store.to_string());
        ObjectError(Arc::new(Inner { kind, operation, key, store, place, detail, source }))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was asked.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The key, or the prefix of a listing; empty when the store itself is meant.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The address of the store.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.0.store
    }

    /// Whether the same request may succeed later without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unreachable | ErrorKind::Throttled)
    }

    /// Whether this is an answer about an object rather than trouble with the store.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::PreconditionFailed)
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "cannot {} ", inner.operation.verb())?;
        if inner.key.is_empty() {
            write!(f, "{}", inner.store)?;
        } else {
            write!(f, "{} in {}", inner.key, inner.store)?;
        }
        write!(f, ": {}", inner.kind.says())?;
        if let ErrorKind::Unsupported { ability } = inner.kind {
            write!(f, ": {ability}")?;
        }
        if !inner.detail.is_empty() {
            write!(f, " ({})", inner.detail)?;
        }
        let advice = match inner.kind {
            // A signature has the time in it.
            ErrorKind::Unauthenticated if inner.detail.contains("RequestTimeTooSkewed") => {
                "set this machine's clock: the store compares it with its own"
            }
            kind => kind.advice(inner.place),
        };
        if advice.is_empty() { Ok(()) } else { write!(f, "; {advice}") }
    }
}

impl Error for ObjectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
