//! The addresses of stores: `file:///DIR`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::check_key;

/// Where a store is. Prints as it parses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreUrl {
    /// A directory, by its absolute path.
    File(PathBuf),
    /// A bucket of S3 or of a store that speaks its protocol.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// What all keys begin with, without slashes at its ends; empty for the whole bucket.
        prefix: String,
    },
    /// A bucket of Google Cloud Storage.
    Gs {
        /// The bucket's name.
        bucket: String,
        /// As for S3.
        prefix: String,
    },
    /// A container of Azure Blob Storage; the account comes from `AZURE_STORAGE_ACCOUNT_NAME` or the options.
    Az {
        /// The container's name.
        container: String,
        /// As for S3.
        prefix: String,
    },
}

/// Why an address was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("store URL {url:?}: {reason}")]
pub struct StoreUrlError {
    url: String,
    reason: String,
}

impl StoreUrl {
    /// The address of a directory.
    ///
    /// # Errors
    /// When the path is not absolute.
    pub fn directory(dir: &Path) -> Result<StoreUrl, StoreUrlError> {
        if dir.is_absolute() {
            Ok(StoreUrl::File(dir.to_path_buf()))
        } else {
            let url = dir.display().to_string();
            Err(StoreUrlError { url, reason: "the path of a directory store must be absolute".into() })
        }
    }

    /// What all keys of the store begin with; empty for a directory.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            StoreUrl::File(_) => "",
            StoreUrl::S3 { prefix, .. } | StoreUrl::Gs { prefix, .. } | StoreUrl::Az { prefix, .. } => prefix,
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bucket, prefix) = match self {
            StoreUrl::File(dir) => {
                return match ::url::Url::from_file_path(dir) {
                    Ok(url) => f.write_str(url.as_str()),
                    Err(()) => write!(f, "file://{}", dir.display()),
                };
            }
            StoreUrl::S3 { bucket, prefix } => ("s3", bucket, prefix),
            StoreUrl::Gs { bucket, prefix } => ("gs", bucket, prefix),
            StoreUrl::Az { container, prefix } => ("az", container, prefix),
        };
        let slash = if prefix.is_empty() { "" } else { "/" };
        write!(f, "{scheme}://{bucket}{slash}{prefix}")
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(url: &str) -> Result<StoreUrl, StoreUrlError> {
        parse(url).map_err(|reason| StoreUrlError { url: url.to_owned(), reason })
    }
}

fn parse(url: &str) -> Result<StoreUrl, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(
            "expected file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX".into()
        );
    };
    if scheme == "file" {
        return parse_file(url, rest);
    }
    if !matches!(scheme, "s3" | "gs" | "az") {
        return Err(format!("{scheme}:// is not known; there are file://, s3://, gs:// and az://"));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(format!("the bucket is missing: write {scheme}://BUCKET/PREFIX"));
    }
    if bucket.contains('@') {
        return Err(
            "credentials do not belong in the URL: put them into the environment or a credentials file"
                .into(),
        );
    }
    if !bucket.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) {
        return Err(format!(
            "{bucket:?} cannot be a bucket: its name consists of letters, digits, dots and dashes"
        ));
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !prefix.is_empty() {
        check_key(prefix).map_err(|reason| format!("the prefix {prefix:?} is not possible: {reason}"))?;
    }
    if prefix.len() > 100 {
        return Err("the prefix is longer than 100 bytes".into());
    }
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    Ok(match scheme {
        "s3" => StoreUrl::S3 { bucket, prefix },
        "gs" => StoreUrl::Gs { bucket, prefix },
        _ => StoreUrl::Az { container: bucket, prefix },
    })
}

fn parse_file(url: &str, rest: &str) -> Result<StoreUrl, String> {
    if !rest.starts_with('/') {
        return Err("the path must be absolute: write file:///DIR with three slashes".into());
    }
    let parsed = ::url::Url::parse(url).map_err(|error| error.to_string())?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err("a ? or # in a path is written %3F or %23".into());
    }
    parsed.to_file_path().map(StoreUrl::File).map_err(|()| "this is not the path of a local directory".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_it_parses() {
        for url in
            ["file:///srv/data", "file:///a%20b", "s3://bucket", "s3://my.bucket/a/b", "gs://b/p", "az://c/p"]
        {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
        assert_eq!("s3://b/p/".parse::<StoreUrl>().unwrap().to_string(), "s3://b/p");
        assert_eq!("file:///a%20b".parse(), Ok(StoreUrl::File("/a b".into())));
        assert_eq!("s3://b/p/q".parse::<StoreUrl>().unwrap().prefix(), "p/q");
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            ("/srv/data", "expected file:///DIR"),
            ("file://srv", "three slashes"),
            ("file:///a?b", "%3F"),
            ("http://x", "http:// is not known"),
            ("s3://", "bucket is missing"),
            ("s3:///p", "bucket is missing"),
            ("s3://key:secret@b/p", "credentials do not belong"),
            ("s3://b/a//c", "joined by single slashes"),
            ("s3://b/a b", "not possible"),
            ("gs://b ucket", "cannot be a bucket"),
        ];
        for (url, reason) in cases {
            let message = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(message.contains(reason), "{url}: {message}");
            assert!(message.contains(url), "{message}");
        }
        assert!(StoreUrl::directory(Path::new("relative")).is_err());
    }
}
