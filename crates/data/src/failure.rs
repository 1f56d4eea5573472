use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// The first thing that went wrong with the journal or the streams.
#[derive(Debug)]
pub struct Failure {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' ({})", self.what, self.path.display(), self.source)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Set once, never cleared: a kernel that failed to write pages may have dropped them, so a later success proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<Arc<Failure>>);

impl Poison {
    /// Records the failure, unless there was one before.
    pub(crate) fn set(&self, what: &'static str, path: &Path, source: io::Error) {
        let failure = Arc::new(Failure { what, path: path.to_owned(), source });
        if self.0.set(Arc::clone(&failure)).is_ok() {
            tracing::error!("failed to {failure}");
        }
    }

    pub(crate) fn get(&self) -> Option<Arc<Failure>> {
        self.0.get().cloned()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
