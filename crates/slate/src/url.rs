//! `slate:s3://BUCKET/PREFIX`, `slate:file:///DIR`: where databases in an object store are.

use std::{fmt, str::FromStr};

use forebay_object::StoreUrl;

/// What the addresses begin with.
const SCHEME: &str = "slate:";

/// Where databases in an object store are: `slate:` and the address of a store. Prints as it parses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlateUrl(pub StoreUrl);

/// Why an address was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("engine {url:?}: {reason}; write slate:s3://BUCKET/PREFIX (or gs://, az://) or slate:file:///DIR")]
pub struct SlateUrlError {
    url: String,
    reason: String,
}

impl SlateUrl {
    /// Whether this is meant to be the address of such a place, rightly written or not.
    #[must_use]
    pub fn is_meant(url: &str) -> bool {
        url.starts_with(SCHEME)
    }
}

impl fmt::Display for SlateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

impl FromStr for SlateUrl {
    type Err = SlateUrlError;

    fn from_str(url: &str) -> Result<SlateUrl, SlateUrlError> {
        let wrong = |reason: String| SlateUrlError { url: url.to_owned(), reason };
        let Some(store) = url.strip_prefix(SCHEME) else {
            return Err(wrong("it does not begin with slate:".into()));
        };
        store.parse().map(SlateUrl).map_err(|error: forebay_object::StoreUrlError| wrong(error.to_string()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn places_are_understood_and_print_as_they_parse() {
        for url in ["slate:s3://bucket/some/prefix", "slate:file:///a/b", "slate:gs://bucket"] {
            assert_eq!(url.parse::<SlateUrl>().unwrap().to_string(), url);
            assert!(SlateUrl::is_meant(url));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, what) in [
            ("slate:", "expected file:///DIR"),
            ("slate:/a/b", "slate:file:///DIR"),
            ("slate:s3://", "the bucket is missing"),
            ("dir:/a", "does not begin with slate:"),
        ] {
            let error = url.parse::<SlateUrl>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
