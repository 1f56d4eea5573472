//! A directory as a place of embedded engines.
//!
//! ```text
//! DIR/registry          the registry
//! DIR/databases/NAME    a database; it has its name when it is whole
//! DIR/databases/.new-NAME, .gone-NAME    one that is being made or removed
//! ```

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{DatabaseName, EmbeddedEngine, Engine, EngineError, EngineHost, Writers};

/// Databases in a directory, each an [`EmbeddedEngine`] that one process may have open.
#[derive(Debug)]
pub struct DirectoryHost {
    dir: PathBuf,
}

impl DirectoryHost {
    /// Opens a place, or makes one in a directory that is not there yet.
    ///
    /// # Errors
    /// [`EngineError::Refused`] where the directory cannot be used.
    pub fn open(dir: &Path) -> Result<DirectoryHost, EngineError> {
        let host = DirectoryHost { dir: dir.to_owned() };
        let databases = host.databases();
        fs::create_dir_all(&databases).map_err(|error| host.failed(&databases, &error))?;
        for dir in [Some(databases.as_path()), Some(dir), dir.parent()].into_iter().flatten() {
            host.sync(dir)?;
        }
        Ok(host)
    }

    fn databases(&self) -> PathBuf {
        self.dir.join("databases")
    }

    fn path(&self, name: &DatabaseName) -> PathBuf {
        self.databases().join(name.as_str())
    }

    fn beside(&self, what: &str, name: &DatabaseName) -> PathBuf {
        self.databases().join(format!(".{what}-{name}"))
    }

    fn failed(&self, path: &Path, error: &io::Error) -> EngineError {
        let place = self.place();
        let detail = format!("'{}': {error}", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::NoSpace { place },
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory => EngineError::Refused { place, detail },
            _ => EngineError::Failed { place, detail },
        }
    }

    fn sync(&self, dir: &Path) -> Result<(), EngineError> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| self.failed(dir, &error))
    }

    /// Removes what a process left that ended in the middle; refused while one is at it.
    fn clear(&self, path: &Path) -> Result<(), EngineError> {
        if path.exists() {
            // Whatever else is wrong with it.
            if let Err(locked @ EngineError::Locked { .. }) = EmbeddedEngine::open(path) {
                return Err(locked);
            }
            fs::remove_dir_all(path).map_err(|error| self.failed(path, &error))?;
        }
        Ok(())
    }
}

impl EngineHost for DirectoryHost {
    fn place(&self) -> String {
        format!("dir:{}", self.dir.display())
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn registry(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let path = self.dir.join("registry");
        let engine = EmbeddedEngine::open(&path)?;
        self.sync(&path)?;
        self.sync(&self.dir)?;
        Ok(Arc::new(engine))
    }

    fn list(&self) -> Result<Vec<DatabaseName>, EngineError> {
        let path = self.databases();
        let failed = |error: io::Error| self.failed(&path, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        let (path, new) = (self.path(name), self.beside("new", name));
        let exists = || EngineError::Exists { place: self.place(), name: name.to_string() };
        if path.exists() {
            return Err(exists());
        }
        self.clear(&new)?;
        drop(EmbeddedEngine::open(&new)?);
        self.sync(&new)?;
        match fs::rename(&new, &path) {
            Ok(()) => self.sync(&self.databases())?,
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Err(exists()),
            Err(error) => return Err(self.failed(&path, &error)),
        }
        self.open(name)
    }

    fn open(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        let path = self.path(name);
        if !path.exists() {
            return Err(EngineError::Missing { place: self.place(), name: name.to_string() });
        }
        Ok(Arc::new(EmbeddedEngine::open(&path)?))
    }

    fn remove(&self, name: &DatabaseName) -> Result<(), EngineError> {
        let (path, gone) = (self.path(name), self.beside("gone", name));
        self.clear(&gone)?;
        // Who has it open is not disturbed.
        let engine = self.open(name)?;
        fs::rename(&path, &gone).map_err(|error| self.failed(&path, &error))?;
        self.sync(&self.databases())?;
        drop(engine);
        fs::remove_dir_all(&gone).map_err(|error| self.failed(&gone, &error))
    }
}
