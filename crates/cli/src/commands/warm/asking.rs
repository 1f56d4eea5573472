//! What is said to the process behind a mount, and what it answers.

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, BufReader, BufWriter, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    place::Place,
    walk::{Counts, Found, Trouble, Troubles, Walk},
};
use crate::{
    control::{Client, ControlError},
    error::CliError,
    progress::{WarmBar, WarmState},
};

/// Files that were found and wait to be told.
const AHEAD: usize = 100_000;
/// How long the process behind a mount may say nothing: it tells of progress all the time.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub(super) struct Totals {
    /// Files that were seen to.
    #[serde(default)]
    pub(super) files: u64,
    /// Those of them that were not brought.
    #[serde(default)]
    pub(super) failed: u64,
    pub(super) seen_bytes: u64,
    pub(super) cached_bytes: u64,
    pub(super) fetched_bytes: u64,
    pub(super) lost_bytes: u64,
    #[serde(default)]
    pub(super) evicted_chunks: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Totals) {
        self.files += other.files;
        self.failed += other.failed;
        self.seen_bytes += other.seen_bytes;
        self.cached_bytes += other.cached_bytes;
        self.fetched_bytes += other.fetched_bytes;
        self.lost_bytes += other.lost_bytes;
        self.evicted_chunks += other.evicted_chunks;
    }
}

/// Files that were told and not answered, by their numbers.
type Flying = Mutex<HashMap<u64, PathBuf>>;

#[derive(Deserialize)]
struct Answered {
    number: u64,
    error: Option<String>,
}

fn broken(place: &Place) -> CliError {
    let name = place.mounts.first().map(|mounted| mounted.mountpoint.display().to_string());
    ControlError::Broken(name.unwrap_or_default()).into()
}

/// Has all files below the paths brought near.
pub(super) fn bring(
    client: Client,
    words: &str,
    place: &Place,
    paths: Vec<PathBuf>,
    troubles: &Troubles,
    bar: &mut WarmBar,
) -> Result<Totals, CliError> {
    let stream = client.into_stream(PATIENCE)?;
    // Files are taken as fast as they are brought, however long that is; that nothing is heard says when it is too long.
    stream.set_write_timeout(None).map_err(|_| broken(place))?;
    writeln!(&stream, "warm{words}").map_err(|_| broken(place))?;
    let mut reader = BufReader::new(&stream);
    // Where they are brought, before the first of them is told.
    drop(answer(&mut reader, place)?);
    let (counts, flying) = (Counts::default(), Flying::default());
    let (found, files) = sync_channel(AHEAD);
    let outcome = thread::scope(|scope| {
        let walk = Walk { device: place.device, counts: &counts, troubles, found, seen: HashSet::new() };
        scope.spawn(|| walk.walk(paths));
        let telling = scope.spawn(|| {
            let told = tell_files(&stream, &files, &flying);
            drop(files);
            told.and(stream.shutdown(Shutdown::Write))
        });
        let outcome = hear(&mut reader, place, &counts, &flying, troubles, bar);
        if outcome.is_err() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // What was not told was not brought, whatever the answer says.
        match (outcome, telling.join()) {
            (Ok(_), Ok(Err(_)) | Err(_)) => Err(broken(place)),
            (outcome, _) => outcome,
        }
    });
    let mut totals = outcome?;
    let unanswered = flying.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.failed += unanswered.len() as u64;
    for (_, path) in unanswered {
        troubles.add(Trouble {
            path,
            why: "the process behind the mount did not say what became of it".to_owned(),
        });
    }
    Ok(totals)
}

/// The next line of the answer.
fn answer(reader: &mut impl BufRead, place: &Place) -> Result<Value, CliError> {
    let mut line = String::new();
    reader.read_line(&mut line).map_err(|_| broken(place))?;
    let answer: Value = serde_json::from_str(&line).map_err(|_| broken(place))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(CliError::Told(error.to_owned())),
        None => Ok(answer),
    }
}

fn tell_files(stream: &UnixStream, files: &Receiver<Found>, flying: &Flying) -> io::Result<()> {
    let mut out = BufWriter::new(stream);
    for (number, Found { path, ino }) in (0_u64..).zip(files) {
        flying.lock().unwrap_or_else(PoisonError::into_inner).insert(number, path);
        writeln!(out, "{number} {ino}")?;
        // Whoever fetches has nothing to do while a directory is slow to list.
        out.flush()?;
    }
    out.flush()
}

fn hear(
    reader: &mut impl BufRead,
    place: &Place,
    counts: &Counts,
    flying: &Flying,
    troubles: &Troubles,
    bar: &mut WarmBar,
) -> Result<Totals, CliError> {
    let (mut state, mut failed) = (WarmState::default(), 0);
    loop {
        let mut answer = answer(reader, place)?;
        if let Some(ok) = answer.get_mut("ok") {
            let totals: Totals = serde_json::from_value(ok.take()).map_err(|_| broken(place))?;
            return Ok(Totals { files: state.files, failed, ..totals });
        }
        if let Some(file) = answer.get_mut("file") {
            let file: Answered = serde_json::from_value(file.take()).map_err(|_| broken(place))?;
            let path = flying.lock().unwrap_or_else(PoisonError::into_inner).remove(&file.number);
            state.files += 1;
            if let (Some(path), Some(why)) = (path, file.error) {
                failed += 1;
                troubles.add(Trouble { path, why });
            }
        }
        if let Some(now) = answer.get_mut("progress") {
            let now: Totals = serde_json::from_value(now.take()).map_err(|_| broken(place))?;
            (state.seen_bytes, state.fetched_bytes) = (now.seen_bytes, now.fetched_bytes);
        }
        (state.files_found, state.bytes_found) = (counts.files.load(Relaxed), counts.bytes.load(Relaxed));
        state.all_found = counts.ended.load(Relaxed);
        bar.at(&state);
    }
}
