//! Directories: listings while names come and go, cookies, and many entries.

use super::Case;
use crate::conformance::op::{Op, Script};

pub(super) const CASES: &[Case] = &[
    ("readdir", readdir),
    ("readdir-churn", readdir_churn),
    ("readdir-cookies", readdir_cookies),
    ("readdir-removed", readdir_removed),
    ("deep-tree", deep_tree),
    ("directory-of-20000", directory_of_20000),
];

fn readdir(s: &mut Script) {
    s.mkdir("d")
        .list("d")
        .file("d/f", 1, 1)
        .mkdir("d/d")
        .symlink("x", "d/l")
        .list("d")
        .unlink("d/f")
        .list("d");
    s.op(Op::Mknod { path: "d/n".into(), node: crate::conformance::op::Node::Fifo, mode: 0o600 });
    s.op(Op::Mknod { path: "d/c".into(), node: crate::conformance::op::Node::Char(1, 3), mode: 0o600 })
        .list("d");
    s.list("missing").file("f", 1, 1).list("f").list("d/d");
}

fn readdir_churn(s: &mut Script) {
    s.mkdir("d").op(Op::Churn { path: "d".into(), lasting: 400 }).list("d");
    s.mkdir("e").op(Op::Churn { path: "e".into(), lasting: 10 }).list("e");
}

fn readdir_cookies(s: &mut Script) {
    for count in [0, 1, 5, 100, 700] {
        let path = format!("d{count}");
        s.mkdir(&path).op(Op::Fill { path: path.clone(), prefix: "name-".into(), count, remove: false });
        s.op(Op::Cookies { path: path.clone() }).list(&path);
    }
}

fn readdir_removed(s: &mut Script) {
    s.mkdir("d")
        .op(Op::Fill { path: "d".into(), prefix: "n".into(), count: 300, remove: false })
        .list("d")
        .rmdir("d");
    s.op(Op::Fill { path: "d".into(), prefix: "n".into(), count: 300, remove: true })
        .list("d")
        .rmdir("d")
        .list("d");
}

fn deep_tree(s: &mut Script) {
    let mut path = "d".to_owned();
    for _ in 0..100 {
        s.mkdir(&path);
        path.push_str("/d");
    }
    s.file(&path, 10, 1).content(&path).rename("d/d/d", "short").stat("d/d").list("short").stat(&path);
    s.rename("short", "d/d/again").list("d/d").list("d/d/again/d/..");
}

fn directory_of_20000(s: &mut Script) {
    s.mkdir("d").op(Op::Fill {
        path: "d".into(),
        prefix: "some-longer-name-".into(),
        count: 20_000,
        remove: false,
    });
    s.list("d")
        .stat("d")
        .stat("d/some-longer-name-19999")
        .rename("d/some-longer-name-777", "d/renamed")
        .list("d");
    s.op(Op::Fill { path: "d".into(), prefix: "some-longer-name-".into(), count: 700, remove: true })
        .list("d")
        .rmdir("d");
}
