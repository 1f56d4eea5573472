//! Finding out, before a volume trusts a store, whether it does what it must.

use std::{
    fmt,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{Ability, Backend, ETag, ErrorKind, Expected, ObjectError, Operation, Page, StoreUrl, random};

/// What a probe found. That there is one means that the store has every ability that is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeReport {
    /// The address of the store.
    pub store: StoreUrl,
    /// How long a put of 64 KiB took.
    pub put: Duration,
    /// How long reading part of it took.
    pub get: Duration,
    /// Whether the store says that it keeps former versions: then deleting gives no space back until it forgets them.
    pub keeps_versions: bool,
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        write!(f, "{}: usable; put {:.1} ms, read {:.1} ms", self.store, ms(self.put), ms(self.get))?;
        if self.keeps_versions { write!(f, "; it keeps former versions of objects") } else { Ok(()) }
    }
}

/// Tries everything that a volume needs of a store, under `probe/` and a random name, and removes what it put there.
///
/// # Errors
/// `Unsupported` with the ability that is missing, also when the store claims to have it and does not; what else the store says.
pub fn probe(store: &dyn Backend) -> Result<ProbeReport, ObjectError> {
    let name = random::name().map_err(|error| {
        ObjectError::caused(ErrorKind::Other, Operation::Open, store.url(), "", "no random bits", error)
    })?;
    let probe = Probe { store, dir: format!("probe/{name}"), key: format!("probe/{name}/object") };
    let result = probe.run();
    if result.is_err() {
        let _the_first_error_says_more = store.delete(&probe.key);
    }
    result
}

struct Probe<'a> {
    store: &'a dyn Backend,
    dir: String,
    key: String,
}

impl Probe<'_> {
    fn run(&self) -> Result<ProbeReport, ObjectError> {
        let content: Bytes = (0..65_536_u32).map(|i| (i % 251) as u8).collect();
        let start = Instant::now();
        let first = self.store.put_new(&self.key, content.clone())?;
        let (first, keeps_versions) = (first.etag, first.versioned);
        let put = start.elapsed();
        self.taken_key_is_refused(&content)?;
        let start = Instant::now();
        self.range_is_read(&content)?;
        let get = start.elapsed();
        self.only_the_named_version_is_replaced(&first)?;
        self.listing_shows(true)?;
        self.store.delete(&self.key)?;
        match self.store.head(&self.key) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Err(self.lacks(Ability::Delete, Operation::Head, "a deleted object is still there"));
            }
        }
        self.listing_shows(false)?;
        if keeps_versions {
            tracing::warn!(
                "{} keeps former versions of objects: what is deleted takes room until they expire; give the bucket a lifecycle \
                 rule that expires noncurrent versions, or switch versioning off",
                self.store.url()
            );
        }
        Ok(ProbeReport { store: self.store.url().clone(), put, get, keeps_versions })
    }

    fn lacks(&self, ability: Ability, operation: Operation, detail: &str) -> ObjectError {
        ObjectError::new(ErrorKind::Unsupported { ability }, operation, self.store.url(), &self.key, detail)
    }

    fn taken_key_is_refused(&self, content: &Bytes) -> Result<(), ObjectError> {
        let other = Bytes::from_static(b"must not be stored");
        match self.store.put_new(&self.key, other) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let detail =
                    "it ignores If-None-Match and overwrote an object that it was told to leave alone";
                return Err(self.lacks(Ability::ConditionalCreate, Operation::PutNew, detail));
            }
        }
        let (read, _) = self.store.get(&self.key)?;
        if read == *content {
            return Ok(());
        }
        let detail = "what was read back is not what was put";
        Err(self.lacks(Ability::ReadAfterWrite, Operation::Get, detail))
    }

    fn range_is_read(&self, content: &Bytes) -> Result<(), ObjectError> {
        let read = match self.store.get_range(&self.key, 1000..5096) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            other => Some(other?),
        };
        if read.is_some_and(|read| read == content[1000..5096]) {
            return Ok(());
        }
        Err(self.lacks(Ability::RangeRead, Operation::GetRange, "other bytes came than were asked for"))
    }

    fn only_the_named_version_is_replaced(&self, first: &ETag) -> Result<(), ObjectError> {
        let newer = Bytes::from_static(b"second version");
        let second = self.store.put_if(&self.key, newer.clone(), &Expected::Etag(first.clone()));
        let second = match second {
            Ok(second) => second.etag,
            Err(error) if error.kind() == ErrorKind::PreconditionFailed => {
                let detail = "it refused to replace the very version that was named";
                return Err(self.lacks(Ability::ConditionalReplace, Operation::PutIf, detail));
            }
            Err(error) => return Err(error),
        };
        if second == *first {
            return Err(self.lacks(Ability::ETag, Operation::PutIf, "two versions have one tag"));
        }
        let stale = Bytes::from_static(b"must not be stored either");
        match self.store.put_if(&self.key, stale, &Expected::Etag(first.clone())) {
            Err(error) if error.kind() == ErrorKind::PreconditionFailed => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let detail = "it ignores If-Match and replaced a version that was not named";
                return Err(self.lacks(Ability::ConditionalReplace, Operation::PutIf, detail));
            }
        }
        let (read, etag) = self.store.get(&self.key)?;
        if read == newer && etag == second {
            return Ok(());
        }
        Err(self.lacks(Ability::ReadAfterWrite, Operation::Get, "a replaced object reads as something else"))
    }

    fn listing_shows(&self, wanted: bool) -> Result<(), ObjectError> {
        let Page { entries, .. } = self.store.list(&self.dir, None)?;
        if entries.iter().any(|meta| meta.key == self.key) == wanted {
            return Ok(());
        }
        let detail = if wanted { "an object is not listed" } else { "a deleted object is listed" };
        Err(self.lacks(Ability::List, Operation::List, detail))
    }
}
