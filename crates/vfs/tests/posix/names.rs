use forebay_vfs::{MetaError, RenameMode};

use super::*;

#[test]
fn names_are_found_and_missed() {
    let world = World::new();
    let made = world.file(ROOT, "a");
    assert_eq!(world.vfs.lookup(ROOT, b"a").unwrap(), made);
    refused(world.vfs.lookup(ROOT, b"b"), |error| matches!(error, VfsError::NotFound));
    refused(world.vfs.lookup(made.ino, b"b"), |error| matches!(error, VfsError::NotDirectory(_)));
    refused(world.vfs.lookup(ROOT, &[b'n'; 256]), |error| {
        matches!(error, VfsError::Meta(MetaError::NameTooLong(256)))
    });
    let directory = world.directory(ROOT, "d");
    assert_eq!(world.vfs.lookup(directory.ino, b".").unwrap().ino, directory.ino);
    assert_eq!(world.vfs.lookup(directory.ino, b"..").unwrap().ino, ROOT);
    assert_eq!(world.vfs.lookup(ROOT, b"..").unwrap().ino, ROOT);
}

#[test]
fn the_umask_and_the_group_of_the_directory_are_applied() {
    let world = World::new();
    let vfs = &world.vfs;
    let plain = vfs.mkdir(ROOT, b"plain", 0o777, 0o027, &user(5, 6)).unwrap();
    assert_eq!((plain.mode, plain.uid, plain.gid), (0o750, 5, 6));
    let shared = vfs.mkdir(ROOT, b"shared", 0o2777, 0, &user(5, 77)).unwrap();
    let inside = vfs.mkdir(shared.ino, b"inside", 0o755, 0, &user(5, 6)).unwrap();
    assert_eq!((inside.mode, inside.gid), (0o2755, 77));
    let program = (FileKind::Regular, 0o2755, 0);
    let foreign = vfs.mknod(shared.ino, b"foreign", program, 0, &user(5, 6)).unwrap();
    assert_eq!((foreign.mode, foreign.gid), (0o755, 77));
    let member = Caller { uid: 5, gid: 6, in_group: &|gid| gid == 77 };
    assert_eq!(vfs.mknod(shared.ino, b"own", program, 0, &member).unwrap().mode, 0o2755);
    assert_eq!(vfs.mknod(shared.ino, b"root", program, 0, &Caller::ROOT).unwrap().mode, 0o2755);
    let link = vfs.symlink(shared.ino, b"link", b"anywhere", &user(5, 6)).unwrap();
    assert_eq!((link.mode, link.gid, link.size), (0o777, 77, 8));
}

#[test]
fn create_opens_what_is_there_unless_it_must_be_new() {
    let world = World::new();
    let file = world.file(ROOT, "a");
    world.vfs.write(file.ino, 0, b"old", false).unwrap();
    let create = |open, exclusive| world.vfs.create(ROOT, b"a", (0o600, 0), (open, exclusive), &Caller::ROOT);
    refused(create(Open::default(), true), |error| matches!(error, VfsError::Exists));
    let (attr, opened) = create(Open { truncate: true, ..Open::default() }, false).unwrap();
    assert_eq!((attr.ino, attr.size, attr.mode), (file.ino, 0, 0o644));
    world.vfs.release(file.ino, opened.fh, None);
    assert_eq!(world.vfs.open_handles(), 0);
}

#[test]
fn renames_replace_exchange_or_refuse() {
    let world = World::new();
    let (a, b) = (world.file(ROOT, "a"), world.file(ROOT, "b"));
    let directory = world.directory(ROOT, "d");
    let rename = |from: &[u8], to: &[u8], mode| world.vfs.rename((ROOT, from), (ROOT, to), mode);
    refused(rename(b"a", b"b", RenameMode::NoReplace), |error| matches!(error, VfsError::Exists));
    refused(rename(b"a", b"c", RenameMode::Exchange), |error| matches!(error, VfsError::NotFound));
    refused(rename(b"a", b"d", RenameMode::Replace), |error| matches!(error, VfsError::IsDirectory(_)));
    refused(rename(b"d", b"a", RenameMode::Replace), |error| matches!(error, VfsError::NotDirectory(_)));
    refused(world.vfs.rename((ROOT, b"d"), (directory.ino, b"x"), RenameMode::Replace), |error| {
        matches!(error, VfsError::Meta(MetaError::IntoItself))
    });
    rename(b"a", b"d", RenameMode::Exchange).unwrap();
    assert_eq!(world.vfs.lookup(ROOT, b"d").unwrap().ino, a.ino);
    assert_eq!(world.vfs.lookup(ROOT, b"a").unwrap().ino, directory.ino);
    rename(b"d", b"b", RenameMode::Replace).unwrap();
    assert_eq!(world.vfs.lookup(ROOT, b"b").unwrap().ino, a.ino);
    assert_eq!(world.vfs.getattr(b.ino).unwrap().nlink, 0);
    refused(world.vfs.link(directory.ino, ROOT, b"again"), |error| {
        matches!(error, VfsError::LinkOfDirectory(_))
    });
}

#[test]
fn a_removed_directory_takes_no_names() {
    let world = World::new();
    let directory = world.directory(ROOT, "d");
    world.file(directory.ino, "a");
    refused(world.vfs.rmdir(ROOT, b"d"), |error| matches!(error, VfsError::Meta(MetaError::NotEmpty(_))));
    world.vfs.unlink(directory.ino, b"a").unwrap();
    world.vfs.rmdir(ROOT, b"d").unwrap();
    let made = world.vfs.mkdir(directory.ino, b"x", 0o755, 0, &Caller::ROOT);
    refused(made, |error| matches!(error, VfsError::NotFound));
    assert_eq!(world.vfs.getattr(directory.ino).unwrap().nlink, 0);
}

#[test]
fn a_path_is_told_for_messages() {
    let world = World::new();
    let directory = world.directory(world.directory(ROOT, "a").ino, "b");
    let file = world.file(directory.ino, "c");
    assert_eq!(world.vfs.path_of(file.ino).unwrap(), b"/a/b/c");
    assert_eq!(world.vfs.path_of(ROOT).unwrap(), b"/");
    assert_eq!(world.vfs.path_of(Ino(1 << 50)), None);
}
