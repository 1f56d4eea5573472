//! Directories with which something is wrong: what can be told from elsewhere is, the rest is refused with a word on what to do.

use std::{fs, path::Path};

use forebay_volume::{Volume, VolumeError, fsck};

use crate::setting::{by_hand, file, find, new_volume, open};

fn refused(root: &Path) -> VolumeError {
    Volume::open(root, &by_hand()).expect_err("a volume that cannot be opened")
}

/// Epochs never come again, also where the file that has them is gone, empty, of another time, or not a number: what was written is not taken for a
/// fenced writer's.
#[test]
fn an_epoch_that_is_lost_is_found_elsewhere() {
    for wrong in [None, Some(""), Some("many"), Some("1\n"), Some("0")] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        drop(new_volume(&root));
        drop(open(&root));
        let volume = open(&root);
        file(&volume, "before", 3000).unwrap();
        volume.sync().unwrap();
        let epoch = volume.epoch();
        drop(volume);
        match wrong {
            None => fs::remove_file(root.join("epoch")).unwrap(),
            Some(text) => fs::write(root.join("epoch"), text).unwrap(),
        }
        for name in ["first", "second"] {
            let volume = open(&root);
            assert!(volume.epoch() > epoch, "{wrong:?}: {} after {epoch}", volume.epoch());
            file(&volume, name, 3000).unwrap();
            volume.sync().unwrap();
        }
        let volume = open(&root);
        for name in ["before", "first", "second"] {
            assert!(find(&volume, name).is_some(), "{wrong:?}: '{name}' is lost");
        }
        volume.close().unwrap();
        drop(volume);
        let report = fsck::check(&root, &fsck::FsckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{wrong:?}: {report}");
    }
}

#[test]
fn one_opening_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    let error = refused(&root);
    assert!(matches!(error, VolumeError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("unmount it there first"), "{error}");
    drop(volume);
    fs::remove_file(root.join("lock")).unwrap();
    let error = refused(&root).to_string();
    assert!(error.contains("fsck --repair") && error.contains("lock"), "{error}");
    fsck::repair(&root, &fsck::FsckOptions::default(), &mut |_| {}).unwrap();
    drop(open(&root));
}

/// A file that got no byte, one that got no record, and a spare that is none.
#[test]
fn files_that_a_stop_left_unfinished_are_no_part_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    file(&volume, "before", 3000).unwrap();
    volume.sync().unwrap();
    drop(volume);
    fs::write(root.join("journal/00000000000fff00.log"), b"").unwrap();
    fs::write(root.join("journal/00000000000fff01.log"), [0; 5000]).unwrap();
    fs::write(root.join("journal/spare"), b"?").unwrap();
    let volume = open(&root);
    assert!(find(&volume, "before").is_some());
    file(&volume, "after", 3000).unwrap();
    volume.close().unwrap();
    drop(volume);
    let report = fsck::check(&root, &fsck::FsckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// A file of the journal has the name of another one.
#[test]
fn a_file_under_another_name_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    for name in ["one", "two"] {
        let volume = if root.exists() { open(&root) } else { new_volume(&root) };
        file(&volume, name, 3000).unwrap();
        volume.sync().unwrap();
    }
    let entries = fs::read_dir(root.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    logs.sort();
    let (first, second, aside) = (&logs[0], &logs[1], root.join("aside"));
    fs::rename(first, &aside).unwrap();
    fs::rename(second, first).unwrap();
    fs::rename(&aside, second).unwrap();
    let error = refused(&root).to_string();
    assert!(error.contains("give it its name back") && error.contains(first.to_str().unwrap()), "{error}");
    fs::rename(first, &aside).unwrap();
    fs::rename(second, first).unwrap();
    fs::rename(&aside, second).unwrap();
    let volume = open(&root);
    assert!(find(&volume, "one").is_some() && find(&volume, "two").is_some());
}
