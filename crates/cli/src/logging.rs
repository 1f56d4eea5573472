//! The log: to standard error, which a detached daemon has connected to its file.

use std::{fs, io, path::PathBuf};

use forebay_volume::VolumeConfig;
use rustix::process::geteuid;
use tracing_subscriber::EnvFilter;

use crate::error::CliError;

/// What the daemon logs where `FOREBAY_LOG` and `RUST_LOG` say nothing.
const DAEMON: &str = "info,fjall=warn,lsm_tree=warn,object_store=warn";

/// Starts the log of a process that serves a mount.
pub(crate) fn start_daemon() {
    start(DAEMON, false);
}

/// The same, in a file of its own.
pub(crate) fn start_daemon_in(file: fs::File) {
    let log = tracing_subscriber::fmt().with_env_filter(filter(DAEMON)).with_writer(file).with_ansi(false);
    started(log.try_init());
}

/// Starts the log of any other command: nothing, unless `FOREBAY_LOG` or `RUST_LOG` asks for it.
pub(crate) fn start_command() {
    start("off", true);
}

fn start(default: &str, short: bool) {
    let log =
        tracing_subscriber::fmt().with_env_filter(filter(default)).with_writer(io::stderr).with_ansi(false);
    started(if short { log.without_time().try_init() } else { log.try_init() });
}

fn filter(default: &str) -> EnvFilter {
    let wanted = ["FOREBAY_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok());
    EnvFilter::new(wanted.as_deref().unwrap_or(default))
}

fn started<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        crate::output::complain(&format_args!("no log: {error}"));
    }
}

/// The log file of a volume's daemon where none was chosen, in a directory that exists afterwards.
pub(crate) fn default_file(volume: &std::path::Path, config: &VolumeConfig) -> Result<PathBuf, CliError> {
    let name = volume.file_name().map_or_else(|| "volume".into(), |name| name.to_string_lossy().into_owned());
    let id: String = config.id.to_string().chars().take(8).collect();
    let dir = dir()?;
    fs::create_dir_all(&dir)
        .map_err(CliError::io("make the directory of logs (choose a file by --log)", &dir))?;
    Ok(dir.join(format!("{name}-{id}.log")))
}

fn dir() -> Result<PathBuf, CliError> {
    if geteuid().is_root() {
        return Ok(PathBuf::from("/var/log/forebay"));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).map(|state| state.join("forebay")).ok_or_else(|| {
        CliError::Usage("neither XDG_STATE_HOME nor HOME is set: choose a log file by --log".into())
    })
}
