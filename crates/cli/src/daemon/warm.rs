//! `warm`: brings files near that a command names, many at a time, as long as that command waits for it.
//!
//! After the request's line the answer is where they are brought. Then the command writes a line for each file, a number of its own and the
//! inode's, and is told in lines of JSON of each file when it is near or why not, and of progress; it ends its side when there are no more. Files wait here in a
//! bounded queue, so a command that walks a large tree is slowed down to what is fetched.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use forebay_client::WarmInto;
use forebay_types::Ino;
use forebay_volume::{Warmer, Warming};
use serde_json::{Value, json};

use crate::{
    daemon::life::{Life, Phase},
    error::CliError,
};

/// Files that wait.
const QUEUE_MAX: usize = 1024;
/// Threads that see to files, and how many one takes at most: small ones lie side by side, and are fetched together.
const WORKERS: usize = 8;
const TOGETHER: usize = 64;
/// Bytes of a line.
const LINE_MAX: u64 = 64;
/// How often progress is told.
const TICK: Duration = Duration::from_millis(200);

/// A file that a command wants near.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The command's number.
    number: u64,
    ino: Ino,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Wanted>,
    /// Workers that have taken some of them, and have not said what became of these.
    busy: usize,
    /// There will be no more.
    ended: bool,
}

/// What the threads of one request share.
struct Work<'a> {
    stream: Mutex<&'a UnixStream>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The command is gone, or said what is no file.
    given_up: AtomicBool,
    warmer: Warmer,
    life: &'a Life,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the files of this mount go that a command wants in the places with these names; in all there are, where it names none.
fn place(life: &Life, words: &[&str]) -> Result<WarmInto, CliError> {
    let can = life.kept.can_warm()?;
    let wants = |word: &str| words.is_empty() || words.contains(&word);
    let name = life.kept.name();
    let refuse = |text: String| Err(CliError::Told(text));
    if words.contains(&"group") && !can.group {
        return refuse(format!("'{name}' is read through no group: nothing can be brought into one"));
    }
    if words.contains(&"here") && !can.here {
        return refuse(format!(
            "'{name}' has no cache on this machine's disk: mount it with --cache-dir to have one"
        ));
    }
    let into = WarmInto { here: wants("here") && can.here, group: wants("group") && can.group };
    if !into.here && !into.group {
        return refuse(format!(
            "'{name}' is read through no group and has no cache on this machine's disk (--cache-dir): there is nowhere to bring files"
        ));
    }
    Ok(into)
}

/// Answers the request.
pub(super) fn answer(
    life: &Life,
    stream: &UnixStream,
    words: &[&str],
) -> io::Result<Result<Value, CliError>> {
    let into = match place(life, words) {
        Ok(into) => into,
        Err(error) => return Ok(Err(error)),
    };
    let Some(from) = life.kept.warming(into) else {
        return Ok(Err(CliError::Told(format!(
            "files of '{}' cannot be brought anywhere",
            life.kept.name()
        ))));
    };
    stream.set_read_timeout(None)?;
    let work = Work {
        stream: Mutex::new(stream),
        queue: Mutex::default(),
        changed: Condvar::new(),
        given_up: AtomicBool::new(false),
        warmer: Warmer::default(),
        life,
    };
    let left = life.kept.evictions();
    work.say(&json!({ "progress": { "here": into.here, "group": into.group } }));
    let read = thread::scope(|scope| {
        for _ in 0..WORKERS {
            let spawned = thread::Builder::new()
                .name("fb-warm".to_owned())
                .spawn_scoped(scope, || work.see_to_files(&*from));
            if let Err(error) = spawned {
                work.give_up();
                return Err(error);
            }
        }
        let ticking = scope.spawn(|| work.tick());
        let read = work.read(stream);
        locked(&work.queue).ended = true;
        work.changed.notify_all();
        drop(ticking);
        read
    });
    if let Err(error) = read {
        return Ok(Err(CliError::Told(format!("what is wanted cannot be read: {error}"))));
    }
    let mut total = work.progress();
    total["evicted_chunks"] = json!(life.kept.evictions().saturating_sub(left));
    Ok(Ok(total))
}

/// A worker has files in its hands.
struct Busy<'a, 'b>(&'a Work<'b>);

impl Drop for Busy<'_, '_> {
    fn drop(&mut self) {
        locked(&self.0.queue).busy -= 1;
    }
}

impl Work<'_> {
    fn give_up(&self) {
        self.given_up.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn goes_on(&self) -> bool {
        !self.given_up.load(Relaxed) && matches!(self.life.phase(), Phase::Serving)
    }

    fn say(&self, value: &Value) {
        self.say_all(format!("{value}\n").as_bytes());
    }

    fn say_all(&self, lines: &[u8]) {
        if locked(&self.stream).write_all(lines).is_err() {
            self.give_up();
        }
    }

    fn progress(&self) -> Value {
        let of = &self.warmer.progress;
        json!({
            "seen_bytes": of.seen.load(Relaxed), "cached_bytes": of.cached.load(Relaxed),
            "fetched_bytes": of.fetched.load(Relaxed), "lost_bytes": of.lost.load(Relaxed),
        })
    }

    /// Takes in what the command wants, until there is no more or nobody goes on.
    fn read(&self, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        loop {
            line.clear();
            if io::Read::take(&mut reader, LINE_MAX).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(number)), Some(Ok(ino)), None) = (words.next(), words.next(), words.next()) else {
                self.give_up();
                return Err(io::Error::other("a line that names no file"));
            };
            let mut queue = locked(&self.queue);
            while queue.waiting.len() >= QUEUE_MAX && self.goes_on() {
                let waited = self.changed.wait_timeout(queue, TICK);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            queue.waiting.push_back(Wanted { number, ino: Ino(ino) });
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// The next files, as many as leave others something to do. `None`: there are no more.
    fn next(&self) -> Option<Vec<Wanted>> {
        let mut queue = locked(&self.queue);
        loop {
            let count = queue.waiting.len().div_ceil(WORKERS).min(TOGETHER);
            if count > 0 {
                let taken = queue.waiting.drain(..count).collect();
                queue.busy += 1;
                drop(queue);
                self.changed.notify_all();
                return Some(taken);
            }
            if queue.ended || self.given_up.load(Relaxed) {
                return None;
            }
            queue = self.changed.wait_timeout(queue, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn see_to_files(&self, from: &dyn Warming) {
        forebay_env::threads::unbind();
        while let Some(wanted) = self.next() {
            let _busy = Busy(self);
            let files: Vec<Ino> = wanted.iter().map(|wanted| wanted.ino).collect();
            let outcomes = self.warmer.warm(from, &files, &|| self.goes_on());
            let mut lines = Vec::new();
            for (Wanted { number, .. }, outcome) in wanted.iter().zip(outcomes) {
                let file = match outcome {
                    Ok(()) => json!({ "file": { "number": number } }),
                    Err(error) => json!({ "file": { "number": number, "error": error } }),
                };
                lines.extend_from_slice(format!("{file}\n").as_bytes());
            }
            self.say_all(&lines);
        }
    }

    /// Tells of progress until all is done.
    fn tick(&self) {
        loop {
            let queue = locked(&self.queue);
            let queue = self.changed.wait_timeout(queue, TICK).unwrap_or_else(PoisonError::into_inner).0;
            let over =
                self.given_up.load(Relaxed) || queue.ended && queue.waiting.is_empty() && queue.busy == 0;
            drop(queue);
            if over {
                return;
            }
            thread::sleep(TICK);
            self.say(&json!({ "progress": self.progress() }));
        }
    }
}
