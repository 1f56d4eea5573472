//! What a failure of the crate `object_store` means.
//!
//! The crate keeps the HTTP status and the body of an answer in a type that it does not publish, so they are read from its message
//! (`Server returned non-2xx status code: 503 Service Unavailable: <body>`); tests with a real server hold that form.

use std::error::Error as _;

use object_store::{
    Error,
    client::{HttpError, HttpErrorKind},
};
use tokio::time::error::Elapsed;

use super::watch::Said;
use crate::{Ability, ErrorKind};

/// A body that ended before all that its head announced had come.
#[derive(Debug, thiserror::Error)]
#[error("{announced} bytes were announced, and {came} came")]
pub(super) struct CutShort {
    pub(super) announced: u64,
    pub(super) came: u64,
}

/// A failed attempt.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    /// Whether the same attempt may go well later.
    pub(super) again: bool,
    /// Whether it may have been carried out nevertheless.
    pub(super) uncertain: bool,
    pub(super) detail: String,
    pub(super) source: Error,
}

const UNAUTHENTICATED: [&str; 9] = [
    "InvalidAccessKeyId",
    // versitygw's word for the same.
    "XAdminUserNotFound",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "AuthenticationFailed",
    "AuthorizationHeaderMalformed",
];
const THROTTLED: [&str; 6] =
    ["SlowDown", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ServerBusy", "rateLimitExceeded"];
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "InvalidBucketName"];
const NO_SPACE: [&str; 4] = ["QuotaExceeded", "EntityTooLarge", "XMinioStorageFull", "InsufficientStorage"];
/// How the crate begins to say that an answer has other bytes than were asked for.
const OTHER_BYTES: [&str; 3] =
    ["Requested ", "Wanted range starting at", "Failed to parse value for CONTENT_RANGE"];
/// Bytes of what a server says that are worth telling.
const LONGEST_TEXT: usize = 1000;
/// How the crate says that a redirection names no place.
const BARE_REDIRECT: &str = "Received redirect without LOCATION";
/// Another conditional request for the key is under way; neither has won.
const CONFLICTS: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];

/// `ability` is what the request needs of the store, `said` what else its answer said.
pub(super) fn classify(error: Error, ability: Ability, said: &Said) -> Failure {
    let text = innermost(&error);
    let transport = transport(&error);
    let status = status(&text);
    let code = between(&text, "<Code>", "</Code>").map(str::to_owned);
    let region = region(status, code.as_deref(), &text, said);
    let kind = match region {
        Some(_) => ErrorKind::Other,
        None => kind(&error, status, code.as_deref(), transport, &text, ability),
    };
    let conflict = code.as_deref().is_some_and(|code| CONFLICTS.contains(&code));
    let failed_to_send = transport == Some(HttpErrorKind::Connect);
    let again = conflict || matches!(kind, ErrorKind::Unreachable | ErrorKind::Throttled);
    let uncertain = kind == ErrorKind::Unreachable && !failed_to_send;
    Failure {
        kind,
        again,
        uncertain,
        detail: region.unwrap_or_else(|| detail(status, code.as_deref(), transport, text)),
        source: error,
    }
}

fn kind(
    error: &Error,
    status: Option<u16>,
    code: Option<&str>,
    transport: Option<HttpErrorKind>,
    text: &str,
    ability: Ability,
) -> ErrorKind {
    let named = |names: &[&str]| code.is_some_and(|code| names.contains(&code));
    if named(&UNAUTHENTICATED) {
        return ErrorKind::Unauthenticated;
    }
    if named(&NO_BUCKET) {
        return ErrorKind::NoBucket;
    }
    if named(&NO_SPACE) || status == Some(507) {
        return ErrorKind::NoSpace;
    }
    if named(&THROTTLED) || matches!(status, Some(429 | 503)) {
        return ErrorKind::Throttled;
    }
    if status == Some(501) || named(&["NotImplemented"]) {
        return ErrorKind::Unsupported { ability };
    }
    match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        Error::Precondition { .. } | Error::NotModified { .. } => ErrorKind::PreconditionFailed,
        Error::PermissionDenied { .. } => ErrorKind::Denied,
        Error::Unauthenticated { .. } => ErrorKind::Unauthenticated,
        _ => match status {
            Some(401) => ErrorKind::Unauthenticated,
            Some(403) => ErrorKind::Denied,
            Some(404) => ErrorKind::NotFound,
            Some(416) => ErrorKind::Corrupt,
            Some(408 | 500..) => ErrorKind::Unreachable,
            Some(_) => ErrorKind::Other,
            None if transport.is_some() => ErrorKind::Unreachable,
            // An answer of other bytes than were asked for.
            None if OTHER_BYTES.iter().any(|words| text.starts_with(words)) => ErrorKind::Corrupt,
            None if text.contains("ETag Header missing") => ErrorKind::Unsupported { ability: Ability::ETag },
            None if text.contains("non-partial response") => {
                ErrorKind::Unsupported { ability: Ability::RangeRead }
            }
            None => ErrorKind::Other,
        },
    }
}

/// What to say where the bucket is in another region than the request was signed for: a redirection, or a refusal that names the right one.
fn region(status: Option<u16>, code: Option<&str>, text: &str, said: &Said) -> Option<String> {
    let malformed = code == Some("AuthorizationHeaderMalformed");
    let redirected = matches!(status, Some(300..=399)) || code == Some("PermanentRedirect");
    if !malformed && !redirected && !text.starts_with(BARE_REDIRECT) {
        return None;
    }
    let named = said.region.as_deref().or_else(|| between(text, "<Region>", "</Region>"));
    match (named, &said.location) {
        (Some(region), _) => Some(format!(
            "the bucket is in the region '{region}': set AWS_REGION to that, or give --region {region}"
        )),
        (None, _) if malformed => None,
        (None, Some(location)) => {
            Some(format!("it says to ask at {location}: set the endpoint and the region to the bucket's own"))
        }
        (None, None) => Some(
            "it says to ask elsewhere, and not where: set the endpoint and the region to the bucket's own"
                .to_owned(),
        ),
    }
}

fn detail(status: Option<u16>, code: Option<&str>, transport: Option<HttpErrorKind>, text: String) -> String {
    let message = between(&text, "<Message>", "</Message>");
    match (status, code, message) {
        (Some(status), Some(code), Some(message)) => format!("HTTP {status} {code}: {message}"),
        (Some(status), Some(code), None) => format!("HTTP {status} {code}"),
        _ if transport == Some(HttpErrorKind::Timeout) => format!("no answer in time: {text}"),
        _ => text,
    }
}

/// The message of the deepest cause that is worth reading: below an HTTP answer there is nothing, below a transport error the system's.
fn innermost(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    text
}

fn transport(error: &Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        if cause.is::<Elapsed>() {
            return Some(HttpErrorKind::Timeout);
        }
        if cause.is::<CutShort>() {
            return Some(HttpErrorKind::Interrupted);
        }
        source = cause.source();
    }
    None
}

fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(found, _)| found)
}
