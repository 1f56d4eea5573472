//! A store of ours as SlateDB wants one.
//!
//! Guarantees: a put of a new key that is said to have found the key taken did not put it there itself, as [`Backend`] promises; it is
//! tried again inside one call for as long as [`STUBBORN`] says, so that a lost answer does not look like another writer. The last put to the
//! write-ahead log whose end is not known is remembered, for [`Bucket::seal`].

use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_object::{
    Backend, ETag, ErrorKind, Expected, Limits, Meta, ObjectError, ObjectStore as Store, PutOutcome,
};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    path::Path,
};
use parking_lot::Mutex;

use crate::upload::Upload;

/// How patient the store is with SlateDB's own requests: it tries them again for ever anyway.
pub(crate) const STUBBORN: Limits = Limits {
    total: Duration::from_mins(10),
    attempt: Limits::PATIENT.attempt,
    first_wait: Duration::from_millis(50),
    longest_wait: Duration::from_secs(2),
};

/// How often an object that others put at the same time is put over theirs.
const OVERWRITES: usize = 10;

/// The store as one database uses it. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    store: Store,
    /// The key of the last put to the log that has begun and is not known to have come to an end.
    open_put: Arc<Mutex<Option<String>>>,
}

impl Bucket {
    pub(crate) fn new(store: Store) -> Bucket {
        Bucket { store, open_put: Arc::default() }
    }

    /// Makes a request on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> std::result::Result<T, ObjectError> + Send + 'static,
    ) -> Result<T> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|source| Error::JoinError { source })?.map_err(translate)
    }

    /// Sees to it that no put to the log is still to come: one whose end is not known came already, or finds its key taken. Only for a writer that was
    /// shut out. What it puts is what the next writer would put there, and means nothing.
    pub(crate) async fn seal(&self) -> Result<()> {
        let Some(key) = self.open_put.lock().clone() else { return Ok(()) };
        match self.ask(move |store| store.put_new(&key, Bytes::new())).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => {
                *self.open_put.lock() = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&self, key: String, bytes: Bytes) -> Result<PutOutcome> {
        let logged = key.contains("/wal/");
        if logged {
            *self.open_put.lock() = Some(key.clone());
        }
        let done = self.ask(move |store| store.put_new(&key, bytes)).await;
        if logged && matches!(done, Ok(_) | Err(Error::AlreadyExists { .. })) {
            *self.open_put.lock() = None;
        }
        done
    }

    /// Puts an object whatever is there.
    pub(crate) async fn overwrite(&self, key: String, bytes: Bytes) -> Result<PutOutcome> {
        self.ask(move |store| {
            let mut expected = Expected::Absent;
            for _ in 1..OVERWRITES {
                match store.put_if(&key, bytes.clone(), &expected) {
                    Err(error) if error.is_answer() => {}
                    done => return done,
                }
                expected = match store.head(&key) {
                    Ok(meta) => Expected::Etag(meta.etag),
                    Err(error) if error.kind() == ErrorKind::NotFound => Expected::Absent,
                    Err(error) => return Err(error),
                };
            }
            store.put_if(&key, bytes, &expected)
        })
        .await
    }

    fn entries(&self, prefix: Option<&Path>, after: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (bucket, prefix) = (self.clone(), prefix.map_or_else(String::new, Path::to_string));
        let first = Some(after.map(Path::to_string));
        let pages = stream::try_unfold(first, move |after| {
            let (bucket, prefix) = (bucket.clone(), prefix.clone());
            async move {
                let Some(after) = after else { return Ok(None) };
                let page = bucket.ask(move |store| store.list(&prefix, after.as_deref())).await?;
                let entries: Vec<Result<ObjectMeta>> = page.entries.into_iter().map(describe).collect();
                Ok::<_, Error>(Some((stream::iter(entries), page.next.map(Some))))
            }
        });
        pages.try_flatten().boxed()
    }

    /// The bytes of a range that may reach beyond the end, and where the object is known to reach to.
    async fn range(&self, key: &str, range: &GetRange) -> Result<(Bytes, Range<u64>, u64)> {
        let get = |range: Range<u64>| {
            let key = key.to_owned();
            self.ask(move |store| match store.get_range(&key, range.clone()) {
                // It ends before the range does.
                Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
                got => got.map(Some),
            })
        };
        if let GetRange::Bounded(range) = range
            && let Some(bytes) = get(range.clone()).await?
        {
            return Ok((bytes, range.clone(), range.end));
        }
        let of = key.to_owned();
        let size = self.ask(move |store| store.head(&of)).await?.size;
        let within = match range {
            GetRange::Bounded(range) => range.start.min(size)..range.end.min(size),
            GetRange::Offset(offset) => (*offset).min(size)..size,
            GetRange::Suffix(suffix) => size.saturating_sub(*suffix)..size,
        };
        match get(within.clone()).await? {
            Some(bytes) => Ok((bytes, within, size)),
            None => Err(generic(format!("{key} became shorter while it was read"))),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store.url())
    }
}

pub(crate) fn generic(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "forebay", source: error.into() }
}

fn translate(error: ObjectError) -> Error {
    let path = error.key().to_owned();
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { path, source: Box::new(error) },
        ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: Box::new(error) },
        ErrorKind::PreconditionFailed => Error::Precondition { path, source: Box::new(error) },
        _ => generic(error),
    }
}

fn describe(meta: Meta) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: Path::parse(meta.key)?,
        last_modified: meta.modified.into(),
        size: meta.size,
        e_tag: Some(meta.etag.0),
        version: None,
    })
}

/// What is known of an object of which bytes were read; when it was put is not.
fn of_bytes(location: &Path, size: u64, etag: Option<ETag>) -> ObjectMeta {
    let last_modified = SystemTime::UNIX_EPOCH.into();
    ObjectMeta {
        location: location.clone(),
        last_modified,
        size,
        e_tag: etag.map(|etag| etag.0),
        version: None,
    }
}

pub(crate) fn stored(outcome: PutOutcome) -> PutResult {
    PutResult { e_tag: Some(outcome.etag.0), version: None, extensions: Default::default() }
}

fn result(meta: ObjectMeta, range: Range<u64>, bytes: Bytes) -> GetResult {
    let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
    GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (key, bytes) = (location.to_string(), Bytes::from(payload));
        let put = match options.mode {
            PutMode::Create => self.create(key, bytes).await,
            PutMode::Overwrite => self.overwrite(key, bytes).await,
            PutMode::Update(version) => {
                let etag = ETag(version.e_tag.unwrap_or_default());
                self.ask(move |store| store.put_if(&key, bytes, &Expected::Etag(etag))).await
            }
        };
        put.map(stored)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload::new(self.clone(), location.to_string())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.to_string();
        if options.head {
            let meta = describe(self.ask(move |store| store.head(&key)).await?)?;
            return Ok(result(meta, 0..0, Bytes::new()));
        }
        if let Some(range) = &options.range {
            let (bytes, range, size) = self.range(&key, range).await?;
            return Ok(result(of_bytes(location, size, None), range, bytes));
        }
        let (bytes, etag) = self.ask(move |store| store.get(&key)).await?;
        if options.if_none_match.as_deref() == Some(etag.0.as_str()) {
            return Err(Error::NotModified { path: location.to_string(), source: "it is the same".into() });
        }
        let size = bytes.len() as u64;
        Ok(result(of_bytes(location, size, Some(etag)), 0..size, bytes))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.clone();
        let delete = move |location: Path| {
            let bucket = bucket.clone();
            async move {
                let key = location.to_string();
                bucket.ask(move |store| store.delete(&key)).await.map(|()| location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.entries(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.entries(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let above = prefix.map_or(0, |prefix| prefix.parts().count());
        let mut found =
            ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        let mut entries = self.entries(prefix, None);
        while let Some(meta) = entries.try_next().await? {
            let parts: Vec<_> = meta.location.parts().take(above + 2).collect();
            if parts.len() == above + 1 {
                found.objects.push(meta);
                continue;
            }
            let below: Path = parts.into_iter().take(above + 1).collect();
            if found.common_prefixes.last() != Some(&below) {
                found.common_prefixes.push(below);
            }
        }
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        let (from, to) = (from.to_string(), to.to_string());
        let (bytes, _) = self.ask(move |store| store.get(&from)).await?;
        self.overwrite(to, bytes).await.map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_object::{Fault, FaultyStore, Operation, StoreOptions, StoreUrl};

    use super::*;

    const LOG: &str = "rows/id/wal/00000000000000000007.sst";

    fn store(dir: &std::path::Path) -> Store {
        let options = StoreOptions { create_directory: true, ..StoreOptions::default() };
        Store::open(&StoreUrl::directory(dir).unwrap(), &options).unwrap()
    }

    fn create(bucket: &Bucket, key: &str) -> Result<PutResult> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let options = PutOptions::from(PutMode::Create);
        runtime.block_on(bucket.put_opts(&Path::from(key), PutPayload::from_static(b"rows"), options))
    }

    fn seal(bucket: &Bucket) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(bucket.seal()).unwrap();
    }

    #[test]
    fn a_put_of_the_log_that_was_not_answered_does_not_come_after_the_seal() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let faulty = Arc::new(FaultyStore::new(Arc::new(store.clone()), 1));
        let bucket = Bucket::new(Store::over(Arc::clone(&faulty) as _));
        create(&bucket, "rows/id/wal/00000000000000000006.sst").unwrap();
        seal(&bucket);
        assert_eq!(store.list("rows", None).unwrap().entries.len(), 1, "nothing was open");
        for fault in [Fault::FailBefore, Fault::LoseAnswer] {
            let _ = store.delete(LOG);
            faulty.plan(Operation::PutNew, fault);
            create(&bucket, LOG).unwrap_err();
            seal(&bucket);
            let late = store.put_new(LOG, Bytes::from_static(b"rows")).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::AlreadyExists);
            let empty = store.get(LOG).unwrap().0.is_empty();
            assert_eq!(empty, fault == Fault::FailBefore, "what had come stays");
        }
    }

    #[test]
    fn ranges_end_where_the_object_does() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        store.put_new("object", Bytes::from_static(b"0123456789")).unwrap();
        let bucket = Bucket::new(store);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for (range, bytes) in [
            (GetRange::Bounded(2..5), b"234".as_slice()),
            (GetRange::Bounded(8..20), b"89"),
            (GetRange::Offset(7), b"789"),
            (GetRange::Suffix(2), b"89"),
            (GetRange::Suffix(20), b"0123456789"),
        ] {
            let (got, of, _) = runtime.block_on(bucket.range("object", &range)).unwrap();
            assert_eq!((got.as_ref(), of.end - of.start), (bytes, bytes.len() as u64), "{range:?}");
        }
    }
}
