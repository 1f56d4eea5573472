//! Volumes that another process has: who it is, and whether it is worth waiting for.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use forebay_volume::VolumeError;
use rustix::process::geteuid;

use crate::{
    control::{Client, ControlError},
    error::CliError,
    mounts,
};

/// How long a process that is about to end may keep the volume.
const ENDING_PATIENCE: Duration = Duration::from_secs(60);
/// How long one may keep it of which nothing else is known: it was just killed, or just started.
const STRANGER_PATIENCE: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Tries to open a volume until nobody else has it. A process that was unmounted and still brings the store up to date is asked not to
/// wait for that, and waited for; one that serves a mount is named in the error.
pub(crate) fn patiently<T>(
    volume: &Path,
    mut open: impl FnMut() -> Result<T, VolumeError>,
) -> Result<T, CliError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(VolumeError::InUse { path, .. }) => {
                let (by, patience) = holder(volume);
                if begun.elapsed() >= patience {
                    return Err(VolumeError::InUse { path, by }.into());
                }
                thread::sleep(RETRY_EVERY);
            }
            result => return Ok(result?),
        }
    }
}

/// Who has the volume, in words, and how long to wait for it.
fn holder(volume: &Path) -> (String, Duration) {
    let volume = fs::canonicalize(volume).unwrap_or_else(|_| volume.to_owned());
    let mounted = mounts::of_volume(&volume).ok().flatten();
    let uid = mounted.as_ref().map_or_else(|| geteuid().as_raw(), |mounted| mounted.uid);
    let reach = || Client::of_volume(&volume, uid, "");
    let process = reach().and_then(|client| client.process());
    let process = process.map(|process| format!(" by process {}", process.pid()));
    match (mounted, process) {
        (Some(mounted), Ok(process)) => {
            (format!("{process}, mounted on '{}'", mounted.mountpoint.display()), Duration::ZERO)
        }
        // A mount whose process was just killed: its lock goes with it.
        (Some(mounted), Err(_)) => {
            (format!(", mounted on '{}'", mounted.mountpoint.display()), STRANGER_PATIENCE)
        }
        (None, Ok(process)) => {
            let asked: Result<bool, ControlError> = reach().and_then(|client| client.ask("hurry"));
            (process, if asked.is_ok() { ENDING_PATIENCE } else { STRANGER_PATIENCE })
        }
        (None, Err(_)) => (" by another process".to_owned(), STRANGER_PATIENCE),
    }
}
