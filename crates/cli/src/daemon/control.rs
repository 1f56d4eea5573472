//! The answering side of the control socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::{UnmountError, unmount};
use forebay_object::Operation;
use forebay_volume::{
    Volume,
    fsck::{self, FsckOptions},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    control::{Left, Progress, Step, announce, own_runtime_dir, reach},
    daemon::{
        handover,
        life::{Life, Phase},
        lives::Lives,
        warm,
    },
    error::CliError,
    logging,
};

/// Connections that are answered at a time; more wait.
const CONNECTIONS_MAX: usize = 32;
const REQUEST_MAX: u64 = 4096;
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(100);
/// How long a lazy unmount is waited for before it is said that files are still open.
const LAZY_PATIENCE: Duration = Duration::from_secs(2);

/// Where commands reach this process.
#[derive(Debug)]
pub(crate) struct Socket(Vec<PathBuf>);

impl Socket {
    /// Takes it away. Nobody else's has its name as long as the volume is open.
    pub(crate) fn remove(&self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!("cannot remove '{}': {error}", path.display());
            }
        }
    }
}

/// Starts to answer, and gives the socket, which has this name. The volume must be open, or the mount point be this process's: that makes the name ours.
pub(crate) fn listen(lives: &Arc<Lives>, name: &str) -> Result<Socket, CliError> {
    let root = &lives.settings.volume;
    let dir = own_runtime_dir().map_err(CliError::io("make a directory for the control socket of", root))?;
    let path = dir.join(name);
    // Under another name first: whoever comes meanwhile reaches the process before, if there is one.
    let new = dir.join(format!("{}.new", std::process::id()));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(CliError::io("replace the control socket", &new)(error));
        }
        _ => {}
    }
    let listener = reach(&new, UnixListener::bind).map_err(CliError::io("make the control socket", &new))?;
    fs::rename(&new, &path).map_err(CliError::io("replace the control socket", &path))?;
    let link = announce(&path).unwrap_or_else(|error| {
        tracing::warn!("only commands with this XDG_RUNTIME_DIR find this process: {error}");
        None
    });
    let socket = Socket([path.clone()].into_iter().chain(link).collect());
    let lives = Arc::clone(lives);
    let open = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            while open.load(Ordering::Acquire) >= CONNECTIONS_MAX {
                thread::sleep(TICK);
            }
            open.fetch_add(1, Ordering::AcqRel);
            let (lives, open) = (Arc::clone(&lives), Arc::clone(&open));
            let answering = thread::Builder::new().name("fb-control".to_owned()).spawn(move || {
                if let Err(error) = answer(&lives, &stream) {
                    tracing::debug!("control: {error}");
                }
                open.fetch_sub(1, Ordering::AcqRel);
            });
            if let Err(error) = answering {
                tracing::error!("cannot start a thread to answer: {error}");
            }
        }
    };
    let thread = thread::Builder::new().name("fb-accept".to_owned()).spawn(accept);
    thread.map(|_| socket).map_err(CliError::io("start a thread for", &path))
}

/// Answers the one request of a connection.
fn answer(lives: &Lives, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let request = words.next().unwrap_or_default().to_owned();
    let rest: Vec<&str> = words.collect();
    match request.as_str() {
        "settings" => return finish(stream, Ok(value(&lives.settings))),
        "takeover" => return handover::offer(lives, stream, &rest),
        _ => {}
    }
    let Some(life) = lives.current() else {
        let refusal = "the process behind the mount is being replaced: try again".to_owned();
        return finish(stream, Err(CliError::Told(refusal)));
    };
    let life = &*life;
    let mut tell = |progress: Progress| drop(say(stream, &json!({ "progress": progress })));
    let result = match request.as_str() {
        "status" => Ok(status(life)),
        "stats" => Ok(stats(life)),
        "settle" => merge(life),
        "chill" => Ok(value(&life.kept.empty_caches())),
        "drain" => life.kept.settle(&mut tell).map(|()| left(life)),
        "fsck" => check(life, stream, &rest),
        "gc" => collect(life, &rest, &mut tell),
        "warm" => warm::answer(life, stream, &rest)?,
        "hurry" => {
            life.hurry();
            Ok(json!(true))
        }
        "stop" => return stop(life, stream, &rest),
        other => Err(CliError::Told(format!("'{other}' is no request that this release knows"))),
    };
    finish(stream, result)
}

fn finish(stream: &UnixStream, result: Result<Value, CliError>) -> io::Result<()> {
    match result {
        Ok(value) => say(stream, &json!({ "ok": value })),
        Err(error) => say(stream, &json!({ "error": error.to_string() })),
    }
}

fn say(mut stream: &UnixStream, value: &Value) -> io::Result<()> {
    stream.write_all(format!("{value}\n").as_bytes())
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}

fn left(life: &Life) -> Value {
    value(&Left { dirty_bytes: life.kept.dirty_bytes(), ..Left::default() })
}

/// What `forebay status --json` prints of a mounted volume.
pub(super) fn status(life: &Life) -> Value {
    let mut status = life.kept.status();
    let state = match life.phase() {
        Phase::Serving => "mounted",
        Phase::Closing => "closing",
        Phase::Closed(_) => "closed",
    };
    let error = life.kept.volume().and_then(|volume| volume.store().last_error()).map(|last| {
        let ago = last.at.elapsed().unwrap_or_default().as_secs();
        format!("{} ({ago} s ago)", last.error)
    });
    let further = json!({
        "state": state,
        "mountpoint": life.mountpoint,
        "pid": std::process::id(),
        "read_only": life.kept.read_only(),
        "log": life.log,
        "metrics": life.metrics,
        "uptime_s": life.began.elapsed().as_secs(),
        "open_handles": life.vfs.open_handles(),
        "store_error": error,
        "last_errors": logging::last_errors(),
        "terms": life.terms,
        "passthrough": life.passthrough.status(&life.fs),
        "transport": life.transport.get().map(|way| way.name),
        "transport_advice": life.transport.get().map(|way| &way.advice),
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let (Some(status), Value::Object(further)) = (status.as_object_mut(), further) {
        status.extend(further);
    }
    status
}

/// Counters since the mount.
fn stats(life: &Life) -> Value {
    let operations = life.stats.snapshot();
    let operations: Vec<Value> = operations
        .iter()
        .map(|op| {
            json!({
                "name": op.name, "requests": op.requests, "errors": op.errors, "bytes": op.bytes,
                "nanos": op.nanos, "buckets": op.buckets.to_vec(),
            })
        })
        .collect();
    let mut stats = json!({
        "uptime_ns": u64::try_from(life.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "operations": operations,
        "store": [],
        "store_retries": 0,
        "caches": {},
        "dirty_bytes": life.kept.dirty_bytes(),
        "open_handles": life.vfs.open_handles(),
    });
    if let Some(volume) = life.kept.volume() {
        stats_of(volume, &mut stats);
    }
    stats
}

/// Those of the volume's store and caches.
fn stats_of(volume: &Volume, stats: &mut Value) {
    let counters = volume.store().counters();
    let store = Operation::ALL
        .iter()
        .map(|operation| counters.operation(*operation))
        .filter(|counts| counts.calls > 0)
        .map(|counts| {
            json!({
                "name": counts.operation.name(), "calls": counts.calls, "errors": counts.errors,
                "bytes": counts.bytes, "latency_us": counts.latency_us,
            })
        });
    let counts = volume.cache_counts();
    let caches: serde_json::Map<String, Value> =
        counts.iter().map(|cache| (cache.name.to_owned(), value(cache))).collect();
    stats["store"] = store.collect();
    stats["store_retries"] = json!(counters.retries());
    stats["caches"] = Value::Object(caches);
}

fn merge(life: &Life) -> Result<Value, CliError> {
    life.kept.here()?.settle_metadata()?;
    Ok(json!(true))
}

fn check(life: &Life, stream: &UnixStream, words: &[&str]) -> Result<Value, CliError> {
    let options = FsckOptions { data: !words.contains(&"quick"), ..FsckOptions::default() };
    let mut last = Instant::now();
    let mut tell = |progress: fsck::Progress| {
        if last.elapsed() >= TICK {
            last = Instant::now();
            drop(say(stream, &json!({ "progress": Step::from(progress) })));
        }
    };
    Ok(value(&life.kept.here()?.fsck(&options, &mut tell)?))
}

fn collect(life: &Life, words: &[&str], tell: &mut dyn FnMut(Progress)) -> Result<Value, CliError> {
    let volume = life.kept.here()?;
    let before = volume.status();
    if words.contains(&"dry-run") {
        return Ok(json!({ "before": value(&before), "leaked": value(&volume.leaked()?) }));
    }
    if volume.read_only() {
        return Err(CliError::Told("the volume is mounted read-only".to_owned()));
    }
    life.kept.settle(tell)?;
    let leaked = volume.collect_leaked()?;
    let after = volume.status();
    Ok(json!({ "before": value(&before), "after": value(&after), "leaked": value(&leaked) }))
}

/// Unmounts and tells of what follows until the volume is closed.
fn stop(life: &Life, stream: &UnixStream, words: &[&str]) -> io::Result<()> {
    let telling = life.will_tell();
    let lazy = words.contains(&"lazy");
    life.set_no_drain(words.contains(&"no-drain"));
    let unmounted = if lazy { unmount(&life.mountpoint, true) } else { life.unmount() };
    match unmounted {
        Ok(()) => {}
        Err(UnmountError::NotMounted(_)) if life.phase() != Phase::Serving => {}
        Err(error) => {
            life.set_no_drain(false);
            return say(stream, &json!({ "error": error.to_string() }));
        }
    }
    let since = Instant::now();
    let mut phase = life.phase();
    loop {
        match &phase {
            Phase::Closed(left) => {
                say(stream, &json!({ "ok": left }))?;
                drop(telling);
                return Ok(());
            }
            Phase::Serving if lazy && since.elapsed() >= LAZY_PATIENCE => {
                let left = Left { detached: true, dirty_bytes: life.kept.dirty_bytes(), ..Left::default() };
                return say(stream, &json!({ "ok": left }));
            }
            _ => {}
        }
        drop(say(stream, &json!({ "progress": Progress { dirty_bytes: life.kept.dirty_bytes() } })));
        phase = life.phase_after(&phase, TICK);
    }
}
