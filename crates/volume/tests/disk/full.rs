//! A disk that is full: writes are refused, what frees space works, and once there is room everything goes on in the same mount.

use std::fs;

use forebay_meta::WriteAttr;
use forebay_types::Ino;
use forebay_volume::{Volume, VolumeError};

use crate::setting::{AT, SmallDisk, file, find, make, new_volume, open};

const BIG: usize = 4 << 20;

fn unlink(volume: &Volume, name: &str) {
    let removed = volume.namespace().unlink(AT, Ino::ROOT, name.as_bytes(), &|_| false).unwrap();
    drop(removed);
}

/// Writes files until the disk is full, and says how many.
fn fill_volume(volume: &Volume) -> usize {
    for number in 0..1000 {
        match file(volume, &format!("file{number}"), BIG) {
            Ok(_) => {}
            Err(error) if error.is_no_space() => return number,
            Err(error) => panic!("refused otherwise: {error}"),
        }
    }
    panic!("the disk is never full");
}

fn give_back(volume: &Volume) {
    for _ in 0..3 {
        // Each round gives back what the next one needs.
        let _ = volume.drain(&mut |_| {});
    }
}

/// Nobody but the volume itself can free space.
#[test]
fn deleting_files_frees_a_full_disk() {
    let disk = SmallDisk::new(256);
    let root = disk.path().join("volume");
    let volume = new_volume(&root);
    let files = fill_volume(&volume);
    assert!(files >= 8, "{files} files fit");
    let ballast = disk.fill("ballast");
    // A stream may have set aside some space for what comes next.
    let refused = (0..32).find_map(|number| file(&volume, &format!("more{number}"), BIG).err());
    assert!(refused.as_ref().is_some_and(VolumeError::is_no_space), "{refused:?}");
    for number in 0..files - 1 {
        unlink(&volume, &format!("file{number}"));
    }
    give_back(&volume);
    let written = file(&volume, "again", 200_000);
    assert!(written.is_ok(), "{written:?}");
    volume.sync().unwrap();
    let last = find(&volume, &format!("file{}", files - 1)).unwrap();
    assert!(volume.read(last, 0, 1 << 20).is_ok());
    fs::remove_file(ballast).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = open(&root);
    assert!(find(&volume, "again").is_some() && find(&volume, "file0").is_none());
}

/// The metadata engine finds no space for a checkpoint: nothing is lost, nothing new is taken, and it goes on by itself.
#[test]
fn a_checkpoint_that_finds_no_space_is_taken_later() {
    let disk = SmallDisk::new(110);
    let root = disk.path().join("volume");
    let volume = new_volume(&root);
    file(&volume, "early", 3000).unwrap();
    volume.checkpoint_now().unwrap();
    let _ = fs::remove_file(root.join("meta/reserve"));
    let names: Vec<String> = (0..400).map(|number| format!("{number:0>200}")).collect();
    for name in &names {
        make(&volume, name).unwrap();
    }
    let ballast = disk.fill("ballast");
    for _ in 0..3 {
        let failed = volume.checkpoint_now().unwrap_err();
        assert!(failed.is_no_space(), "{failed}");
    }
    let refused = make(&volume, "new").map_err(VolumeError::from).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    let early = find(&volume, "early").unwrap();
    let refused = volume.write(early, 0, b"other", WriteAttr::default()).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    unlink(&volume, &names[0]);
    volume.sync().unwrap();
    assert!(volume.read(early, 0, 3000).is_ok());
    fs::remove_file(ballast).unwrap();
    volume.checkpoint_now().unwrap();
    make(&volume, "new").unwrap();
    volume.checkpoint_now().unwrap();
    assert!(volume.namespace().engine().size_on_disk() < 1 << 30);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&root);
    assert!(find(&volume, "new").is_some() && find(&volume, &names[1]).is_some());
    assert_eq!(find(&volume, &names[0]), None);
}

/// It is closed while the disk is full: the journal has what the engine could not take.
#[test]
fn a_full_disk_stops_no_unmount_and_no_mount() {
    let disk = SmallDisk::new(110);
    let root = disk.path().join("volume");
    let volume = new_volume(&root);
    file(&volume, "kept", 3000).unwrap();
    for number in 0..400 {
        make(&volume, &format!("{number:0>200}")).unwrap();
    }
    let ballast = disk.fill("ballast");
    let _ = fs::remove_file(root.join("meta/reserve"));
    let more = disk.fill("more");
    unlink(&volume, &format!("{:0>200}", 0));
    volume.close().unwrap();
    drop(volume);
    fs::remove_file(root.join("journal/spare")).unwrap();
    let rest = disk.fill("rest");
    let volume = open(&root);
    assert!(find(&volume, "kept").is_some());
    for number in 1..100 {
        unlink(&volume, &format!("{number:0>200}"));
    }
    volume.sync().unwrap();
    drop(volume);
    for file in [ballast, more, rest] {
        fs::remove_file(file).unwrap();
    }
    let volume = open(&root);
    assert_eq!(find(&volume, &format!("{:0>200}", 99)), None);
    assert!(find(&volume, &format!("{:0>200}", 100)).is_some());
    file(&volume, "after", 3000).unwrap();
    volume.close().unwrap();
}
