use forebay_types::limits::{BLOCK_SIZE_DEFAULT, file_size_max};
use forebay_vfs::{Fallocate, Whence};

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn ranges_are_allocated_punched_and_zeroed() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let vfs = &world.vfs;
    let change = |what, range| vfs.fallocate(ino, what, range, false);
    let size = || vfs.getattr(ino).unwrap().size;
    vfs.write(ino, 0, &[7; 10], false).unwrap();
    change(Fallocate::Allocate { keep_size: true }, (0, 100)).unwrap();
    assert_eq!(size(), 10);
    change(Fallocate::Allocate { keep_size: false }, (0, 12)).unwrap();
    change(Fallocate::Punch, (2, 3)).unwrap();
    assert_eq!(world.contents(ino), [7, 7, 0, 0, 0, 7, 7, 7, 7, 7, 0, 0]);
    change(Fallocate::Zero { keep_size: true }, (8, 100)).unwrap();
    assert_eq!(world.contents(ino), [7, 7, 0, 0, 0, 7, 7, 7, 0, 0, 0, 0]);
    change(Fallocate::Zero { keep_size: false }, (1, 15)).unwrap();
    assert_eq!(world.contents(ino), [[7].as_slice(), &[0; 15]].concat());
    refused(change(Fallocate::Punch, (0, 0)), |error| matches!(error, VfsError::Invalid(_)));
    refused(change(Fallocate::Punch, (u64::MAX, 2)), |error| matches!(error, VfsError::TooLarge(_)));
    let fifo = vfs.mknod(ROOT, b"fifo", (FileKind::Fifo, 0o644, 0), 0, &Caller::ROOT).unwrap().ino;
    refused(vfs.fallocate(fifo, Fallocate::Punch, (0, 1), false), |error| {
        matches!(error, VfsError::Invalid(_))
    });
}

#[test]
fn a_file_ends_where_the_volume_says() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let max = file_size_max(BLOCK_SIZE_DEFAULT);
    assert_eq!(world.vfs.write(ino, max - 3, b"12345", false).unwrap(), 3);
    assert_eq!(world.vfs.getattr(ino).unwrap().size, max);
    refused(world.vfs.write(ino, max, b"1", false), |error| matches!(error, VfsError::TooLarge(_)));
    refused(world.vfs.write(ino, u64::MAX, b"1", false), |error| matches!(error, VfsError::TooLarge(_)));
    assert_eq!(world.vfs.write(ino, u64::MAX, b"", false).unwrap(), 0);
}

#[test]
fn data_and_holes_are_found() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let vfs = &world.vfs;
    vfs.write(ino, 9 * MIB, &[1; 5000], false).unwrap();
    let end = 9 * MIB + 5000;
    assert_eq!(vfs.seek(ino, 0, Whence::Data).unwrap(), 9 * MIB);
    assert_eq!(vfs.seek(ino, 0, Whence::Hole).unwrap(), 0);
    assert_eq!(vfs.seek(ino, 9 * MIB as i64, Whence::Hole).unwrap(), end);
    for (offset, whence) in [(end as i64, Whence::Data), (end as i64, Whence::Hole), (-1, Whence::Data)] {
        refused(vfs.seek(ino, offset, whence), |error| matches!(error, VfsError::NoData));
    }
}

#[test]
fn copies_stop_at_the_end_and_must_not_overlap() {
    let world = World::new();
    let (a, b) = (world.file(ROOT, "a").ino, world.file(ROOT, "b").ino);
    let vfs = &world.vfs;
    let data: Vec<u8> = (0..200_000_u32).map(|index| (index % 251) as u8).collect();
    vfs.write(a, 0, &data, false).unwrap();
    assert_eq!(vfs.copy_range((a, 100_000), (b, 5), 1 << 40, false).unwrap(), 100_000);
    assert_eq!(world.contents(b), [&[0; 5], &data[100_000..]].concat());
    assert_eq!(vfs.copy_range((a, 200_000), (b, 0), 1, false).unwrap(), 0);
    refused(vfs.copy_range((a, 0), (a, 10), 11, false), |error| matches!(error, VfsError::Invalid(_)));
    assert_eq!(vfs.copy_range((a, 0), (a, 10), 10, false).unwrap(), 10);
    assert_eq!(world.contents(a)[..20], [&data[..10], &data[..10]].concat());
    refused(vfs.copy_range((ROOT, 0), (a, 0), 1, false), |error| matches!(error, VfsError::IsDirectory(_)));
}

#[test]
fn data_is_there_after_the_volume_was_closed() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let data: Vec<u8> = (0..700_000_u32).map(|index| (index % 253) as u8).collect();
    world.vfs.write(ino, 3, &data, false).unwrap();
    let world = world.again();
    let found = world.vfs.lookup(ROOT, b"a").unwrap();
    assert_eq!((found.ino, found.size), (ino, 700_003));
    assert_eq!(world.contents(ino)[3..], data);
}
