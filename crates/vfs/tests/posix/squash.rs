//! A mount whose root user is nobody.

use forebay_types::{FileKind, Ino};
use forebay_vfs::{
    Acl, AclEntry, AclTag, Caller, NOBODY, Open, RenameMode, SetAttr, SetTime, SetXattr, Vfs, VfsError,
    VfsOptions, Wish,
};

use super::{ROOT, World, refused, user};

fn nobody() -> Caller<'static> {
    Caller { uid: NOBODY, gid: NOBODY, in_group: &|gid| gid == NOBODY }
}

struct Squashed {
    world: World,
    vfs: Vfs,
}

impl Squashed {
    fn new() -> Squashed {
        let world = World::new();
        let options = VfsOptions { root_squash: true, ..VfsOptions::default() };
        Squashed { vfs: Vfs::new(world.volume.clone(), options), world }
    }

    fn file(&self, parent: Ino, name: &str, mode: u16, owner: u32) -> Ino {
        let of = user(owner, owner);
        self.world.vfs.mknod(parent, name.as_bytes(), (FileKind::Regular, mode, 0), 0, &of).unwrap().ino
    }

    fn directory(&self, name: &str, mode: u16, owner: u32) -> Ino {
        let made = self.world.vfs.mkdir(ROOT, name.as_bytes(), mode & 0o777, 0, &user(owner, owner)).unwrap();
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.world.vfs.setattr(made.ino, &set).unwrap();
        made.ino
    }

    fn may(&self, wish: Wish<'_>) -> Result<(), VfsError> {
        self.vfs.permits(&nobody(), wish)
    }
}

#[track_caller]
fn no_access(result: Result<(), VfsError>) {
    refused(result, |error| matches!(error, VfsError::NoAccess(_)));
}

#[track_caller]
fn not_owner(result: Result<(), VfsError>) {
    refused(result, |error| matches!(error, VfsError::NotOwner(_)));
}

#[test]
fn modes_hold_for_nobody_and_the_kernel_sees_to_others() {
    let mount = Squashed::new();
    for (mode, owner, has) in [
        (0o700, 7, 0),
        (0o754, 7, 4),
        (0o070, 7, 0),
        (0o640, NOBODY, 6),
        (0o006, NOBODY, 0),
        (0o010, NOBODY, 0),
    ] {
        let ino = mount.file(ROOT, &format!("{mode:o}-{owner}"), mode, owner);
        for wanted in 1..8 {
            let permitted = mount.may(Wish::Access(ino, wanted)).is_ok();
            assert_eq!(permitted, wanted & !has == 0, "{mode:o} of {owner} for {wanted}");
            mount.vfs.permits(&user(9, 9), Wish::Access(ino, wanted)).unwrap();
            mount.world.vfs.permits(&nobody(), Wish::Access(ino, wanted)).unwrap();
        }
    }
    // By its group, which is 65534, where it is not the owner.
    let grouped = mount.file(ROOT, "grouped", 0o640, 7);
    let set = SetAttr { gid: Some(NOBODY), ..SetAttr::default() };
    mount.world.vfs.setattr(grouped, &set).unwrap();
    mount.may(Wish::Access(grouped, 4)).unwrap();
    no_access(mount.may(Wish::Access(grouped, 2)));
}

#[test]
fn acls_hold_for_nobody() {
    let mount = Squashed::new();
    let ino = mount.file(ROOT, "file", 0o600, 7);
    let entries = [
        (AclTag::Owner, 6),
        (AclTag::User(NOBODY), 6),
        (AclTag::OwningGroup, 0),
        (AclTag::Group(NOBODY), 7),
        (AclTag::Mask, 4),
        (AclTag::Other, 7),
    ];
    let set = |entries: &[(AclTag, u16)]| {
        let entries = entries.iter().map(|(tag, perm)| AclEntry { tag: *tag, perm: *perm });
        let acl = Acl::from_entries(entries.collect()).unwrap();
        mount
            .world
            .vfs
            .setxattr(ino, b"system.posix_acl_access", &acl.encode(), SetXattr::Any, false)
            .unwrap();
    };
    set(&entries);
    mount.may(Wish::Access(ino, 4)).unwrap();
    no_access(mount.may(Wish::Access(ino, 2)));
    // Without an entry of its own its groups count, and not what others have.
    set(&[entries[0], entries[2], entries[3], (AclTag::Mask, 5), entries[5]]);
    mount.may(Wish::Access(ino, 5)).unwrap();
    no_access(mount.may(Wish::Access(ino, 2)));
}

#[test]
fn names_are_made_and_taken_where_nobody_may() {
    let mount = Squashed::new();
    let closed = mount.directory("closed", 0o755, 7);
    let open = mount.directory("open", 0o777, 7);
    let sticky = mount.directory("sticky", 0o1777, 7);
    let blind = mount.directory("blind", 0o766, 7);
    for dir in [closed, open, sticky] {
        mount.file(dir, "theirs", 0o644, 7);
        mount.file(dir, "own", 0o600, NOBODY);
        mount.may(Wish::Search(dir)).unwrap();
    }
    no_access(mount.may(Wish::Search(blind)));
    mount.may(Wish::Access(blind, 4)).unwrap();
    mount.may(Wish::MakeName(open)).unwrap();
    for dir in [closed, blind] {
        no_access(mount.may(Wish::MakeName(dir)));
        no_access(mount.vfs.mkdir(dir, b"x", 0o755, 0, &nobody()).map(drop));
        let wanted = (FileKind::Regular, 0o644, 0);
        no_access(mount.vfs.mknod(dir, b"x", wanted, 0, &nobody()).map(drop));
        no_access(mount.vfs.tmpfile(dir, (0o644, 0), true, &nobody()).map(drop));
    }
    no_access(mount.may(Wish::TakeName(closed, b"own")));
    mount.may(Wish::TakeName(open, b"theirs")).unwrap();
    mount.may(Wish::TakeName(sticky, b"own")).unwrap();
    not_owner(mount.may(Wish::TakeName(sticky, b"theirs")));
    let replace = RenameMode::Replace;
    mount.may(Wish::Rename((open, b"own"), (sticky, b"new"), replace)).unwrap();
    not_owner(mount.may(Wish::Rename((open, b"own"), (sticky, b"theirs"), replace)));
    no_access(mount.may(Wish::Rename((closed, b"own"), (open, b"new"), replace)));
    // A directory that goes elsewhere is written to.
    let made = mount.world.vfs.mkdir(open, b"dir", 0o755, 0, &user(7, 7)).unwrap().ino;
    mount.may(Wish::Rename((open, b"dir"), (open, b"new"), replace)).unwrap();
    no_access(mount.may(Wish::Rename((open, b"dir"), (sticky, b"new"), replace)));
    mount.file(made, "theirs", 0o600, 7);
    let open_it = mount.vfs.create(made, b"theirs", (0o644, 0), (Open::default(), false), &nobody());
    no_access(open_it.map(drop));
}

#[test]
fn attributes_are_their_owners() {
    let mount = Squashed::new();
    let (theirs, own) = (mount.file(ROOT, "theirs", 0o666, 7), mount.file(ROOT, "own", 0o200, NOBODY));
    let set = |ino, set: SetAttr| mount.may(Wish::SetAttr(ino, &set, false));
    let plain = SetAttr::default();
    for change in [
        SetAttr { mode: Some(0o4777), ..plain },
        SetAttr { uid: Some(NOBODY), ..plain },
        SetAttr { gid: Some(NOBODY), ..plain },
        SetAttr { atime: Some(SetTime::To(forebay_types::Timespec { secs: 1, nanos: 0 })), ..plain },
    ] {
        not_owner(set(theirs, change));
        assert_eq!(set(own, change).is_ok(), change.uid.is_none() || change.uid == Some(NOBODY));
    }
    not_owner(set(own, SetAttr { uid: Some(0), ..plain }));
    not_owner(set(own, SetAttr { gid: Some(7), ..plain }));
    set(theirs, SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..plain }).unwrap();
    set(theirs, SetAttr { size: Some(3), ..plain }).unwrap();
    let closed = mount.file(ROOT, "closed", 0o644, 7);
    let cut = SetAttr { size: Some(3), ..plain };
    no_access(set(closed, cut));
    no_access(set(closed, SetAttr { mtime: Some(SetTime::Now), ..plain }));
    mount.may(Wish::SetAttr(closed, &cut, true)).unwrap();
    no_access(mount.may(Wish::Xattr(own, b"user.a")));
    mount.may(Wish::SetXattr(own, b"user.a")).unwrap();
    mount.may(Wish::Xattr(closed, b"user.a")).unwrap();
    no_access(mount.may(Wish::SetXattr(closed, b"user.a")));
    not_owner(mount.may(Wish::SetXattr(theirs, b"system.posix_acl_access")));
    for name in [b"trusted.a".as_slice(), b"security.capability"] {
        not_owner(mount.may(Wish::SetXattr(own, name)));
    }
    not_owner(mount.may(Wish::Xattr(own, b"trusted.a")));
}
