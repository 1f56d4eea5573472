//! `dir:/PATH` and `postgres://…`: where engines are.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use crate::{DirectoryHost, EngineError, EngineHost, PostgresHost, PostgresUrl};

/// Where engines are.
#[derive(Clone, Debug)]
pub enum EngineUrl {
    /// `dir:/PATH`: a directory of this machine.
    Directory(PathBuf),
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`: a database of PostgreSQL, or of what speaks its protocol.
    Postgres(Box<PostgresUrl>),
}

/// Why the address of a place was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("engine {url}: {reason}")]
pub struct EngineUrlError {
    /// What was given, as far as it has no secrets.
    url: String,
    reason: String,
}

const KNOWN: &str = "write dir:/PATH or postgres://USER@HOST/DATABASE";

impl EngineUrl {
    /// Opens the place.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn open(&self) -> Result<Arc<dyn EngineHost>, EngineError> {
        Ok(match self {
            EngineUrl::Directory(dir) => Arc::new(DirectoryHost::open(dir)?),
            EngineUrl::Postgres(url) => Arc::new(PostgresHost::open(url)?),
        })
    }
}

impl FromStr for EngineUrl {
    type Err = EngineUrlError;

    fn from_str(url: &str) -> Result<EngineUrl, EngineUrlError> {
        // What follows the scheme may have a password.
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let shown = if url.contains("://") { format!("{scheme}://…") } else { format!("{url:?}") };
        let wrong = |reason: String| EngineUrlError { url: shown, reason };
        match url.split_once(':') {
            Some(("dir", path)) if path.starts_with('/') => Ok(EngineUrl::Directory(path.into())),
            Some(("dir", _)) => Err(wrong("the path must be absolute: write dir:/PATH".into())),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                PostgresUrl::parse(url).map(|url| EngineUrl::Postgres(Box::new(url))).map_err(wrong)
            }
            Some((scheme, _)) => Err(wrong(format!("{scheme}: is no engine; {KNOWN}"))),
            None => Err(wrong(KNOWN.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_understood() {
        assert!(matches!("dir:/a/b".parse().unwrap(), EngineUrl::Directory(dir) if dir.as_path() == "/a/b"));
        assert!(matches!("postgres://me@h/d".parse().unwrap(), EngineUrl::Postgres(_)));
        assert!(matches!("postgresql://me@h/d".parse().unwrap(), EngineUrl::Postgres(_)));
    }

    #[test]
    fn what_is_wrong_is_said_and_no_password_with_it() {
        for (url, what) in [
            ("dir:a", "absolute"),
            ("/a", "write dir:/PATH"),
            ("mysql://me:secret@h/d", "mysql: is no engine"),
            ("postgres://me:secret@/d", "host is missing"),
        ] {
            let error = url.parse::<EngineUrl>().unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("secret"), "{error}");
        }
    }
}
