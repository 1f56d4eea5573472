use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, linkat, openat},
    io::Errno,
};

use super::*;

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"before ").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"after").unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777), (0, 12, 0o600));
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before after");
    let by_fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    assert_eq!(fs::read(&by_fd).unwrap(), b"before after");
    assert_eq!(linkat(CWD, &by_fd, CWD, &path, AtFlags::SYMLINK_FOLLOW), Err(Errno::NOENT));
    drop(file);
    let namespace = mounted.volume().namespace();
    wait_until("it is purged", || namespace.orphans().unwrap().is_empty());
}

#[test]
fn what_replaced_an_open_file_does_not_show_through_it() {
    let mounted = Mounted::new();
    fs::write(mounted.at("a"), b"new").unwrap();
    fs::write(mounted.at("b"), b"old").unwrap();
    let mut old = File::open(mounted.at("b")).unwrap();
    fs::rename(mounted.at("a"), mounted.at("b")).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(fs::read(mounted.at("b")).unwrap(), b"new");
}

#[test]
fn a_temporary_file_gets_a_name_unless_it_must_not() {
    let mounted = Mounted::new();
    let make = |flags: i32| {
        File::options()
            .read(true)
            .write(true)
            .mode(0o640)
            .custom_flags(libc::O_TMPFILE | flags)
            .open(mounted.root())
    };
    let name = |file: &File, to: &str| {
        let by_fd = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, by_fd, CWD, mounted.at(to), AtFlags::SYMLINK_FOLLOW)
    };
    let mut file = make(0).unwrap();
    file.write_all(b"text").unwrap();
    name(&file, "a").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(name(&make(libc::O_EXCL).unwrap(), "b"), Err(Errno::NOENT));
    drop(file);
    let mounted = mounted.again();
    assert_eq!(fs::read(mounted.at("a")).unwrap(), b"text");
}

#[test]
fn a_removed_inode_still_has_attributes() {
    let mounted = Mounted::new();
    fs::write(mounted.at("a"), b"text").unwrap();
    fs::create_dir(mounted.at("d")).unwrap();
    let path_only = |name: &str| openat(CWD, mounted.at(name), OFlags::PATH, Mode::empty()).unwrap();
    let (file, directory) = (path_only("a"), path_only("d"));
    fs::remove_file(mounted.at("a")).unwrap();
    fs::remove_dir(mounted.at("d")).unwrap();
    let meta = rustix::fs::fstat(&file).unwrap();
    assert_eq!((meta.st_nlink, meta.st_size), (0, 4));
    assert_eq!(rustix::fs::fstat(&directory).unwrap().st_nlink, 0);
    let inside = openat(&directory, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
    assert_eq!(inside.err(), Some(Errno::NOENT));
}
