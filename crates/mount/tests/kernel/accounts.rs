use std::{fs, os::unix::fs::MetadataExt};

use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, statx, utimensat};

use super::*;

fn atime(path: &Path) -> (i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn times_are_set_to_the_nanosecond_and_stay() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -7, tv_nsec: 123_456_789 },
        last_modification: Timespec { tv_sec: 5_000_000_000, tv_nsec: 1 },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let mounted = mounted.again();
    let path = mounted.at("a");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (-7, 123_456_789));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (5_000_000_000, 1));
    let born = statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert!(born.stx_mask & StatxFlags::BTIME.bits() != 0 && born.stx_btime.tv_sec >= 1_600_000_000);
}

#[test]
fn a_read_is_seen_as_an_access_once() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    let past = Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: past, last_modification: past };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    assert_eq!(atime(&path).0, 1_000_000);
    drop(File::options().write(true).open(&path).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"text");
    wait_until("a read of cached pages is seen", || atime(&path).0 > 1_600_000_000);
    // From here on the access time is after the last change, and reads cost no request.
    wait_until("the access is after the change", || {
        fs::read(&path).unwrap();
        let meta = fs::metadata(&path).unwrap();
        (meta.atime(), meta.atime_nsec()) > (meta.ctime(), meta.ctime_nsec())
    });
    let settled = atime(&path);
    mounted.costs_nothing(&["read"], || drop(fs::read(&path).unwrap()));
    assert_eq!(atime(&path), settled);
    let mounted = mounted.again();
    assert_eq!(atime(&mounted.at("a")), settled);
}

#[test]
fn what_the_kernel_knows_is_not_asked_again() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    mounted.costs_nothing(&["lookup", "getattr"], || {
        fs::metadata(&path).unwrap();
        assert!(fs::metadata(mounted.at("missing")).is_err());
    });
}

#[test]
fn space_is_told() {
    let mounted = Mounted::new();
    let space = rustix::fs::statvfs(mounted.root()).unwrap();
    assert!(space.f_blocks >= space.f_bfree && space.f_bfree >= space.f_bavail && space.f_bavail > 0);
    assert_eq!(space.f_namemax, 255);
}

/// What `ls -l` of a directory of 200 files asks for beyond names and attributes.
fn asked_by_long_listing(options: VfsOptions) -> u64 {
    let mounted = Mounted::with(options);
    fs::create_dir(mounted.at("d")).unwrap();
    (0..200).for_each(|file| fs::write(mounted.at("d").join(file.to_string()), b"").unwrap());
    let listed = std::process::Command::new("ls").arg("-l").arg(mounted.at("d")).output().unwrap();
    assert_eq!(listed.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"-")).count(), 200);
    mounted.requests("getxattr")
}

#[test]
fn a_long_listing_asks_little() {
    let with_acls = asked_by_long_listing(VfsOptions::default());
    assert!((1..=210).contains(&with_acls), "{with_acls}");
    let without = asked_by_long_listing(VfsOptions { acls: false, ..VfsOptions::default() });
    assert!(without < 10, "{without}");
}
