//! The disk and its cuts, and the oracle tried on a file system that is right and on the same one broken in each of its ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cut::{Cutter, Fill, Names, Rules, points_to_cut};
use super::disk::Disk;
use super::history::{Clock, History, Moment, Op, Record, Stamp};
use super::log::{Change, Kind, ROOT};
use super::observe::{Entry, Observed};
use super::oracle::judge;
use super::pattern::{FileId, append_record};
use super::rng::Rng;
use super::standin::{Fault, Standin};
use super::workload::{APPENDED, Plan, run};

const STRICT: Rules = Rules { names: Names::Strict, fill: Fill::ZerosOrNoise };
const ORDERED: Rules = Rules { names: Names::Ordered, fill: Fill::Stale };

fn write(disk: &Disk, ino: u64, offset: u64, data: &[u8]) {
    disk.change(ino, Change::Write { offset, data: Arc::from(data) }, false).unwrap();
}

/// What the cuts at the end of `disk`'s log leave, for many seeds.
fn images(disk: &Disk, rules: Rules) -> Vec<super::image::Image> {
    let log = disk.log();
    (0..300).map(|seed| Cutter::new(&log, rules).image(disk.points(), &mut Rng::new(seed))).collect()
}

#[test]
fn synced_bytes_stay_and_others_tear_at_sectors() {
    let disk = Disk::default();
    let file = disk.make(ROOT, b"f", Kind::File, 0o644).unwrap();
    disk.sync(ROOT).unwrap();
    write(&disk, file, 0, &[1; 2048]);
    disk.sync(file).unwrap();
    write(&disk, file, 100, &[2; 1500]);
    let (mut torn, mut old, mut new) = (0, 0, 0);
    for image in images(&disk, STRICT) {
        let bytes = image.file("f").unwrap().read(0, 4096);
        assert_eq!(bytes.len(), 2048);
        assert!(bytes[..100].iter().chain(&bytes[1600..]).all(|byte| *byte == 1));
        let sectors: Vec<&[u8]> =
            vec![&bytes[100..512], &bytes[512..1024], &bytes[1024..1536], &bytes[1536..1600]];
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        let changed = sectors.iter().filter(|sector| sector[0] == 2).count();
        match changed {
            0 => old += 1,
            4 => new += 1,
            _ => torn += 1,
        }
    }
    assert!(torn > 20 && old > 20 && new > 20, "{torn} torn, {old} old, {new} new");
}

#[test]
fn a_length_may_survive_without_its_bytes() {
    let disk = Disk::default();
    let file = disk.make(ROOT, b"f", Kind::File, 0o644).unwrap();
    disk.sync(ROOT).unwrap();
    write(&disk, file, 0, &[7; 1024]);
    let seen: Vec<(u64, Vec<u8>)> = images(&disk, STRICT)
        .iter()
        .map(|image| image.file("f").unwrap())
        .map(|file| (file.len(), file.read(0, 1024)))
        .collect();
    assert!(seen.iter().any(|(len, _)| *len == 0));
    assert!(seen.iter().any(|(len, bytes)| *len == 1024 && bytes.iter().all(|byte| *byte == 0)));
    assert!(seen.iter().any(|(len, bytes)| *len == 1024 && bytes[..512].iter().any(|b| *b != 0 && *b != 7)));
    assert!(seen.iter().any(|(len, bytes)| *len == 1024 && bytes.iter().all(|byte| *byte == 7)));
}

#[test]
fn names_need_their_directory_synced_in_strict_mode_only() {
    let disk = Disk::default();
    let dir = disk.make(ROOT, b"d", Kind::Directory, 0o755).unwrap();
    disk.sync(ROOT).unwrap();
    let file = disk.make(dir, b"f", Kind::File, 0o644).unwrap();
    disk.make(dir, b"later", Kind::File, 0o644).unwrap();
    disk.sync(file).unwrap();
    assert!(images(&disk, STRICT).iter().any(|image| image.file("d/f").is_none()));
    assert!(
        images(&disk, STRICT)
            .iter()
            .any(|image| image.file("d/f").is_none() && image.file("d/later").is_some())
    );
    assert!(images(&disk, ORDERED).iter().all(|image| image.file("d/f").is_some()));
    assert!(images(&disk, ORDERED).iter().any(|image| image.file("d/later").is_none()));
    disk.sync(dir).unwrap();
    assert!(images(&disk, STRICT).iter().all(|image| image.file("d/f").is_some()));
}

#[test]
fn a_rename_is_atomic_and_never_leaves_two_or_no_names() {
    let disk = Disk::default();
    let one = disk.make(ROOT, b"one", Kind::Directory, 0o755).unwrap();
    let other = disk.make(ROOT, b"other", Kind::Directory, 0o755).unwrap();
    let file = disk.make(one, b"new", Kind::File, 0o644).unwrap();
    let replaced = disk.make(other, b"name", Kind::File, 0o644).unwrap();
    write(&disk, file, 0, b"new");
    write(&disk, replaced, 0, b"old");
    for ino in [file, replaced, one, other, ROOT] {
        disk.sync(ino).unwrap();
    }
    disk.rename((one, b"new"), (other, b"name"), false, false).unwrap();
    disk.rename((other, b"name"), (one, b"third"), false, false).unwrap();
    let mut states = [0; 3];
    for image in images(&disk, STRICT).iter().chain(&images(&disk, ORDERED)) {
        let read = |path| image.file(path).map(|file| file.read(0, 9));
        let state = (read("one/new"), read("other/name"), read("one/third"));
        let (new, old) = (Some(b"new".to_vec()), Some(b"old".to_vec()));
        let place = if state == (new.clone(), old, None) {
            0
        } else if state == (None, new.clone(), None) {
            1
        } else {
            assert_eq!(state, (None, None, new));
            2
        };
        states[place] += 1;
    }
    assert!(states.iter().all(|count| *count > 20), "{states:?}");
}

#[test]
fn an_image_lies_down_in_a_directory_as_it_is() {
    let disk = Disk::default();
    let dir = disk.make(ROOT, b"d", Kind::Directory, 0o755).unwrap();
    let file = disk.make(dir, b"f", Kind::File, 0o644).unwrap();
    write(&disk, file, 200_000, b"end");
    disk.link(file, ROOT, b"g").unwrap();
    disk.make(dir, b"s", Kind::Symlink(b"../g".to_vec()), 0o777).unwrap();
    for ino in [file, dir, ROOT] {
        disk.sync(ino).unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    Cutter::new(&disk.log(), STRICT).image(disk.points(), &mut Rng::new(1)).write_to(place.path()).unwrap();
    let seen = Observed::read(place.path());
    let paths: Vec<&str> = seen.entries.keys().map(String::as_str).collect();
    assert_eq!(paths, ["d", "d/f", "d/s", "g"]);
    let Some(Entry::File { links, bytes, .. }) = seen.entries.get("g") else { panic!("no file") };
    assert_eq!((*links, bytes.len(), &bytes[200_000..]), (2, 200_003, &b"end"[..]));
    assert_eq!(std::fs::read(place.path().join("d/s")).unwrap(), *bytes);
}

/// Cuts one life of the stand-in at `points` places and gives the findings of those that have any.
fn trial(fault: Fault, rules: Rules, seed: u64, points: u64) -> Vec<String> {
    let disk = Arc::new(Disk::default());
    let volume = Standin::create(Arc::clone(&disk), fault).unwrap();
    let first = disk.points();
    let clock = Clock::new(|| disk.points());
    let plan = Plan { seed, threads: 3, steps: 60, stream_bytes: 1 << 20, rich: false };
    let history = run(&volume, &clock, &plan);
    assert_eq!(history.failures, Vec::<String>::new());
    let log = disk.log();
    let mut rng = Rng::new(seed);
    let mut cutter = Cutter::new(&log, rules);
    let mut found = Vec::new();
    for point in points_to_cut(&log, first, points, &mut rng) {
        let image = cutter.image(point, &mut rng);
        let told = judge(&history, &[Moment::cut(point)], &Standin::recover(&image, fault));
        found.extend(told.first().map(|told| format!("seed {seed}, point {point} of {}: {told}", log.len())));
    }
    found
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for seed in 1..=4 {
        for rules in [STRICT, ORDERED] {
            let found = trial(Fault::None, rules, seed, 40);
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }
}

#[test]
fn every_planted_fault_is_found() {
    let faults = [
        Fault::JournalNotSynced,
        Fault::BytesNotSynced,
        Fault::CheckpointNotSynced,
        Fault::CheckpointBytesNotSynced,
        Fault::CurrentNotSynced,
        Fault::DirectoryNotSynced,
        Fault::NoChecksum,
        Fault::NamesBeforeBytes,
        Fault::SharedNamesLate,
        Fault::OneThreadLate,
        Fault::TruncationForgotten,
        Fault::WritesReversed,
        Fault::FsyncForgotten,
    ];
    for fault in faults {
        let found = (1..=40).find_map(|seed| trial(fault, STRICT, seed, 40).into_iter().next());
        assert!(found.is_some(), "{fault:?} was not found");
        println!("{fault:?}: {}", found.unwrap_or_default());
    }
}

/// Records by hand: (thread, operation, start, end) with sequence numbers as times.
fn told_by_hand(ops: Vec<(usize, Op, u64, u64)>) -> History {
    let mut history = History { threads: vec![Vec::new(); 3], ..History::default() };
    for (thread, op, start, end) in ops {
        let at = |sequence| Stamp { sequence, point: 0 };
        history.threads[thread].push(Record { op, start: at(start), end: Some(at(end)) });
    }
    history
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.to_owned() }
}

fn directories(paths: &[&str]) -> Observed {
    let entries = paths.iter().map(|path| ((*path).to_owned(), Entry::Directory)).collect();
    Observed { entries, ..Observed::default() }
}

#[test]
fn what_came_later_in_another_thread_must_not_survive_alone() {
    let ops = vec![
        (0, mkdir("t1"), 0, 1),
        (0, mkdir("t2"), 2, 3),
        (1, mkdir("t1/d1"), 4, 5),
        (2, mkdir("t2/d1"), 6, 7),
        (1, mkdir("t1/d2"), 8, 11),
        (2, mkdir("t2/d2"), 9, 10),
    ];
    let history = told_by_hand(ops);
    let judged = |paths: &[&str]| judge(&history, &[Moment::END], &directories(paths));
    for allowed in [
        &[][..],
        &["t1"],
        &["t1", "t2", "t1/d1"],
        &["t1", "t2", "t1/d1", "t2/d1", "t1/d2"],
        &["t1", "t2", "t1/d1", "t2/d1", "t2/d2"],
        &["t1", "t2", "t1/d1", "t2/d1", "t1/d2", "t2/d2"],
    ] {
        assert_eq!(judged(allowed), Vec::<String>::new(), "{allowed:?}");
    }
    for forbidden in [
        &["t2"][..],
        &["t1", "t2", "t2/d1"],
        &["t1", "t2", "t1/d2"],
        &["t1", "t2", "t1/d1", "t1/d2"],
        &["t1", "t2", "t1/d1", "t2/d1", "t1/d9"],
        &["t1", "stranger"],
    ] {
        assert_ne!(judged(forbidden), Vec::<String>::new(), "{forbidden:?}");
    }
}

#[test]
fn a_synced_directory_keeps_the_names_that_all_threads_put_there() {
    let ops = vec![
        (0, mkdir("shared"), 0, 1),
        (1, mkdir("shared/t1-d"), 2, 3),
        (2, Op::SyncDirectory { path: "shared".to_owned() }, 4, 6),
        (1, mkdir("shared/t1-e"), 5, 7),
    ];
    let history = told_by_hand(ops);
    assert!(judge(&history, &[Moment::END], &directories(&["shared", "shared/t1-d"])).is_empty());
    assert!(
        judge(&history, &[Moment::END], &directories(&["shared", "shared/t1-d", "shared/t1-e"])).is_empty()
    );
    assert!(!judge(&history, &[Moment::END], &directories(&["shared"])).is_empty());
    assert!(!judge(&history, &[Moment::END], &directories(&[])).is_empty());
}

#[test]
fn appends_of_several_threads_survive_in_their_order() {
    let log = FileId { thread: 0, number: 0 };
    let append = |number| Op::Append { number };
    let ops = vec![
        (0, mkdir("shared"), 0, 1),
        (0, Op::Create { path: APPENDED.to_owned(), file: log }, 2, 3),
        (1, append(0), 4, 5),
        (2, append(0), 6, 7),
        (1, Op::SyncAppended, 8, 9),
        (1, append(1), 10, 13),
        (2, append(1), 11, 12),
    ];
    let history = told_by_hand(ops);
    let judged = |records: &[(u16, u32)], cut: usize| {
        let mut bytes: Vec<u8> =
            records.iter().flat_map(|(thread, number)| append_record(*thread, *number)).collect();
        bytes.truncate(bytes.len() - cut);
        let mut seen = directories(&["shared"]);
        seen.entries.insert(
            APPENDED.to_owned(),
            Entry::File { inode: 5, links: 1, bytes, attributes: BTreeMap::new() },
        );
        judge(&history, &[Moment::END], &seen)
    };
    for allowed in [
        &[(1, 0), (2, 0)][..],
        &[(1, 0), (2, 0), (1, 1)],
        &[(1, 0), (2, 0), (2, 1)],
        &[(1, 0), (2, 0), (1, 1), (2, 1)],
        &[(1, 0), (2, 0), (2, 1), (1, 1)],
    ] {
        assert_eq!(judged(allowed, 0), Vec::<String>::new(), "{allowed:?}");
    }
    for forbidden in
        [&[(1, 0)][..], &[], &[(2, 0), (1, 0)], &[(1, 0), (2, 0), (2, 0)], &[(1, 0), (2, 0), (1, 2)]]
    {
        assert_ne!(judged(forbidden, 0), Vec::<String>::new(), "{forbidden:?}");
    }
    assert_ne!(judged(&[(1, 0), (2, 0), (1, 1)], 9), Vec::<String>::new(), "a torn record");
}

#[test]
fn all_that_was_answered_before_a_clean_unmount_stays() {
    let file = FileId { thread: 1, number: 0 };
    let change = Change::Write { offset: 0, data: Arc::from(&b"bytes"[..]) };
    let ops = vec![
        (0, mkdir("t1"), 0, 1),
        (1, Op::Create { path: "t1/f1".to_owned(), file }, 2, 3),
        (1, Op::Data { file, change }, 4, 5),
        (0, Op::SyncAll, 6, 7),
        (1, mkdir("t1/d2"), 8, 9),
    ];
    let history = told_by_hand(ops);
    let judged = |paths: &[&str], bytes: &[u8]| {
        let mut seen = directories(paths);
        let file = Entry::File { inode: 7, links: 1, bytes: bytes.to_vec(), attributes: BTreeMap::new() };
        seen.entries.insert("t1/f1".to_owned(), file);
        judge(&history, &[Moment::END], &seen)
    };
    assert_eq!(judged(&["t1"], b"bytes"), Vec::<String>::new());
    assert_eq!(judged(&["t1", "t1/d2"], b"bytes"), Vec::<String>::new());
    assert_ne!(judged(&["t1"], b""), Vec::<String>::new());
    assert_ne!(judge(&history, &[Moment::END], &directories(&["t1"])), Vec::<String>::new());
}

#[test]
fn of_stores_in_a_mapping_any_pages_survive_until_they_are_synced() {
    let file = FileId { thread: 1, number: 0 };
    let data =
        |offset, data: &[u8]| Op::Data { file, change: Change::Write { offset, data: Arc::from(data) } };
    let stores = vec![(10, Arc::from(&b"aa"[..])), (5000, Arc::from(&b"bb"[..]))];
    let ops = |synced: bool| {
        let mut ops = vec![
            (0, mkdir("t1"), 0, 1),
            (1, Op::Create { path: "t1/f1".to_owned(), file }, 2, 3),
            (1, data(0, &[b'.'; 6000]), 4, 5),
            (1, Op::SyncFile { file }, 6, 7),
            (1, Op::Mapped { file, stores: stores.clone() }, 8, 9),
            (1, data(10, b"c"), 12, 13),
        ];
        if synced {
            ops.insert(5, (1, Op::SyncFile { file }, 8, 9));
        }
        told_by_hand(ops)
    };
    let judged = |synced: bool, changed: &[(usize, &[u8])]| {
        let mut bytes = vec![b'.'; 6000];
        changed.iter().for_each(|(at, new)| bytes[*at..at + new.len()].copy_from_slice(new));
        let mut seen = directories(&["t1"]);
        let file = Entry::File { inode: 7, links: 1, bytes, attributes: BTreeMap::new() };
        seen.entries.insert("t1/f1".to_owned(), file);
        judge(&ops(synced), &[Moment::END], &seen).is_empty()
    };
    for part in [&[][..], &[(10, &b"aa"[..])], &[(5000, &b"bb"[..])]] {
        assert!(judged(false, part) && !judged(true, part), "{part:?}");
    }
    for whole in [&[(10, &b"aa"[..]), (5000, b"bb")][..], &[(10, &b"ca"[..]), (5000, b"bb")]] {
        assert!(judged(false, whole) && judged(true, whole), "{whole:?}");
    }
    for torn in
        [&[(10, &b"a"[..])][..], &[(10, &b"ca"[..])], &[(10, &b"c"[..])], &[(11, &b"a"[..]), (5000, b"bb")]]
    {
        assert!(!judged(false, torn) && !judged(true, torn), "{torn:?}");
    }
}
