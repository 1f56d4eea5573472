//! The do-nothing file system that a mount is compared with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use forebay_bench::{Probe, Requests};
use serde_json::Value;

use super::{talk::Talk, volume_of};
use crate::{control::Client, daemon::IO_URING, error::CliError};

const NULL_PATIENCE: Duration = Duration::from_secs(30);

/// The do-nothing file system, mounted for as long as this lives.
pub(super) struct NullMount {
    child: Child,
    dir: PathBuf,
    talk: Option<Arc<Mutex<Talk>>>,
}

impl NullMount {
    /// Mounts it on the terms of the target, where that is a Forebay mount.
    ///
    /// Counting its requests costs it some time, so it does so only where that is wanted.
    pub(super) fn start(target: &Path, count: bool) -> Result<NullMount, CliError> {
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
        if count {
            command.arg("--count").stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let spawned = command.spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                drop(fs::remove_dir(&dir));
                return Err(CliError::io("start", &program)(error));
            }
        };
        let mut null = NullMount { child, dir, talk: None };
        let pipes = null.child.stdin.take().zip(null.child.stdout.take());
        null.talk = pipes.map(|(to, from)| Arc::new(Mutex::new(Talk::new(to, from))));
        null.wait()?;
        Ok(null)
    }

    /// Where it is mounted.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// How the benchmark looks at it.
    pub(super) fn probe(&self) -> Probe {
        let requests = self.talk.as_ref().map(|talk| -> Requests {
            let talk = Arc::clone(talk);
            Box::new(move || talk.lock().unwrap_or_else(PoisonError::into_inner).ask("requests"))
        });
        Probe { pid: Some(self.child.id()), forgets_data: true, requests, ..Probe::default() }
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
