//! The oracle: whether what is seen after a crash is something the promise allows.
//!
//! What it holds a file system to, for one life of a volume and one moment of the crash:
//! - everything can be listed and read, and nothing is there that nobody made;
//! - namespace operations survive as a prefix of an order in which they may have been received: each thread's own order,
//!   and across threads whenever one was answered before another began;
//! - an `fsync`, `O_SYNC` write or `fsync` of a directory that was acknowledged has its names and bytes there;
//! - each file holds exactly what a prefix of its own writes gives, byte for byte, where a write may end at any page
//!   boundary in it because the kernel asks for it in several requests, and of what was stored in a mapping any pages may be there;
//! - where a name that makes data visible has survived (create and close, link, rename), so have the writes before it.
//!
//! It relies on [`super::workload`]'s rule that a name and a file belong to one thread: so each thread's survivors are
//! found on their own, and what remains between threads is a lower bound each puts on the others. The least
//! prefixes that satisfy all bounds are found by raising them from below; if there are any, these are among them.

use std::collections::HashMap;

use super::history::{History, Moment, Op, Promise, Record};
use super::names::{self, Matcher};
use super::observe::{Entry, Observed};
use super::pattern::{self, APPEND_LEN, FileId};
use super::pieces::{Piece, compare, split};
use super::workload::APPENDED;

/// Judges what is seen, with the moment at which each group of threads was cut off; groups without one have not begun. Each finding is one
/// sentence; none means that all is as promised.
#[must_use]
pub fn judge(history: &History, moments: &[Moment], seen: &Observed) -> Vec<String> {
    let mut findings = seen.unreadable.clone();
    findings.extend(names::strangers(history, seen));
    let settled: Vec<u64> =
        (0..).zip(moments).map(|(group, moment)| settled(history, group, *moment)).collect();
    let tracks: Vec<Track<'_>> = (0..)
        .zip(&history.threads)
        .filter_map(|(thread, records)| {
            let group = history.group(thread);
            Some(Track::new(group, records, *moments.get(group)?, *settled.get(group)?))
        })
        .collect();
    let floors = floors(&tracks);
    match prefixes(history, &tracks, &floors, seen) {
        Ok(kept) => {
            for (track, kept) in tracks.iter().zip(&kept) {
                findings.extend(judge_files(history, track, *kept, seen));
            }
        }
        Err(told) => findings.extend(told),
    }
    findings.extend(judge_appended(&tracks, seen));
    findings
}

/// The sequence at which the last clean unmount of a group began: what the group had been answered before is durable. Likewise what had been
/// answered before the point that the promise names.
fn settled(history: &History, group: usize, moment: Moment) -> u64 {
    let own = (0..).zip(&history.threads).filter(|(thread, _)| history.group(*thread) == group);
    let all: Vec<&Record> = own.flat_map(|(_, records)| records).collect();
    let unmounts = all.iter().filter(|r| matches!(r.op, Op::SyncAll) && moment.acknowledged(r));
    let unmounted = unmounts.map(|record| record.start.sequence).max().unwrap_or(0);
    let Promise::Before(point) = moment.promise else { return unmounted };
    // Sequences rise a little before points do: those below the first one beyond the point are all before it.
    let beyond = all.iter().flat_map(|r| [Some(r.start), r.end]).flatten().filter(|at| at.point > point);
    let first = beyond.map(|at| at.sequence).min().unwrap_or(u64::MAX);
    unmounted.max(if point == 0 { 0 } else { first })
}

/// One thread's started operations, sorted by what they concern.
struct Track<'a> {
    group: usize,
    moment: Moment,
    settled: u64,
    records: Vec<&'a Record>,
    /// The operations in the order of names.
    naming: Vec<&'a Record>,
    files: HashMap<FileId, FileTrack<'a>>,
}

#[derive(Default)]
struct FileTrack<'a> {
    pieces: Vec<Piece<'a>>,
    /// How many pieces must be there because they were synced.
    synced: usize,
    /// (place in `naming`, pieces before it) of each operation that makes the data visible.
    visible: Vec<(usize, usize)>,
}

impl<'a> Track<'a> {
    fn new(group: usize, records: &'a [Record], moment: Moment, settled: u64) -> Self {
        let records: Vec<&Record> = records.iter().take_while(|record| moment.started(record)).collect();
        let mut track = Self { group, moment, settled, records, naming: Vec::new(), files: HashMap::new() };
        for record in track.records.clone() {
            track.take(record);
        }
        track
    }

    fn take(&mut self, record: &'a Record) {
        match &record.op {
            Op::Data { file, change } => {
                let track = self.files.entry(*file).or_default();
                split(change, &mut track.pieces);
                if record.end.is_some_and(|end| end.sequence < self.settled) {
                    track.synced = track.pieces.len();
                }
            }
            Op::Mapped { file, stores } => {
                let track = self.files.entry(*file).or_default();
                track.pieces.push(Piece::Stores(stores));
                if record.end.is_some_and(|end| end.sequence < self.settled) {
                    track.synced = track.pieces.len();
                }
            }
            Op::Attribute { file, name, value } => {
                let track = self.files.entry(*file).or_default();
                track.pieces.push(Piece::Attribute { name, value: value.as_deref() });
                if record.end.is_some_and(|end| end.sequence < self.settled) {
                    track.synced = track.pieces.len();
                }
            }
            Op::SyncFile { file } if self.moment.binds(record) => {
                let track = self.files.entry(*file).or_default();
                track.synced = track.pieces.len();
            }
            _ => {}
        }
        if !record.op.is_naming() {
            return;
        }
        let place = self.naming.len();
        self.naming.push(record);
        let mut visible = record.op.named_files();
        if let Op::Close { file } = &record.op {
            visible.push(*file);
        }
        for file in visible {
            let track = self.files.entry(file).or_default();
            track.visible.push((place, track.pieces.len()));
        }
    }

    /// How many of the operations on names were answered before `sequence`.
    fn answered_before(&self, sequence: u64) -> usize {
        self.naming.iter().take_while(|r| r.end.is_some_and(|end| end.sequence < sequence)).count()
    }
}

/// How many operations on names of each thread must have survived because something that needs them was synced.
fn floors(tracks: &[Track<'_>]) -> Vec<usize> {
    let mut floors: Vec<usize> = tracks.iter().map(|track| track.answered_before(track.settled)).collect();
    for (own, track) in tracks.iter().enumerate() {
        let mut named: HashMap<FileId, usize> = HashMap::new();
        let mut place = 0;
        for record in &track.records {
            if record.op.is_naming() {
                place += 1;
                for file in record.op.named_files() {
                    named.insert(file, place);
                }
            }
            match &record.op {
                Op::SyncFile { file } if track.moment.binds(record) => {
                    floors[own] = floors[own].max(named.get(file).copied().unwrap_or(0));
                }
                Op::SyncDirectory { path } if track.moment.binds(record) => {
                    let both = floors.iter_mut().zip(tracks);
                    for (floor, other) in both.filter(|(_, other)| other.group == track.group) {
                        let before = other.answered_before(record.start.sequence);
                        let inside =
                            |r: &&Record| r.op.names().iter().any(|name| names::parent(name) == path);
                        let last = other.naming[..before].iter().rposition(inside);
                        *floor = (*floor).max(last.map_or(0, |last| last + 1));
                    }
                }
                _ => {}
            }
        }
    }
    floors
}

/// The least number of surviving operations on names for each thread that explains what is seen.
fn prefixes(
    history: &History,
    tracks: &[Track<'_>],
    floors: &[usize],
    seen: &Observed,
) -> Result<Vec<usize>, Vec<String>> {
    let mut candidates = Vec::new();
    let mut findings = Vec::new();
    for (thread, track) in tracks.iter().enumerate() {
        let mut matcher = Matcher::new(thread, history, seen);
        match matcher.prefixes(&track.naming) {
            Ok(found) => candidates.push(found),
            Err(told) => findings.push(told),
        }
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let mut needed = floors.to_vec();
    let mut kept = vec![0; tracks.len()];
    loop {
        for (thread, found) in candidates.iter().enumerate() {
            match found.iter().find(|count| **count >= needed[thread]) {
                Some(count) => kept[thread] = *count,
                None => findings.push(lost(thread, &tracks[thread], found, floors, needed[thread])),
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let before = needed.clone();
        for (track, count) in tracks.iter().zip(&kept) {
            let Some(last) = count.checked_sub(1).and_then(|at| track.naming.get(at)) else { continue };
            let both = needed.iter_mut().zip(tracks);
            for (need, other) in both.filter(|(_, other)| other.group == track.group) {
                *need = (*need).max(other.answered_before(last.start.sequence));
            }
        }
        if needed == before {
            return Ok(kept);
        }
    }
}

fn lost(thread: usize, track: &Track<'_>, found: &[usize], floors: &[usize], needed: usize) -> String {
    let most = found.last().copied().unwrap_or(0);
    let op = track.naming.get(most).map(|record| super::worker::summary(Some(&record.op)));
    let why = if needed <= floors[thread] {
        "which had been synced"
    } else {
        "though an operation that another thread began after its end is there"
    };
    format!(
        "thread {thread}: of {} operations on names only {most} survived, {needed} had to; the first one lost is {}, {why}",
        track.naming.len(),
        op.unwrap_or_default()
    )
}

fn judge_files(history: &History, track: &Track<'_>, kept: usize, seen: &Observed) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, paths) in names::files_after(&track.naming[..kept]) {
        let empty = FileTrack::default();
        let own = track.files.get(&file).unwrap_or(&empty);
        let visible = own.visible.iter().filter(|(place, _)| *place < kept).map(|(_, pieces)| *pieces).max();
        let floor = own.synced.max(visible.unwrap_or(0));
        for path in &paths {
            let Some(Entry::File { links, bytes, attributes, .. }) = seen.entries.get(path) else { continue };
            if path == APPENDED {
                continue;
            }
            if *links != paths.len() as u64 {
                findings.push(format!("/{path} has {} names and says {links}", paths.len()));
            }
            if let Err(told) = compare(&own.pieces, floor, bytes, attributes) {
                let why = if own.synced >= floor { "synced" } else { "written before it became visible" };
                let inode = history.inodes.get(&file).copied().unwrap_or(0);
                let name = format!("/{path} (file {}.{}, inode {inode})", file.thread, file.number);
                findings.push(format!("{name}: {told}; {floor} of its writes were {why}"));
                break;
            }
        }
    }
    findings
}

/// The file to which all append: whole records only, each thread's in order, and none before one that had ended when it began.
/// Only the first group appends.
fn judge_appended(tracks: &[Track<'_>], seen: &Observed) -> Vec<String> {
    let Some(Track { moment, settled, .. }) = tracks.first() else { return Vec::new() };
    let appends: Vec<Vec<&Record>> = tracks
        .iter()
        .map(|track| track.records.iter().copied().filter(|r| matches!(r.op, Op::Append { .. })).collect())
        .collect();
    let answered = |thread: &Vec<&Record>, sequence: u64| {
        thread.iter().take_while(|r| r.end.is_some_and(|end| end.sequence < sequence)).count()
    };
    let bytes = match seen.entries.get(APPENDED) {
        Some(Entry::File { bytes, .. }) => bytes.as_slice(),
        _ => &[],
    };
    let mut there = vec![0_usize; tracks.len()];
    for (place, record) in bytes.chunks(APPEND_LEN).enumerate() {
        let at = place * APPEND_LEN;
        let own = pattern::parse_append(record)
            .and_then(|(thread, number)| Some((usize::from(thread), usize::try_from(number).ok()?)))
            .filter(|(thread, number)| there.get(*thread) == Some(number));
        let Some((thread, number)) = own else {
            return vec![format!(
                "/{APPENDED}: no record in its turn at {at}: {}",
                pattern::describe(bytes, at)
            )];
        };
        let Some(append) = appends[thread].get(number) else {
            return vec![format!("/{APPENDED}: record {number} of thread {thread} was not yet written")];
        };
        for (other, count) in appends.iter().zip(&there) {
            if answered(other, append.start.sequence) > *count {
                return vec![format!(
                    "/{APPENDED}: record {number} of thread {thread} survived at {at} without one that was there before it"
                )];
            }
        }
        there[thread] += 1;
    }
    let syncs = tracks.iter().flat_map(|track| &track.records);
    let syncs = syncs.filter(|r| matches!(r.op, Op::SyncAppended) && moment.binds(r));
    for sequence in syncs.map(|sync| sync.start.sequence).chain([*settled]) {
        for (thread, (appends, there)) in appends.iter().zip(&there).enumerate() {
            let needed = answered(appends, sequence);
            if needed > *there {
                return vec![format!(
                    "/{APPENDED}: {needed} records of thread {thread} were synced, {there} are there"
                )];
            }
        }
    }
    Vec::new()
}
