//! A directory of 1,000,000 entries through the kernel: listed, gone back to, and thinned out while it is listed. Its names are made beside the
//! kernel, which takes a third of the time.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{fs, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use bed::Bed;
use forebay_types::{Ino, SubvolumeId};
use forebay_volume::{OpenOptions, Volume};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};

const ENTRIES: usize = 1_000_000;
/// Names of one file; the first of them is made through the mount.
const LINKS: usize = 20_000;
/// Every so many entries stay when the directory is thinned out, and one is removed.
const THINNED: usize = 20;

fn name(number: usize) -> String {
    format!("name-{number:07}")
}

fn number(name: &[u8]) -> usize {
    std::str::from_utf8(name).unwrap().strip_prefix("name-").unwrap().parse().unwrap()
}

/// Makes the directory `many` of a volume that is not mounted full.
fn fill(root: &Path) {
    let volume = Volume::open(root, &OpenOptions::default()).unwrap();
    let (names, at) = (volume.namespace(), SubvolumeId::FIRST);
    let many = names.lookup(at, Ino::ROOT, b"many").unwrap().ino;
    for first in (0..ENTRIES).step_by(LINKS) {
        let file = names.lookup(at, many, name(first).as_bytes()).unwrap().ino;
        for number in first + 1..first + LINKS {
            names.link(at, file, many, name(number).as_bytes()).unwrap();
        }
    }
    volume.close().unwrap();
}

fn open(dir: &Path) -> OwnedFd {
    rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Calls `seen` with the number of each entry from where `dir` is, and the place behind it, until that says no or the directory ends.
fn list(dir: &OwnedFd, mut seen: impl FnMut(usize, u64) -> bool) {
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let found = entry.file_name().to_bytes();
        if !matches!(found, b"." | b"..") && !seen(number(found), entry.next_entry_cookie()) {
            return;
        }
    }
}

#[test]
fn a_directory_of_a_million_entries_is_listed_and_changed() {
    let bed = Bed::new();
    let volume = bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    fs::create_dir(mnt.join("many")).unwrap();
    for first in (0..ENTRIES).step_by(LINKS) {
        fs::write(mnt.join("many").join(name(first)), name(first)).unwrap();
    }
    bed.umount("mnt");
    fill(&volume);
    let mnt = bed.mount("v", "mnt", &[]);
    let many = mnt.join("many");

    let dir = open(&many);
    let (mut order, mut places) = (Vec::new(), Vec::new());
    list(&dir, |number, place| {
        order.push(number);
        places.push(place);
        true
    });
    assert_eq!(order.len(), ENTRIES);
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..ENTRIES), "not each name once");
    for at in [0, 1, 499_999, 77_777, ENTRIES - 100, ENTRIES - 1] {
        rustix::fs::seek(&dir, SeekFrom::Start(places[at])).unwrap();
        let mut rest = Vec::new();
        list(&dir, |number, _| {
            rest.push(number);
            rest.len() < 3000
        });
        assert!(rest == order[at + 1..ENTRIES.min(at + 3001)], "other entries behind number {at}");
    }
    assert_eq!(fs::read(many.join(name(777_777))).unwrap(), name(777_777 / LINKS * LINKS).into_bytes());
    drop(dir);
    thin_out(&many);
    bed.umount("mnt");
    let left = fs::read_dir(bed.mount("v", "mnt", &[]).join("many")).unwrap().count();
    assert_eq!(left, ENTRIES - ENTRIES / THINNED);
}

/// Removes some entries as they are listed, and some long before: what stays is listed once, and what was removed before the listing began is not.
fn thin_out(many: &Path) {
    let dir = open(many);
    let goes = |number: usize| number % THINNED == 7;
    let remove = |number: usize| rustix::fs::unlinkat(&dir, name(number).as_str(), AtFlags::empty()).unwrap();
    let early = |number: usize| goes(number) && number < ENTRIES / 10;
    (0..ENTRIES).filter(|number| early(*number)).for_each(&remove);
    let mut seen = vec![false; ENTRIES];
    list(&open(many), |number, _| {
        assert!(!std::mem::replace(&mut seen[number], true), "{} came twice", name(number));
        assert!(!early(number), "{} came back", name(number));
        if goes(number) {
            remove(number);
        }
        true
    });
    assert!((0..ENTRIES).all(|number| seen[number] || early(number)), "some did not come");
    let mut left = 0;
    list(&open(many), |number, _| {
        assert!(!goes(number), "{} is still there", name(number));
        left += 1;
        true
    });
    assert_eq!(left, ENTRIES - ENTRIES / THINNED);
}
