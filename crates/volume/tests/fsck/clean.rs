//! Volumes with nothing wrong: whatever was done to them, nothing is found.

use std::fs;

use forebay_meta::SetAttr;
use forebay_types::{FileKind, Ino};
use forebay_volume::{
    VolumeError,
    fsck::{FsckOptions, Severity, check, repair},
};

use crate::volumes::{AT, file, fingerprint, full, looked_at, make, new_volume, open, pattern, write};

#[test]
fn a_volume_with_everything_is_clean_and_stays_as_it_is() {
    let (_dir, root) = full();
    let before = fingerprint(&root);
    let mut steps = 0;
    let options = FsckOptions { data: true, drop_lost: true, ..FsckOptions::default() };
    let report = check(&root, &options, &mut |_| steps += 1).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(steps > 0);
    let counts = report.counts;
    assert!(counts.inodes > 30 && counts.entries > 30 && counts.extents > 8, "{counts:?}");
    assert!(counts.objects > 0 && counts.segments > 4 && counts.data_bytes > 1_200_000, "{counts:?}");
    assert_eq!((counts.subvolumes, counts.snapshots), (2, 1));
    let repaired = repair(&root, &options, &mut |_| {}).unwrap();
    assert_eq!(repaired.repaired, 0);
    assert_eq!(fingerprint(&root), before);
    let text = report.to_string();
    assert!(text.starts_with("clean: "), "{text}");
}

#[test]
fn a_mounted_volume_is_refused() {
    let (_dir, root) = full();
    let volume = open(&root);
    for refused in [
        check(&root, &FsckOptions::default(), &mut |_| {}),
        repair(&root, &FsckOptions::default(), &mut |_| {}),
    ] {
        assert!(matches!(refused, Err(VolumeError::InUse { .. })), "{refused:?}");
    }
    drop(volume);
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % below
    }
}

#[test]
fn random_work_leaves_nothing_wrong() {
    for seed in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        let mut volume = new_volume(&root);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let dirs: Vec<Ino> =
            (0..4).map(|n| make(&volume, Ino::ROOT, &format!("d{n}"), FileKind::Directory)).collect();
        let mut snapshots = Vec::new();
        for step in 0..300u64 {
            let parent = dirs[dice.roll(4) as usize];
            let name = format!("f{}", dice.roll(12));
            let ns = std::sync::Arc::clone(volume.namespace());
            let known = ns.lookup(AT, parent, name.as_bytes()).map(|inode| inode.ino);
            match (dice.roll(16), known) {
                (0..=4, Err(_)) => drop(file(&volume, parent, &name, dice.roll(3000) as usize)),
                (0..=5, Ok(ino)) => {
                    let len = [100, 3000, 40_000, 300_000][dice.roll(4) as usize];
                    write(&volume, ino, dice.roll(600_000), step, len);
                }
                (6, Ok(ino)) => {
                    let set = SetAttr { size: Some(dice.roll(700_000)), ..SetAttr::default() };
                    volume.set_attr(ino, &set).unwrap();
                }
                (7, Ok(_)) => drop(ns.unlink(AT, parent, name.as_bytes(), &|_| false).unwrap()),
                (8, Ok(_)) => drop(ns.unlink(AT, parent, name.as_bytes(), &|_| true).unwrap()),
                (9, Ok(ino)) => drop(ns.link(AT, ino, parent, format!("l{step}").as_bytes()).unwrap()),
                (10, Ok(ino)) => {
                    let (from, to) = (dice.roll(300_000), dice.roll(600_000));
                    volume.punch(ino, from, from.max(to), None, Default::default()).unwrap();
                }
                (11, Ok(ino)) => {
                    let target = file(&volume, parent, &format!("c{step}"), 10);
                    volume.copy_range((ino, 0), (target, 1000), 50_000, Default::default()).unwrap();
                }
                (12, _) if snapshots.len() < 3 => snapshots.push(ns.take_snapshot(AT).unwrap()),
                (12, _) => {
                    ns.drop_snapshot(AT, snapshots.remove(0)).unwrap();
                    let mut from = None;
                    while let Some(next) = ns.collect_versions(AT, from).unwrap() {
                        from = Some(next);
                    }
                }
                (13, _) => volume.seal_all().unwrap(),
                (14, _) => volume.store_all().unwrap(),
                (15, _) => volume.checkpoint_now().unwrap(),
                _ => {}
            }
            drop(ns);
            if step % 100 == 99 {
                volume.sync().unwrap();
                let live = volume.fsck(&FsckOptions { data: true, ..FsckOptions::default() }, &mut |_| {});
                let live = live.unwrap();
                assert!(live.is_clean(), "seed {seed} step {step}: {live}");
                drop(volume);
                let report = looked_at(&root);
                assert!(report.is_sound(), "seed {seed} step {step}: {report}");
                volume = open(&root);
            }
        }
        volume.drain(&mut |_| {}).unwrap();
        volume.compact().unwrap();
        volume.close().unwrap();
        drop(volume);
        let report = looked_at(&root);
        assert!(report.is_clean(), "seed {seed}: {report}");
    }
}

#[test]
fn a_crash_is_not_damage() {
    let (_dir, root) = full();
    let volume = open(&root);
    file(&volume, Ino::ROOT, "late", 300_000);
    file(&volume, Ino::ROOT, "later", 3000);
    volume.sync().unwrap();
    let last = volume.paths().journal();
    drop(volume);
    let mut files: Vec<_> = fs::read_dir(last).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    files.sort();
    let torn = files.last().unwrap();
    let bytes = fs::read(torn).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for cut in [end, end - 1, end - 40, end - 3100, end - 3300] {
        fs::write(torn, &bytes[..cut]).unwrap();
        let report = looked_at(&root);
        assert!(report.is_sound(), "cut at {cut} of {end}: {report}");
        assert!(report.findings.iter().all(|finding| finding.severity == Severity::Untidy));
    }
    assert_eq!(pattern(1, 3).len(), 3);
    open(&root).close().unwrap();
    let report = looked_at(&root);
    assert!(report.is_clean(), "{report}");
}
