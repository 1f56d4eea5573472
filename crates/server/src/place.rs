//! Where a server's databases are: with one of the engines of `forebay-engine`, or in an object store.

use std::{fmt, str::FromStr, sync::Arc};

use forebay_engine::{EngineError, EngineHost, EngineUrl, EngineUrlError};
use forebay_slate::{SlateHost, SlateUrl, SlateUrlError};

/// Where databases are: `dir:/PATH`, `postgres://…`, or `slate:` and the address of an object store.
#[derive(Clone, Debug)]
pub enum DatabasePlace {
    /// A directory of this machine, or PostgreSQL.
    Engine(EngineUrl),
    /// An object store.
    Slate(SlateUrl),
}

/// Why the address of a place was not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatabasePlaceError {
    /// Of an engine, or of nothing that is known.
    Engine(EngineUrlError),
    /// Of an object store.
    Slate(SlateUrlError),
}

impl DatabasePlace {
    /// Opens the place.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn open(&self) -> Result<Arc<dyn EngineHost>, EngineError> {
        match self {
            DatabasePlace::Engine(url) => url.open(),
            DatabasePlace::Slate(url) => Ok(Arc::new(SlateHost::open(url)?)),
        }
    }
}

impl From<EngineUrl> for DatabasePlace {
    fn from(url: EngineUrl) -> DatabasePlace {
        DatabasePlace::Engine(url)
    }
}

impl FromStr for DatabasePlace {
    type Err = DatabasePlaceError;

    fn from_str(url: &str) -> Result<DatabasePlace, DatabasePlaceError> {
        if SlateUrl::is_meant(url) {
            return url.parse().map(DatabasePlace::Slate).map_err(DatabasePlaceError::Slate);
        }
        url.parse().map(DatabasePlace::Engine).map_err(DatabasePlaceError::Engine)
    }
}

impl fmt::Display for DatabasePlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabasePlaceError::Engine(error) => {
                write!(f, "{error}, or slate: and an object store, such as slate:s3://BUCKET/PREFIX")
            }
            DatabasePlaceError::Slate(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DatabasePlaceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_understood() {
        assert!(matches!("dir:/a".parse().unwrap(), DatabasePlace::Engine(EngineUrl::Directory(_))));
        assert!(matches!("slate:s3://b/p".parse().unwrap(), DatabasePlace::Slate(_)));
        let dir = tempfile::tempdir().unwrap();
        let url = format!("slate:file://{}", dir.path().join("place").display());
        let host = url.parse::<DatabasePlace>().unwrap().open().unwrap();
        assert_eq!(host.place(), url);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        for (url, what) in [
            ("mysql://h/d", "mysql: is no engine"),
            ("mysql://h/d", "slate:s3://BUCKET/PREFIX"),
            ("slate:b", "slate:s3://BUCKET/PREFIX"),
            ("dir:a", "absolute"),
        ] {
            let error = url.parse::<DatabasePlace>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
