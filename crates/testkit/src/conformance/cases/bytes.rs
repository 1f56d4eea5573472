//! Contents: reads and writes at edges, truncation, and copies between and within files.

use super::Case;
use crate::conformance::op::{Script, Whence};
use libc::{O_APPEND, O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC};

pub(super) const CASES: &[Case] = &[
    ("read-write-edges", read_write_edges),
    ("inline-to-extents", inline_to_extents),
    ("overwrites", overwrites),
    ("truncate", truncate),
    ("sparse", sparse),
    ("size-limits", size_limits),
    ("positions", positions),
    ("copy-range", copy_range),
    ("copy-range-overlap", copy_range_overlap),
    ("copy-then-change", copy_then_change),
];

fn read_write_edges(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT).read(0, 10).write(0, 0, 1).fstat(0).pread(0, 100, 10).write(0, 1, 1);
    for edge in [4096u64, 65_536, 262_144, 1 << 20, 4 << 20, 8 << 20] {
        s.pwrite(0, edge - 3, 7, edge).pread(0, edge - 10, 20).pread(0, edge, 1).pread(0, edge - 1, 1);
        s.pwrite(0, edge + 100, 3 * 65_536 + 5, edge + 1).pread(0, edge, 200_000).fstat(0);
    }
    s.pread(0, 0, 9 << 20).pread(0, 1 << 40, 10).pwrite(0, 0, 5 << 20, 9).content("f").fsync(0).content("f");
}

fn inline_to_extents(s: &mut Script) {
    for size in [0, 1, 100, 511, 512, 1023, 1024, 1025, 2048, 4095, 4096, 4097] {
        let name = format!("f{size}");
        s.file(&name, size, 1)
            .content(&name)
            .open(0, &name, O_RDWR | O_APPEND)
            .write(0, 600, 2)
            .content(&name);
        s.fsync(0)
            .ftruncate(0, 700)
            .content(&name)
            .ftruncate(0, 5000)
            .content(&name)
            .ftruncate(0, 10)
            .write(0, 3, 4);
        s.close(0)
            .content(&name)
            .open(0, &name, O_RDWR | O_TRUNC)
            .write(0, size / 2, 5)
            .close(0)
            .content(&name);
    }
}

fn overwrites(s: &mut Script) {
    s.file("f", 1 << 20, 0).open(0, "f", O_RDWR);
    for round in 0..150u64 {
        let at = (round * 37_123) % (1 << 20);
        s.pwrite(0, at, 100 + (round as usize * 531) % 9_000, round);
        if round % 10 == 0 {
            s.pread(0, at.saturating_sub(5000), 20_000);
        }
        if round % 40 == 0 {
            s.fsync(0);
        }
    }
    s.content("f").open(1, "f", O_RDONLY).read(1, 2 << 20);
}

fn truncate(s: &mut Script) {
    s.file("f", 300_000, 1).open(0, "f", O_RDWR);
    for size in [
        299_999u64,
        262_145,
        262_144,
        262_143,
        100_000,
        200_000,
        65_536,
        65_537,
        4097,
        4095,
        8192,
        1,
        0,
        10,
        5 << 20,
    ] {
        s.ftruncate(0, size).fstat(0).content("f").pread(0, size.saturating_sub(100), 300).pwrite(
            0,
            size / 2,
            50,
            size,
        );
    }
    s.ftruncate(0, 0).content("f").holes(0).write(0, 10, 3).content("f").ftruncate(0, u64::MAX / 2 + 1);
    s.file("g", 5000, 2)
        .open(1, "g", O_RDWR)
        .ftruncate(1, 4000)
        .ftruncate(1, 5000)
        .content("g")
        .pread(1, 3990, 200);
}

fn sparse(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT).pwrite(0, 1 << 40, 100, 1).pwrite(0, 1 << 30, 5000, 2).fstat(0).holes(0);
    s.pread(0, 1 << 39, 4096).pread(0, (1 << 40) - 50, 200).pwrite(0, 0, 10, 3).content("f");
    s.ftruncate(0, 1 << 35).content("f").ftruncate(0, 1 << 43).fstat(0).content("f").pread(
        0,
        (1 << 43) - 10,
        50,
    );
    s.pwrite(0, (1 << 44) - 4096 - 10, 10, 4).pread(0, (1 << 44) - 4096 - 20, 100).fstat(0).content("f");
}

fn size_limits(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT)
        .ftruncate(0, (1 << 44) - 4096)
        .fstat(0)
        .ftruncate(0, 1 << 44)
        .ftruncate(0, 10);
    s.pwrite(0, i64::MAX as u64, 10, 1)
        .pwrite(0, u64::MAX, 10, 1)
        .pread(0, u64::MAX, 10)
        .ftruncate(0, u64::MAX)
        .fstat(0);
}

fn positions(s: &mut Script) {
    s.file("f", 100, 1)
        .open(0, "f", O_RDWR)
        .seek(0, Whence::End, 0)
        .seek(0, Whence::End, 50)
        .write(0, 10, 2)
        .content("f");
    s.seek(0, Whence::Set, 5)
        .read(0, 10)
        .seek(0, Whence::Current, -10)
        .seek(0, Whence::Current, -10)
        .read(0, 3);
    s.seek(0, Whence::End, -161).seek(0, Whence::Current, i64::MIN).seek(0, Whence::End, -160).read(0, 5);
    s.seek(0, Whence::Set, 150)
        .read(0, 100)
        .read(0, 100)
        .pread(0, 0, 5)
        .seek(0, Whence::Current, 0)
        .ftruncate(0, 20);
    s.seek(0, Whence::Current, 0).read(0, 10).write(0, 5, 3).content("f").open(
        1,
        "missing",
        O_RDONLY | O_DIRECTORY,
    );
}

fn copy_range(s: &mut Script) {
    s.file("a", 600_000, 1).file("b", 100, 2).open(0, "a", O_RDWR).open(1, "b", O_RDWR);
    s.copy((0, 0), (1, 0), 600_000).content("b").copy((0, 100), (1, 300_000), 4096).content("b");
    s.copy((0, 599_000), (1, 0), 50_000).content("b").copy((0, 600_000), (1, 0), 10).copy(
        (0, 900_000),
        (1, 0),
        10,
    );
    s.copy((0, 0), (1, 1 << 32), 65_536).fstat(1).pread(1, (1 << 32) - 5, 100).copy(
        (0, 4096),
        (1, 8192),
        131_072,
    );
    s.content("b").content("a").copy((1, 1 << 31), (0, 0), 100_000).content("a").copy((0, 0), (1, 0), 0);
    s.open(2, "b", O_RDWR | O_APPEND).copy((0, 0), (2, 0), 10).mkdir("d").open(
        3,
        "d",
        O_RDONLY | O_DIRECTORY,
    );
    s.copy((3, 0), (1, 0), 10).copy((0, 0), (3, 0), 10).open(4, "a", O_RDONLY).copy((1, 0), (4, 0), 10);
}

fn copy_range_overlap(s: &mut Script) {
    s.file("f", 200_000, 1)
        .open(0, "f", O_RDWR)
        .open(1, "f", O_RDWR)
        .copy((0, 0), (0, 100_000), 100_000)
        .content("f");
    s.copy((0, 0), (1, 50_000), 60_000)
        .copy((0, 1000), (1, 0), 5_000)
        .copy((0, 100), (0, 100), 100)
        .content("f");
    s.copy((0, 0), (1, 199_000), 150_000).copy((0, 150_000), (1, 200_000), 100_000).content("f").fstat(0);
    s.copy((0, 190_000), (1, 0), 1 << 20).content("f");
}

fn copy_then_change(s: &mut Script) {
    s.file("a", 1 << 20, 1)
        .open(0, "a", O_RDWR)
        .open(1, "b", O_RDWR | O_CREAT)
        .copy((0, 0), (1, 0), 1 << 20)
        .fsync(1);
    s.pwrite(0, 5000, 100, 2)
        .pwrite(1, 70_000, 100, 3)
        .content("a")
        .content("b")
        .ftruncate(0, 300_000)
        .content("b");
    s.unlink("a")
        .close(0)
        .content("b")
        .open(2, "c", O_RDWR | O_CREAT)
        .copy((1, 4096), (2, 4096), 8192)
        .content("c");
    s.fallocate(1, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 500_000)
        .content("b")
        .content("c");
}
