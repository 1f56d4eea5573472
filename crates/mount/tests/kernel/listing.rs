use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt};

use rustix::fs::Dir;

use super::*;

fn names(dir: &mut Dir) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(entry) = dir.read() {
        names.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    names
}

fn filled(mounted: &Mounted, count: usize) -> PathBuf {
    let path = mounted.at("d");
    fs::create_dir(&path).unwrap();
    for index in 0..count {
        fs::write(path.join(format!("{index:05}")), b"").unwrap();
    }
    path
}

#[test]
fn a_large_directory_is_listed_whole_again_and_after_changes() {
    let mounted = Mounted::new();
    let path = filled(&mounted, 3000);
    let list =
        || fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>();
    assert_eq!(list().len(), 3000);
    assert_eq!(list().len(), 3000);
    fs::remove_file(path.join("01234")).unwrap();
    fs::write(path.join("new"), b"").unwrap();
    let now = list();
    assert!(now.len() == 3000 && now.contains("new".as_ref() as &std::ffi::OsStr));
    assert!(!now.contains("01234".as_ref() as &std::ffi::OsStr));
}

#[test]
fn a_listing_can_be_continued_from_any_entry() {
    let mounted = Mounted::new();
    let path = filled(&mounted, 1000);
    let mut dir = Dir::read_from(File::open(&path).unwrap()).unwrap();
    let mut places = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry.unwrap();
        places.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(places.len(), 1002);
    fs::remove_file(path.join("00003")).unwrap();
    for at in [0, 500, 1, 998, 1001, 2] {
        dir.seek(places[at].1).unwrap();
        let next = dir.read().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(next, places.get(at + 1).map(|place| place.0.clone()), "after entry {at}");
    }
    dir.rewind();
    assert_eq!(names(&mut dir).len(), 1001);
}

#[test]
fn removing_while_listing_leaves_an_empty_directory() {
    let mounted = Mounted::new();
    let path = filled(&mounted, 2500);
    for entry in fs::read_dir(&path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&path).unwrap();
}

/// A listing that began while the kernel had the directory's entries, and goes on when it has none any more.
#[test]
fn removing_while_others_list_leaves_an_empty_directory() {
    let mounted = Mounted::new();
    let path = filled(&mounted, 5000);
    let list = || fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(list().len(), 5000);
    assert_eq!(list().len(), 5000);
    let mut removed = 0;
    for entry in fs::read_dir(&path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
        if removed % 100 == 0 {
            assert_eq!(list().len(), 5000 - removed);
        }
    }
    assert_eq!(list().len(), 0);
    fs::remove_dir(&path).unwrap();
}

#[test]
fn a_listing_tells_inode_numbers() {
    let mounted = Mounted::new();
    let path = filled(&mounted, 3);
    let mut dir = Dir::read_from(File::open(&path).unwrap()).unwrap();
    let (own, parent) = (fs::metadata(&path).unwrap().ino(), fs::metadata(mounted.root()).unwrap().ino());
    while let Some(entry) = dir.read() {
        let entry = entry.unwrap();
        let expected = match entry.file_name().to_bytes() {
            b"." => own,
            b".." => parent,
            _ => fs::metadata(path.join(entry.file_name().to_str().unwrap())).unwrap().ino(),
        };
        assert_eq!(entry.ino(), expected);
    }
}
