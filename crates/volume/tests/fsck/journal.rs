//! A journal that is damaged: what the metadata contains stops nobody, what is lost is said and given up only when asked.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_data::DataError;
use forebay_meta::WriteAttr;
use forebay_types::{FileKind, Ino};
use forebay_volume::{
    OpenOptions as VolumeOptions, Volume, VolumeError,
    fsck::{FsckOptions, repair},
};

use crate::{
    plant::Rows,
    volumes::{AT, file, fingerprint, full, looked_at, make, new_volume, open, pattern, write},
};

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn logs(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    logs.sort();
    logs
}

fn find(volume: &Volume, name: &str) -> Option<Ino> {
    volume.namespace().lookup(AT, Ino::ROOT, name.as_bytes()).ok().map(|inode| inode.ino)
}

fn reads(volume: &Volume, ino: Ino, len: u32) -> bool {
    volume.read(ino, 0, len).is_ok()
}

/// Wherever a byte of the last file is wrong, everything else is there; at the most one file's data is not.
#[test]
fn damage_that_the_metadata_covers_stops_no_mount() {
    let (_dir, template) = full();
    let log = Rows::of(&template).place_of(&template, "fresh");
    let name = log.file_name().unwrap().to_owned();
    let len = fs::metadata(&log).unwrap().len();
    for at in (0..len).step_by(701).chain([3, 60, 63, 64, len - 1]) {
        let (_dir, root) = full();
        flip(&root.join("journal").join(&name), at);
        let volume = open(&root);
        let fresh = find(&volume, "fresh").unwrap();
        let whole = reads(&volume, fresh, 5000);
        assert!(whole || at > 64, "flipped at {at}");
        for name in ["big", "many", "packed", "sealed", "staged"] {
            assert!(reads(&volume, find(&volume, name).unwrap(), 1 << 20), "{name}, flipped at {at}");
        }
        file(&volume, Ino::ROOT, "later", 5000);
        volume.close().unwrap();
        drop(volume);
        let codes: &[&str] = if whole { &[] } else { &["data-corrupt"] };
        let report = looked_at(&root);
        let found: Vec<_> = report.codes().into_iter().filter(|code| *code != "journal-record").collect();
        assert_eq!(found, codes, "flipped at {at}: {report}");
    }
}

/// Data that does not fit its checksum is moved as it is: its file of the journal goes, and it reads as badly as before.
#[test]
fn a_damaged_block_pins_no_file_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    let bad = file(&volume, Ino::ROOT, "bad", 20_000);
    let good = file(&volume, Ino::ROOT, "good", 20_000);
    // An extent of which only parts are in use.
    write(&volume, bad, 4000, 5, 3000);
    volume.sync().unwrap();
    let first = logs(&root)[0].clone();
    flip(&first, 2000);
    volume.seal_all().unwrap();
    file(&volume, Ino::ROOT, "more", 20_000);
    volume.seal_all().unwrap();
    volume.checkpoint_now().unwrap();
    volume.checkpoint_now().unwrap();
    assert!(!first.exists(), "it is still there: {:?}", logs(&root));
    assert_eq!(logs(&root).len(), 1);
    assert!(!reads(&volume, bad, 4000) && reads(&volume, good, 20_000));
    let read: Vec<u8> = match &volume.read(bad, 4000, 3000).unwrap()[..] {
        [forebay_volume::ReadPiece::Bytes(bytes)] => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(read, pattern(5, 3000));
    volume.close().unwrap();
    drop(volume);
    let report = looked_at(&root);
    assert_eq!(report.codes(), ["data-corrupt"], "{report}");
}

/// Data that the disk does not give keeps its own file, and no other. When it is to be had again, all of it is moved, although the only record
/// that named some of it went with a later file.
#[test]
fn an_unreadable_file_of_the_journal_pins_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    let one = file(&volume, Ino::ROOT, "one", 20_000);
    volume.sync().unwrap();
    let first = logs(&root)[0].clone();
    drop(volume);
    // The next file has the record of the second reference, and data of its own.
    let volume = open(&root);
    let two = make(&volume, Ino::ROOT, "two", FileKind::Regular);
    volume.copy_range((one, 0), (two, 0), 20_000, WriteAttr::default()).unwrap();
    file(&volume, Ino::ROOT, "three", 20_000);
    volume.sync().unwrap();
    let kept = fs::read(&first).unwrap();
    OpenOptions::new().write(true).open(&first).unwrap().set_len(64).unwrap();
    for _ in 0..3 {
        volume.seal_all().unwrap();
        volume.checkpoint_now().unwrap();
        volume.checkpoint_now().unwrap();
    }
    assert_eq!(logs(&root).len(), 2, "the first one and the current one");
    assert!(first.exists() && !reads(&volume, one, 20_000));
    drop(volume);
    fs::write(&first, kept).unwrap();
    let volume = open(&root);
    for _ in 0..3 {
        volume.seal_all().unwrap();
        volume.checkpoint_now().unwrap();
        volume.checkpoint_now().unwrap();
    }
    assert!(!first.exists(), "it is still there: {:?}", logs(&root));
    assert!(reads(&volume, one, 20_000) && reads(&volume, two, 20_000));
    volume.close().unwrap();
    drop(volume);
    assert!(looked_at(&root).is_clean());
}

/// `/before`, durable; `/lost`, durable, whose record is damaged; `/after`, durable, behind it. Nothing of it is in the metadata.
fn gapped(root: &Path) -> PathBuf {
    let volume = new_volume(root);
    file(&volume, Ino::ROOT, "before", 3000);
    volume.sync().unwrap();
    let log = logs(root)[0].clone();
    let at = fs::read(&log).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    file(&volume, Ino::ROOT, "lost", 3000);
    volume.sync().unwrap();
    file(&volume, Ino::ROOT, "after", 3000);
    volume.sync().unwrap();
    drop(volume);
    flip(&log, at + 70);
    log
}

#[test]
fn durable_records_that_are_lost_are_given_up_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let log = gapped(&root);
    let refused = Volume::open(&root, &VolumeOptions { background: false, ..VolumeOptions::default() });
    let error = refused.expect_err("durable records are gone");
    assert!(matches!(error, VolumeError::Data(DataError::JournalGap { .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("fsck --repair --cut-journal") && text.contains(log.to_str().unwrap()), "{text}");
    let before = fingerprint(&root.join("journal"));
    let report = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.codes().contains(&"journal-gap") && report.repaired == 0, "{report}");
    assert_eq!(fingerprint(&root.join("journal")), before, "a repair that was not asked to cut did so");
    let options = FsckOptions { cut_journal: true, ..FsckOptions::default() };
    let report = repair(&root, &options, &mut |_| {}).unwrap();
    let gap = report.findings.iter().find(|finding| finding.code == "journal-gap").unwrap();
    assert!(gap.repair.as_ref().unwrap().contains("whole"), "{gap}");
    assert!(report.repaired > 0);
    let after = looked_at(&root);
    assert!(after.is_clean(), "{after}");
    assert_eq!(repair(&root, &options, &mut |_| {}).unwrap().repaired, 0);
    let volume = open(&root);
    assert!(reads(&volume, find(&volume, "before").unwrap(), 3000));
    assert_eq!(find(&volume, "after"), None);
    file(&volume, Ino::ROOT, "again", 3000);
    volume.close().unwrap();
    drop(volume);
    assert!(looked_at(&root).is_clean());
}

/// A whole file of the journal is gone, of which the metadata has nothing.
#[test]
fn a_lost_file_of_the_journal_can_be_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    file(&volume, Ino::ROOT, "early", 3000);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&root);
    file(&volume, Ino::ROOT, "lost", 3000);
    volume.sync().unwrap();
    let lost = logs(&root).pop().unwrap();
    drop(volume);
    let volume = open(&root);
    file(&volume, Ino::ROOT, "after", 3000);
    volume.sync().unwrap();
    drop(volume);
    fs::remove_file(lost).unwrap();
    assert!(looked_at(&root).codes().contains(&"journal-gap"));
    let options = FsckOptions { cut_journal: true, ..FsckOptions::default() };
    repair(&root, &options, &mut |_| {}).unwrap();
    let after = looked_at(&root);
    assert!(after.is_clean(), "{after}");
    let volume = open(&root);
    assert!(reads(&volume, find(&volume, "early").unwrap(), 3000));
}

/// A stop between the making of a journal file and its first sync may leave noise where its head was to be. It has nothing that was acknowledged.
#[test]
fn a_new_file_without_a_head_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    file(&volume, Ino::ROOT, "synced", 5000);
    volume.sync().unwrap();
    drop(volume);
    let newest = logs(&root).pop().unwrap();
    let number = u64::from_str_radix(newest.file_stem().unwrap().to_str().unwrap(), 16).unwrap() + 1;
    let unborn = root.join("journal").join(format!("{number:016x}.log"));
    let mut bytes: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    bytes.resize(1 << 20, 0);
    fs::write(&unborn, &bytes).unwrap();
    let report = looked_at(&root);
    assert!(report.is_sound(), "{report}");
    let volume = open(&root);
    assert_ne!(
        fs::read(&unborn).ok().as_deref(),
        Some(&bytes[..]),
        "it is gone, or a new file has its number"
    );
    assert!(reads(&volume, find(&volume, "synced").unwrap(), 5000));
    volume.close().unwrap();
    drop(volume);

    // With anything of a head in it, it is damage.
    let newest = logs(&root).pop().unwrap();
    let number = u64::from_str_radix(newest.file_stem().unwrap().to_str().unwrap(), 16).unwrap() + 1;
    bytes[..8].copy_from_slice(b"FBjrnl\r\n");
    fs::write(root.join("journal").join(format!("{number:016x}.log")), &bytes).unwrap();
    assert_eq!(looked_at(&root).codes(), ["journal-gap"]);
    let refused = Volume::open(&root, &VolumeOptions::default()).unwrap_err();
    assert!(matches!(refused, VolumeError::Data(DataError::JournalGap { .. })), "{refused}");
}
