use super::*;

fn names(world: &World, fh: u64, cookie: u64, limit: usize) -> Vec<(String, Ino, u64)> {
    let mut out = Vec::new();
    let mut emit = |listed: forebay_vfs::Listed<'_>| {
        let takes = out.len() < limit;
        if takes {
            out.push((String::from_utf8(listed.name.to_vec()).unwrap(), listed.ino, listed.cookie));
        }
        takes
    };
    world.vfs.readdir(fh, cookie, &mut emit).unwrap();
    out
}

#[test]
fn a_directory_is_listed_in_parts_and_from_any_place() {
    let world = World::new();
    let directory = world.directory(ROOT, "d").ino;
    for index in 0..1500 {
        world.file(directory, &format!("{index:04}"));
    }
    let fh = world.vfs.opendir(directory).unwrap();
    let all = names(&world, fh, 0, usize::MAX);
    assert_eq!(all.len(), 1502);
    assert_eq!((&all[0].0[..], all[0].1, &all[1].0[..], all[1].1), (".", directory, "..", ROOT));
    let mut parts = Vec::new();
    while let Some(part) = Some(names(&world, fh, parts.last().map_or(0, |last: &(_, _, u64)| last.2), 100))
        && !part.is_empty()
    {
        parts.extend(part);
    }
    assert_eq!(parts, all);
    assert_eq!(names(&world, fh, all[700].2, 5), all[701..706]);
    world.vfs.releasedir(fh);
    refused(world.vfs.readdir(fh, 0, &mut |_| true), |error| matches!(error, VfsError::BadHandle(_)));
    assert_eq!(world.vfs.open_handles(), 0);
}

#[test]
fn removing_while_listing_removes_everything() {
    let world = World::new();
    let directory = world.directory(ROOT, "d").ino;
    for index in 0..2000 {
        world.file(directory, &format!("{index:04}"));
    }
    let fh = world.vfs.opendir(directory).unwrap();
    let mut cookie = 0;
    loop {
        let part = names(&world, fh, cookie, 33);
        let Some(last) = part.last() else { break };
        cookie = last.2;
        for (name, ..) in part.iter().filter(|(name, ..)| !name.starts_with('.')) {
            world.vfs.unlink(directory, name.as_bytes()).unwrap();
        }
    }
    world.vfs.releasedir(fh);
    world.vfs.rmdir(ROOT, b"d").unwrap();
}

#[test]
fn attributes_come_along_and_what_was_removed_is_left_out() {
    let world = World::new();
    let file = world.file(ROOT, "a");
    world.file(ROOT, "b");
    let fh = world.vfs.opendir(ROOT).unwrap();
    assert_eq!(names(&world, fh, 0, 2).len(), 2);
    let mut seen = Vec::new();
    let mut plus = |listed: forebay_vfs::Listed<'_>| {
        seen.push((listed.name.to_vec(), listed.attr));
        world.vfs.unlink(ROOT, b"b").ok();
        true
    };
    world.vfs.readdirplus(fh, 0, &mut plus).unwrap();
    assert_eq!(seen, [(b".".to_vec(), None), (b"..".to_vec(), None), (b"a".to_vec(), Some(file))]);
    world.vfs.releasedir(fh);
}

#[test]
fn a_removed_directory_can_be_held_and_opened() {
    let world = World::new();
    let directory = world.directory(ROOT, "d").ino;
    let held = world.vfs.opendir(directory).unwrap();
    world.vfs.rmdir(ROOT, b"d").unwrap();
    assert_eq!(names(&world, held, 2, 9), []);
    world.vfs.releasedir(held);
    wait_until("the inode is gone", || !world.is_kept(directory));
    let again = world.vfs.opendir(directory).unwrap();
    assert_eq!(names(&world, again, 2, 9), []);
    world.vfs.releasedir(again);
    assert_eq!(world.vfs.open_handles(), 0);
}
