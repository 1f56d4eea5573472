//! A store in a bucket of S3, Google Cloud Storage or Azure, over the crate `object_store`.
//!
//! Guarantees: a request that failed for a passing reason is repeated as long as the store's [`Patience`] lasts, with waits that grow
//! and differ; a store that asks for fewer requests is left alone by all callers together; a put whose answer was lost is told apart
//! from somebody else's; a credential that changed in its file is taken up by the next request.
//!
//! Relies on: user metadata that comes back with an object, where the store keeps it (the put's own mark is in it), else on the content
//! itself. The crate's own retries are switched off, because they cannot tell who created an object that "already exists".

mod body;
mod classify;
mod connect;
mod credentials;
mod gate;
mod profile;
mod put;
mod request;
mod watch;

use std::{
    fmt,
    fs::File,
    future::Future,
    io::Read,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use forebay_env::buffers::Buffers;
use futures::TryStreamExt;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, path::Path as Location};
use tokio::{runtime::Runtime, sync::Semaphore};

use self::{
    body::Body,
    classify::CutShort,
    credentials::Credentials,
    gate::Gate,
    request::{Request, transfer_time},
};
use crate::{
    Ability, Backend, Counters, ETag, ErrorKind, Expected, Limits, Meta, ObjectError, Operation, Page,
    Patience, PutOutcome, StoreOptions, StoreUrl,
};

/// Entries in a page of a listing.
const PAGE: usize = 1000;
/// What one attempt to read an object of unknown size is given time for.
const LARGEST_READ: u64 = 64 << 20;
/// Bytes of idle buffers that are kept of each size: what the threads that read ahead have under way.
const IDLE_MAX: usize = 16 << 20;
/// The largest file that is sent in one put.
const LARGEST_FILE: u64 = 1 << 30;

/// What all handles of one bucket share.
struct Shared {
    url: StoreUrl,
    client: Box<dyn ObjectStore>,
    credentials: Option<Arc<Credentials>>,
    permits: Semaphore,
    gate: Gate,
    counters: Arc<Counters>,
    endpoint: Option<String>,
    options: StoreOptions,
    /// What is read comes in these.
    buffers: Arc<Buffers>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A bucket as a store. See the [module](self).
#[derive(Clone)]
pub struct BucketStore {
    shared: Arc<Shared>,
    patience: Patience,
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketStore({}, {:?})", self.shared.url, self.patience)
    }
}

impl BucketStore {
    /// Prepares to speak to a bucket; no request is made yet. Retries and throttling are counted in `counters`.
    ///
    /// # Errors
    /// `Other` when the URL is a directory's, or an option is unknown or makes no sense.
    pub fn open(
        url: &StoreUrl,
        options: &StoreOptions,
        counters: Arc<Counters>,
    ) -> Result<BucketStore, ObjectError> {
        let connection = connect::connect(url, options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-store")
            .enable_all()
            .build()
            .map_err(|error| {
                ObjectError::caused(ErrorKind::Other, Operation::Open, url, "", "starting its threads", error)
            })?;
        let shared = Shared {
            url: url.clone(),
            client: connection.client,
            credentials: connection.credentials,
            permits: Semaphore::new(options.concurrency.clamp(1, 4096)),
            gate: Gate::default(),
            counters,
            endpoint: connection.endpoint,
            options: options.clone(),
            buffers: Buffers::new(IDLE_MAX),
            runtime: Some(runtime),
        };
        Ok(BucketStore { shared: Arc::new(shared), patience: options.patience })
    }

    /// The same bucket with another patience.
    #[must_use]
    pub fn patient(&self, patience: Patience) -> BucketStore {
        BucketStore { shared: Arc::clone(&self.shared), patience }
    }

    fn limits(&self) -> Limits {
        self.shared.options.limits(self.patience)
    }

    fn location(&self, operation: Operation, key: &str) -> Result<Location, ObjectError> {
        let prefix = self.shared.url.prefix();
        let full = match (prefix, key) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}/{key}"),
        };
        Location::parse(full).map_err(|error| {
            ObjectError::caused(
                ErrorKind::Other,
                operation,
                &self.shared.url,
                key,
                "not a possible key",
                error,
            )
        })
    }

    /// A version's tag as conditional puts of this kind of store want it: Google's compare generations.
    fn etag(&self, etag: Option<String>, version: Option<String>) -> Option<ETag> {
        match self.shared.url {
            StoreUrl::Gs { .. } => version.or(etag),
            _ => etag.or(version),
        }
        .map(ETag)
    }

    fn need_etag(&self, operation: Operation, key: &str, etag: Option<ETag>) -> Result<ETag, ObjectError> {
        let kind = ErrorKind::Unsupported { ability: Ability::ETag };
        etag.ok_or_else(|| ObjectError::new(kind, operation, &self.shared.url, key, "no tag came back"))
    }

    fn describe(&self, operation: Operation, meta: ObjectMeta) -> Result<Meta, ObjectError> {
        let prefix = self.shared.url.prefix();
        let key = meta.location.as_ref().strip_prefix(prefix).unwrap_or(meta.location.as_ref());
        let key = key.strip_prefix('/').unwrap_or(key).to_owned();
        let etag = self.need_etag(operation, &key, self.etag(meta.e_tag, meta.version))?;
        Ok(Meta { key, size: meta.size, etag, modified: SystemTime::from(meta.last_modified) })
    }

    /// Reads an object or part of it. The answer must begin as soon as that to a request without a body, each further piece must come
    /// within the same time, and all of it within the time that its size is given.
    async fn read(
        &self,
        location: &Location,
        options: GetOptions,
    ) -> Result<(ObjectMeta, Bytes), object_store::Error> {
        let patience = self.limits().attempt;
        let got = within(patience, self.shared.client.get_opts(location, options)).await?;
        let (meta, size) = (got.meta.clone(), got.range.end.saturating_sub(got.range.start));
        let mut pieces = got.into_stream();
        let all = async {
            let mut body = Body::new(&self.shared.buffers, size);
            while let Some(piece) = within(patience, pieces.try_next()).await? {
                body.add(&piece);
            }
            body.finish(size).map_err(|came| {
                let source = Box::new(CutShort { announced: size, came });
                object_store::Error::Generic { store: "bucket", source }
            })
        };
        within(patience + transfer_time(size), all).await.map(|bytes| (meta, bytes))
    }

    fn error(
        &self,
        kind: ErrorKind,
        operation: Operation,
        key: &str,
        detail: impl Into<String>,
    ) -> ObjectError {
        ObjectError::new(kind, operation, &self.shared.url, key, detail)
    }
}

impl Backend for BucketStore {
    fn url(&self) -> &StoreUrl {
        &self.shared.url
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.put(Operation::PutNew, key, vec![bytes], &Expected::Absent)
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        let operation = Operation::PutNewFile;
        let chunks = read_chunks(file).map_err(|error| {
            let detail = format!("reading {}: {error}", file.display());
            ObjectError::caused(ErrorKind::Other, operation, &self.shared.url, key, detail, error)
        })?;
        self.put(operation, key, chunks, &Expected::Absent)
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.put(Operation::PutIf, key, vec![bytes], expected)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let operation = Operation::GetRange;
        if range.is_empty() {
            return if range.start == range.end {
                Ok(Bytes::new())
            } else {
                Err(self.error(ErrorKind::Other, operation, key, "the range ends before it starts"))
            };
        }
        let location = self.location(operation, key)?;
        let length = range.end - range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let bytes =
            Request::new(self, operation, key, length).run(|| self.read(&location, options.clone()))?.1;
        if bytes.len() as u64 == length {
            return Ok(bytes);
        }
        let detail = format!("asked for bytes {}..{}, got {}", range.start, range.end, bytes.len());
        Err(self.error(ErrorKind::Corrupt, operation, key, detail))
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        let location = self.location(Operation::Get, key)?;
        let (meta, bytes) = Request::new(self, Operation::Get, key, LARGEST_READ)
            .run(|| self.read(&location, GetOptions::default()))?;
        if bytes.len() as u64 != meta.size {
            let detail = format!("its size is {}, but {} bytes came", meta.size, bytes.len());
            return Err(self.error(ErrorKind::Corrupt, Operation::Get, key, detail));
        }
        let etag = self.need_etag(Operation::Get, key, self.etag(meta.e_tag, meta.version))?;
        Ok((bytes, etag))
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        let location = self.location(Operation::Head, key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let got = Request::new(self, Operation::Head, key, 0)
            .run(|| self.shared.client.get_opts(&location, options.clone()))?;
        self.describe(Operation::Head, got.meta)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let location = self.location(Operation::Delete, key)?;
        let deleted = Request::new(self, Operation::Delete, key, 0).run(|| async {
            let one = futures::stream::iter([Ok(location.clone())]);
            self.shared.client.delete_stream(Box::pin(one)).try_for_each(|_| async { Ok(()) }).await
        });
        match deleted {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        let operation = Operation::List;
        let below = self.location(operation, prefix)?;
        let below = Some(&below).filter(|below| !below.as_ref().is_empty());
        let after = after.map(|after| self.location(operation, after)).transpose()?;
        let found: Vec<ObjectMeta> = Request::new(self, operation, prefix, 0).run(|| async {
            let mut listed = match &after {
                Some(after) => self.shared.client.list_with_offset(below, after),
                None => self.shared.client.list(below),
            };
            let mut found = Vec::new();
            while found.len() < PAGE {
                match listed.try_next().await? {
                    // A store may ignore where a listing is to begin: Azurite does.
                    Some(meta) if after.as_ref().is_some_and(|after| meta.location <= *after) => {}
                    Some(meta) => found.push(meta),
                    None => break,
                }
            }
            Ok(found)
        })?;
        let full = found.len() == PAGE;
        let entries =
            found.into_iter().map(|meta| self.describe(operation, meta)).collect::<Result<Vec<_>, _>>()?;
        let next = entries.last().filter(|_| full).map(|last| last.key.clone());
        Ok(Page { entries, next })
    }

    fn with_patience(&self, patience: Patience) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(self.patient(patience)))
    }
}

/// What comes in time, or an error that says that it did not.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, object_store::Error>>,
) -> Result<T, object_store::Error> {
    match tokio::time::timeout(time, work).await {
        Ok(result) => result,
        Err(elapsed) => Err(object_store::Error::Generic { store: "bucket", source: Box::new(elapsed) }),
    }
}

fn read_chunks(path: &Path) -> std::io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > LARGEST_FILE {
        return Err(std::io::Error::other("a file of more than 1 GiB does not fit into one put"));
    }
    let mut chunks = Vec::new();
    let mut left = size;
    while left > 0 {
        let mut chunk = Vec::new();
        let wanted = left.min(4 << 20);
        (&file).take(wanted).read_to_end(&mut chunk)?;
        if chunk.len() as u64 != wanted {
            return Err(std::io::Error::other("the file became shorter while it was read"));
        }
        left -= wanted;
        chunks.push(Bytes::from(chunk));
    }
    Ok(chunks)
}
