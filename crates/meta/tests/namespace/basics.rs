//! Single cases that random operations on small trees do not reach.

use std::{collections::BTreeSet, sync::Arc};

use forebay_format::row::{Extent, Layout, SegmentKind};
use forebay_meta::{
    Candidate, ExtentSource, MemoryEngine, MetaError, Moved, NewExtent, PieceSource, RenameMode, SetAttr,
    WriteAttr,
};
use forebay_types::{FileKind, Ino, SegmentId, SubvolumeId, limits::file_size_max};

use crate::{
    name_ops::new_inode,
    rows::versions,
    world::{BLOCK, World},
};

const V: SubvolumeId = SubvolumeId::FIRST;
const ATTR: WriteAttr = WriteAttr { mode: None };

fn world() -> World {
    World::new(Arc::new(MemoryEngine::default()), 0)
}

impl World {
    pub fn file(&self, name: &[u8]) -> Ino {
        self.ns.make(V, Ino::ROOT, name, &new_inode(FileKind::Regular, 0o644)).unwrap().ino
    }

    pub fn store(&self) {
        self.ns.checkpoint().unwrap().unwrap().store().unwrap();
    }

    /// Writes whole runs of `len` bytes at each of the offsets into one stream.
    pub fn put(&self, ino: Ino, stream: SegmentId, offsets: &[u64], len: u32) {
        let extents: Vec<_> = offsets
            .iter()
            .map(|offset| NewExtent {
                offset: *offset,
                len,
                source: ExtentSource::Stream(stream, offset * 2),
                stored_len: len + 8,
                form: 0,
                check: 7,
            })
            .collect();
        self.ns.write(V, ino, &extents, &[], 0, ATTR).unwrap();
    }

    pub fn live(&self, segment: SegmentId) -> u64 {
        self.ns.segment(segment).unwrap().live
    }

    pub fn extents(&self, ino: Ino) -> Vec<(u64, Extent)> {
        let pieces = self.ns.map(V, ino, 0, u64::MAX).unwrap();
        pieces
            .into_iter()
            .filter_map(|piece| match piece.source {
                PieceSource::Extent(extent) => Some((piece.offset, extent)),
                _ => None,
            })
            .collect()
    }
}

fn name_of(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

#[test]
fn a_large_directory_is_paged_once_through_wherever_its_rows_are() {
    let world = world();
    for number in 0..3000 {
        world.file(&name_of(number));
        if number == 1000 {
            world.store();
        }
    }
    let frozen = world.ns.checkpoint().unwrap().unwrap();
    (0..3000).step_by(3).for_each(|number| {
        world.ns.unlink(V, Ino::ROOT, &name_of(number), &|_| false).unwrap();
    });
    for limit in [1, 7, 1000, 5000] {
        let (mut names, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let page = world.ns.entries(V, Ino::ROOT, after.as_deref(), limit).unwrap();
            assert!(page.len() <= limit.max(2), "a page of {} for {limit}", page.len());
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            names.extend(page.into_iter().map(|entry| entry.name));
        }
        let expected: Vec<_> = (0..3000).filter(|number| number % 3 != 0).map(name_of).collect();
        assert!(names == expected, "pages of {limit}");
    }
    drop(frozen);
}

#[test]
fn a_file_of_many_extents_is_removed_in_steps() {
    let mut world = world();
    let (ino, stream) = (world.file(b"many"), world.ns.new_segment());
    let offsets: Vec<u64> = (0..600).map(|block| block * u64::from(BLOCK) + 5).collect();
    world.put(ino, stream, &offsets, 20);
    assert_eq!(world.live(stream), 600 * 20);
    assert_eq!(world.ns.inode(V, ino).unwrap().attr().allocated, 600 * 20);
    let removed = world.ns.unlink(V, Ino::ROOT, b"many", &|_| false).unwrap();
    assert!(removed.last && removed.orphan);
    assert_eq!(world.live(stream), 600 * 20, "cut off, and in use until it is removed");
    assert_eq!(world.ns.orphans().unwrap(), [(V, ino)]);
    world.reopen();
    assert!(!world.ns.purge(V, ino).unwrap());
    assert_eq!(world.live(stream), 344 * 20);
    world.reopen();
    assert!(!world.ns.purge(V, ino).unwrap());
    assert!(world.ns.purge(V, ino).unwrap());
    assert_eq!((world.live(stream), world.ns.orphans().unwrap()), (0, Vec::new()));
    assert!(matches!(world.ns.inode(V, ino), Err(MetaError::Stale(_))));
    assert!(world.ns.purge(V, ino).unwrap(), "again is no error");
}

#[test]
fn a_sparse_file_costs_what_it_holds() {
    let world = world();
    let (ino, stream) = (world.file(b"sparse"), world.ns.new_segment());
    let most = file_size_max(BLOCK);
    world.put(ino, stream, &[0, most / 2, most - 10], 10);
    let at: Vec<u64> = world.extents(ino).iter().map(|(offset, _)| *offset).collect();
    assert_eq!(at, [0, most / 2, most - 10]);
    let copy = world.file(b"copy");
    world.ns.share(V, (ino, 0), (copy, 0), most, ATTR).unwrap();
    assert_eq!(world.extents(copy), world.extents(ino));
    world.ns.punch(V, copy, 5, most - 5, None, ATTR).unwrap();
    assert_eq!(world.ns.inode(V, copy).unwrap().attr().allocated, 10);
    assert_eq!(world.live(stream), 40);
    let beyond = world.ns.set_attr(V, ino, &SetAttr { size: Some(most + 1), ..SetAttr::default() });
    assert!(matches!(beyond, Err(MetaError::FileTooLarge(_))));
    world.ns.set_attr(V, ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    assert_eq!(world.ns.inode(V, ino).unwrap().row.layout, Layout::Empty);
    assert_eq!(world.live(stream), 10);
}

#[test]
fn what_is_no_regular_file_gets_no_data() {
    let world = world();
    let directory = world.ns.make(V, Ino::ROOT, b"d", &new_inode(FileKind::Directory, 0o755)).unwrap().ino;
    let mut link = new_inode(FileKind::Symlink, 0o777);
    link.target = b"target".to_vec();
    let link = world.ns.make(V, Ino::ROOT, b"l", &link).unwrap().ino;
    assert!(matches!(world.ns.punch(V, directory, 0, 9, None, ATTR), Err(MetaError::IsDirectory(_))));
    assert!(matches!(world.ns.write_inline(V, link, b"x", 1, ATTR), Err(MetaError::Invalid(_))));
    assert!(matches!(world.ns.write(V, link, &[], &[], 9, ATTR), Err(MetaError::Invalid(_))));
    assert!(matches!(world.ns.share(V, (link, 0), (link, 3), 1, ATTR), Err(MetaError::Invalid(_))));
    assert_eq!(world.ns.read_link(V, link).unwrap(), b"target");
}

#[test]
fn a_move_of_an_older_version_leaves_nothing_of_it_in_a_cache() {
    let world = world();
    let (ino, stream) = (world.file(b"f"), world.ns.new_segment());
    world.put(ino, stream, &[0, u64::from(BLOCK)], 10);
    world.ns.take_snapshot(V).unwrap();
    world.put(ino, stream, &[20], 10);
    let candidate = Candidate { subvolume: V, ino, block: 0 };
    let plan = world.ns.plan_move(candidate, &|id| id == stream).unwrap();
    assert_eq!(plan.rows.iter().map(|row| row.at_head).collect::<Vec<_>>(), [false, true]);
    let target = world.ns.new_segment();
    let moved: Vec<_> = plan
        .rows
        .into_iter()
        .map(|row| {
            let run_offset = u64::from(row.offset);
            Moved { extent: Extent { segment: target, run_offset, ..row.extent }, row }
        })
        .collect();
    world.ns.finish_move(candidate, &moved, target).unwrap();
    let segments: Vec<_> = world.extents(ino).iter().map(|(_, extent)| extent.segment).collect();
    assert_eq!(segments, [target, target, stream]);
    assert_eq!((world.live(target), world.live(stream)), (20, 10));
}

#[test]
fn collection_sees_all_versions_of_an_item_at_once() {
    let world = world();
    world.file(b"x");
    let generation = world.ns.take_snapshot(V).unwrap();
    world.ns.unlink(V, Ino::ROOT, b"x", &|_| false).unwrap();
    // Rows of the engine that are gone fill the page up to x's tombstone; its older version is in the next one.
    for number in 0..4095 {
        world.file(&name_of(number));
    }
    world.store();
    for number in 0..4095 {
        world.ns.unlink(V, Ino::ROOT, &name_of(number), &|_| false).unwrap();
    }
    world.ns.collect_versions(V, None).unwrap();
    assert!(matches!(world.ns.lookup(V, Ino::ROOT, b"x"), Err(MetaError::NotFound)));
    let held = world.ns.snapshot(V, generation).unwrap();
    assert!(held.lookup(Ino::ROOT, b"x").is_ok());
}

#[test]
fn an_object_whose_segments_are_forgotten_before_it_is_stored_is_garbage() {
    let world = world();
    let (ino, stream) = (world.file(b"f"), world.ns.new_segment());
    world.put(ino, stream, &[0], 10);
    world.ns.segment_sealed(stream, SegmentKind::Stream, 100, 10).unwrap();
    let object = world.ns.new_object();
    assert!(world.ns.forget_dead(&[stream]).unwrap().is_empty(), "it is in use");
    world.ns.unlink(V, Ino::ROOT, b"f", &|_| false).unwrap();
    assert_eq!(world.ns.forget_dead(&[stream]).unwrap().len(), 1);
    world.ns.segments_stored(object, &[(stream, 0)]).unwrap();
    assert_eq!(world.ns.garbage().unwrap(), [object]);
    world.ns.garbage_deleted(&[object]).unwrap();
    assert_eq!(world.ns.garbage().unwrap(), []);
}

#[test]
fn siblings_get_neighbouring_numbers_and_none_is_used_again() {
    let mut world = world();
    let make = |world: &World, parent, name: &[u8], kind| {
        world.ns.make(V, parent, name, &new_inode(kind, 0o755)).unwrap().ino
    };
    let directories = [
        make(&world, Ino::ROOT, b"one", FileKind::Directory),
        make(&world, Ino::ROOT, b"two", FileKind::Directory),
    ];
    let mut seen = BTreeSet::from(directories);
    for number in 0..5000 {
        for parent in directories {
            let ino = make(&world, parent, &name_of(number), FileKind::Fifo);
            assert!(seen.insert(ino), "{ino} again");
        }
        if number == 2500 {
            world.reopen();
        }
    }
    let runs: BTreeSet<_> = seen.iter().map(|ino| ino.run()).collect();
    assert!(runs.len() <= 7, "{} runs for 10,002 inodes", runs.len());
}

#[test]
fn an_exchange_may_not_put_a_directory_into_itself() {
    let world = world();
    let make = |parent, name: &[u8]| {
        world.ns.make(V, parent, name, &new_inode(FileKind::Directory, 0o755)).unwrap().ino
    };
    let a = make(Ino::ROOT, b"a");
    let b = make(a, b"b");
    let c = make(b, b"c");
    let swap = |from, to| world.ns.rename(V, from, to, RenameMode::Exchange, &|_| false);
    assert!(matches!(swap((Ino::ROOT, b"a"), (b, b"c")), Err(MetaError::IntoItself)));
    assert!(matches!(swap((b, b"c"), (Ino::ROOT, b"a")), Err(MetaError::IntoItself)));
    let down = world.ns.rename(V, (Ino::ROOT, b"a"), (c, b"x"), RenameMode::Replace, &|_| false);
    assert!(matches!(down, Err(MetaError::IntoItself)));
}

#[test]
fn dropping_all_snapshots_and_collecting_leaves_the_head_s_rows() {
    let mut world = world();
    let (ino, stream) = (world.file(b"f"), world.ns.new_segment());
    world.put(ino, stream, &[0, 100, 200, 300], 10);
    let rows = world.log.state.lock().rows.clone();
    let before = versions(&rows).count();
    let mut held = Vec::new();
    for round in 0..5 {
        held.push(world.ns.take_snapshot(V).unwrap());
        world.put(ino, stream, &[0, 100, 200, 300], 10);
        world.file(b"short-lived");
        held.push(world.ns.take_snapshot(V).unwrap());
        world.ns.unlink(V, Ino::ROOT, b"short-lived", &|_| round == 7).unwrap();
    }
    held.into_iter().for_each(|generation| world.ns.drop_snapshot(V, generation).unwrap());
    world.collect_all(V);
    let rows = world.log.state.lock().rows.clone();
    assert_eq!(versions(&rows).count(), before);
    assert_eq!(world.live(stream), 40);
}

#[test]
fn what_a_clone_has_of_its_origin_s_segment_is_noted_beside_what_it_writes_there() {
    let world = world();
    let (ino, stream) = (world.file(b"f"), world.ns.new_segment());
    world.put(ino, stream, &[0, u64::from(BLOCK)], 30);
    let generation = world.ns.take_snapshot(V).unwrap();
    let clone = world.ns.clone_snapshot(V, generation).unwrap();
    // Block 0 gets a run of its own; block 1 keeps a part of the origin's, in the same segment and record.
    let source = ExtentSource::Stream(stream, 5000);
    let new = NewExtent { offset: 0, len: 30, source, stored_len: 38, form: 0, check: 9 };
    let source = ExtentSource::Stream(world.ns.new_segment(), 0);
    let over = NewExtent { offset: u64::from(BLOCK) + 10, len: 5, source, ..new };
    world.ns.write(clone, ino, &[new, over], &[], 0, ATTR).unwrap();
    assert_eq!(world.ns.shares(stream).unwrap(), [Candidate { subvolume: clone, ino, block: 1 }]);
    assert_eq!(world.live(stream), 60 + 30 + 25);
}
