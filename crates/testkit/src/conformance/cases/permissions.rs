//! Permissions: modes, owners, set-id and sticky rules, group inheritance, ACLs and the umask.

use super::Case;
use crate::conformance::op::{Op, Script};
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY};

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NO_ID: u32 = u32::MAX;

pub(super) const CASES: &[Case] = &[
    ("mode-bits", mode_bits),
    ("chown-rights", chown_rights),
    ("directory-rights", directory_rights),
    ("sticky", sticky),
    ("set-id-cleared-by-write", set_id_cleared_by_write),
    ("set-id-cleared-by-chown", set_id_cleared_by_chown),
    ("set-gid-directory", set_gid_directory),
    ("umask", umask),
    ("execute", execute),
    ("acl-access", acl_access),
    ("acl-default", acl_default),
    ("acl-wrong", acl_wrong),
];

fn mode_bits(s: &mut Script) {
    s.file("f", 10, 1).chown("f", Some(10_001), Some(10_001));
    for mode in [0, 0o400, 0o200, 0o100, 0o040, 0o020, 0o004, 0o002, 0o700, 0o070, 0o007, 0o604, 0o777] {
        s.by(0).chmod("f", mode);
        for user in 0..4 {
            s.by(user)
                .open(0, "f", O_RDONLY)
                .open(0, "f", O_WRONLY)
                .access("f", 4)
                .access("f", 2)
                .access("f", 1)
                .access("f", 7);
        }
    }
    s.by(1)
        .chmod("f", 0o600)
        .by(2)
        .chmod("f", 0o777)
        .by(3)
        .chmod("f", 0o777)
        .by(0)
        .stat("f")
        .chmod("f", 0o7777)
        .stat("f");
    s.chmod("missing", 0o600).access("missing", 0).chmod("f", 0o177_777).stat("f");
}

fn chown_rights(s: &mut Script) {
    s.file("f", 10, 1).chown("f", Some(10_001), Some(10_001)).by(1);
    s.chown("f", Some(10_002), None).chown("f", None, Some(10_002)).chown("f", None, Some(10_001)).chown(
        "f",
        Some(10_001),
        None,
    );
    s.chown("f", None, None).by(2).chown("f", None, None).chown("f", Some(10_002), None).by(0).stat("f");
    s.chown("f", Some(4_294_967_294), Some(4_294_967_294)).stat("f").chown("missing", Some(0), None);
}

fn directory_rights(s: &mut Script) {
    s.mkdir_mode("d", 0o777).file("d/f", 10, 1).chown("d", Some(10_001), Some(10_001)).chmod("d/f", 0o666);
    for mode in [0o777, 0o555, 0o333, 0o111, 0o666, 0o000, 0o750, 0o730] {
        s.by(0).chmod("d", mode);
        for user in 1..4 {
            s.by(user).list("d").stat("d/f").open(0, "d/f", O_RDWR).file(&format!("d/new-{user}"), 1, 1);
            s.mkdir(&format!("d/dir-{user}")).rename(&format!("d/new-{user}"), &format!("d/moved-{user}"));
            s.unlink(&format!("d/moved-{user}"))
                .rmdir(&format!("d/dir-{user}"))
                .stat("d/missing")
                .symlink("x", "d/f");
        }
    }
    s.by(0).chmod("d", 0o755).list("d");
}

fn sticky(s: &mut Script) {
    s.mkdir("t").chmod("t", 0o1777).mkdir("plain").chmod("plain", 0o777);
    for user in [1, 2] {
        s.by(user).file(&format!("t/f{user}"), 1, 1).mkdir(&format!("t/d{user}")).file(
            &format!("plain/f{user}"),
            1,
            1,
        );
    }
    s.by(1)
        .unlink("t/f2")
        .rmdir("t/d2")
        .rename("t/f2", "t/mine")
        .rename("t/f1", "t/f2")
        .rename("plain/f1", "t/f2");
    s.rename("t/f2", "plain/f2")
        .rename_with("t/f1", "t/f2", libc::RENAME_EXCHANGE)
        .rename("t/d1", "t/d2")
        .unlink("plain/f2");
    s.rename("t/f1", "t/renamed").unlink("t/renamed").rmdir("t/d1").by(0).chown("t", Some(10_003), None);
    s.by(3).unlink("t/f2").rmdir("t/d2").by(0).list("t").list("plain");
}

fn set_id_cleared_by_write(s: &mut Script) {
    let mut number = 0;
    for mode in [0o6777, 0o4777, 0o2777, 0o2767, 0o2747, 0o6711 | 0o022] {
        for action in 0..6 {
            number += 1;
            let name = format!("f{number}");
            s.by(0)
                .file(&name, 8192, 1)
                .chown(&name, Some(10_001), Some(10_001))
                .chmod(&name, mode)
                .by(2)
                .open(0, &name, O_RDWR);
            match action {
                0 => s.write(0, 1, 1),
                1 => s.ftruncate(0, 10),
                2 => s.fallocate(0, 0, 0, 20_000),
                3 => s.open(1, &name, O_RDWR | libc::O_TRUNC),
                4 => s.write(0, 0, 1),
                _ => s.copy((0, 0), (0, 8192), 100),
            };
            s.stat(&name).by(0).open(0, &name, O_RDWR).write(0, 1, 1).stat(&name);
        }
    }
}

fn set_id_cleared_by_chown(s: &mut Script) {
    for (number, mode) in [0o6777, 0o4755, 0o2755, 0o2745, 0o6644].into_iter().enumerate() {
        let name = format!("f{number}");
        s.by(0).file(&name, 10, 1).chown(&name, Some(10_001), Some(10_001)).chmod(&name, mode).stat(&name);
        s.by(1).chown(&name, None, Some(10_001)).stat(&name);
        // A chown that changes neither owner nor group is not passed on by the kernel's FUSE client as what it is.
        s.by(0).chmod(&name, mode).chown(&name, Some(10_002), Some(10_002)).stat(&name);
        s.by(2)
            .chmod(&name, mode)
            .stat(&name)
            .by(0)
            .chown(&name, None, Some(10_001))
            .by(2)
            .chmod(&name, mode)
            .stat(&name);
    }
    s.by(0).mkdir("d").chmod("d", 0o6777).chown("d", Some(10_001), Some(10_002)).stat("d");
    s.by(1).chmod("d", 0o6777).stat("d").chown("d", None, Some(10_001)).stat("d");
}

fn set_gid_directory(s: &mut Script) {
    s.mkdir("g")
        .chown("g", None, Some(10_002))
        .chmod("g", 0o2777)
        .by(1)
        .file("g/f", 1, 1)
        .stat("g/f")
        .mkdir("g/d")
        .stat("g/d");
    s.symlink("x", "g/l")
        .stat("g/l")
        .mkdir_mode("g/d/e", 0o700)
        .stat("g/d/e")
        .chmod("g/f", 0o2755)
        .stat("g/f");
    s.open_mode(0, "g/x", O_RDWR | O_CREAT | O_EXCL, 0o2775)
        .fstat(0)
        .open_mode(1, "g", O_RDWR | libc::O_TMPFILE, 0o2755)
        .fstat(1);
    s.mknod("g/fifo", crate::conformance::op::Node::Fifo, 0o2777).stat("g/fifo").rename("g/f", "f").stat("f");
    s.by(0)
        .mkdir("g/owned")
        .stat("g/owned")
        .file("g/owned/f", 1, 1)
        .stat("g/owned/f")
        .by(1)
        .chmod("g/d", 0o777)
        .stat("g/d");
}

fn umask(s: &mut Script) {
    for mask in [0o000, 0o022, 0o077, 0o777, 0o027] {
        s.umask(mask)
            .open_mode(0, &format!("f{mask:o}"), O_RDWR | O_CREAT, 0o777)
            .fstat(0)
            .mkdir_mode(&format!("d{mask:o}"), 0o777);
        s.stat(&format!("d{mask:o}"))
            .mknod(&format!("n{mask:o}"), crate::conformance::op::Node::Fifo, 0o777)
            .stat(&format!("n{mask:o}"));
        s.symlink("x", &format!("l{mask:o}")).stat(&format!("l{mask:o}"));
        s.open_mode(1, ".", O_RDWR | libc::O_TMPFILE, 0o666).fstat(1).umask(mask);
    }
}

fn execute(s: &mut Script) {
    s.op(Op::Execute { path: "run".into(), mode: 0o755 }).op(Op::Execute { path: "not".into(), mode: 0o644 });
    s.by(1)
        .op(Op::Execute { path: "mine".into(), mode: 0o700 })
        .op(Op::Execute { path: "mine-not".into(), mode: 0o600 });
}

fn acl_access(s: &mut Script) {
    let acl = [
        (USER_OBJ, 6, NO_ID),
        (USER, 4, 10_001),
        (USER, 0, 10_002),
        (GROUP_OBJ, 0, NO_ID),
        (GROUP, 6, 10_001),
        (MASK, 4, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    s.file("f", 10, 1)
        .get_acl("f", false)
        .set_acl("f", false, &acl)
        .get_acl("f", false)
        .stat("f")
        .list_xattr("f");
    for user in 0..4 {
        s.by(user).open(0, "f", O_RDONLY).open(0, "f", O_WRONLY).access("f", 4).access("f", 2);
    }
    s.by(0).chmod("f", 0o660).get_acl("f", false).stat("f");
    for user in 0..4 {
        s.by(user).open(0, "f", O_RDONLY).open(0, "f", O_WRONLY);
    }
    s.by(1).set_acl("f", false, &acl).chmod("f", 0o777).by(0).chmod("f", 0o600).get_acl("f", false).stat("f");
    s.set_acl("f", false, &[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)])
        .get_acl("f", false)
        .stat("f");
    s.list_xattr("f")
        .set_acl("f", false, &acl)
        .remove_xattr("f", "system.posix_acl_access")
        .stat("f")
        .get_acl("f", false);
    s.set_acl("f", false, &acl)
        .rename("f", "g")
        .link("g", "h")
        .get_acl("h", false)
        .chown("g", Some(10_002), None)
        .get_acl("g", false);
    s.chown("g", Some(10_001), Some(10_002))
        .chmod("g", 0o6775)
        .stat("g")
        .by(1)
        .set_acl("g", false, &acl)
        .stat("g");
}

fn acl_default(s: &mut Script) {
    let acl =
        [(USER_OBJ, 7, NO_ID), (USER, 6, 10_002), (GROUP_OBJ, 5, NO_ID), (MASK, 7, NO_ID), (OTHER, 4, NO_ID)];
    s.mkdir_mode("d", 0o777)
        .chmod("d", 0o777)
        .set_acl("d", true, &acl)
        .get_acl("d", true)
        .get_acl("d", false)
        .stat("d");
    for (mask, user) in [(0o022, 0), (0o077, 1), (0o000, 2), (0o777, 3)] {
        let (file, dir, fifo) = (format!("d/f{user}"), format!("d/d{user}"), format!("d/n{user}"));
        s.by(user)
            .umask(mask)
            .open_mode(0, &file, O_RDWR | O_CREAT, 0o666)
            .fstat(0)
            .get_acl(&file, false)
            .get_acl(&file, true);
        s.mkdir_mode(&dir, 0o777)
            .stat(&dir)
            .get_acl(&dir, false)
            .get_acl(&dir, true)
            .symlink("x", &format!("d/l{user}"));
        s.mknod(&fifo, crate::conformance::op::Node::Fifo, 0o640).stat(&fifo).get_acl(&fifo, false);
        s.open_mode(1, &format!("{dir}/deep"), O_RDWR | O_CREAT, 0o700)
            .fstat(1)
            .get_acl(&format!("{dir}/deep"), false);
        s.open_mode(2, "d", O_RDWR | libc::O_TMPFILE, 0o666).fstat(2);
    }
    s.by(2)
        .open(0, "d/f0", O_RDWR)
        .open(0, "d/f1", O_RDWR)
        .by(0)
        .remove_xattr("d", "system.posix_acl_default")
        .get_acl("d", true);
    s.file("d/after", 1, 1)
        .stat("d/after")
        .get_acl("d/after", false)
        .set_acl("d/d0", true, &[])
        .get_acl("d/d0", true);
    s.set_acl("d/after", true, &acl);
}

fn acl_wrong(s: &mut Script) {
    s.file("f", 1, 1);
    s.set_acl("f", false, &[(USER_OBJ, 7, NO_ID)]);
    s.set_acl("f", false, &[(USER_OBJ, 7, NO_ID), (USER, 7, 1), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)]);
    s.set_acl("f", false, &[(GROUP_OBJ, 5, NO_ID), (USER_OBJ, 7, NO_ID), (OTHER, 1, NO_ID)]);
    s.set_acl("f", false, &[(USER_OBJ, 9, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)]);
    s.set_acl("f", false, &[(3, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)]);
    s.set_xattr("f", "system.posix_acl_access", 7, 0).stat("f").symlink("f", "l").get_acl("l", false);
    s.by(1).set_acl("f", false, &[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)]);
}
