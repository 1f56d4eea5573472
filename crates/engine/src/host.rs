use std::{fmt, fmt::Debug, str::FromStr, sync::Arc};

use crate::{Engine, EngineError, Writers};

/// Bytes that a database's name has at most.
const NAME_MAX: usize = 100;

/// The name of a database: 1 to 100 letters, digits, `-`, `_` and `.` of ASCII, beginning with a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatabaseName(String);

/// Why a name cannot be a database's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a database: it has 1 to 100 letters, digits, '-', '_' and '.', and begins with a letter or digit"
)]
pub struct DatabaseNameError(String);

impl DatabaseName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DatabaseName {
    type Err = DatabaseNameError;

    fn from_str(name: &str) -> Result<DatabaseName, DatabaseNameError> {
        let possible = name.len() <= NAME_MAX
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if possible { Ok(DatabaseName(name.to_owned())) } else { Err(DatabaseNameError(name.to_owned())) }
    }
}

/// A place that has many databases, each an [`Engine`] of its own, and one more that is the place's registry.
pub trait EngineHost: Send + Sync + Debug {
    /// Where it is, without secrets.
    fn place(&self) -> String;

    /// How many processes may write to one of its databases at a time.
    fn writers(&self) -> Writers;

    /// The registry's own database; it is made when it is not there. Not among those of [`EngineHost::list`].
    ///
    /// # Errors
    /// [`EngineError`].
    fn registry(&self) -> Result<Arc<dyn Engine>, EngineError>;

    /// The names of all databases, in order.
    ///
    /// # Errors
    /// [`EngineError`].
    fn list(&self) -> Result<Vec<DatabaseName>, EngineError>;

    /// Makes a database, durably. After [`EngineError::Unreachable`] it may have been made all the same.
    ///
    /// # Errors
    /// [`EngineError::Exists`], and others.
    fn create(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError>;

    /// Opens a database. Over a place with one writer this takes it from whoever has it, or is refused, as the place can.
    ///
    /// # Errors
    /// [`EngineError::Missing`], and others.
    fn open(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError>;

    /// Removes a database and all of its rows. After [`EngineError::Unreachable`] it may have been removed all the same.
    ///
    /// # Errors
    /// [`EngineError::Missing`], and others.
    fn remove(&self, name: &DatabaseName) -> Result<(), EngineError>;
}
