use std::{fs, os::unix::fs::MetadataExt};

use rustix::{
    fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with},
    io::Errno,
};

use super::*;

#[test]
fn names_are_made_moved_and_removed() {
    let mounted = Mounted::new();
    let at = |name: &str| mounted.at(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/file"), b"text").unwrap();
    fs::hard_link(at("a/b/c/file"), at("second")).unwrap();
    std::os::unix::fs::symlink("a/b", at("link")).unwrap();
    assert_eq!(fs::read(at("link/c/file")).unwrap(), b"text");
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    fs::rename(at("a/b"), at("moved")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(mounted.root()).unwrap().nlink(), 4);
    assert!(fs::metadata(at("link")).is_err());
    assert_eq!(fs::read(at("moved/c/file")).unwrap(), b"text");
    fs::remove_file(at("moved/c/file")).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 1);
    assert_eq!(fs::remove_dir(at("moved")).unwrap_err().raw_os_error(), Some(39));
    fs::remove_dir_all(at("moved")).unwrap();
    assert_eq!(fs::File::create(at(&"n".repeat(255))).unwrap().metadata().unwrap().len(), 0);
    assert_eq!(fs::File::create(at(&"n".repeat(256))).unwrap_err().raw_os_error(), Some(36));
}

#[test]
fn the_parents_times_and_links_are_seen_at_once() {
    let mounted = Mounted::new();
    let (parent, child) = (mounted.at("d"), mounted.at("d/x"));
    fs::create_dir(&parent).unwrap();
    let mut before = fs::metadata(&parent).unwrap();
    let steps: [&dyn Fn(); 3] =
        [&|| fs::create_dir(&child).unwrap(), &|| fs::rename(&child, mounted.at("d/y")).unwrap(), &|| {
            fs::remove_dir(mounted.at("d/y")).unwrap()
        }];
    for (step, nlink) in steps.into_iter().zip([3, 3, 2]) {
        // The clock of timestamps moves in steps of milliseconds.
        wait_until("the clock moves", || {
            let now = fs::File::create(mounted.at("clock")).and_then(|file| {
                file.set_len(1)?;
                file.metadata()
            });
            let now = now.unwrap();
            (now.mtime(), now.mtime_nsec()) > (before.mtime(), before.mtime_nsec())
        });
        step();
        let after = fs::metadata(&parent).unwrap();
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
        assert_eq!((after.ctime(), after.nlink()), (after.mtime(), nlink));
        before = after;
    }
}

#[test]
fn renames_take_their_flags() {
    let mounted = Mounted::new();
    let (a, b) = (mounted.at("a"), mounted.at("b"));
    fs::write(&a, b"a").unwrap();
    fs::create_dir(&b).unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    let whiteout = renameat_with(CWD, &a, CWD, mounted.at("c"), RenameFlags::WHITEOUT);
    assert_eq!(whiteout, Err(Errno::INVAL));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert!(a.is_dir());
    assert_eq!(fs::read(&b).unwrap(), b"a");
    assert_eq!(fs::rename(&a, mounted.at("a/inside")).unwrap_err().raw_os_error(), Some(22));
}

#[test]
fn all_kinds_of_inodes_survive_a_remount() {
    let mounted = Mounted::new();
    let make = |name: &str, kind, device| {
        mknodat(CWD, mounted.at(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    make("block", FileType::BlockDevice, rustix::fs::makedev(7, 300));
    fs::write(mounted.at("file"), vec![3; 3_000_000]).unwrap();
    let mounted = mounted.again();
    let kind = |name: &str| fs::symlink_metadata(mounted.at(name)).unwrap();
    assert_eq!(kind("fifo").mode() & 0o170_000, 0o010_000);
    assert_eq!(kind("socket").mode() & 0o170_000, 0o140_000);
    assert_eq!(kind("char").rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(kind("block").rdev(), rustix::fs::makedev(7, 300));
    assert_eq!(fs::read(mounted.at("file")).unwrap(), vec![3; 3_000_000]);
}
