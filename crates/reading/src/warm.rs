//! Bringing whole files near, ahead of anybody who reads them: into a cache on this machine's disk, or into that of others.
//!
//! Guarantees: what is near already is not fetched again; what is near when [`Warmer::warm`] returns without an error for a file was in the store then, or
//! nearer. Bytes are not looked at: who reads them verifies them. Ranges of many files that lie beside each other in an object are one request.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

pub use forebay_cache::Warmed;
use forebay_format::row::ObjectRef;
use forebay_meta::{Piece, PieceSource};
use forebay_types::{Ino, SegmentId};
use parking_lot::{Condvar, Mutex};

/// Bytes of a file that are looked at at a time: what is known of a file's place is bounded by it.
const WINDOW: u64 = 64 << 20;
/// Bytes of one request.
const REQUEST: u64 = 8 << 20;
/// Ranges that lie this near to each other are one: it is what a cache keeps at least.
const GAP: u64 = 256 << 10;
/// Requests at a time, of all who call: so many times 8 MiB of memory at most.
const REQUESTS: usize = 16;
/// Threads for the requests of one call.
const PARALLEL: usize = 8;
/// How often a file is begun anew because its data was moved meanwhile.
const ATTEMPTS: u32 = 4;

/// Where stored bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The segment.
    pub segment: SegmentId,
    /// The object that has it.
    pub object: ObjectRef,
    /// Bytes of the object.
    pub range: Range<u64>,
}

/// Why bytes do not come near.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotWarm {
    /// They are elsewhere by now: it is to be asked again where.
    Moved(SegmentId),
    /// In words.
    Failed(String),
}

/// Who knows where files are, and has their bytes brought near.
pub trait Warming: Sync {
    /// Length of a file in bytes.
    ///
    /// # Errors
    /// Why it is not known, in words.
    fn len(&self, ino: Ino) -> Result<u64, String>;

    /// Where the stored bytes of a range of a file are; without those that need not be fetched because they are here.
    ///
    /// # Errors
    /// Why it is not known, in words.
    fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, String>;

    /// What holds for the bytes of a segment: one request has none for which another thing holds than for its own segment.
    fn rule(&self, _segment: SegmentId) -> u8 {
        0
    }

    /// Has bytes near, at most 8 MiB, and waits for that.
    ///
    /// # Errors
    /// [`NotWarm`].
    fn bring(&self, stored: &Stored) -> Result<Warmed, NotWarm>;
}

impl<T: Warming + ?Sized> Warming for &T {
    fn len(&self, ino: Ino) -> Result<u64, String> {
        (**self).len(ino)
    }

    fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, String> {
        (**self).stored(ino, range)
    }

    fn rule(&self, segment: SegmentId) -> u8 {
        (**self).rule(segment)
    }

    fn bring(&self, stored: &Stored) -> Result<Warmed, NotWarm> {
        (**self).bring(stored)
    }
}

/// What was done so far, of all files together.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of files that were seen to, holes with them.
    pub seen: AtomicU64,
    /// Stored bytes that were near.
    pub cached: AtomicU64,
    /// Stored bytes that came.
    pub fetched: AtomicU64,
    /// Stored bytes of these that did not stay.
    pub lost: AtomicU64,
}

/// Bounds what is on its way.
#[derive(Debug)]
pub struct Warmer {
    free: Mutex<usize>,
    freed: Condvar,
    /// What was done.
    pub progress: Progress,
}

impl Default for Warmer {
    fn default() -> Warmer {
        Warmer { free: Mutex::new(REQUESTS), freed: Condvar::new(), progress: Progress::default() }
    }
}

/// A request, and the files of which it has something.
struct Asked {
    stored: Stored,
    files: Vec<usize>,
}

/// Joins what lies side by side in an object and goes by one rule, in requests of at most 8 MiB.
fn joined(mut wanted: Vec<(Stored, usize)>, rule: impl Fn(SegmentId) -> u8) -> Vec<Asked> {
    wanted.sort_unstable_by_key(|(stored, _)| (stored.object, stored.range.start));
    let mut asked: Vec<Asked> = Vec::new();
    for (stored, file) in wanted {
        let mut start = stored.range.start;
        while start < stored.range.end {
            if let Some(Asked { stored: last, files }) = asked.last_mut()
                && last.object == stored.object
                && (last.segment == stored.segment || rule(last.segment) == rule(stored.segment))
                && start <= last.range.end.saturating_add(GAP)
            {
                let most = last.range.start + REQUEST;
                last.range.end = last.range.end.max(stored.range.end.min(most));
                if start < last.range.end {
                    if files.last() != Some(&file) {
                        files.push(file);
                    }
                    start = last.range.end;
                    continue;
                }
            }
            let end = stored.range.end.min((start + 1).next_multiple_of(REQUEST));
            asked.push(Asked { stored: Stored { range: start..end, ..stored.clone() }, files: vec![file] });
            start = end;
        }
    }
    asked
}

/// A file on its way.
struct File {
    ino: Ino,
    len: u64,
    at: u64,
    attempt: u32,
    ended: Option<Result<(), String>>,
}

impl Warmer {
    /// Brings files near, and says of each, in their order, whether that was done. Several may be called at a time. `goes_on` is asked now and then: where it
    /// says no, what is left is not done, and said so.
    pub fn warm(
        &self,
        from: &dyn Warming,
        files: &[Ino],
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Result<(), String>> {
        let begin = |ino: &Ino| {
            let (len, ended) = match from.len(*ino) {
                Ok(len) => (len, None),
                Err(why) => (0, Some(Err(why))),
            };
            File { ino: *ino, len, at: 0, attempt: 1, ended }
        };
        let mut files: Vec<File> = files.iter().map(begin).collect();
        while files.iter().any(|file| file.ended.is_none()) {
            if !goes_on() {
                for file in files.iter_mut().filter(|file| file.ended.is_none()) {
                    file.ended = Some(Err("it was given up".to_owned()));
                }
                break;
            }
            self.round(from, &mut files);
        }
        let unended = || Err("it was given up".to_owned());
        files.into_iter().map(|file| file.ended.unwrap_or_else(unended)).collect()
    }

    /// The next window of each file.
    fn round(&self, from: &dyn Warming, files: &mut [File]) {
        let mut wanted = Vec::new();
        for (number, file) in files.iter_mut().enumerate() {
            if file.ended.is_some() {
                continue;
            }
            match from.stored(file.ino, &(file.at..file.len.min(file.at + WINDOW))) {
                Ok(stored) => wanted.extend(stored.into_iter().map(|stored| (stored, number))),
                Err(why) => file.ended = Some(Err(why)),
            }
        }
        // Only now: what one file says of a segment counts for all that have bytes in it.
        let asked = joined(wanted, |segment| from.rule(segment));
        let outcomes = self.bring_all(from, &asked);
        let mut failed: Vec<Option<&NotWarm>> = files.iter().map(|_| None).collect();
        for (asked, outcome) in asked.iter().zip(&outcomes) {
            if let Err(why) = outcome {
                asked.files.iter().for_each(|file| failed[*file] = Some(why));
            }
        }
        for (file, failed) in files.iter_mut().zip(failed).filter(|(file, _)| file.ended.is_none()) {
            match failed {
                None => {
                    let end = file.len.min(file.at + WINDOW);
                    self.progress.seen.fetch_add(end - file.at, Relaxed);
                    (file.at, file.attempt) = (end, 1);
                    if end == file.len {
                        file.ended = Some(Ok(()));
                    }
                }
                Some(NotWarm::Moved(_)) if file.attempt < ATTEMPTS => file.attempt += 1,
                Some(NotWarm::Moved(segment)) => {
                    file.ended = Some(Err(format!("segment {segment} is missing in the store")));
                }
                Some(NotWarm::Failed(why)) => file.ended = Some(Err(why.clone())),
            }
        }
    }

    /// Makes requests, several at a time; outcomes in their order.
    fn bring_all(&self, from: &dyn Warming, asked: &[Asked]) -> Vec<Result<(), NotWarm>> {
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(vec![Ok(()); asked.len()]));
        let bring_some = || {
            while let Some(request) = {
                let number = next.fetch_add(1, Relaxed);
                asked.get(number).map(|asked| (number, asked))
            } {
                let (number, asked) = request;
                if let Err(why) = self.bring(from, &asked.stored) {
                    outcomes.lock()[number] = Err(why);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..asked.len().min(PARALLEL) {
                let bring_elsewhere = || {
                    forebay_env::threads::unbind();
                    bring_some();
                };
                // Without the thread, the others make its requests.
                let _ = thread::Builder::new()
                    .name("forebay-warm".to_owned())
                    .spawn_scoped(scope, bring_elsewhere);
            }
            bring_some();
        });
        outcomes.into_inner()
    }

    fn bring(&self, from: &dyn Warming, stored: &Stored) -> Result<(), NotWarm> {
        let _turn = self.turn();
        let warmed = from.bring(stored)?;
        let Progress { cached, fetched, lost, .. } = &self.progress;
        // Of what was there only what is wanted: caches count whole chunks, of which others have parts.
        let rest = (stored.range.end - stored.range.start).saturating_sub(warmed.fetched);
        cached.fetch_add(warmed.cached.min(rest), Relaxed);
        fetched.fetch_add(warmed.fetched, Relaxed);
        lost.fetch_add(warmed.lost, Relaxed);
        Ok(())
    }

    fn turn(&self) -> Turn<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        *free -= 1;
        Turn(self)
    }
}

/// One of the requests that may be on their way.
struct Turn<'a>(&'a Warmer);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

/// The stored bytes of pieces, by segments: runs that lie side by side together.
#[must_use]
pub fn stored_runs(pieces: &[Piece]) -> Vec<(SegmentId, Range<u64>)> {
    let mut runs: Vec<(SegmentId, Range<u64>)> = Vec::new();
    for piece in pieces {
        let PieceSource::Extent(extent) = &piece.source else { continue };
        let run = extent.run_offset..extent.run_offset.saturating_add(u64::from(extent.stored_len));
        match runs.last_mut() {
            Some((segment, range)) if *segment == extent.segment && range.end == run.start => {
                range.end = run.end;
            }
            Some((segment, range)) if *segment == extent.segment && *range == run => {}
            _ => runs.push((extent.segment, run)),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
