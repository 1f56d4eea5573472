//! The do-nothing file system that a mount is compared with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use forebay_bench::Probe;
use serde_json::Value;

use super::volume_of;
use crate::{control::Client, daemon::IO_URING, error::CliError};

const NULL_PATIENCE: Duration = Duration::from_secs(30);

/// The do-nothing file system, mounted for as long as this lives.
pub(super) struct NullMount {
    child: Child,
    dir: PathBuf,
}

impl NullMount {
    /// Mounts it on the terms of the target, where that is a Forebay mount.
    pub(super) fn start(target: &Path) -> Result<NullMount, CliError> {
        let dir = std::env::temp_dir().join(format!("forebay-null-{}", std::process::id()));
        fs::create_dir(&dir).map_err(CliError::io("make", &dir))?;
        let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
        let mut command = Command::new(&program);
        command.arg("null-mount").arg(&dir);
        if let Some(mounted) = volume_of(target)? {
            let status: Value = Client::of_mount(&mounted)?.ask("status")?;
            let terms = &status["terms"];
            for (option, key) in [
                ("--lifetime-ms", "lifetime_ms"),
                ("--capabilities", "capabilities"),
                ("--open-flags", "open_flags"),
                ("--dir-flags", "dir_flags"),
                ("--read-ahead-kb", "read_ahead_kb"),
            ] {
                command.arg(option).arg(terms[key].to_string());
            }
            if status["transport"] == IO_URING {
                command.arg("--io-uring");
            }
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                drop(fs::remove_dir(&dir));
                return Err(CliError::io("start", &program)(error));
            }
        };
        let mut null = NullMount { child, dir };
        null.wait()?;
        Ok(null)
    }

    /// Where it is mounted.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// How the benchmark looks at it.
    pub(super) fn probe(&self) -> Probe {
        Probe { pid: Some(self.child.id()), forgets_data: true, ..Probe::default() }
    }

    fn wait(&mut self) -> Result<(), CliError> {
        let deadline = Instant::now() + NULL_PATIENCE;
        loop {
            if forebay_fuse::is_mounted(&self.dir).map_err(CliError::io("look at", &self.dir))? {
                return fs::metadata(&self.dir).map(drop).map_err(CliError::io("look at", &self.dir));
            }
            let ended =
                self.child.try_wait().map_err(CliError::io("wait for the file system on", &self.dir))?;
            if ended.is_some() || Instant::now() > deadline {
                let dir = self.dir.display();
                return Err(CliError::Told(format!("the do-nothing file system was not mounted on '{dir}'")));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        if forebay_fuse::unmount(&self.dir, true).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
        if let Err(error) = fs::remove_dir(&self.dir) {
            tracing::warn!("cannot remove '{}': {error}", self.dir.display());
        }
    }
}
