//! Names: links, renames, special files, and what a name may be.

use super::Case;
use crate::conformance::op::{Node, Op, Script};
use libc::{O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR};
use libc::{RENAME_EXCHANGE, RENAME_NOREPLACE};

pub(super) const CASES: &[Case] = &[
    ("mknod", mknod),
    ("symlinks", symlinks),
    ("hard-links", hard_links),
    ("rename-files", rename_files),
    ("rename-directories", rename_directories),
    ("rename-noreplace", rename_noreplace),
    ("rename-exchange", rename_exchange),
    ("rename-while-open", rename_while_open),
    ("remove", remove),
    ("name-lengths", name_lengths),
    ("name-bytes", name_bytes),
    ("dots", dots),
];

fn mknod(s: &mut Script) {
    s.umask(0);
    for (name, node) in [
        ("file", Node::File),
        ("fifo", Node::Fifo),
        ("socket", Node::Socket),
        ("char", Node::Char(1, 3)),
        ("block", Node::Block(7, 300)),
        ("wide", Node::Char(511, 70_000)),
    ] {
        s.mknod(name, node, 0o640)
            .stat(name)
            .mknod(name, node, 0o640)
            .link(name, &format!("{name}-2"))
            .chmod(name, 0o6711);
        s.stat(&format!("{name}-2")).rename(name, &format!("{name}-3")).chown(
            &format!("{name}-3"),
            Some(10_001),
            None,
        );
    }
    s.open(0, "char-2", O_RDWR).write(0, 100, 1).read(0, 100).open(1, "socket-2", O_RDONLY);
    s.open(2, "fifo-2", O_RDWR | libc::O_NONBLOCK).write(2, 30, 2).read(2, 100).list(".");
    s.by(1).mknod("mine", Node::Fifo, 0o666).mknod("mine-char", Node::Char(1, 3), 0o666).mknod(
        "no/dir",
        Node::File,
        0o666,
    );
}

fn symlinks(s: &mut Script) {
    s.symlink("target", "l")
        .stat("l")
        .op(Op::Stat { path: "l".into(), follow: true })
        .readlink("l")
        .readlink("missing");
    s.file("target", 10, 1)
        .op(Op::Stat { path: "l".into(), follow: true })
        .readlink("target")
        .symlink("other", "l");
    s.symlink("", "empty").symlink(&"x".repeat(4095), "longest").symlink(&"x".repeat(4096), "longer");
    s.readlink("longest")
        .stat("longest")
        .mkdir("d")
        .symlink("../target", "d/up")
        .content("d/up")
        .rename("d/up", "up");
    s.content("up").link("l", "hard").stat("hard").readlink("hard").unlink("l").readlink("hard");
    s.op(Op::Link { from: "hard".into(), to: "followed".into(), follow: true }).stat("followed");
    s.op(Op::Chown { path: "hard".into(), uid: Some(10_001), gid: Some(10_002), follow: false })
        .stat("hard")
        .stat("target");
    s.chmod("hard", 0o600)
        .stat("hard")
        .stat("target")
        .symlink("d", "dl")
        .list("dl")
        .rmdir("dl")
        .unlink("dl/")
        .mkdir("dl");
    let mut chain = "target".to_owned();
    for depth in 0..45 {
        let name = format!("chain-{depth}");
        s.symlink(&chain, &name);
        chain = name;
    }
    s.content("chain-38").content("chain-39").content("chain-40").content("chain-44");
    s.symlink("bytes-%FF%01-end", "raw").readlink("raw");
}

fn hard_links(s: &mut Script) {
    s.file("a", 100, 1)
        .link("a", "b")
        .stat("a")
        .stat("b")
        .link("a", "b")
        .link("missing", "c")
        .mkdir("d")
        .link("d", "e");
    s.link("a", "d/c")
        .open(0, "d/c", O_RDWR)
        .write(0, 300, 2)
        .content("a")
        .chmod("b", 0o600)
        .stat("d/c")
        .unlink("a");
    s.stat("b")
        .link("b", "missing/x")
        .link("b/", "y")
        .link("b", "d")
        .rename("b", "d/c")
        .list(".")
        .list("d")
        .stat("b");
    for number in 0..200 {
        s.link("b", &format!("d/link-{number}"));
    }
    s.stat("b");
    for number in 0..150 {
        s.unlink(&format!("d/link-{number}"));
    }
    s.stat("b").fstat(0).by(1).link("b", "stolen").chmod("b", 0o644);
}

fn rename_files(s: &mut Script) {
    s.file("a", 10, 1)
        .file("b", 20, 2)
        .rename("a", "b")
        .list(".")
        .content("b")
        .rename("a", "c")
        .rename("b", "b")
        .stat("b");
    s.mkdir("d")
        .rename("b", "d")
        .rename("d", "b")
        .rename("b", "d/b")
        .rename("d/b", "missing/b")
        .rename("d/b", "./b");
    s.rename("b/", "c")
        .rename("b", "c/")
        .symlink("b", "l")
        .rename("l", "l2")
        .readlink("l2")
        .rename("b", "l2")
        .stat("l2");
    s.file("x", 1, 1).link("x", "y").rename("x", "y").list(".").rename("", "z").rename("x", "");
    s.rename(".", "q").rename("x", ".").rename("d/..", "q").rename("x", "d/..");
}

fn rename_directories(s: &mut Script) {
    s.mkdir("a")
        .mkdir("a/b")
        .mkdir("a/b/c")
        .file("a/b/c/f", 10, 1)
        .mkdir("empty")
        .mkdir("full")
        .file("full/x", 1, 1);
    s.rename("a", "a/b").rename("a", "a/b/c/d").rename("a/b/c", "a").rename("a/b", "a").rename("a", "full");
    s.rename("a/b", "empty").list(".").list("empty").stat("a").stat("empty").content("empty/c/f");
    s.rename("empty", "a/moved").stat("a").stat("a/moved").list("a/moved/c/..").list("a/moved/..");
    s.rename("a/moved/", "back/")
        .list(".")
        .file("f", 1, 1)
        .rename("f", "back")
        .rename("back", "f")
        .rename("full", "back");
    s.stat(".").stat("back").open(0, "back/c", O_RDONLY | O_DIRECTORY).rename("back", "there");
    s.op(Op::OpenAt { dir: 0, slot: 1, path: "../../f".into(), flags: O_RDONLY }).read(1, 5);
}

fn rename_noreplace(s: &mut Script) {
    let flags = RENAME_NOREPLACE;
    s.file("a", 10, 1).file("b", 20, 2).mkdir("d").symlink("nowhere", "l").rename_with("a", "b", flags);
    s.rename_with("a", "d", flags)
        .rename_with("a", "l", flags)
        .rename_with("a", "a", flags)
        .rename_with("a", "new", flags);
    s.rename_with("d", "e", flags)
        .rename_with("missing", "b", flags)
        .rename_with("missing", "m", flags)
        .list(".");
    s.rename_with("b", "c", RENAME_NOREPLACE | RENAME_EXCHANGE).rename_with("b", "c", 1 << 20).list(".");
}

fn rename_exchange(s: &mut Script) {
    let flags = RENAME_EXCHANGE;
    s.file("a", 10, 1)
        .file("b", 20, 2)
        .mkdir("d")
        .mkdir("d/sub")
        .symlink("nowhere", "l")
        .rename_with("a", "b", flags);
    s.content("a")
        .content("b")
        .rename_with("a", "d", flags)
        .stat("a")
        .stat("d")
        .content("d")
        .list("a")
        .stat(".");
    s.rename_with("a", "missing", flags).rename_with("missing", "a", flags).rename_with("a", "a/sub", flags);
    s.rename_with("a/sub", "a", flags).rename_with("a/sub", "b", flags).stat("a").stat("b").content("a/sub");
    s.rename_with("l", "b", flags).readlink("b").list(".").mkdir("p").mkdir("p/q").file("p/q/f", 5, 3);
    s.rename_with("p/q", "l", flags)
        .list("p/q")
        .list("l")
        .stat("p")
        .rename_with("d", "d", flags)
        .content("d");
}

fn rename_while_open(s: &mut Script) {
    s.mkdir("d")
        .file("d/f", 100, 1)
        .open(0, "d/f", O_RDWR)
        .rename("d", "e")
        .write(0, 500, 2)
        .rename("e/f", "g");
    s.write(0, 500, 3)
        .fstat(0)
        .content("g")
        .file("h", 5, 4)
        .rename("h", "g")
        .write(0, 10, 5)
        .content("g")
        .fstat(0);
}

fn remove(s: &mut Script) {
    s.mkdir("d")
        .file("d/f", 1, 1)
        .file("f", 1, 1)
        .rmdir("d")
        .unlink("d")
        .rmdir("f")
        .unlink("missing")
        .rmdir("missing");
    s.unlink("f/")
        .unlink("f/x")
        .rmdir("d/.")
        .rmdir("d/..")
        .unlink("d/f")
        .stat("d")
        .rmdir("d")
        .stat("d")
        .stat(".");
    s.unlink("f")
        .unlink("f")
        .mkdir("d")
        .mkdir("d")
        .mkdir("d/")
        .mkdir("new/")
        .stat("new")
        .mkdir("missing/x")
        .list(".");
    s.file("g", 5, 1).mkdir("g").mkdir("g/x").rmdir(".").rmdir("");
}

fn name_lengths(s: &mut Script) {
    let longest = "n".repeat(255);
    let longer = "n".repeat(256);
    s.file(&longest, 10, 1)
        .stat(&longest)
        .file(&longer, 10, 1)
        .mkdir(&longer)
        .symlink("x", &longer)
        .stat(&longer);
    s.mkdir("d").rename(&longest, &format!("d/{longest}")).rename(&format!("d/{longest}"), &longer).list("d");
    s.link(&format!("d/{longest}"), &format!("d/{}", "m".repeat(255))).list("d").unlink(&longer);
    let mut path = "p".repeat(200);
    for _ in 0..15 {
        s.mkdir(&path);
        path = format!("{path}/{}", "p".repeat(200));
    }
    s.mkdir(&path)
        .stat(&path)
        .stat(&format!("{path}/{}", "p".repeat(250)))
        .mkdir(&format!("{path}/{}", "q".repeat(255)));
    s.mkdir(&"/x".repeat(2100));
}

fn name_bytes(s: &mut Script) {
    let names = [
        "%FF",
        "%01",
        "%E2%82",
        "%E2%82%AC",
        "a%0Ab",
        "a b",
        "*",
        "%5C",
        "%7F",
        "A",
        "%C3%A9",
        "e%CC%81",
        "-",
        "~",
    ];
    for (at, name) in names.iter().enumerate() {
        s.file(name, at + 1, at as u64).link(name, &format!("link-{name}")).content(&format!("link-{name}"));
    }
    s.list(".")
        .rename("%FF", "%FE")
        .stat("%FF")
        .stat("%FE")
        .stat("a")
        .open(0, "%80", O_RDWR | O_CREAT)
        .list(".");
    s.file(&"%F0%9F%98%80".repeat(63), 3, 3).file(&"%F0%9F%98%80".repeat(64), 3, 3).list(".");
}

fn dots(s: &mut Script) {
    s.mkdir("d")
        .mkdir("d/e")
        .stat("d/.")
        .stat("d/e/..")
        .mkdir("d/.")
        .mkdir("d/..")
        .file("d/e/.hidden", 5, 1)
        .list("d/e");
    s.file("d/...", 5, 2)
        .list("d")
        .content("d/../d/e/../e/.hidden")
        .unlink("d/.")
        .rename("d/.", "x")
        .symlink(".", "here");
    s.list("here/d/e")
        .list("here/here/here/d")
        .file("d//e///f", 4, 1)
        .content("d/e/f")
        .stat("d/e/f/.")
        .stat("d/e/f/..");
}
