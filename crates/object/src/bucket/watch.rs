//! What the crate `object_store` leaves out of its errors, read from the answers as they pass: how long to wait, and which region the bucket is in;
//! and whether what is said to be a listing is one.
//!
//! Relies on a request being sent by the task that waits for it, which has the place where the answers' words are kept.

use std::{cell::RefCell, future::Future, pin::Pin, time::Duration};

use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
};

/// What the last answer to an attempt said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Said {
    /// It asks to wait so long (`Retry-After`).
    pub(super) wait: Option<Duration>,
    /// The bucket is in this region (`x-amz-bucket-region`).
    pub(super) region: Option<String>,
    /// Where it says that the request should go (`Location`).
    pub(super) location: Option<String>,
    /// The object that was put is one of several versions (`x-amz-version-id`).
    pub(super) versioned: bool,
}

/// The elements that listings of the stores are.
const LISTINGS: [&str; 2] = ["<ListBucketResult", "<EnumerationResults"];
/// Bytes in which a listing's element begins.
const LISTING_BEGINS: usize = 1000;

tokio::task_local! {
    static SAID: RefCell<Said>;
}

/// Runs an attempt, and gives what its last answer said beside its result.
pub(super) async fn listening<F: Future>(attempt: F) -> (F::Output, Said) {
    SAID.scope(RefCell::default(), async {
        let result = attempt.await;
        (result, SAID.with(|said| said.take()))
    })
    .await
}

fn note(response: &HttpResponse) {
    let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let said = Said {
        wait: text("retry-after").and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs),
        region: text("x-amz-bucket-region").map(str::to_owned),
        location: text("location").filter(|_| response.status().is_redirection()).map(str::to_owned),
        versioned: text("x-amz-version-id").is_some_and(|version| version != "null"),
    };
    // Other requests than those of attempts have nobody who listens.
    let _nobody_listens = SAID.try_with(|heard| *heard.borrow_mut() = said);
}

fn is_listing(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list"))
}

/// A success that is no listing.
#[derive(Debug, thiserror::Error)]
#[error("a listing was asked for, and something else came: {0:?}")]
struct NoListing(String);

/// The same answer, if it has a listing in it: of an error that comes as success the crate would make an empty one, and a bucket must not look
/// empty when it is not.
async fn whole_listing(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = response.into_parts();
    let body = body.bytes().await?;
    let begin = String::from_utf8_lossy(&body[..body.len().min(LISTING_BEGINS)]);
    if LISTINGS.iter().any(|root| begin.contains(root)) {
        return Ok(HttpResponse::from_parts(head, body.into()));
    }
    let begin = begin.chars().take(200).collect();
    Err(HttpError::new(HttpErrorKind::Interrupted, NoListing(begin)))
}

/// Makes clients whose answers are listened to.
#[derive(Debug)]
pub(super) struct Listener;

impl HttpConnector for Listener {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Listened(client)))
    }
}

#[derive(Debug)]
struct Listened(HttpClient);

impl HttpService for Listened {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async {
            let lists = request.method() == "GET" && request.uri().query().is_some_and(is_listing);
            let response = self.0.execute(request).await?;
            note(&response);
            if lists && response.status().is_success() { whole_listing(response).await } else { Ok(response) }
        })
    }
}
