//! Files of the journal without a readable head: a stop came before it was durable, or it is damaged.

use std::path::{Path, PathBuf};

use forebay_data::{DataError, ReplayError};
use forebay_types::{SegmentId, Sequence};
use tempfile::TempDir;

use crate::setting::{append, bytes_of, fresh, log_path, new_journal, replay, start};

/// Bytes of a head.
const HEAD: usize = 64;

/// Bytes that sectors may have to which nothing was written.
fn noise(len: usize) -> Vec<u8> {
    let next =
        |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    std::iter::successors(Some(7), |state| Some(next(*state)))
        .map(|state| (state >> 56) as u8)
        .take(len)
        .collect()
}

/// A journal of records 1 to 5 in one file and 6 to 9 in a second one, which is the newest; where each record of that ends. Synced after 5, and
/// after `synced` too.
fn two_files(synced: u64) -> (TempDir, PathBuf, Vec<usize>) {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = new_journal(dir.path());
    let mut ends = Vec::new();
    for number in 1..=9 {
        if number == 6 {
            journal.rotate().expect("a second file");
        }
        append(&journal, number);
        if number == 5 || number == synced {
            journal.sync(Sequence(number)).expect("a sync");
        }
        if number > 5 {
            ends.push(journal.files()[1].len as usize);
        }
    }
    journal.write_out();
    let files = bytes_of(dir.path(), &journal.files());
    drop(journal);
    for (name, bytes) in &files {
        std::fs::write(dir.path().join(name), bytes).expect("a file");
    }
    let newest = dir.path().join(&files[1].0);
    (dir, newest, ends)
}

/// Puts `bytes` over those at `at`.
fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    let mut all = std::fs::read(path).expect("a file");
    all[at..at + bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, all).expect("a file");
}

fn is_gap(dir: &Path, applied: u64) -> bool {
    matches!(replay(dir, applied), Err(ReplayError::Data(DataError::JournalGap { .. })))
}

#[test]
fn the_newest_file_without_a_head_is_beyond_the_end() {
    // The sector of the head, with the first records or with all; what else of the file was written, or not.
    for (lost, applied) in [(1, 0), (1, 5), (4, 0), (4, 3), (4, 5)] {
        let (dir, newest, ends) = two_files(0);
        overwrite(&newest, 0, &noise(ends[lost - 1]));
        let (replayed, found) = replay(dir.path(), applied).expect("a replay");
        assert_eq!(found.iter().filter(|(_, fresh)| *fresh).count() as u64, 5 - applied);
        assert_eq!(replayed.last, Sequence(5));
        assert!(replayed.cut.as_deref().is_some_and(|cut| cut.contains("no head")), "{:?}", replayed.cut);
        assert!(newest.exists(), "a replay changes nothing");

        let journal = start(replayed, dir.path(), 2);
        assert!(!newest.exists());
        assert_eq!(append(&journal, 6), Sequence(6));
        journal.sync(Sequence(6)).expect("a sync");
        drop(journal);
        assert_eq!(replay(dir.path(), 0).expect("a replay").1, fresh(6));
    }
}

/// The journal before it may be gone: all of it was applied.
#[test]
fn it_may_be_the_only_file() {
    let (dir, newest, ends) = two_files(0);
    overwrite(&newest, 0, &noise(ends[3]));
    for entry in dir.path().read_dir().expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry != newest {
            std::fs::remove_file(entry).expect("removed");
        }
    }
    let (replayed, found) = replay(dir.path(), 5).expect("a replay");
    assert_eq!((replayed.last, found), (Sequence(5), Vec::new()));
}

/// What is still a head in part was written, and a sync may have covered it.
#[test]
fn a_damaged_head_is_no_missing_one() {
    let (dir, newest, ends) = two_files(0);
    let whole = std::fs::read(&newest).expect("a file");
    for field in [0..8, 12..28, 28..36] {
        overwrite(&newest, 0, &noise(ends[3]));
        overwrite(&newest, field.start, &whole[field.clone()]);
        assert!(is_gap(dir.path(), 0), "with the bytes {field:?}");
    }
    // A sector that the disk does not give.
    overwrite(&newest, 0, &noise(ends[3]));
    overwrite(&newest, 0, &[0xdb; HEAD]);
    assert!(is_gap(dir.path(), 0));
}

/// A sync of a file makes its head durable, so a file in which anything was synced has lost it by damage.
#[test]
fn what_was_synced_is_not_given_up() {
    let (dir, newest, ends) = two_files(7);
    overwrite(&newest, 0, &noise(ends[0]));
    // Record 8 calls 7 durable.
    assert!(is_gap(dir.path(), 0) && is_gap(dir.path(), 5));

    // The metadata contains record 7, which it never does before a sync.
    let (dir, newest, ends) = two_files(0);
    overwrite(&newest, 0, &noise(ends[0]));
    assert!(is_gap(dir.path(), 7) && !is_gap(dir.path(), 5));
}

/// A file is made only once the head of the one before it is durable.
#[test]
fn a_file_with_a_later_one_had_a_head() {
    let (dir, newest, ends) = two_files(0);
    overwrite(&newest, 0, &noise(ends[3]));
    std::fs::write(log_path(dir.path(), SegmentId(u64::MAX)), vec![0; 4096]).expect("a file");
    assert!(is_gap(dir.path(), 0));
}
