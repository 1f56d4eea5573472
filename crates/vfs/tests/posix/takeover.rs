//! A vfs whose process is replaced: what was given out stays what it was.

use forebay_vfs::{Handover, LockKind, LockRange, LockRequest, LockSpace, Vfs};

use super::*;

impl World {
    /// Goes on in another vfs over the volume opened anew, as another process would.
    fn taken_over(self) -> World {
        let World { vfs, volume, dir, clock } = self;
        vfs.write_access_times();
        volume.quiesce().unwrap();
        let bytes = vfs.hand_over().encode();
        volume.hand_over().unwrap();
        drop((vfs, volume));
        let state = Handover::decode(&bytes).unwrap();
        let options = OpenOptions { in_use: state.in_use(), ..OpenOptions::default() };
        let volume = Volume::open(&dir.path().join("volume"), &options).unwrap();
        let shared: Arc<dyn Clock> = clock.clone();
        let options = VfsOptions { clock: shared, ..VfsOptions::default() };
        World { vfs: Vfs::take_over(volume.clone(), options, state), volume, dir, clock }
    }

    fn names(&self, fh: u64, cookie: u64, count: usize) -> Vec<(Vec<u8>, u64)> {
        let mut names = Vec::new();
        let emit = &mut |listed: forebay_vfs::Listed<'_>| {
            let takes = names.len() < count;
            if takes {
                names.push((listed.name.to_vec(), listed.cookie));
            }
            takes
        };
        self.vfs.readdir(fh, cookie, emit).unwrap();
        names
    }
}

#[test]
fn open_files_without_a_name_stay() {
    let world = World::new();
    let (removed, closed) = (world.file(ROOT, "a").ino, world.file(ROOT, "b").ino);
    let (fh, other) = (world.open(removed), world.open(closed));
    world.vfs.write(removed, 0, b"still here", false).unwrap();
    let (secret, _) = world.vfs.tmpfile(ROOT, (0o600, 0), true, &Caller::ROOT).unwrap();
    let (sealed, _) = world.vfs.tmpfile(ROOT, (0o600, 0), false, &Caller::ROOT).unwrap();
    for name in [b"a", b"b"] {
        world.vfs.unlink(ROOT, name).unwrap();
    }
    world.vfs.release(closed, other, None);
    let world = world.taken_over();
    assert_eq!(world.vfs.open_handles(), 3);
    assert_eq!(world.contents(removed), b"still here");
    refused(world.vfs.open(closed, Open::default()), |error| matches!(error, VfsError::Stale(_)));
    assert_eq!(world.vfs.link(secret.ino, ROOT, b"c").unwrap().nlink, 1);
    refused(world.vfs.link(sealed.ino, ROOT, b"d"), |error| matches!(error, VfsError::NotFound));
    world.vfs.release(removed, fh, None);
    wait_until("the inode is gone", || !world.is_kept(removed));
    assert!(world.is_kept(sealed.ino));
}

#[test]
fn removed_inodes_answer_until_they_are_forgotten() {
    let world = World::new();
    let (file, directory) = (world.file(ROOT, "a").ino, world.directory(ROOT, "d").ino);
    world.vfs.unlink(ROOT, b"a").unwrap();
    world.vfs.rmdir(ROOT, b"d").unwrap();
    let before = [file, directory].map(|ino| world.vfs.getattr(ino).unwrap());
    let world = world.taken_over();
    assert_eq!([file, directory].map(|ino| world.vfs.getattr(ino).unwrap()), before);
    world.vfs.forget(file);
    refused(world.vfs.getattr(file), |error| matches!(error, VfsError::Stale(_)));
}

#[test]
fn a_listing_goes_on_where_it_was() {
    let world = World::new();
    for number in 0..2000 {
        world.file(ROOT, &format!("{number:04}"));
    }
    let fh = world.vfs.opendir(ROOT).unwrap();
    let first = world.names(fh, 0, 702);
    world.vfs.unlink(ROOT, b"0650").unwrap();
    world.vfs.unlink(ROOT, b"0800").unwrap();
    let world = world.taken_over();
    world.file(ROOT, "0000a");
    let last = first.last().unwrap().1;
    let rest = world.names(fh, last, usize::MAX);
    let expected: Vec<_> =
        (700..2000).filter(|number| *number != 800).map(|number| format!("{number:04}")).collect();
    let names: Vec<_> = rest.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(names, expected);
    // Back to a cookie from before: what followed it, less what is gone, and nothing new.
    let again = world.names(fh, first[649].1, 5);
    let kept: Vec<_> = [&first[650..652], &first[653..656]].concat();
    assert_eq!(again, kept);
    world.vfs.releasedir(fh);
    assert_eq!(world.vfs.open_handles(), 0);
}

#[test]
fn handles_are_not_given_twice_and_locks_are_held() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let fh = world.open(ino);
    let lock = |owner, kind| LockRequest {
        space: LockSpace::Record,
        owner,
        fh,
        range: LockRange { start: 3, end: 9, kind, pid: 40 },
    };
    world.vfs.locks().set(ino, lock(1, LockKind::Exclusive), false, Box::new(Granted));
    let world = world.taken_over();
    assert!(world.open(ino) > fh);
    assert_eq!(world.vfs.locks().conflict(ino, &lock(2, LockKind::Shared)).unwrap().unwrap().pid, 40);
    assert_eq!(world.vfs.locks().conflict(ino, &lock(1, LockKind::Shared)).unwrap(), None);
    world.vfs.release(ino, fh, None);
    assert_eq!(world.vfs.locks().conflict(ino, &lock(2, LockKind::Shared)).unwrap(), None);
}

/// Somebody who must get a lock at once.
struct Granted;

impl forebay_vfs::LockWaiter for Granted {
    fn unique(&self) -> u64 {
        1
    }

    fn is_interrupted(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, result: Result<(), VfsError>) {
        result.unwrap();
    }
}
