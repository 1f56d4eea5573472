//! Several threads on one namespace; afterwards the rows are those of a sound tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
};

use forebay_format::{
    key::Item,
    row::{DentryRow, DirectoryRow, InodeRow, Row},
};
use forebay_meta::{ExtentSource, MemoryEngine, Namespace, NewExtent, RenameMode, SetAttr, WriteAttr};
use forebay_types::{FileKind, Ino, SegmentId, SubvolumeId};

use crate::{
    name_ops::new_inode,
    rows,
    world::{Random, World},
};

const V: SubvolumeId = SubvolumeId::FIRST;

/// Operations of one thread. What fails because another thread was faster is none of its business.
fn work(ns: &Namespace, seed: u64, steps: u64) {
    let mut random = Random(seed);
    let (mut known, stream, mut offset) = (vec![Ino::ROOT], ns.new_segment(), 0);
    for _ in 0..steps {
        let parent = random.pick(&known).unwrap();
        let other = random.pick(&known).unwrap();
        let (name, new_name) = ([b'a' + random.below(6) as u8], [b'a' + random.below(6) as u8]);
        let in_use = random.one_in(10);
        match random.below(12) {
            0..=2 => {
                let kinds = [FileKind::Directory, FileKind::Regular, FileKind::Regular];
                let kind = random.pick(&kinds).unwrap();
                if let Ok(inode) = ns.make(V, parent, &name, &new_inode(kind, 0o755)) {
                    known.push(inode.ino);
                }
            }
            3 => drop(ns.link(V, other, parent, &name)),
            4 => drop(ns.unlink(V, parent, &name, &|_| in_use)),
            5 => drop(ns.rmdir(V, parent, &name, &|_| in_use)),
            6..=7 => {
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                let mode = random.pick(&modes).unwrap();
                drop(ns.rename(V, (parent, &name), (other, &new_name), mode, &|_| in_use));
            }
            8 => {
                let size = Some(random.below(500));
                drop(ns.set_attr(V, other, &SetAttr { size, ..SetAttr::default() }));
            }
            9..=10 => drop(write(ns, other, stream, &mut offset, random.below(600))),
            _ => {
                let entries = ns.entries(V, parent, None, 100).unwrap_or_default();
                known.extend(entries.iter().map(|entry| entry.ino));
                known.truncate(100);
                drop(ns.map(V, other, 0, u64::MAX));
            }
        }
    }
}

fn write(
    ns: &Namespace,
    ino: Ino,
    stream: SegmentId,
    run: &mut u64,
    at: u64,
) -> Result<(), forebay_meta::MetaError> {
    let offset = at / 64 * 64;
    *run += 64;
    let source = ExtentSource::Stream(stream, *run);
    let new = NewExtent { offset, len: 40, source, stored_len: 48, form: 0, check: 0 };
    ns.write(V, ino, &[new], &[], 0, WriteAttr::default()).map(|_| ())
}

#[test]
fn threads_leave_a_sound_tree() {
    let mut world = World::new(Arc::new(MemoryEngine::default()), 0);
    let generations = thread::scope(|scope| {
        for seed in 1..=4 {
            let ns = &world.ns;
            scope.spawn(move || work(ns, seed, 2500));
        }
        let snapshots: Vec<_> = (0..2)
            .map(|_| {
                let ns = &world.ns;
                scope.spawn(move || (0..20).map(|_| ns.take_snapshot(V).unwrap()).collect::<Vec<_>>())
            })
            .collect();
        for _ in 0..50 {
            if let Some(checkpoint) = world.ns.checkpoint().unwrap() {
                checkpoint.store().unwrap();
            }
        }
        snapshots.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let distinct: BTreeSet<_> = generations.iter().collect();
    assert_eq!(distinct.len(), 40, "each snapshot has its own generation");
    sound(&world);
    world.reopen();
    sound(&world);
    generations.iter().for_each(|generation| world.ns.drop_snapshot(V, *generation).unwrap());
    world.collect_all(V);
    sound(&world);
}

/// Every entry has its inode, link counts are the names there are, directory counts are right, everything is reached from the root or an
/// orphan, and live bytes are what the rows say.
fn sound(world: &World) {
    let state = world.log.state.lock();
    let shown = rows::visible(&state.rows, V, None);
    let live = rows::live(&state.rows);
    drop(state);
    let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut counts: BTreeMap<Ino, (u64, u32)> = BTreeMap::new();
    let mut above: BTreeMap<Ino, Ino> = BTreeMap::new();
    let inode = |ino: Ino| shown.get(&Item::Inode(ino)).map(|row| InodeRow::decode(row).unwrap());
    for (item, value) in &shown {
        let Item::Dentry(parent, name) = item else { continue };
        let dentry = DentryRow::decode(value).unwrap();
        let row = inode(dentry.ino).unwrap_or_else(|| panic!("{name:?} in {parent} stands for nothing"));
        assert_eq!(row.kind, dentry.kind);
        *names.entry(dentry.ino).or_default() += 1;
        let count = counts.entry(*parent).or_default();
        count.0 += 1;
        if row.kind == FileKind::Directory {
            count.1 += 1;
            assert_eq!(row.parent, *parent, "parent of {}", dentry.ino);
            assert!(above.insert(dentry.ino, *parent).is_none(), "directory {} has two names", dentry.ino);
        }
    }
    let orphans: BTreeSet<_> = world.ns.orphans().unwrap().into_iter().map(|(_, ino)| ino).collect();
    for item in shown.keys() {
        let Item::Inode(ino) = item else { continue };
        let row = inode(*ino).unwrap();
        let named = names.get(ino).copied().unwrap_or(0) + u32::from(*ino == Ino::ROOT);
        assert_eq!(row.nlink, named, "names of {ino}");
        assert_eq!(named == 0, orphans.contains(ino), "{ino} without a name is an orphan");
        if row.kind == FileKind::Directory {
            let directory = DirectoryRow::decode(&shown[&Item::Directory(*ino)]).unwrap();
            let count = counts.get(ino).copied().unwrap_or_default();
            assert_eq!((directory.entries, directory.directories), count, "counts of {ino}");
        }
    }
    for ino in above.keys() {
        let (mut at, mut steps) = (*ino, 0);
        while at != Ino::ROOT {
            at = *above.get(&at).unwrap_or_else(|| panic!("{at} above {ino} is not reached from the root"));
            steps += 1;
            assert!(steps <= above.len(), "{ino} is its own ancestor");
        }
    }
    let found: BTreeMap<_, _> = world
        .ns
        .segments()
        .into_iter()
        .filter(|(_, row)| row.live > 0)
        .map(|(id, row)| (id, row.live))
        .collect();
    assert_eq!(found, live);
}
