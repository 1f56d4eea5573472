//! Space: fallocate in all modes, holes, and file-system totals.

use super::Case;
use crate::conformance::op::{Op, Script, Whence};
use libc::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, O_CREAT, O_RDONLY, O_RDWR};

const PUNCH: i32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

pub(super) const CASES: &[Case] = &[
    ("fallocate", fallocate),
    ("punch-hole", punch_hole),
    ("zero-range", zero_range),
    ("fallocate-wrong", fallocate_wrong),
    ("seek-data", seek_data),
    ("statfs", statfs),
];

fn fallocate(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT)
        .fallocate(0, 0, 0, 100_000)
        .fstat(0)
        .content("f")
        .pwrite(0, 50_000, 10, 1);
    s.fallocate(0, 0, 0, 40_000).fstat(0).content("f").fallocate(0, FALLOC_FL_KEEP_SIZE, 0, 1 << 20).fstat(0);
    s.ftruncate(0, 200_000).content("f").fallocate(0, 0, 300_000, 1).fstat(0).content("f").holes(0);
    s.fallocate(0, FALLOC_FL_KEEP_SIZE, 1 << 30, 4096).fstat(0);
}

fn punch_hole(s: &mut Script) {
    s.file("f", 600_000, 1).open(0, "f", O_RDWR);
    for (at, len) in [
        (0, 10),
        (4096, 4096),
        (100, 70_000),
        (262_000, 300),
        (599_990, 100),
        (599_000, 50_000),
        (1 << 30, 10),
    ] {
        s.fallocate(0, PUNCH, at, len).fstat(0).pread(0, at.saturating_sub(50), 200).content("f").holes(0);
    }
    s.pwrite(0, 5000, 100, 2).content("f").fallocate(0, PUNCH, 0, 1 << 40).content("f").fstat(0).holes(0);
    s.file("small", 300, 3).open(1, "small", O_RDWR).fallocate(1, PUNCH, 100, 50).content("small").fstat(1);
}

fn zero_range(s: &mut Script) {
    s.file("f", 300_000, 1)
        .open(0, "f", O_RDWR)
        .fallocate(0, FALLOC_FL_ZERO_RANGE, 1000, 100_000)
        .content("f")
        .fstat(0);
    s.fallocate(0, FALLOC_FL_ZERO_RANGE, 299_000, 5000).content("f").fstat(0);
    s.fallocate(0, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 303_000, 50_000).content("f").fstat(0);
    s.pwrite(0, 2000, 10, 2).content("f").holes(0).fallocate(0, FALLOC_FL_ZERO_RANGE, 0, 1).content("f");
    s.file("small", 300, 3)
        .open(1, "small", O_RDWR)
        .fallocate(1, FALLOC_FL_ZERO_RANGE, 100, 500)
        .content("small");
}

fn fallocate_wrong(s: &mut Script) {
    s.file("f", 100, 1).mkdir("d").open(0, "f", O_RDWR).open(1, "d", O_RDONLY).fallocate(0, 0, 0, 0);
    s.fallocate(0, FALLOC_FL_PUNCH_HOLE, 0, 10)
        .fallocate(0, 1 << 20, 0, 10)
        .fallocate(1, 0, 0, 10)
        .fallocate(0, 0, u64::MAX, 10);
    s.fallocate(0, 0, i64::MAX as u64, 10)
        .fallocate(0, PUNCH | FALLOC_FL_ZERO_RANGE, 0, 10)
        .fstat(0)
        .content("f");
}

fn seek_data(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT).seek(0, Whence::Data, 0).seek(0, Whence::Hole, 0).ftruncate(0, 16 << 20);
    s.pwrite(0, 4 << 20, 1 << 20, 1).pwrite(0, 12 << 20, 1 << 20, 2).fsync(0);
    for at in [
        0i64,
        1 << 20,
        4 << 20,
        (4 << 20) + 5,
        (5 << 20) - 1,
        5 << 20,
        11 << 20,
        12 << 20,
        13 << 20,
        (16 << 20) - 1,
    ] {
        s.seek(0, Whence::Data, at).seek(0, Whence::Hole, at);
    }
    s.seek(0, Whence::Data, 16 << 20).seek(0, Whence::Hole, 16 << 20).seek(0, Whence::Data, 17 << 20).seek(
        0,
        Whence::Data,
        -1,
    );
    s.holes(0)
        .fallocate(0, PUNCH, 4 << 20, 1 << 20)
        .seek(0, Whence::Data, 0)
        .seek(0, Whence::Current, 0)
        .holes(0);
    s.file("full", 100_000, 1)
        .open(1, "full", O_RDONLY)
        .seek(1, Whence::Data, 50)
        .seek(1, Whence::Hole, 50)
        .seek(1, Whence::Hole, 100_000);
    s.mkdir("d").op(Op::Open { slot: 2, path: "d".into(), flags: O_RDONLY, mode: 0 });
}

fn statfs(s: &mut Script) {
    s.op(Op::Statfs { path: ".".into() }).file("f", 10, 1).op(Op::Statfs { path: "f".into() });
    s.op(Op::Statfs { path: "missing".into() }).by(1).op(Op::Statfs { path: ".".into() });
}
