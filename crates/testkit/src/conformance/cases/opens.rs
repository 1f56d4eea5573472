//! Opening files: every flag, and what an open file is after its name has gone.

use super::Case;
use crate::conformance::op::{Op, Script, Whence};
use libc::{
    O_APPEND, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY,
    O_RDWR, O_SYNC, O_TMPFILE, O_TRUNC, O_WRONLY,
};

pub(super) const CASES: &[Case] = &[
    ("open-create", open_create),
    ("open-append", open_append),
    ("open-truncate", open_truncate),
    ("open-nofollow", open_nofollow),
    ("open-path", open_path),
    ("open-tmpfile", open_tmpfile),
    ("open-wrong-access", open_wrong_access),
    ("open-directory", open_directory),
    ("direct-io", direct_io),
    ("direct-io-unaligned", direct_io_unaligned),
    ("synchronous", synchronous),
    ("unlinked-but-open", unlinked_but_open),
    ("read-only-mode-but-writable", read_only_mode_but_writable),
];

fn open_create(s: &mut Script) {
    s.open(0, "new", O_RDWR | O_CREAT | O_EXCL).write(0, 10, 1).fstat(0).close(0);
    s.open(0, "new", O_RDWR | O_CREAT | O_EXCL);
    s.open(0, "new", O_RDONLY | O_CREAT).read(0, 20).close(0);
    s.open(0, "missing", O_RDONLY).open(0, "missing/file", O_RDWR | O_CREAT).open(
        0,
        "new/file",
        O_RDWR | O_CREAT,
    );
    s.symlink("target", "dangling").open(0, "dangling", O_RDWR | O_CREAT | O_EXCL);
    s.open(0, "dangling", O_RDWR | O_CREAT).write(0, 5, 2).close(0).content("target").list(".");
    s.open(0, "", O_RDONLY).open(0, "new/", O_RDONLY).open(0, "trailing/", O_RDWR | O_CREAT);
    for mode in [0, 0o200, 0o444, 0o4755, 0o2755, 0o1777, 0o777] {
        s.open_mode(0, &format!("mode-{mode:o}"), O_RDWR | O_CREAT | O_EXCL, mode)
            .fstat(0)
            .write(0, 3, 3)
            .close(0);
    }
}

fn open_append(s: &mut Script) {
    s.file("log", 100, 1).open(0, "log", O_RDWR | O_APPEND).open(1, "log", O_WRONLY | O_APPEND);
    for round in 0..5 {
        s.write(0, 50, round).write(1, 70, round + 10).seek(0, Whence::Current, 0);
    }
    s.seek(0, Whence::Set, 10).read(0, 30).write(0, 5, 99).seek(0, Whence::Current, 0);
    s.pwrite(0, 3, 10, 7).fstat(0).content("log").ftruncate(1, 20).write(0, 8, 4).content("log");
}

fn open_truncate(s: &mut Script) {
    s.file("f", 70_000, 1).open(0, "f", O_RDWR).open(1, "f", O_RDWR | O_TRUNC).fstat(0).pread(0, 0, 100);
    s.write(1, 100, 2).content("f").open(2, "f", O_RDONLY | O_TRUNC).fstat(0);
    s.mkdir("d").open(3, "d", O_RDONLY | O_TRUNC).open(3, "d", O_WRONLY);
    s.by(1).open(0, "f", O_RDONLY | O_TRUNC).open(0, "f", O_WRONLY);
}

fn open_nofollow(s: &mut Script) {
    s.file("f", 10, 1).symlink("f", "link").symlink("loop-b", "loop-a").symlink("loop-a", "loop-b");
    s.open(0, "link", O_RDONLY | O_NOFOLLOW).open(0, "link", O_RDWR | O_CREAT | O_NOFOLLOW);
    s.open(0, "f", O_RDONLY | O_NOFOLLOW).read(0, 10).open(1, "loop-a", O_RDONLY).stat("loop-a/x");
    s.mkdir("d").symlink("d", "dir-link").open(2, "dir-link/../f", O_RDONLY | O_NOFOLLOW).read(2, 10);
    s.open(3, "dir-link", O_RDONLY | O_DIRECTORY | O_NOFOLLOW).open(3, "link", O_PATH | O_NOFOLLOW).fstat(3);
}

fn open_path(s: &mut Script) {
    s.file("f", 10, 1).mkdir("d").file("d/in", 20, 2).open(0, "f", O_PATH).fstat(0).read(0, 5).write(0, 5, 1);
    s.op(Op::Fchmod { slot: 0, mode: 0o600 }).ftruncate(0, 0).fsync(0);
    s.open(1, "d", O_PATH | O_DIRECTORY).op(Op::OpenAt {
        dir: 1,
        slot: 2,
        path: "in".into(),
        flags: O_RDONLY,
    });
    s.read(2, 100).open(3, "f", O_PATH | O_DIRECTORY).rename("d", "moved");
    s.op(Op::OpenAt { dir: 1, slot: 4, path: "in".into(), flags: O_RDWR })
        .write(4, 30, 3)
        .content("moved/in");
    s.chmod("f", 0).by(1).open(0, "f", O_PATH).fstat(0).open(1, "f", O_RDONLY);
}

fn open_tmpfile(s: &mut Script) {
    s.mkdir("d").open_mode(0, "d", O_RDWR | O_TMPFILE, 0o640).write(0, 5_000, 1).fstat(0).list("d");
    s.op(Op::LinkSlot { slot: 0, path: "d/named".into() }).fstat(0).list("d").content("d/named");
    s.write(0, 10, 2).content("d/named").op(Op::LinkSlot { slot: 0, path: "d/named".into() });
    s.op(Op::LinkSlot { slot: 0, path: "second".into() }).stat("second").close(0);
    s.open_mode(1, "d", O_RDWR | O_TMPFILE | O_EXCL, 0o600)
        .op(Op::LinkSlot { slot: 1, path: "never".into() })
        .close(1);
    s.open(2, "d", O_RDONLY | O_TMPFILE).open(2, "d/named", O_RDWR | O_TMPFILE).open(
        2,
        "gone",
        O_RDWR | O_TMPFILE,
    );
    s.open(3, "d", O_RDWR | O_TMPFILE).write(3, 100, 3).close(3).list("d");
}

fn open_wrong_access(s: &mut Script) {
    s.file("f", 100, 1).open(0, "f", O_RDONLY).open(1, "f", O_WRONLY);
    s.write(0, 5, 1).read(1, 5).pwrite(0, 0, 5, 1).pread(1, 0, 5).ftruncate(0, 0).ftruncate(1, 50);
    s.fallocate(0, 0, 0, 10).copy((1, 0), (1, 200), 10).copy((0, 0), (0, 200), 10).fsync(0).fsync(1);
}

fn open_directory(s: &mut Script) {
    s.mkdir("d")
        .file("f", 3, 1)
        .open(0, "d", O_RDONLY)
        .read(0, 10)
        .write(0, 1, 1)
        .fstat(0)
        .fsync(0)
        .ftruncate(0, 0);
    s.open(1, "d", O_RDWR).open(1, "d", O_RDONLY | O_CREAT).open(1, "f", O_RDONLY | O_DIRECTORY);
    s.open(2, "d", O_RDONLY | O_DIRECTORY).rmdir("d").fstat(2);
    s.op(Op::OpenAt { dir: 2, slot: 3, path: "x".into(), flags: O_RDWR | O_CREAT }).mkdir("d").list("d");
}

fn direct_io(s: &mut Script) {
    s.open(0, "f", O_RDWR | O_CREAT | O_DIRECT).pwrite(0, 0, 1 << 20, 1).pread(0, 4096, 65_536).fstat(0);
    s.open(1, "f", O_RDWR).pread(1, 0, 1 << 20).pwrite(1, 100, 50, 2).pread(0, 0, 4096);
    s.pwrite(0, 8192, 4096, 3).pread(1, 8000, 5000).pwrite(0, 1 << 20, 8192, 4).pread(1, (1 << 20) - 10, 20);
    s.pread(0, 1 << 20, 65_536).pread(0, 4 << 20, 4096).ftruncate(1, 5000).pread(0, 4096, 4096).content("f");
    s.open(2, "appended", O_RDWR | O_CREAT | O_DIRECT | O_APPEND)
        .write(2, 4096, 1)
        .write(2, 8192, 2)
        .content("appended");
}

fn direct_io_unaligned(s: &mut Script) {
    s.file("f", 8192, 1).open(0, "f", O_RDWR | O_DIRECT).pread(0, 100, 4096).pread(0, 0, 100).fstat(0);
}

fn synchronous(s: &mut Script) {
    for (name, flag) in [("sync", O_SYNC), ("dsync", O_DSYNC)] {
        s.open(0, name, O_RDWR | O_CREAT | flag)
            .write(0, 5000, 1)
            .pwrite(0, 100_000, 10, 2)
            .ftruncate(0, 60_000);
        s.fallocate(0, 0, 0, 80_000)
            .fsync(0)
            .op(Op::Fsync { slot: 0, data_only: true })
            .content(name)
            .close(0);
    }
    s.mkdir("d").open(1, "d", O_RDONLY | O_DIRECTORY).file("d/f", 10, 3).fsync(1);
}

fn unlinked_but_open(s: &mut Script) {
    s.file("f", 200_000, 1)
        .open(0, "f", O_RDWR)
        .open(1, "f", O_RDONLY)
        .unlink("f")
        .fstat(0)
        .pread(1, 100, 5000);
    s.pwrite(0, 300_000, 100, 2).pread(1, 299_990, 200).ftruncate(0, 1000).fstat(1).fsync(0);
    s.file("f", 10, 3).fstat(0).content("f").op(Op::Fchmod { slot: 0, mode: 0o600 }).fstat(1);
    s.close(0).pread(1, 0, 2000).close(1);
    s.file("a", 50, 4)
        .file("b", 60, 5)
        .open(2, "b", O_RDWR)
        .rename("a", "b")
        .fstat(2)
        .pread(2, 0, 100)
        .content("b");
    s.file("x", 5, 1)
        .link("x", "y")
        .open(3, "x", O_RDONLY)
        .unlink("x")
        .fstat(3)
        .unlink("y")
        .fstat(3)
        .read(3, 10);
    s.op(Op::LinkSlot { slot: 3, path: "back".into() });
}

fn read_only_mode_but_writable(s: &mut Script) {
    s.chmod(".", 0o777)
        .by(1)
        .open_mode(0, "f", O_RDWR | O_CREAT | O_EXCL, 0o400)
        .write(0, 100, 1)
        .ftruncate(0, 40);
    s.open(1, "f", O_RDWR)
        .open(1, "f", O_RDONLY)
        .read(1, 100)
        .op(Op::Fchmod { slot: 0, mode: 0 })
        .write(0, 10, 2);
    s.open(2, "f", O_RDONLY).read(1, 100).by(2).open(0, "f", O_RDONLY | O_NOATIME).by(0).content("f");
}
