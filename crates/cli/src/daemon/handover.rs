//! The old side of a takeover: another process is given the mount, or this one goes on as if nothing had been asked.
//!
//! Order that must hold: the volume is dropped, and its lock with it, before the state is sent; `go` is said after everything is ready over
//! there, and nothing is served here after `taken` was heard, or may still be said. See `docs/design/takeover.md`.

use std::{
    io,
    net::TcpListener,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::Paused;
use forebay_mount::{PassthroughHandover, Stats};
use forebay_vfs::{Handover, Vfs};
use forebay_volume::Volume;
use rustix::{
    net::sockopt::socket_peercred,
    process::{Signal, geteuid, kill_process},
};
use serde_json::json;

use crate::{
    daemon::{
        life::{Life, Phase},
        lives::{Lives, Successor},
        message::{Parts, VERSION, hear, may_die, now_ns, say, say_json, send_state},
    },
    error::CliError,
};

/// How long requests that are under way may take.
const FINISH_PATIENCE: Duration = Duration::from_secs(10);
/// How long the new process may take for each step.
const STEP_PATIENCE: Duration = Duration::from_secs(60);
/// How long others that use the volume (a look at its status) may take.
const USERS_PATIENCE: Duration = Duration::from_secs(10);
/// How long a request to this process may take that is not worth a refusal.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a new process that was told to stop may take to end by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a mount that was offered.
pub(super) enum Given {
    /// Another process serves it.
    Taken,
    /// None does: this one is to go on, with this.
    Back(Box<Back>),
}

/// What is left of a life that nobody took over.
pub(super) struct Back {
    pub(super) paused: Paused,
    pub(super) state: Handover,
    pub(super) through: Option<PassthroughHandover>,
    pub(super) stats: Arc<Stats>,
    pub(super) began: Instant,
}

/// Answers a process that asks to take over: pauses the session, which the thread that serves it goes on with in [`give`].
pub(super) fn offer(lives: &Lives, stream: &UnixStream, words: &[&str]) -> io::Result<()> {
    if !lives.ask() {
        return say_json(stream, &json!({ "error": "the mount is being taken over already" }));
    }
    let result = check(lives, stream, words).and_then(|life| prepare(lives, &life, stream));
    match result {
        Ok(()) => Ok(()),
        Err(error) => {
            lives.asked_no_more();
            tracing::warn!("the mount was not taken over: {error}");
            say_json(stream, &json!({ "error": error.to_string() }))
        }
    }
}

fn told(text: impl ToString) -> CliError {
    CliError::Told(text.to_string())
}

fn check(lives: &Lives, stream: &UnixStream, words: &[&str]) -> Result<Arc<Life>, CliError> {
    let life = lives.current().ok_or_else(|| told("the mount is not being served"))?;
    if let Err(refusal) = life.kept.here() {
        return Err(told(format!("cannot be taken over: {refusal}")));
    }
    let peer = socket_peercred(stream).map_err(|error| told(format!("cannot tell who asks: {error}")))?;
    if peer.uid != geteuid() {
        return Err(told(format!(
            "the mount belongs to user {}; take it over as that user",
            geteuid().as_raw()
        )));
    }
    let reads = words.iter().any(|word| word.parse() == Ok(VERSION));
    if !reads {
        return Err(told(format!(
            "the state is written in version {VERSION}, which that release does not read"
        )));
    }
    if life.phase() != Phase::Serving {
        return Err(told("the mount is being unmounted"));
    }
    Ok(life)
}

fn prepare(lives: &Lives, life: &Arc<Life>, stream: &UnixStream) -> Result<(), CliError> {
    let failed = |error: io::Error| told(format!("the process that was to take over is gone: {error}"));
    say_json(stream, &json!({ "ok": { "version": VERSION } })).map_err(failed)?;
    stream.set_read_timeout(Some(STEP_PATIENCE)).map_err(failed)?;
    if hear(stream).map_err(failed)? != "pause" {
        return Err(told("the process that was to take over has changed its mind"));
    }
    may_die("old-asked");
    if !is_unused(life) {
        return Err(told(
            "a request to its process is under way (a check, a drain, a collection): wait for it",
        ));
    }
    let volume = life.kept.here()?;
    let paused = volume.quiesce().map_err(CliError::from).and_then(|()| pause(lives, stream));
    if paused.is_err() {
        volume.resume()?;
    }
    paused
}

/// Whether nobody uses the life but the thread that asks here, or soon nobody does.
fn is_unused(life: &Arc<Life>) -> bool {
    let begun = Instant::now();
    while Arc::strong_count(life) > 2 {
        if begun.elapsed() > SHORT_PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

fn pause(lives: &Lives, stream: &UnixStream) -> Result<(), CliError> {
    let pauser = lives.pauser().ok_or_else(|| told("the mount is not being served"))?;
    let own = stream.try_clone().map_err(told)?;
    lives.set_successor(Some(Successor { stream: own, paused_ns: now_ns() }));
    let mut knock = |processor: u16, count: usize| {
        if let Err(error) = say_json(stream, &json!({ "knock": [processor, count] })) {
            tracing::debug!("nobody knocks: {error}");
        }
    };
    pauser.pause(FINISH_PATIENCE, &mut knock).map_err(|error| {
        lives.set_successor(None);
        told(error)
    })
}

/// Gives the paused mount to the process that waits for it.
///
/// # Errors
/// It was not given, and the volume cannot be let go of: nobody can serve it any more.
pub(super) fn give(paused: Paused, lives: &Lives, metrics: Option<&TcpListener>) -> Result<Given, CliError> {
    may_die("old-paused");
    let successor = lives.successor().ok_or_else(|| told("paused, and nobody takes over"))?;
    let life = lives.end().ok_or_else(|| told("paused without a life"))?;
    let (stats, began) = (Arc::clone(&life.stats), life.began);
    let (state, through) = let_go(life)?;
    match offer_state(&paused, (&state, through.as_ref()), &successor, metrics) {
        Ok(()) => Ok(taken(paused)),
        Err(error) => {
            tracing::warn!("the mount was not taken over: {error}");
            if stop(&successor.stream) {
                return Ok(taken(paused));
            }
            lives.asked_no_more();
            Ok(Given::Back(Box::new(Back { paused, state, through, stats, began })))
        }
    }
}

fn taken(paused: Paused) -> Given {
    tracing::info!("another process has taken the mount over; this one ends");
    paused.release();
    Given::Taken
}

/// Drops the volume, and with it the lock that keeps others out.
fn let_go(life: Arc<Life>) -> Result<(Handover, Option<PassthroughHandover>), CliError> {
    let life = alone(life)?;
    let Life { kept, vfs, fs, .. } = life;
    let volume = Arc::clone(kept.here()?);
    drop(kept);
    let through = fs.hand_over_passthrough();
    drop(fs);
    let vfs: Vfs = alone(vfs)?;
    let state = vfs.hand_over();
    volume.hand_over()?;
    drop(vfs);
    drop::<Volume>(alone(volume)?);
    Ok((state, through))
}

/// The value, once nobody else uses it.
fn alone<T>(mut shared: Arc<T>) -> Result<T, CliError> {
    let begun = Instant::now();
    loop {
        match Arc::try_unwrap(shared) {
            Ok(value) => return Ok(value),
            Err(_) if begun.elapsed() >= USERS_PATIENCE => {
                return Err(told(
                    "a request to this process does not end, so the volume cannot be let go of",
                ));
            }
            Err(still) => shared = still,
        }
        thread::sleep(Duration::from_micros(100));
    }
}

fn offer_state(
    paused: &Paused,
    (state, through): (&Handover, Option<&PassthroughHandover>),
    successor: &Successor,
    metrics: Option<&TcpListener>,
) -> Result<(), CliError> {
    let Successor { stream, paused_ns } = successor;
    let gone = |error: io::Error| told(format!("the new process does not answer: {error}"));
    stream.set_write_timeout(Some(STEP_PATIENCE)).map_err(gone)?;
    stream.set_read_timeout(Some(STEP_PATIENCE)).map_err(gone)?;
    let descriptors = paused.descriptors();
    let parts = Parts {
        session: &paused.state(),
        vfs: &state.encode(),
        through: &through.map_or_else(Vec::new, PassthroughHandover::encode),
        descriptors: descriptors.iter().map(|descriptor| descriptor.fd()).collect(),
        metrics: metrics.map(AsFd::as_fd),
        plain: through.map_or_else(Vec::new, PassthroughHandover::descriptors),
        paused_ns: *paused_ns,
    };
    send_state(stream, &parts).map_err(gone)?;
    may_die("old-sent");
    let answer = hear(stream).map_err(gone)?;
    match answer.as_str() {
        "ready" => say(stream, "go").map_err(gone)?,
        "" => return Err(told("the new process is gone")),
        why => return Err(told(why.strip_prefix("failed ").unwrap_or(why))),
    }
    match hear(stream).map_err(gone)?.as_str() {
        "taken" => Ok(()),
        _ => Err(told("the new process is gone")),
    }
}

/// Sees to it that the other process ends. True: it had said before that it serves.
fn stop(stream: &UnixStream) -> bool {
    let _ = say(stream, "stop");
    let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
    let mut begun = Some(Instant::now());
    loop {
        match hear(stream) {
            Ok(line) if line == "taken" => return true,
            Ok(line) if line.is_empty() => return false,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return false,
        }
        if begun.take_if(|begun| begun.elapsed() >= STOP_PATIENCE).is_some() {
            tracing::warn!("the new process does not end: killed");
            let killed = socket_peercred(stream).and_then(|peer| kill_process(peer.pid, Signal::KILL));
            if let Err(error) = killed {
                tracing::error!("cannot kill the new process: {error}");
            }
        }
    }
}
