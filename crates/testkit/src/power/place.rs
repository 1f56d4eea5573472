//! A directory for one run of crash tests: in memory where there is room, because images are laid out by the hundred.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::daemon::Trouble;

/// Free bytes below which memory is not used.
const ROOM: u64 = 2 << 30;

/// A directory that goes with its owner, unless it is kept.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    kept: bool,
}

impl Place {
    /// A new directory below `$FOREBAY_CRASH_DIR`, else `/dev/shm` if that has 2 GiB free, else the directory for temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> Result<Self, Trouble> {
        let base = std::env::var_os("FOREBAY_CRASH_DIR").map_or_else(roomy, PathBuf::from);
        let path = base.join(format!("forebay-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(Trouble::io("create directory", &path))?;
        let path = fs::canonicalize(&path).map_err(Trouble::io("resolve", &path))?;
        Ok(Self { path, kept: false })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it behind and says where it is.
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        self.kept = true;
        self.path.clone()
    }
}

fn roomy() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    let writable: io::Result<()> =
        rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).map_err(Into::into);
    if free >= ROOM && writable.is_ok() { memory.to_owned() } else { std::env::temp_dir() }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            // What is still mounted in it keeps it; the mount table shows it.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}
