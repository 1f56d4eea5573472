//! A repair whose power is cut: what is left still shows the fault or is repaired, and the next repair finishes.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use forebay_format::{
    key::{Item, Key},
    row::{CountersRow, DirectoryRow, Row},
};
use forebay_testkit::power::{
    cut::{Cutter, Fill, Names, Rules, points_to_cut},
    disk::Disk,
    layer::Layer,
    rng::Rng,
};
use forebay_types::Ino;
use forebay_volume::fsck::{FsckOptions, Report, repair};

use crate::{
    plant::Rows,
    volumes::{copy, file, full, looked_at, new_volume, open},
};

const CUTS: u64 = 24;

fn sync_all(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sync_all(&path);
        } else {
            File::open(&path).unwrap().sync_all().unwrap();
        }
    }
    File::open(dir).unwrap().sync_all().unwrap();
}

fn codes(report: &Report) -> BTreeSet<String> {
    report.codes().into_iter().map(str::to_owned).collect()
}

/// Repairs a volume with faults on a disk whose power is cut at many points, by each rule for what survives.
fn interrupt(faulty: &Path, options: &FsckOptions, left: &[&str]) {
    let faults = codes(&looked_at(faulty));
    let left: BTreeSet<String> = left.iter().map(|code| (*code).to_owned()).collect();
    let place = tempfile::tempdir().unwrap();
    let layer = Layer::mount(Arc::new(Disk::default()), place.path()).unwrap();
    let root = layer.path().join("volume");
    fs::create_dir(&root).unwrap();
    copy(faulty, &root);
    sync_all(layer.path());
    let before = layer.disk().points();
    repair(&root, options, &mut |_| {}).unwrap();
    let log = layer.disk().log();
    layer.unmount().unwrap();
    assert!(log.len() as u64 > before, "the repair did nothing");
    for (names, seed) in [(Names::Ordered, 1), (Names::Strict, 2)] {
        let rules = Rules { names, fill: Fill::ZerosOrNoise };
        let mut rng = Rng::new(seed);
        let mut cutter = Cutter::new(&log, rules);
        let mut points = points_to_cut(&log, before, CUTS / 2, &mut rng);
        points.push(log.len() as u64);
        for point in points {
            let image = cutter.image(point, &mut rng);
            let dir = tempfile::tempdir().unwrap();
            image.write_to(dir.path()).unwrap();
            let root = dir.path().join("volume");
            let found = looked_at(&root);
            let new: Vec<_> = codes(&found)
                .into_iter()
                .filter(|code| !faults.contains(code) && !left.contains(code))
                .collect();
            assert!(new.is_empty(), "{names:?} {seed}, cut at {point} of {}: {found}", log.len());
            repair(&root, options, &mut |_| {}).unwrap();
            let after = looked_at(&root);
            assert_eq!(codes(&after), left, "{names:?} {seed}, cut at {point} of {}: {after}", log.len());
            open(&root).close().unwrap();
        }
    }
}

#[test]
fn a_repair_of_rows_and_files() {
    let (_dir, root) = full();
    let rows = Rows::of(&root);
    rows.change("hard1", |row| row.nlink = 5);
    rows.change_segment("packed", |row| row.live += 1);
    let counters = CountersRow { run: 1, segment: 1, object: 1, subvolume: 2, inodes: None };
    rows.set(Key::Counters.encode(), Some(counters.encode()));
    let item = Item::Directory(rows.ino("dir"));
    let row = DirectoryRow::decode(&rows.shown(&item).unwrap().1).unwrap();
    rows.put(&item, DirectoryRow { entries: 7, ..row }.encode());
    drop(rows);
    fs::write(root.join("staging/0000000000ffffff.seg"), vec![7; 1000]).unwrap();
    fs::write(root.join("epoch"), "none").unwrap();
    fs::remove_file(root.join("lock")).unwrap();
    interrupt(&root, &FsckOptions::default(), &[]);
}

#[test]
fn a_repair_that_makes_holes() {
    let (_dir, root) = full();
    let lost = Rows::of(&root).place_of(&root, "packed");
    fs::remove_file(lost).unwrap();
    let options = FsckOptions { data: true, drop_lost: true, ..FsckOptions::default() };
    interrupt(&root, &options, &[]);
}

#[test]
fn a_repair_that_cuts_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    let log = root.join("journal").join(format!("{}.log", forebay_types::SegmentId(1)));
    file(&volume, Ino::ROOT, "before", 3000);
    volume.sync().unwrap();
    let at = fs::read(&log).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    for name in ["lost", "after"] {
        file(&volume, Ino::ROOT, name, 3000);
        volume.sync().unwrap();
    }
    drop(volume);
    let volume = open(&root);
    file(&volume, Ino::ROOT, "later", 3000);
    volume.sync().unwrap();
    drop(volume);
    let byte = OpenOptions::new().write(true).open(&log).unwrap();
    byte.write_all_at(&[0xaa; 8], at + 70).unwrap();
    for entry in fs::read_dir(root.join("journal")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("spare") {
            fs::remove_file(path).unwrap();
        }
    }
    let options = FsckOptions { cut_journal: true, ..FsckOptions::default() };
    interrupt(&root, &options, &[]);
}
