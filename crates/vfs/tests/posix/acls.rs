use forebay_vfs::{Acl, AclEntry, AclTag, SetAttr, SetXattr};

use super::*;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn list(entries: &[(AclTag, u16)]) -> Vec<u8> {
    let entries = entries.iter().map(|(tag, perm)| AclEntry { tag: *tag, perm: *perm });
    Acl::from_entries(entries.collect()).unwrap().encode()
}

fn named(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    list(&[
        (AclTag::Owner, owner),
        (AclTag::User(1000), user),
        (AclTag::OwningGroup, group),
        (AclTag::Mask, mask),
        (AclTag::Other, other),
    ])
}

fn put(world: &World, ino: Ino, name: &[u8], value: &[u8]) {
    world.vfs.setxattr(ino, name, value, SetXattr::Any, false).unwrap();
}

#[test]
fn an_access_list_and_the_mode_follow_each_other() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    put(&world, ino, ACCESS, &named(7, 6, 5, 4, 1));
    assert_eq!(world.vfs.getattr(ino).unwrap().mode, 0o741);
    world.vfs.setattr(ino, &SetAttr { mode: Some(0o4620), ..SetAttr::default() }).unwrap();
    assert_eq!(world.vfs.getxattr(ino, ACCESS).unwrap(), named(6, 6, 5, 2, 0));
    assert_eq!(world.vfs.listxattr(ino, false).unwrap(), [ACCESS, b"\0"].concat());
    world.vfs.removexattr(ino, ACCESS).unwrap();
    world.vfs.removexattr(ino, ACCESS).unwrap();
    assert_eq!(world.vfs.getattr(ino).unwrap().mode, 0o4620);
}

#[test]
fn a_list_that_the_mode_can_say_is_not_kept() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    put(&world, ino, ACCESS, &named(7, 6, 5, 4, 1));
    put(&world, ino, ACCESS, &list(&[(AclTag::Owner, 6), (AclTag::OwningGroup, 4), (AclTag::Other, 0)]));
    assert_eq!(world.vfs.getattr(ino).unwrap().mode, 0o640);
    refused(world.vfs.getxattr(ino, ACCESS), |error| matches!(error, VfsError::NoAttribute));
    assert!(world.vfs.listxattr(ino, true).unwrap().is_empty());
}

#[test]
fn a_list_set_by_one_outside_the_group_takes_set_group_id_away() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    for (kill, mode) in [(false, 0o2741), (true, 0o741)] {
        world.vfs.setattr(ino, &SetAttr { mode: Some(0o2755), ..SetAttr::default() }).unwrap();
        world.vfs.setxattr(ino, ACCESS, &named(7, 6, 5, 4, 1), SetXattr::Any, kill).unwrap();
        assert_eq!(world.vfs.getattr(ino).unwrap().mode, mode);
    }
}

#[test]
fn what_is_made_inherits_the_default_list() {
    let world = World::new();
    let parent = world.directory(ROOT, "d").ino;
    let default = named(7, 7, 5, 7, 0);
    put(&world, parent, DEFAULT, &default);
    let vfs = &world.vfs;
    let file = vfs.mknod(parent, b"file", (FileKind::Regular, 0o664, 0o077), 0, &user(5, 6)).unwrap();
    assert_eq!(file.mode, 0o660, "the umask does not count");
    assert_eq!(vfs.getxattr(file.ino, ACCESS).unwrap(), named(6, 7, 5, 6, 0));
    refused(vfs.getxattr(file.ino, DEFAULT), |error| matches!(error, VfsError::NoAttribute));
    let below = vfs.mkdir(parent, b"below", 0o755, 0o077, &user(5, 6)).unwrap();
    assert_eq!(below.mode, 0o750);
    assert_eq!(vfs.getxattr(below.ino, DEFAULT).unwrap(), default);
    let link = vfs.symlink(parent, b"link", b"x", &user(5, 6)).unwrap();
    assert!(vfs.listxattr(link.ino, true).unwrap().is_empty());
    let (hidden, opened) = vfs.tmpfile(parent, (0o666, 0o077), true, &user(5, 6)).unwrap();
    assert_eq!(hidden.mode, 0o660);
    vfs.release(hidden.ino, opened.fh, None);
    vfs.removexattr(parent, DEFAULT).unwrap();
    let plain = vfs.mknod(parent, b"plain", (FileKind::Regular, 0o664, 0o077), 0, &user(5, 6)).unwrap();
    assert_eq!(plain.mode, 0o600);
}

#[test]
fn wrong_lists_change_nothing() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let set = |name: &[u8], value: &[u8]| world.vfs.setxattr(ino, name, value, SetXattr::Any, false);
    refused(set(ACCESS, b"\x02\0\0\0rubbish"), |error| matches!(error, VfsError::Invalid(_)));
    refused(set(DEFAULT, &named(7, 7, 7, 7, 7)), |error| matches!(error, VfsError::AttributeForbidden(_)));
    assert!(world.vfs.listxattr(ino, true).unwrap().is_empty());
    assert_eq!(world.vfs.getattr(ino).unwrap().mode, 0o644);
}

#[test]
fn without_acls_the_mode_alone_counts() {
    let world = World::new();
    let directory = world.directory(ROOT, "d").ino;
    put(&world, directory, DEFAULT, &named(7, 6, 5, 4, 1));
    put(&world, directory, b"user.a", b"1");
    let without = VfsOptions { acls: false, ..VfsOptions::default() };
    let vfs = forebay_vfs::Vfs::new(world.volume.clone(), without);
    let not_supported = |error: &VfsError| matches!(error, VfsError::NotSupported(_));
    refused(vfs.getxattr(directory, DEFAULT), not_supported);
    refused(vfs.setxattr(directory, ACCESS, &named(7, 6, 5, 4, 1), SetXattr::Any, false), not_supported);
    refused(vfs.removexattr(directory, DEFAULT), not_supported);
    assert_eq!(vfs.listxattr(directory, true).unwrap(), b"user.a\0");
    let made = vfs.mknod(directory, b"f", (FileKind::Regular, 0o666, 0o027), 0, &Caller::ROOT).unwrap();
    assert_eq!(made.mode, 0o640);
    // They are still there.
    assert_eq!(world.vfs.getxattr(directory, DEFAULT).unwrap(), named(7, 6, 5, 4, 1));
}
