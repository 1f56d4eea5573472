//! The log: to standard error, which a detached daemon has connected to its file.

use std::{
    collections::VecDeque,
    fmt, fs, io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use forebay_volume::VolumeConfig;
use rustix::process::geteuid;
use serde_json::json;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::MakeWriter,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::error::CliError;

/// What the daemon logs where `FOREBAY_LOG` and `RUST_LOG` say nothing.
const DAEMON: &str = "info,fjall=warn,lsm_tree=warn,object_store=warn";

/// How many errors are kept for `forebay status`.
const KEPT: usize = 5;

/// Starts the log of a process that serves a mount, on standard error.
pub(crate) fn start_daemon() {
    start(DAEMON, false, io::stderr);
}

/// The same, in a file of its own.
pub(crate) fn start_daemon_in(file: fs::File) {
    start(DAEMON, false, file);
}

/// Starts the log of any other command: nothing, unless `FOREBAY_LOG` or `RUST_LOG` asks for it.
pub(crate) fn start_command() {
    start("off", true, io::stderr);
}

fn start(default: &str, short: bool, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let wanted = ["FOREBAY_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok());
    let filter = || EnvFilter::new(wanted.as_deref().unwrap_or(default));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let log = tracing_subscriber::registry().with(LastErrors);
    let started = if short {
        log.with(lines.without_time().with_filter(filter())).try_init()
    } else {
        log.with(lines.with_filter(filter())).try_init()
    };
    if let Err(error) = started {
        crate::output::complain(&format_args!("no log: {error}"));
    }
}

static LAST: Mutex<VecDeque<(Instant, String)>> = Mutex::new(VecDeque::new());

/// Keeps the last errors that were logged.
#[derive(Debug)]
struct LastErrors;

impl<S: Subscriber> Layer<S> for LastErrors {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() != Level::ERROR {
            return;
        }
        let mut text = Message(String::new());
        event.record(&mut text);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|(_, known)| *known != text.0);
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back((Instant::now(), text.0));
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// The last errors that this process logged, the latest last, each once.
pub(crate) fn last_errors() -> serde_json::Value {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let errors =
        last.iter().map(|(at, message)| json!({ "ago_s": at.elapsed().as_secs(), "message": message }));
    errors.collect()
}

/// The log file of a volume's daemon where none was chosen, in a directory that exists afterwards.
pub(crate) fn default_file(volume: &std::path::Path, config: &VolumeConfig) -> Result<PathBuf, CliError> {
    let name = volume.file_name().map_or_else(|| "volume".into(), |name| name.to_string_lossy().into_owned());
    let id: String = config.id.to_string().chars().take(8).collect();
    file_called(&format!("{name}-{id}"))
}

/// The same for a mount of a shared volume: one for each mount point.
pub(crate) fn default_shared_file(volume: &str, mountpoint: &std::path::Path) -> Result<PathBuf, CliError> {
    let place: String = mountpoint.to_string_lossy().replace('/', "-");
    let volume: String = volume.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    file_called(&format!("{volume}{place}"))
}

fn file_called(name: &str) -> Result<PathBuf, CliError> {
    let dir = dir()?;
    fs::create_dir_all(&dir)
        .map_err(CliError::io("make the directory of logs (choose a file by --log)", &dir))?;
    Ok(dir.join(format!("{name}.log")))
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
