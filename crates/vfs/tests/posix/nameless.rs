use super::*;

#[test]
fn an_open_file_outlives_its_name() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let (first, second) = (world.open(ino), world.open(ino));
    world.vfs.unlink(ROOT, b"a").unwrap();
    world.vfs.write(ino, 0, b"still here", false).unwrap();
    world.vfs.release(ino, first, None);
    assert_eq!(world.contents(ino), b"still here");
    assert_eq!(world.vfs.getattr(ino).unwrap().nlink, 0);
    refused(world.vfs.link(ino, ROOT, b"b"), |error| matches!(error, VfsError::NotFound));
    world.vfs.release(ino, second, None);
    wait_until("the inode is gone", || !world.is_kept(ino));
    assert_eq!(world.vfs.getattr(ino).unwrap().size, 10);
    refused(world.vfs.open(ino, Open::default()), |error| matches!(error, VfsError::Stale(_)));
    world.vfs.forget(ino);
    refused(world.vfs.getattr(ino), |error| matches!(error, VfsError::Stale(_)));
}

#[test]
fn a_removed_inode_answers_until_it_is_forgotten() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    world.vfs.unlink(ROOT, b"a").unwrap();
    assert!(!world.is_kept(ino));
    assert_eq!(world.vfs.getattr(ino).unwrap().nlink, 0);
    refused(world.vfs.getxattr(ino, b"user.a"), |error| matches!(error, VfsError::NoAttribute));
    assert!(world.vfs.listxattr(ino, true).unwrap().is_empty());
    world.vfs.forget(ino);
    refused(world.vfs.getattr(ino), |error| matches!(error, VfsError::Stale(_)));
}

#[test]
fn a_replaced_file_that_is_open_stays() {
    let world = World::new();
    let (a, b) = (world.file(ROOT, "a").ino, world.file(ROOT, "b").ino);
    world.vfs.write(b, 0, b"replaced", false).unwrap();
    let fh = world.open(b);
    world.vfs.rename((ROOT, b"a"), (ROOT, b"b"), forebay_vfs::RenameMode::Replace).unwrap();
    assert_eq!(world.vfs.lookup(ROOT, b"b").unwrap().ino, a);
    assert_eq!(world.contents(b), b"replaced");
    world.vfs.release(b, fh, None);
    wait_until("the inode is gone", || !world.is_kept(b));
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let world = World::new();
    let make = |linkable| world.vfs.tmpfile(ROOT, (0o666, 0o022), linkable, &user(5, 6)).unwrap();
    let (attr, opened) = make(true);
    assert_eq!((attr.nlink, attr.mode, attr.uid), (0, 0o644, 5));
    world.vfs.write(attr.ino, 0, b"made in secret", false).unwrap();
    assert_eq!(world.vfs.link(attr.ino, ROOT, b"a").unwrap().nlink, 1);
    world.vfs.release(attr.ino, opened.fh, None);
    assert_eq!(world.contents(world.vfs.lookup(ROOT, b"a").unwrap().ino), b"made in secret");
    let (attr, opened) = make(false);
    refused(world.vfs.link(attr.ino, ROOT, b"b"), |error| matches!(error, VfsError::NotFound));
    world.vfs.release(attr.ino, opened.fh, None);
    wait_until("the inode is gone", || !world.is_kept(attr.ino));
}

#[test]
fn handles_and_removals_from_many_threads_leave_nothing() {
    let world = World::new();
    let world = &world;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let name = format!("{}", (thread + round) % 3);
                    let made = world.vfs.create(
                        ROOT,
                        name.as_bytes(),
                        (0o644, 0),
                        (Open::default(), false),
                        &Caller::ROOT,
                    );
                    if let Ok((attr, opened)) = made {
                        let _ = world.vfs.unlink(ROOT, name.as_bytes());
                        world.vfs.getattr(attr.ino).unwrap();
                        world.vfs.release(attr.ino, opened.fh, None);
                    }
                }
            });
        }
    });
    for name in [b"0", b"1", b"2"] {
        let _ = world.vfs.unlink(ROOT, name);
    }
    assert_eq!(world.vfs.open_handles(), 0);
    let namespace = world.volume.namespace();
    wait_until("all inodes are gone", || namespace.orphans().unwrap().is_empty());
}
