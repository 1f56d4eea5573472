//! Files and directories of the do-nothing file system, through the kernel.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use forebay_fuse::null::{NullConfig, NullFs};
use forebay_fuse::types::Timestamp;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use support::Mounted;

fn null() -> Mounted<NullFs> {
    Mounted::new(NullFs::new(NullConfig::default()))
}

/// With nothing cached, every answer comes from the file system.
fn uncached() -> Mounted<NullFs> {
    let config = NullConfig { entry_ttl: Duration::ZERO, attr_ttl: Duration::ZERO, ..NullConfig::default() };
    Mounted::new(NullFs::new(config))
}

#[test]
fn a_file_lives_and_dies() {
    let mounted = uncached();
    let path = mounted.at("file");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
    let again = OpenOptions::new().create_new(true).write(true).open(&path).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);

    file.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), 10_000);

    file.set_len(3).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (3, 0o640));
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));

    fs::rename(&path, mounted.at("renamed")).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::hard_link(mounted.at("renamed"), mounted.at("link")).unwrap();
    assert_eq!(fs::metadata(mounted.at("link")).unwrap().nlink(), 2);
    fs::remove_file(mounted.at("renamed")).unwrap();
    fs::remove_file(mounted.at("link")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().len(), 3);
    drop(file);
    support::wait_until("the inode is forgotten", || mounted.fs.inodes() == 1);
    mounted.finish();
}

#[test]
fn truncation_at_open_and_times_before_1970() {
    let mounted = uncached();
    fs::write(mounted.at("file"), b"hello").unwrap();
    let file = File::create(mounted.at("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.set_modified(UNIX_EPOCH - Duration::new(10, 500_000_000)).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-11, 500_000_000));
    let time = Timestamp::from_nanos(-10_500_000_000);
    assert_eq!((time.secs, time.nanos, time.as_nanos()), (-11, 500_000_000, -10_500_000_000));
    drop(file);
    mounted.finish();
}

#[test]
fn large_reads_and_writes_keep_their_size() {
    let mounted = null();
    let data = vec![1; (3 << 20) + 17];
    fs::write(mounted.at("large"), &data).unwrap();
    let file = File::open(mounted.at("large")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), data.len() as u64);
    let direct =
        rustix::fs::open(mounted.at("large"), OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let direct = File::from(direct);
    let mut buffer = vec![9; 1 << 20];
    assert_eq!(direct.read_at(&mut buffer, 0).unwrap(), 1 << 20);
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert_eq!(direct.read_at(&mut buffer, 3 << 20).unwrap(), 17);
    assert_eq!(direct.read_at(&mut buffer, 4 << 20).unwrap(), 0);
    drop((file, direct));
    mounted.finish();
}

#[test]
fn ten_thousand_entries_are_listed_once_each() {
    let mounted = null();
    let names: BTreeSet<String> =
        (0..10_000).map(|n| format!("entry-{n:05}-{}", "x".repeat(n % 40))).collect();
    fs::create_dir(mounted.at("dir")).unwrap();
    for name in &names {
        let path = mounted.at("dir").join(name);
        rustix::fs::mknodat(CWD, &path, FileType::RegularFile, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    let list = || fs::read_dir(mounted.at("dir")).unwrap().map(|entry| entry.unwrap());
    let listed: Vec<String> = list().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    // With each entry looked at, the kernel turns to readdirplus.
    assert!(list().all(|entry| entry.metadata().unwrap().is_file()));
    for name in &names {
        fs::remove_file(mounted.at("dir").join(name)).unwrap();
    }
    assert_eq!(list().count(), 0);
    fs::remove_dir(mounted.at("dir")).unwrap();
    mounted.finish();
}

#[test]
fn a_listing_goes_on_where_it_was_while_entries_go() {
    let mounted = uncached();
    for n in 0..2000 {
        File::create(mounted.at(&format!("{n:04}"))).unwrap();
    }
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(mounted.path()).unwrap() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name()), "{:?} came twice", entry.file_name());
        fs::remove_file(entry.path()).unwrap();
    }
    assert_eq!(seen.len(), 2000);
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    mounted.finish();
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let mounted = uncached();
    let (a, b) = (mounted.at("a"), mounted.at("b"));
    fs::write(&a, b"aa").unwrap();
    fs::write(&b, b"bbb").unwrap();
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, from, CWD, to, flags);
    assert_eq!(rename(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(&a, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::metadata(&a).unwrap().len(), fs::metadata(&b).unwrap().len()), (3, 2));
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().len(), 3);

    fs::create_dir_all(mounted.at("x/sub")).unwrap();
    fs::create_dir(mounted.at("y")).unwrap();
    fs::rename(mounted.at("x/sub"), mounted.at("y/sub")).unwrap();
    assert_eq!(fs::metadata(mounted.at("x")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(mounted.at("y")).unwrap().nlink(), 3);
    let full = fs::rename(mounted.at("x"), mounted.at("y")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    assert_eq!(fs::remove_dir(mounted.at("y")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    mounted.finish();
}

#[test]
fn special_files_and_links() {
    let mounted = uncached();
    let target = "t".repeat(3000);
    symlink(&target, mounted.at("symlink")).unwrap();
    assert_eq!(fs::read_link(mounted.at("symlink")).unwrap().to_str(), Some(target.as_str()));
    rustix::fs::mknodat(CWD, mounted.at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    assert!(fs::metadata(mounted.at("fifo")).unwrap().file_type().is_fifo());
    let device = rustix::fs::makedev(0x123, 0x4_5678);
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, mounted.at("device"), FileType::CharacterDevice, mode, device).unwrap();
    assert_eq!(fs::metadata(mounted.at("device")).unwrap().rdev(), device);

    let long = "n".repeat(255);
    File::create(mounted.at(&long)).unwrap();
    assert!(mounted.at(&long).exists());
    let too_long = File::create(mounted.at(&"n".repeat(256))).unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));

    let unnamed = rustix::fs::open(mounted.path(), OFlags::TMPFILE | OFlags::RDWR, mode).unwrap();
    let unnamed = File::from(unnamed);
    unnamed.write_all_at(b"x", 9).unwrap();
    assert_eq!((unnamed.metadata().unwrap().len(), unnamed.metadata().unwrap().nlink()), (10, 0));
    drop(unnamed);
    mounted.finish();
}

#[test]
fn extended_attributes_are_kept() {
    let mounted = null();
    let path = mounted.at("file");
    File::create(&path).unwrap();
    let set = |name, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name, buffer: &mut [u8]| rustix::fs::getxattr(&path, name, buffer);
    set("user.a", b"value", XattrFlags::empty()).unwrap();
    set("user.empty", b"", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    let big = vec![5; 65536];
    set("user.big", &big, XattrFlags::empty()).unwrap();

    let mut buffer = vec![0; 65536];
    assert_eq!(get("user.a", &mut buffer), Ok(5));
    assert_eq!(buffer.get(..5), Some(&b"value"[..]));
    assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
    assert_eq!(get("user.a", &mut buffer[..4]), Err(Errno::RANGE));
    assert_eq!(get("user.none", &mut buffer), Err(Errno::NODATA));
    assert_eq!(get("user.big", &mut buffer), Ok(65536));
    assert_eq!(buffer, big);
    let len = rustix::fs::listxattr(&path, &mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"user.a\0user.big\0user.empty\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
    mounted.finish();
}

#[test]
fn space_ranges_and_copies() {
    let mounted = uncached();
    let stat = rustix::fs::statvfs(mounted.path()).unwrap();
    assert_eq!((stat.f_bsize, stat.f_namemax, stat.f_blocks), (4096, 255, 1 << 30));

    let a = OpenOptions::new().create_new(true).read(true).write(true).open(mounted.at("a")).unwrap();
    rustix::fs::fallocate(&a, rustix::fs::FallocateFlags::empty(), 0, 5000).unwrap();
    assert_eq!(a.metadata().unwrap().len(), 5000);
    rustix::fs::fallocate(&a, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 9000).unwrap();
    assert_eq!(a.metadata().unwrap().len(), 5000);

    let b = File::create_new(mounted.at("b")).unwrap();
    let (mut from, mut to) = (1000, 0);
    let copied = rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), 1 << 40).unwrap();
    assert_eq!((copied, b.metadata().unwrap().len()), (4000, 4000));
    a.sync_all().unwrap();
    a.sync_data().unwrap();
    File::open(mounted.path()).unwrap().sync_all().unwrap();
    drop((a, b));
    mounted.finish();
}

#[test]
fn many_at_once_do_not_get_into_each_others_way() {
    let mounted = uncached();
    fs::create_dir(mounted.at("shared")).unwrap();
    let shared = mounted.at("shared");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for n in 0..200 {
                    let (old, new) =
                        (shared.join(format!("{thread}-{n}")), shared.join(format!("{thread}-{n}-new")));
                    fs::write(&old, vec![0; n]).unwrap();
                    fs::rename(&old, &new).unwrap();
                    assert_eq!(fs::metadata(&new).unwrap().len(), n as u64);
                    if n % 2 == 0 {
                        fs::remove_file(&new).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 400);
    mounted.finish();
}
