//! Signals: the first one asks for the end, the second one does not wait for the store.

use std::{sync::Arc, thread};

use forebay_fuse::{UnmountError, unmount};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    daemon::{
        life::{Life, Phase},
        lives::Lives,
    },
    error::CliError,
};

/// Starts to listen. A hangup ends a process in front and is passed over by a daemon.
pub(crate) fn listen(lives: &Arc<Lives>, in_front: bool) -> Result<(), CliError> {
    let failed = |error| CliError::io("listen to signals for", &lives.settings.mountpoint)(error);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let lives = Arc::clone(lives);
    let thread = thread::Builder::new().name("fb-signals".to_owned()).spawn(move || {
        let mut ending = false;
        for signal in &mut signals {
            if signal == SIGHUP && !in_front {
                continue;
            }
            let Some(life) = lives.current() else {
                tracing::warn!("a signal is passed over: another process is taking the mount over");
                continue;
            };
            if ending {
                leave(&life);
            }
            ending = true;
            // In a thread of its own, so that the second signal is heard.
            let ended = thread::Builder::new().name("fb-end".to_owned()).spawn(move || end(&life));
            if let Err(error) = ended {
                tracing::error!("cannot start a thread to unmount: {error}");
            }
        }
    });
    thread.map(drop).map_err(failed)
}

/// Unmounts; what follows is done where the session ends. While files are open the name is freed and the store is brought up to date
/// already.
fn end(life: &Life) {
    if life.phase() != Phase::Serving {
        return;
    }
    tracing::info!("asked to end: unmounting '{}'", life.mountpoint.display());
    match life.unmount() {
        Ok(()) | Err(UnmountError::NotMounted(_)) => return,
        Err(UnmountError::Busy(_)) => {
            tracing::warn!(
                "'{}' is in use: detached; this process ends with its last user",
                life.mountpoint.display()
            );
        }
        Err(error) => tracing::error!("{error}"),
    }
    if let Err(error) = unmount(&life.mountpoint, true) {
        tracing::error!("{error}");
    }
    if let Err(error) = life.kept.drain() {
        tracing::error!("not everything is in the store: {error}");
    }
}

/// Ends at once, as a crash would, but with everything durable on this machine.
fn leave(life: &Life) -> ! {
    tracing::warn!("asked again: leaving at once");
    let synced = life.vfs.sync_all();
    if let Err(error) = &synced {
        tracing::error!("not everything is durable on this machine: {error}");
    }
    if life.phase() == Phase::Serving
        && let Err(error) = unmount(&life.mountpoint, true)
        && !matches!(error, UnmountError::NotMounted(_))
    {
        tracing::error!("{error}");
    }
    let left = life.kept.dirty_bytes();
    if left > 0 {
        tracing::info!("{}", life.kept.fate(left));
    }
    std::process::exit(i32::from(synced.is_err()))
}
