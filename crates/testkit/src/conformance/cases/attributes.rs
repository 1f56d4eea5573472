//! Attributes: times, extended attributes, ACLs as values.

use super::Case;
use crate::conformance::op::{Op, Script, When};
use libc::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, XATTR_CREATE, XATTR_REPLACE};

pub(super) const CASES: &[Case] = &[
    ("utimens", utimens),
    ("utimens-rights", utimens_rights),
    ("times-of-files", times_of_files),
    ("times-of-opened-files", times_of_opened_files),
    ("times-of-directories", times_of_directories),
    ("relatime", relatime),
    ("xattr", xattr),
    ("xattr-namespaces", xattr_namespaces),
    ("xattr-sizes", xattr_sizes),
    ("xattr-large", xattr_large),
];

fn utimens(s: &mut Script) {
    s.file("f", 10, 1).mkdir("d").symlink("f", "l");
    for (access, modify) in [
        (When::At(1_000_000_000, 123_456_789), When::At(1_100_000_000, 999_999_999)),
        (When::At(0, 0), When::At(0, 1)),
        (When::At(1, 5), When::Omit),
        (When::Omit, When::At(1_200_000_000, 7)),
        (When::At(-1, 0), When::At(-1_000_000, 500)),
        (When::At(2_147_483_648, 1), When::At(4_000_000_000, 2)),
        (When::Omit, When::Omit),
        (When::At(5, 1_000_000_000), When::At(6, 0)),
        (When::At(5, -1), When::At(6, 0)),
    ] {
        s.utimens("f", access, modify).times("f").utimens("d", access, modify).times("d").tick().changed("f");
        s.op(Op::Utimens { path: "l".into(), access, modify, follow: false }).times("l").times("f");
    }
    s.utimens("missing", When::Now, When::Now)
        .changed("f")
        .tick()
        .utimens("f", When::Now, When::Omit)
        .changed("f");
    s.tick()
        .utimens("f", When::Omit, When::Now)
        .changed("f")
        .tick()
        .utimens("f", When::Omit, When::Omit)
        .changed("f");
    s.utimens("f", When::At(1_000_000_000, 1), When::At(1_100_000_000, 1))
        .open(0, "f", O_RDWR)
        .chmod("f", 0o600)
        .times("f");
    s.rename("f", "g").times("g").link("g", "h").times("g").fsync(0).times("g").close(0).times("g");
}

fn utimens_rights(s: &mut Script) {
    s.file("mine", 1, 1)
        .chown("mine", Some(10_001), Some(10_001))
        .file("open", 1, 1)
        .chmod("open", 0o666)
        .by(1);
    for path in ["mine", "open"] {
        s.utimens(path, When::At(1000, 1), When::At(2000, 2)).utimens(path, When::Now, When::Now);
        s.utimens(path, When::Now, When::Omit).utimens(path, When::Omit, When::Omit).utimens(
            path,
            When::Omit,
            When::At(7, 7),
        );
    }
    s.by(2).utimens("mine", When::Now, When::Now).utimens("mine", When::At(1, 1), When::At(1, 1)).utimens(
        "mine",
        When::Omit,
        When::Omit,
    );
}

fn times_of_files(s: &mut Script) {
    s.file("f", 100, 1).changed("f").open(0, "f", O_RDWR);
    let steps = [
        Op::Pwrite { slot: 0, at: 5, len: 10, seed: 1 },
        Op::Ftruncate { slot: 0, size: 50 },
        Op::Ftruncate { slot: 0, size: 500 },
        Op::Fallocate { slot: 0, mode: 0, at: 0, len: 5000 },
        Op::Fallocate { slot: 0, mode: 3, at: 0, len: 4096 },
        Op::Fsync { slot: 0, data_only: false },
        Op::Chmod { path: "f".into(), mode: 0o600 },
        Op::Chown { path: "f".into(), uid: Some(0), gid: None, follow: true },
        Op::Link { from: "f".into(), to: "g".into(), follow: false },
        Op::Unlink { path: "g".into() },
        Op::SetXattr { path: "f".into(), name: "user.a".into(), len: 5, seed: 1, flags: 0 },
        Op::RemoveXattr { path: "f".into(), name: "user.a".into() },
        Op::Rename { from: "f".into(), to: "f".into(), flags: 0 },
        Op::Stat { path: "f".into(), follow: true },
        Op::Open { slot: 1, path: "f".into(), flags: O_RDONLY | libc::O_NOATIME, mode: 0 },
        Op::Open { slot: 2, path: "f".into(), flags: O_RDWR | O_TRUNC, mode: 0 },
    ];
    for step in steps {
        s.tick();
        s.op(step);
        s.changed("f");
    }
    s.tick().rename("f", "moved").open(3, "f", O_RDWR | O_CREAT).tick().close(3).changed("f");
}

/// Opened for reading and not read.
fn times_of_opened_files(s: &mut Script) {
    s.file("f", 100, 1).changed("f").tick().open(0, "f", O_RDONLY).changed("f");
}

fn times_of_directories(s: &mut Script) {
    s.mkdir("d").mkdir("e").file("d/old", 1, 1).changed("d").changed("e").tick();
    let steps = [
        Op::Open { slot: 0, path: "d/f".into(), flags: O_RDWR | O_CREAT, mode: 0o644 },
        Op::Write { slot: 0, len: 10, seed: 1 },
        Op::Mkdir { path: "d/sub".into(), mode: 0o755 },
        Op::Symlink { target: "x".into(), path: "d/l".into() },
        Op::Link { from: "d/f".into(), to: "e/f".into(), follow: false },
        Op::Rename { from: "d/f".into(), to: "d/g".into(), flags: 0 },
        Op::Rename { from: "d/sub".into(), to: "e/sub".into(), flags: 0 },
        Op::Unlink { path: "d/g".into() },
        Op::Rmdir { path: "e/sub".into() },
        Op::Rmdir { path: "d".into() },
        Op::Chmod { path: "d/old".into(), mode: 0o600 },
        Op::Rename { from: "e/f".into(), to: "d/old".into(), flags: 0 },
    ];
    for step in steps {
        s.tick();
        s.op(step);
        s.changed("d").changed("e");
    }
}

fn relatime(s: &mut Script) {
    let now = When::Now;
    s.file("f", 100, 1)
        .open(0, "f", O_RDWR)
        .utimens("f", When::At(1_000_000_000, 0), now)
        .changed("f")
        .tick();
    s.read(0, 10)
        .changed("f")
        .tick()
        .read(0, 10)
        .changed("f")
        .utimens("f", When::At(1_000_000_000, 0), now)
        .changed("f");
    s.open(1, "f", O_RDONLY | libc::O_NOATIME).tick().read(1, 10).changed("f");
    s.mkdir("d")
        .file("d/x", 1, 1)
        .utimens("d", When::At(1_000_000_000, 0), now)
        .changed("d")
        .tick()
        .list("d")
        .changed("d");
    s.symlink("f", "l").op(Op::Utimens {
        path: "l".into(),
        access: When::At(1_000_000_000, 0),
        modify: now,
        follow: false,
    });
    s.changed("l").tick().readlink("l").changed("l");
}

fn xattr(s: &mut Script) {
    s.file("f", 10, 1).mkdir("d").symlink("f", "l");
    for path in ["f", "d"] {
        s.list_xattr(path)
            .get_xattr(path, "user.a")
            .set_xattr(path, "user.a", 10, 0)
            .get_xattr(path, "user.a");
        s.set_xattr(path, "user.a", 20, XATTR_CREATE).set_xattr(path, "user.b", 5, XATTR_REPLACE);
        s.set_xattr(path, "user.a", 30, XATTR_REPLACE)
            .set_xattr(path, "user.b", 0, XATTR_CREATE)
            .list_xattr(path);
        s.get_xattr(path, "user.a")
            .get_xattr(path, "user.b")
            .set_xattr(path, "user.A", 4, 0)
            .list_xattr(path);
        s.remove_xattr(path, "user.a").remove_xattr(path, "user.a").list_xattr(path).set_xattr(
            path,
            "user.%FF%01",
            7,
            0,
        );
        s.get_xattr(path, "user.%FF%01").set_xattr(path, "user.both", 1, XATTR_CREATE | XATTR_REPLACE);
    }
    s.set_xattr("l", "user.a", 5, 0).list_xattr("l").get_xattr("l", "trusted.a").set_xattr(
        "l",
        "trusted.a",
        5,
        0,
    );
    s.list_xattr("l")
        .link("f", "g")
        .set_xattr("g", "user.new", 9, 0)
        .list_xattr("f")
        .rename("g", "h")
        .get_xattr("h", "user.new");
    s.get_xattr("missing", "user.a").list_xattr("missing");
}

fn xattr_namespaces(s: &mut Script) {
    s.file("f", 10, 1).chown("f", Some(10_001), Some(10_001)).file("fifo", 1, 1);
    let names = ["user.a", "trusted.a", "security.a", "system.a", "other.a", "user.", "user", "a", ""];
    for name in names {
        s.set_xattr("f", name, 5, 0).get_xattr("f", name);
    }
    s.list_xattr("f").by(1).list_xattr("f");
    for name in names {
        s.set_xattr("f", name, 6, 0).get_xattr("f", name).remove_xattr("f", name);
    }
    s.list_xattr("f").by(2).get_xattr("f", "user.a").set_xattr("f", "user.b", 5, 0).by(0).chmod("f", 0o600);
    s.by(2)
        .get_xattr("f", "user.a")
        .list_xattr("f")
        .by(0)
        .chmod("f", 0o666)
        .by(2)
        .set_xattr("f", "user.b", 5, 0);
    s.by(0)
        .mkdir_mode("t", 0o777)
        .chmod("t", 0o1777)
        .by(2)
        .set_xattr("t", "user.x", 5, 0)
        .by(0)
        .list_xattr("f");
    s.op(Op::Mknod { path: "pipe".into(), node: crate::conformance::op::Node::Fifo, mode: 0o666 });
    s.set_xattr("pipe", "user.a", 5, 0).set_xattr("pipe", "trusted.a", 5, 0).list_xattr("pipe");
}

fn xattr_sizes(s: &mut Script) {
    s.file("f", 10, 1);
    for len in [0, 1, 50, 255, 256, 1000, 3000] {
        s.set_xattr("f", "user.size", len, 0).get_xattr("f", "user.size").list_xattr("f");
    }
    s.remove_xattr("f", "user.size");
    for number in 0..40 {
        s.set_xattr("f", &format!("user.number-{number}"), 20, 0);
    }
    s.list_xattr("f").get_xattr("f", "user.number-17").set_xattr(
        "f",
        &format!("user.{}", "n".repeat(250)),
        3,
        0,
    );
    s.set_xattr("f", &format!("user.{}", "n".repeat(251)), 3, 0)
        .set_xattr("f", "user.huge", 65_537, 0)
        .list_xattr("f");
}

fn xattr_large(s: &mut Script) {
    s.file("f", 10, 1).set_xattr("f", "user.large", 20_000, 0).get_xattr("f", "user.large").set_xattr(
        "f",
        "user.large",
        65_536,
        0,
    );
    s.get_xattr("f", "user.large").remove_xattr("f", "user.large").list_xattr("f");
}
