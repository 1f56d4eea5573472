use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
};

use rustix::{
    fs::{FallocateFlags, SeekFrom as RustixSeek, copy_file_range, fallocate, seek},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use super::*;

const MIB: u64 = 1 << 20;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

#[test]
fn what_is_written_is_read_before_and_after_a_remount() {
    let mounted = Mounted::new();
    let data = pattern(9_000_001);
    fs::write(mounted.at("large"), &data).unwrap();
    fs::write(mounted.at("small"), b"tiny").unwrap();
    let mut log = File::options().append(true).create(true).open(mounted.at("log")).unwrap();
    log.write_all(b"one ").unwrap();
    fs::OpenOptions::new().append(true).open(mounted.at("log")).unwrap().write_all(b"two ").unwrap();
    log.write_all(b"three").unwrap();
    drop(log);
    assert_eq!(fs::read(mounted.at("large")).unwrap(), data);
    let mounted = mounted.again();
    assert_eq!(fs::read(mounted.at("large")).unwrap(), data);
    assert_eq!(fs::read(mounted.at("small")).unwrap(), b"tiny");
    assert_eq!(fs::read(mounted.at("log")).unwrap(), b"one two three");
}

#[test]
fn files_shrink_grow_and_have_holes() {
    let mounted = Mounted::new();
    let file = File::options().read(true).write(true).create_new(true).open(mounted.at("a")).unwrap();
    file.write_all_at(&pattern(10_000), 0).unwrap();
    file.set_len(100).unwrap();
    file.set_len(16 << 40).unwrap();
    file.write_all_at(b"far", (1 << 40) + 5).unwrap();
    let mut bytes = [9; 6];
    file.read_exact_at(&mut bytes, (1 << 40) + 4).unwrap();
    assert_eq!(&bytes, b"\0far\0\0");
    file.read_exact_at(&mut bytes, 97).unwrap();
    assert_eq!(bytes, [97, 98, 99, 0, 0, 0]);
    assert_eq!(file.metadata().unwrap().len(), 16 << 40);
    assert!(file.metadata().unwrap().blocks() < 100);
    assert_eq!(seek(&file, RustixSeek::Data(200)).unwrap(), (1 << 40) + 5);
    assert_eq!(seek(&file, RustixSeek::Hole(0)).unwrap(), 100);
    assert_eq!(seek(&file, RustixSeek::Data(2 << 40)), Err(Errno::NXIO));
    assert_eq!(file.set_len(i64::MAX as u64).unwrap_err().raw_os_error(), Some(27));
}

#[test]
fn ranges_are_allocated_punched_and_zeroed() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    let data = pattern(300_000);
    fs::write(&path, &data).unwrap();
    let file = open(&path);
    assert_eq!(fs::read(&path).unwrap(), data);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 100_000, 50_000).unwrap();
    let mut expected = data;
    expected[100_000..150_000].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected, "cached pages are gone");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 290_000, 20_000).unwrap();
    expected.resize(310_000, 0);
    expected[290_000..].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    fallocate(&file, FallocateFlags::empty(), 0, 400_000).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 800_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 400_000);
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(fallocate(&file, punch, 0, 0), Err(Errno::INVAL));
}

#[test]
fn copies_inside_the_volume_are_seen_at_once() {
    let mounted = Mounted::new();
    let data = pattern(5_000_000);
    fs::write(mounted.at("a"), &data).unwrap();
    fs::write(mounted.at("b"), vec![1; 6_000_000]).unwrap();
    let (from, to) = (open(&mounted.at("a")), open(&mounted.at("b")));
    assert_eq!(fs::read(mounted.at("b")).unwrap().len(), 6_000_000);
    let (mut from_at, mut to_at) = (1_000_000, 7);
    let mut copied = 0;
    while copied < 4_000_000 {
        let now = copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 8_000_000).unwrap();
        assert!(now > 0);
        copied += now;
    }
    assert_eq!(copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 1), Ok(0));
    let got = fs::read(mounted.at("b")).unwrap();
    assert_eq!(got[7..4_000_007], data[1_000_000..]);
    assert_eq!((got[6], got[4_000_007], got.len()), (1, 1, 6_000_000));
    mounted.wait_for_requests(&["copy_file_range", "copy_file_range_64"], 1);
    let overlap = copy_file_range(&from, Some(&mut 0), &from, Some(&mut 10), 100);
    assert_eq!(overlap, Err(Errno::INVAL));
}

#[test]
#[allow(unsafe_code)]
fn a_shared_mapping_writes_the_file() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, vec![b'.'; 8192]).unwrap();
    let file = open(&path);
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of 8192 bytes of a file that long, which nobody else shortens; used inside its bounds, then unmapped.
    unsafe {
        let map = mmap(std::ptr::null_mut(), 8192, flags, MapFlags::SHARED, &file, 0).unwrap();
        let bytes = std::slice::from_raw_parts_mut(map.cast::<u8>(), 8192);
        bytes[4090..4100].copy_from_slice(b"mapped too");
        rustix::mm::msync(map, 8192, rustix::mm::MsyncFlags::SYNC).unwrap();
        munmap(map, 8192).unwrap();
    }
    drop(file);
    let mounted = mounted.again();
    assert_eq!(&fs::read(mounted.at("a")).unwrap()[4089..4101], b".mapped too.");
}

#[test]
fn direct_and_truncating_opens_work() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    let data = pattern(1 << 20);
    let direct =
        || File::options().read(true).write(true).create(true).custom_flags(libc::O_DIRECT).open(&path);
    let file = direct().unwrap();
    let mut aligned = vec![0; data.len() + 4096];
    let start = aligned.as_ptr().align_offset(4096);
    aligned[start..start + data.len()].copy_from_slice(&data);
    file.write_all_at(&aligned[start..start + data.len()], 4096).unwrap();
    assert_eq!(fs::read(&path).unwrap()[4096..], data);
    assert_eq!(file.metadata().unwrap().len(), 4096 + MIB);
    let emptied = File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(emptied.metadata().unwrap().len(), 0);
    assert_eq!(file.metadata().unwrap().len(), 0);
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn synchronous_writes_are_synced() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    let mut file =
        File::options().write(true).create_new(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    file.write_all(b"one").unwrap();
    file.write_all(b"two").unwrap();
    mounted.wait_for_requests(&["fsync"], 2);
    let mut plain = open(&path);
    plain.seek(SeekFrom::End(0)).unwrap();
    plain.write_all(b"three").unwrap();
    plain.sync_data().unwrap();
    mounted.wait_for_requests(&["fsync"], 3);
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    mounted.wait_for_requests(&["fsyncdir"], 1);
    assert_eq!(mounted.requests("fsync"), 3);
}
