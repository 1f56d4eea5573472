//! The new side of a takeover: everything that can fail is done before the old process is asked to pause, or before it is told `ready`.
//!
//! Order that must hold: nothing is served before `go` was heard or the old process is gone. It closes the connection alive only after it has said
//! `stop`, so the end of the connection without that says that it is gone; the volume's lock, which is held here by then, says so too.

use std::{
    io,
    net::TcpListener,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use forebay_fuse::Paused;
use forebay_mount::PassthroughHandover;
use forebay_vfs::{Files, Handover, Vfs};
use forebay_volume::Volume;
use serde_json::Value;

use crate::{
    control::Client,
    daemon::{
        Setup,
        message::{State, VERSION, hear, may_die, now_ns, receive_state, say},
        serve::{mount_options, open, vfs_options},
        service,
        settings::Settings,
    },
    error::CliError,
    mounts::Mounted,
};

/// How long the old process may take for each step.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// A mount that was taken over, and is not served yet.
pub(super) struct Taken {
    pub(super) paused: Paused,
    pub(super) vfs: Arc<Vfs>,
    pub(super) volume: Arc<Volume>,
    pub(super) through: Option<PassthroughHandover>,
    pub(super) metrics: Option<TcpListener>,
    stream: UnixStream,
    paused_ns: u64,
}

fn told(text: impl ToString) -> CliError {
    CliError::Told(text.to_string())
}

/// What the process behind a mount was started with.
pub(crate) fn settings(mounted: &Mounted) -> Result<Settings, CliError> {
    match Client::of_mount(mounted)?.ask("settings") {
        Ok(settings) => Ok(settings),
        Err(error) if error.to_string().contains("no request that this release knows") => Err(told(format!(
            "the process behind '{}' is of a release that cannot be replaced while it runs: unmount, then mount",
            mounted.mountpoint.display()
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Takes over, up to the moment before serving.
pub(super) fn take(setup: &Setup, mounted: &Mounted) -> Result<Taken, CliError> {
    let client = Client::of_mount(mounted)?;
    let stream = client.into_stream(STEP_PATIENCE)?;
    let failed = |error: io::Error| told(format!("the process behind the mount does not answer: {error}"));
    say(&stream, &format!("takeover {VERSION}")).map_err(failed)?;
    answer(&stream, "ok", setup)?;
    may_die("new-asked");
    say(&stream, "pause").map_err(failed)?;
    let announced = answer(&stream, "state", setup)?;
    let state = receive_state(&stream, &announced).map_err(failed)?;
    may_die("new-received");
    match begin(setup, state, &stream) {
        Ok(taken) => Ok(taken),
        Err(error) => {
            // Everything that was opened here is closed by now.
            let _ = say(&stream, &format!("failed {}", error.to_string().replace('\n', " ")));
            Err(error)
        }
    }
}

/// Waits for a line with `key` and gives what stands there. Makes the requests that are asked for meanwhile.
fn answer(stream: &UnixStream, key: &str, setup: &Setup) -> Result<Value, CliError> {
    loop {
        let line = hear(stream).map_err(|error| told(format!("the process behind the mount: {error}")))?;
        if line.is_empty() {
            return Err(told("the process behind the mount has died"));
        }
        let mut said: Value =
            serde_json::from_str(&line).map_err(|error| told(format!("not understood: {error}")))?;
        if let Some(error) = said["error"].as_str() {
            return Err(told(format!("the mount stays with its process: {error}")));
        }
        if let Some([processor, count]) = said["knock"].as_array().map(Vec::as_slice) {
            knock(setup, processor, count);
        } else if let Some(value) = said.get_mut(key) {
            return Ok(value.take());
        }
    }
}

/// Has another process make requests: one that serves the mount must not wait for it.
fn knock(setup: &Setup, processor: &Value, count: &Value) {
    let program = std::env::current_exe().unwrap_or_else(|_| "forebay".into());
    let mut command = Command::new(program);
    command.args(["debug-knock", &processor.to_string(), &count.to_string()]).arg(&setup.mountpoint);
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        // Its end comes once it is served, which is later.
        Ok(mut child) => drop(std::thread::Builder::new().spawn(move || child.wait())),
        Err(error) => tracing::warn!("cannot start a process that knocks: {error}"),
    }
}

fn begin(setup: &Setup, state: State, stream: &UnixStream) -> Result<Taken, CliError> {
    let State { session, vfs, through, descriptors, metrics, plain, paused_ns } = state;
    let handover = Handover::decode(&vfs).map_err(told)?;
    let has_through = !through.is_empty();
    let decoded = has_through.then(|| PassthroughHandover::decode(&through, plain));
    let through =
        decoded.map(|decoded| decoded.ok_or_else(|| told("the state of passthrough is none"))).transpose()?;
    if has_through != (setup.passthrough.size() > 0) {
        return Err(told(format!(
            "this process cannot go on with the files that the kernel reads: {}",
            setup.passthrough.sentence()
        )));
    }
    let paused = Paused::take(&session, descriptors, &setup.mountpoint, &mount_options(setup))
        .map_err(|error| told(format!("cannot take the requests over: {error}")));
    // Not to be unmounted if something fails here: it is the other's.
    let keep = |paused: Paused| paused.release();
    let paused = paused?;
    let volume = match open(setup, handover.in_use(), false) {
        Ok(volume) => volume,
        Err(error) => {
            keep(paused);
            return Err(error);
        }
    };
    may_die("new-opened");
    let options = vfs_options(setup, &volume);
    let vfs = Arc::new(Vfs::take_over(Arc::clone(&volume) as Arc<dyn Files>, options, handover));
    let stream = stream.try_clone().map_err(told)?;
    Ok(Taken { paused, vfs, volume, through, metrics: metrics.map(TcpListener::from), stream, paused_ns })
}

impl Taken {
    /// Waits for the word to serve.
    ///
    /// # Errors
    /// It was not given: the other process goes on.
    pub(super) fn wait_for_go(self) -> Result<Go, CliError> {
        let gone = say(&self.stream, "ready").is_err();
        may_die("new-ready");
        let word =
            if gone { String::new() } else { hear(&self.stream).unwrap_or_else(|_| "silence".to_owned()) };
        match word.as_str() {
            "go" | "" => {
                // Before the other process ends, which would end its unit.
                service::become_main_process();
                // Said before anything is served: if it is not heard, nothing was.
                let _ = say(&self.stream, "taken");
                may_die("new-taken");
                let Taken { paused, vfs, volume, through, metrics, paused_ns, .. } = self;
                Ok(Go { paused, vfs, volume, through, metrics, pause: PauseClock(paused_ns) })
            }
            _ => {
                self.paused.release();
                Err(told("the process behind the mount has not waited for this one: it goes on"))
            }
        }
    }
}

/// A mount that is this process's.
pub(super) struct Go {
    pub(super) paused: Paused,
    pub(super) vfs: Arc<Vfs>,
    pub(super) volume: Arc<Volume>,
    pub(super) through: Option<PassthroughHandover>,
    pub(super) metrics: Option<TcpListener>,
    /// Since when nobody serves.
    pub(super) pause: PauseClock,
}

/// Tells how long nobody has served.
#[derive(Clone, Copy, Debug)]
pub(super) struct PauseClock(u64);

impl PauseClock {
    /// In milliseconds.
    pub(super) fn elapsed_ms(self) -> f64 {
        now_ns().saturating_sub(self.0) as f64 / 1e6
    }
}
