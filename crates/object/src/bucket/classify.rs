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

use crate::{Ability, ErrorKind};

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
/// Another conditional request for the key is under way; neither has won.
const CONFLICTS: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];

pub(super) fn classify(error: Error) -> Failure {
    let text = innermost(&error);
    let transport = transport(&error);
    let status = status(&text);
    let code = between(&text, "<Code>", "</Code>").map(str::to_owned);
    let kind = kind(&error, status, code.as_deref(), transport, &text);
    let conflict = code.as_deref().is_some_and(|code| CONFLICTS.contains(&code));
    let failed_to_send = transport == Some(HttpErrorKind::Connect);
    let again = conflict || matches!(kind, ErrorKind::Unreachable | ErrorKind::Throttled);
    let uncertain = kind == ErrorKind::Unreachable && !failed_to_send;
    Failure {
        kind,
        again,
        uncertain,
        detail: detail(status, code.as_deref(), transport, text),
        source: error,
    }
}

fn kind(
    error: &Error,
    status: Option<u16>,
    code: Option<&str>,
    transport: Option<HttpErrorKind>,
    text: &str,
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
        let ability = Ability::ConditionalCreate;
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
            None if text.contains("non-partial response") => {
                ErrorKind::Unsupported { ability: Ability::RangeRead }
            }
            None => ErrorKind::Other,
        },
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
    text.truncate(text.char_indices().map(|(at, _)| at).take_while(|at| *at <= 1000).last().unwrap_or(0));
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
