//! An S3 service in memory that takes its time before it answers: what a benchmark puts in place of a bucket that is far away.
//!
//! It does what [`crate::probe()`] asks of a store and no more: whole and conditional puts, reads of whole objects and of ranges, heads, lists, deletes.
//! Signatures are not looked at, everything is forgotten at the end, and it listens on this machine's own address only.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as BlockingListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{
        CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
    memory::InMemory, path::Path,
};
use tokio::{net::TcpListener, runtime::Runtime};
use url::form_urlencoded;

type Answer = Response<Full<Bytes>>;

/// A service that runs until it is dropped.
#[derive(Debug)]
pub struct LateStore {
    objects: Arc<InMemory>,
    counts: Arc<Counts>,
    address: SocketAddr,
    runtime: Runtime,
}

#[derive(Debug, Default)]
struct Counts {
    /// Requests for an object.
    reads: AtomicU64,
    /// All requests.
    requests: AtomicU64,
    /// Of a hundred so many are refused for being too many.
    refuses: AtomicU64,
}

impl Counts {
    /// Counts a request, and says whether it is refused.
    fn count(&self, request: &Request<Incoming>) -> bool {
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        self.reads.fetch_add(u64::from(looks && request.uri().query().is_none()), Ordering::Relaxed);
        // 37 has nothing in common with a hundred, so those that are refused are spread.
        let number = self.requests.fetch_add(37, Ordering::Relaxed);
        number % 100 < self.refuses.load(Ordering::Relaxed)
    }
}

impl LateStore {
    /// Listens on a free port, and answers each request `delay` after it came, at the earliest.
    ///
    /// # Errors
    /// The system's, where it gives no port or no threads.
    pub fn start(delay: Duration) -> io::Result<LateStore> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = BlockingListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let objects = Arc::new(InMemory::new());
        let (serving, counts) = (Arc::clone(&objects), Arc::new(Counts::default()));
        let counting = Arc::clone(&counts);
        runtime.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                let (objects, counts) = (Arc::clone(&serving), Arc::clone(&counting));
                let answering = service_fn(move |request: Request<Incoming>| {
                    let objects = Arc::clone(&objects);
                    let refused = counts.count(&request);
                    async move {
                        tokio::time::sleep(delay).await;
                        Ok::<_, Infallible>(match refused {
                            true => refusal_of(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
                            false => answer(&objects, request).await,
                        })
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answering));
            }
        });
        Ok(LateStore { objects, counts, address, runtime })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests there were for an object, for its bytes or its length.
    pub fn reads(&self) -> u64 {
        self.counts.reads.load(Ordering::Relaxed)
    }

    /// From now on so many of a hundred requests are refused as too many (503, `SlowDown`), spread evenly; their bodies are not looked at.
    pub fn refuse(&self, of_hundred: u64) {
        self.counts.refuses.store(of_hundred, Ordering::Relaxed);
    }

    /// The paths of all objects below the address, the bucket's name first, each with its size in bytes.
    pub fn objects(&self) -> Vec<(String, u64)> {
        let listed = self.runtime.block_on(self.objects.list(None).try_collect::<Vec<_>>());
        let named = |meta: ObjectMeta| (meta.location.to_string(), meta.size);
        listed.unwrap_or_default().into_iter().map(named).collect()
    }
}

async fn answer(objects: &InMemory, request: Request<Incoming>) -> Answer {
    let answered = match (request.method(), request.uri().query()) {
        (&Method::GET, Some(query)) if query.contains("list-type=2") => {
            list(objects, request.uri().path(), query).await
        }
        (&Method::GET | &Method::HEAD, _) => get(objects, &request).await,
        (&Method::PUT, _) => put(objects, request).await,
        (&Method::DELETE, _) => delete(objects, &request).await,
        _ => Ok(response(StatusCode::NOT_IMPLEMENTED, &[], Bytes::new())),
    };
    answered.unwrap_or_else(|error| refusal(&error))
}

fn refusal(error: &Error) -> Answer {
    let (status, code) = match error {
        Error::NotFound { .. } => (StatusCode::NOT_FOUND, "NoSuchKey"),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => {
            (StatusCode::PRECONDITION_FAILED, "PreconditionFailed")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    };
    refusal_of(status, code)
}

fn refusal_of(status: StatusCode, code: &str) -> Answer {
    response(status, &[], format!("<Error><Code>{code}</Code></Error>").into())
}

fn response(status: StatusCode, headers: &[(HeaderName, String)], body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The place of an object: the path of its URL, which begins with the bucket.
fn place(request: &Request<Incoming>) -> Result<Path, Error> {
    Path::from_url_path(request.uri().path()).map_err(Error::from)
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A version's tag, which has its quotation marks already.
fn tag(etag: Option<&str>) -> String {
    etag.unwrap_or_default().to_owned()
}

async fn get(objects: &InMemory, request: &Request<Incoming>) -> Result<Answer, Error> {
    let place = place(request)?;
    let head = request.method() == Method::HEAD;
    let range = header(request.headers(), &RANGE).and_then(bounded);
    let options = GetOptions { head, range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
    let found = objects.get_opts(&place, options).await?;
    let (meta, given) = (found.meta.clone(), found.range.clone());
    let body = if head { Bytes::new() } else { found.bytes().await? };
    let mut headers = vec![
        (ETAG, tag(meta.e_tag.as_deref())),
        (LAST_MODIFIED, meta.last_modified.to_rfc2822()),
        (CONTENT_LENGTH, (given.end - given.start).to_string()),
    ];
    let mut status = StatusCode::OK;
    if range.is_some() {
        status = StatusCode::PARTIAL_CONTENT;
        headers.push((
            CONTENT_RANGE,
            format!("bytes {}-{}/{}", given.start, given.end.saturating_sub(1), meta.size),
        ));
    }
    Ok(response(status, &headers, body))
}

/// The range of `bytes=FIRST-LAST`.
fn bounded(range: &str) -> Option<std::ops::Range<u64>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
}

async fn put(objects: &InMemory, request: Request<Incoming>) -> Result<Answer, Error> {
    let place = place(&request)?;
    let expected = header(request.headers(), &IF_MATCH).map(str::to_owned);
    let mode = match expected {
        Some(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None }),
        None if request.headers().contains_key(IF_NONE_MATCH) => PutMode::Create,
        None => PutMode::Overwrite,
    };
    let body = request.into_body().collect().await;
    let body = body.map_err(|error| Error::Generic { store: "late", source: Box::new(error) })?.to_bytes();
    let put = objects.put_opts(&place, body.into(), PutOptions { mode, ..PutOptions::default() }).await?;
    Ok(response(StatusCode::OK, &[(ETAG, tag(put.e_tag.as_deref()))], Bytes::new()))
}

async fn delete(objects: &InMemory, request: &Request<Incoming>) -> Result<Answer, Error> {
    match objects.delete(&place(request)?).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(response(StatusCode::NO_CONTENT, &[], Bytes::new())),
        Err(error) => Err(error),
    }
}

/// All keys in one page.
async fn list(objects: &InMemory, bucket: &str, query: &str) -> Result<Answer, Error> {
    let bucket = format!("{}/", bucket.trim_matches('/'));
    let given = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (prefix, after) = (given("prefix"), given("start-after"));
    let mut found: Vec<ObjectMeta> = objects.list(None).try_collect().await?;
    found.sort_by(|one, other| one.location.cmp(&other.location));
    let mut xml = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for meta in found {
        let key = meta.location.as_ref().strip_prefix(&bucket).filter(|key| key.starts_with(&prefix));
        if let Some(key) = key.filter(|key| *key > after.as_str()) {
            xml += &format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>{}</LastModified><ETag>{}</ETag></Contents>",
                meta.size,
                meta.last_modified.to_rfc3339(),
                tag(meta.e_tag.as_deref())
            );
        }
    }
    Ok(response(StatusCode::OK, &[], (xml + "</ListBucketResult>").into()))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{Backend as _, ErrorKind, ObjectStore as Store, Patience, StoreOptions, probe};

    fn of(late: &LateStore) -> Store {
        let extra = [("aws_access_key_id", "any"), ("aws_secret_access_key", "any"), ("aws_region", "here")];
        let options = StoreOptions {
            endpoint: Some(format!("http://{}", late.address())),
            extra: extra.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            ..StoreOptions::default()
        };
        Store::open(&"s3://bucket/below".parse().unwrap(), &options).unwrap()
    }

    #[test]
    fn it_does_what_a_volume_needs_and_takes_its_time() {
        let late = LateStore::start(Duration::from_millis(3)).unwrap();
        let store = of(&late);
        let begin = Instant::now();
        probe(&store).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(3), "no request is answered sooner");
        store.put_new("some/key", Bytes::from_static(b"0123456789")).unwrap();
        assert_eq!(store.get_range("some/key", 2..5).unwrap(), "234");
        assert_eq!(late.objects(), [("bucket/below/some/key".to_owned(), 10)]);
    }

    #[test]
    fn it_refuses_as_many_as_it_was_told() {
        let late = LateStore::start(Duration::ZERO).unwrap();
        let store = of(&late);
        store.put_new("key", Bytes::from_static(b"0123456789")).unwrap();
        late.refuse(100);
        let refused = store.patient(Patience::Quick).get_range("key", 0..2).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Throttled);
        late.refuse(50);
        assert_eq!(store.get_range("key", 0..2).unwrap(), "01", "another try is answered");
        let before = late.reads();
        late.refuse(0);
        store.get_range("key", 0..2).unwrap();
        assert_eq!(late.reads(), before + 1, "the first try is");
    }
}
