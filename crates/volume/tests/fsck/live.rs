//! Checks of a volume that is in use.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::{FileKind, Ino};
use forebay_volume::{OpenOptions, Volume, fsck::FsckOptions};

use crate::volumes::{AT, file, full, make, write};

#[test]
fn work_that_goes_on_is_not_taken_for_damage() {
    let (_dir, root) = full();
    let volume = Volume::open(&root, &OpenOptions::default()).unwrap();
    let stop = AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                let dir = make(volume, Ino::ROOT, &format!("w{worker}"), FileKind::Directory);
                let mut round = 0;
                while !stop.load(Ordering::Acquire) {
                    let name = format!("f{}", round % 40);
                    let ns = volume.namespace();
                    if round % 3 == 2 || ns.lookup(AT, dir, name.as_bytes()).is_ok() {
                        drop(ns.unlink(AT, dir, name.as_bytes(), &|_| false));
                    } else {
                        let ino = file(volume, dir, &name, 2000);
                        write(volume, ino, 1000, round, [100, 20_000, 200_000][(round % 3) as usize]);
                    }
                    if round % 25 == 24 {
                        volume.seal_all().unwrap();
                        volume.store_all().unwrap();
                    }
                    if round % 60 == 59 {
                        volume.checkpoint_now().unwrap();
                    }
                    round += 1;
                }
            });
        }
        let options = FsckOptions { data: true, ..FsckOptions::default() };
        let reports: Vec<_> = (0..12).map(|_| volume.fsck(&options, &mut |_| {})).collect();
        stop.store(true, Ordering::Release);
        reports
    });
    for report in reports {
        let report = report.unwrap();
        assert!(report.is_clean(), "{report}");
    }
    volume.close().unwrap();
}

#[test]
fn damage_of_a_volume_in_use_is_found() {
    let (_dir, root) = full();
    let rows = crate::plant::Rows::of(&root);
    rows.change("hard1", |row| row.nlink = 9);
    let lost = rows.place_of(&root, "big");
    drop(rows);
    std::fs::remove_file(lost).unwrap();
    let volume = Volume::open(&root, &crate::volumes::by_hand()).unwrap();
    let report = volume.fsck(&FsckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.codes(), ["link-count", "object-missing"], "{report}");
    let named = report.findings.iter().find(|finding| finding.code == "link-count").unwrap();
    assert_eq!(named.path.as_deref(), Some("/hard1"));
}
