//! Files with more extents than a record removes: truncated, punched and removed by cuts, and cleaned in steps.

use std::sync::Arc;

use forebay_format::{
    key::{Item, Key},
    record::Changes,
    row::Layout,
};
use forebay_meta::{
    Candidate, ExtentSource, MemoryEngine, MetaError, NewExtent, PieceSource, SetAttr, WriteAttr,
};
use forebay_types::{Ino, SegmentId, SubvolumeId};

use crate::{
    rows,
    world::{BLOCK, World},
};

const V: SubvolumeId = SubvolumeId::FIRST;
const ATTR: WriteAttr = WriteAttr { mode: None };
/// Bytes of every extent here.
const LEN: u32 = 16;

fn world(removal_rows: usize) -> World {
    let mut world = World::new(Arc::new(MemoryEngine::default()), 0);
    world.removal_rows = removal_rows;
    world.reopen();
    world
}

fn block(number: u64) -> u64 {
    number * u64::from(BLOCK)
}

impl World {
    /// A file with one extent at the beginning of each of its first `blocks` blocks, in segments of 1000.
    fn striped(&mut self, name: &[u8], blocks: u64) -> Ino {
        let ino = self.file(name);
        for first in (0..blocks).step_by(500) {
            if first % 1000 == 0 {
                self.stream = Some((self.ns.new_segment(), 0));
            }
            let offsets: Vec<u64> = (first..blocks.min(first + 500)).map(block).collect();
            let stream = self.stream.unwrap().0;
            self.put(ino, stream, &offsets, LEN);
            let blocks = offsets.iter().map(|offset| (offset / u64::from(BLOCK)) as u32);
            let named = blocks.map(|block| Candidate { subvolume: V, ino, block });
            self.named.entry(stream).or_default().extend(named);
        }
        ino
    }

    fn resize(&self, ino: Ino, size: u64) {
        self.ns.set_attr(V, ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    }

    fn data(&self, ino: Ino) -> Vec<u64> {
        self.extents(ino).into_iter().map(|(offset, _)| offset).collect()
    }

    fn allocated(&self, ino: Ino) -> u64 {
        self.ns.inode(V, ino).unwrap().row.allocated
    }

    fn all_live(&self) -> u64 {
        self.ns.segments().iter().map(|(_, row)| row.live).sum()
    }

    /// Rows and bytes of the records since the one numbered `from`, the largest of each.
    fn largest_since(&self, from: usize) -> (usize, usize) {
        let state = self.log.state.lock();
        let rows = |bytes: &[u8]| Changes::decode(bytes).unwrap().rows.len();
        let records = || state.records[from..].iter().map(|record| record.bytes.as_slice());
        (records().map(rows).max().unwrap(), records().map(<[u8]>::len).max().unwrap())
    }

    fn records(&self) -> usize {
        self.log.state.lock().records.len()
    }

    fn cuts(&self, ino: Ino) -> Vec<(u32, u32)> {
        let shown = rows::visible(&self.log.state.lock().rows, V, None);
        rows::cuts(&shown, ino).iter().map(|cut| (cut.first, cut.last)).collect()
    }

    fn clean_all(&self) -> usize {
        let mut steps = 0;
        while let Some((at, ino)) = self.ns.uncleaned().first().copied() {
            self.ns.clean(at, ino).unwrap();
            steps += 1;
        }
        steps
    }
}

#[test]
fn a_huge_file_is_truncated_and_removed_in_small_records() {
    const BLOCKS: u64 = 300_000;
    let mut world = world(256);
    let ino = world.striped(b"huge", BLOCKS);
    world.store();
    let before = world.records();
    world.resize(ino, block(150_000) + 5);
    assert_eq!(world.records(), before + 1);
    let (rows, bytes) = world.largest_since(before);
    assert!(
        rows <= 5 && bytes <= 300,
        "the inode, its cut, one extent's rest, the list of orphans: {bytes} bytes"
    );
    assert_eq!(world.extents(ino).len(), 150_001);
    assert_eq!(world.extents(ino)[150_000].1.len, 5);
    let attr = world.ns.inode(V, ino).unwrap().attr();
    assert!(attr.allocated <= attr.size);
    world.resize(ino, block(BLOCKS));
    assert_eq!(world.data(ino).last(), Some(&block(150_000)), "what was cut off does not come back");
    assert_eq!(world.all_live(), BLOCKS * u64::from(LEN) - 11);
    for _ in 0..100 {
        assert!(!world.ns.clean(V, ino).unwrap());
    }
    assert_eq!(world.all_live(), (BLOCKS - 25_600) * u64::from(LEN) - 11);
    world.reopen();
    assert_eq!(world.ns.uncleaned(), [(V, ino)]);
    assert_eq!(world.extents(ino).len(), 150_001);
    world.clean_all();
    assert_eq!((world.allocated(ino), world.all_live()), (150_000 * 16 + 5, 150_000 * 16 + 5));
    assert!(world.ns.orphans().unwrap().is_empty());

    let unlinked = world.records();
    let removed = world.ns.unlink(V, Ino::ROOT, b"huge", &|_| false).unwrap();
    assert!(removed.last && removed.orphan);
    assert!(world.largest_since(unlinked).0 <= 6);
    while !world.ns.purge(V, ino).unwrap() {}
    assert_eq!((world.all_live(), world.ns.orphans().unwrap()), (0, Vec::new()));
    assert!(
        rows::visible(&world.log.state.lock().rows, V, None)
            .keys()
            .all(|item| !matches!(item, Item::Extent(..)))
    );
    let (rows, bytes) = world.largest_since(before);
    assert!(rows <= 256 + 8 && bytes <= 16 << 10, "a record of {rows} rows in {bytes} bytes");
}

#[test]
fn few_extents_go_in_one_record_without_a_cut() {
    let mut world = world(256);
    world.striped(b"few", 256);
    let before = world.records();
    let removed = world.ns.unlink(V, Ino::ROOT, b"few", &|_| false).unwrap();
    assert!(removed.last && !removed.orphan);
    let state = world.log.state.lock();
    let [record] = &state.records[before..] else { panic!("one record") };
    let changes = Changes::decode(&record.bytes).unwrap();
    let rows: Vec<Key> = changes.rows.iter().map(|(key, _)| Key::decode(key).unwrap()).collect();
    let extents = rows.iter().filter(|key| matches!(key, Key::Versioned(_, Item::Extent(..), _))).count();
    assert_eq!((rows.len(), extents), (256 + 3, 256), "extents, entry, directory and inode: {rows:?}");
    assert!(changes.rows.iter().filter(|(_, value)| value.is_some()).count() == 1, "the directory's counts");
}

#[test]
fn what_is_written_into_a_cut_is_shown_and_what_was_cut_is_not() {
    let mut world = world(3);
    let ino = world.striped(b"f", 10);
    let old = world.all_live();
    world.resize(ino, 0);
    assert_eq!((world.cuts(ino), world.ns.inode(V, ino).unwrap().row.layout), (vec![(0, 9)], Layout::Empty));
    assert_eq!(world.ns.inode(V, ino).unwrap().attr().allocated, 0);
    let stream = world.ns.new_segment();
    // One extent is the inode's own; with the second both have rows, in blocks of which the old ones are still there.
    world.put(ino, stream, &[block(4) + 20], LEN);
    assert_eq!((world.data(ino), world.cuts(ino)), (vec![block(4) + 20], vec![(0, 9)]));
    world.put(ino, stream, &[block(6)], LEN);
    assert_eq!(world.data(ino), [block(4) + 20, block(6)]);
    assert_eq!(world.cuts(ino), [(0, 3), (5, 5), (7, 9)]);
    assert_eq!(world.all_live(), old, "two old ones are gone, two new ones are there");
    world.reopen();
    assert_eq!(world.data(ino), [block(4) + 20, block(6)]);
    // A hole in what is cut changes nothing, and one over it makes it one.
    world.ns.punch(V, ino, block(8), block(9), None, ATTR).unwrap();
    assert_eq!(world.cuts(ino), [(0, 3), (5, 5), (7, 9)]);
    world.resize(ino, block(40));
    assert_eq!(world.data(ino), [block(4) + 20, block(6)]);
    assert_eq!(world.clean_all(), 3, "of eight rows three in a step");
    assert_eq!((world.cuts(ino), world.data(ino)), (vec![], vec![block(4) + 20, block(6)]));
    assert_eq!((world.allocated(ino), world.all_live()), (2 * u64::from(LEN), 2 * u64::from(LEN)));
    assert!(world.ns.orphans().unwrap().is_empty());
}

#[test]
fn a_hole_that_is_large_is_a_cut_and_its_edges_are_trimmed() {
    let mut world = world(4);
    let ino = world.striped(b"f", 20);
    world.ns.punch(V, ino, block(3) + 5, block(15) + 10, None, ATTR).unwrap();
    assert_eq!(world.cuts(ino), [(4, 14)]);
    let mut expected: Vec<u64> = (0..=3).chain(16..20).map(block).collect();
    expected.insert(4, block(15) + 10);
    assert_eq!(world.data(ino), expected);
    assert_eq!(world.extents(ino)[3].1.len, 5);
    world.ns.punch(V, ino, block(2), block(17), None, ATTR).unwrap();
    assert_eq!(world.cuts(ino), [(4, 14)], "the four that are left go at once");
    assert_eq!(world.data(ino), [0, 1, 17, 18, 19].map(block));
    world.clean_all();
    assert_eq!((world.allocated(ino), world.all_live()), (5 * u64::from(LEN), 5 * u64::from(LEN)));
}

#[test]
fn every_prefix_of_the_records_shows_the_file_as_it_was_cut() {
    let mut world = world(3);
    let ino = world.striped(b"f", 40);
    let written = world.records();
    world.resize(ino, block(10));
    world.put(ino, world.stream.unwrap().0, &[block(30) + 30], LEN);
    let mut expected: Vec<u64> = (0..10).map(block).collect();
    expected.push(block(30) + 30);
    world.clean_all();
    let all = std::mem::take(&mut world.log.state.lock().records);
    let live = world.all_live();
    for end in written + 2..=all.len() {
        let mut other = World::new(Arc::new(MemoryEngine::default()), 0);
        other.named = world.named.clone();
        for record in &all[..end] {
            let changes = Changes::decode(&record.bytes).unwrap();
            let mut state = other.log.state.lock();
            for (key, value) in &changes.rows {
                match value {
                    Some(value) => state.rows.insert(key.clone(), value.clone()),
                    None => state.rows.remove(key),
                };
            }
            drop(state);
            other.ns.replay(record.sequence, true, changes).unwrap();
        }
        other.check_counts();
        assert_eq!(other.data(ino), expected, "after {end} records");
        other.clean_all();
        assert_eq!(
            (other.data(ino), other.all_live()),
            (expected.clone(), live),
            "cleaned after {end} records"
        );
    }
}

#[test]
fn a_file_that_is_written_all_over_a_cut_is_cleaned_by_its_writer() {
    let mut world = world(2);
    let ino = world.striped(b"f", 1000);
    world.resize(ino, 0);
    let stream = world.ns.new_segment();
    let offsets: Vec<u64> = (0..500).map(|at| block(at * 2) + 20).collect();
    for offset in &offsets {
        world.put(ino, stream, &[*offset], LEN);
        assert!(world.cuts(ino).len() <= 66, "{} cuts", world.cuts(ino).len());
    }
    assert_eq!(world.data(ino), offsets);
    world.clean_all();
    assert_eq!((world.data(ino), world.all_live()), (offsets, 500 * u64::from(LEN)));
}

#[test]
fn snapshots_and_clones_see_what_was_there() {
    let mut world = world(3);
    let ino = world.striped(b"f", 30);
    let whole = world.ns.take_snapshot(V).unwrap();
    world.resize(ino, block(5));
    assert!(!world.ns.clean(V, ino).unwrap());
    let cut = world.ns.take_snapshot(V).unwrap();
    let clone = world.ns.clone_snapshot(V, cut).unwrap();
    world.resize(ino, block(30));
    world.clean_all();
    let ns = Arc::clone(&world.ns);
    let seen = |generation| {
        let pieces = ns.snapshot(V, generation).unwrap().map(ino, 0, u64::MAX).unwrap();
        pieces.iter().filter(|piece| piece.source != PieceSource::Hole).count()
    };
    assert_eq!((seen(whole), seen(cut), world.data(ino).len()), (30, 5, 5));
    // A clone is cleaned once it is written: until then it has nothing of its own.
    assert_eq!(world.ns.inode(clone, ino).unwrap().attr().allocated, block(5).min(27 * u64::from(LEN)));
    assert!(world.ns.uncleaned().is_empty());
    let stream = world.ns.new_segment();
    world.named.insert(stream, [Candidate { subvolume: clone, ino, block: 20 }].into());
    let new = NewExtent {
        offset: block(20) + 20,
        len: LEN,
        source: ExtentSource::Stream(stream, 0),
        stored_len: LEN + 8,
        form: 0,
        check: 9,
    };
    world.ns.write(clone, ino, &[new], &[], 0, ATTR).unwrap();
    assert_eq!(world.ns.uncleaned(), [(clone, ino)]);
    world.clean_all();
    let pieces = world.ns.map(clone, ino, 0, u64::MAX).unwrap();
    assert_eq!(pieces.iter().filter(|piece| piece.source != PieceSource::Hole).count(), 6);
    assert_eq!(world.ns.inode(clone, ino).unwrap().row.allocated, 6 * u64::from(LEN));
    assert_eq!((seen(whole), seen(cut), world.data(ino).len()), (30, 5, 5));
    world.check_counts();
    world.ns.drop_snapshot(V, whole).unwrap();
    world.collect_all(V);
    assert_eq!((seen(cut), world.data(ino).len()), (5, 5));
}

#[test]
fn a_cut_survives_a_second_name_and_a_removal_in_between() {
    let mut world = world(3);
    let ino = world.striped(b"f", 30);
    world.resize(ino, block(20));
    world.ns.unlink(V, Ino::ROOT, b"f", &|_| true).unwrap();
    assert_eq!(world.ns.orphans().unwrap(), [(V, ino)]);
    world.ns.link(V, ino, Ino::ROOT, b"again").unwrap();
    assert_eq!(world.ns.orphans().unwrap(), [(V, ino)], "it has a name, and is still to be cleaned");
    assert!(world.ns.purge(V, ino).unwrap(), "what has a name is not removed");
    assert_eq!(world.data(ino).len(), 20);
    world.clean_all();
    assert_eq!((world.ns.orphans().unwrap(), world.data(ino).len()), (vec![], 20));
    world.resize(ino, 1);
    world.ns.unlink(V, Ino::ROOT, b"again", &|_| true).unwrap();
    world.clean_all();
    assert_eq!(world.ns.orphans().unwrap(), [(V, ino)], "cleaned, and still open");
    assert_eq!(world.data(ino), [0]);
    while !world.ns.purge(V, ino).unwrap() {}
    assert!(matches!(world.ns.inode(V, ino), Err(MetaError::Stale(_))));
    assert_eq!((world.all_live(), world.ns.orphans().unwrap()), (0, vec![]));
}

#[test]
fn tiny_data_in_a_file_that_is_still_cut_counts_by_itself() {
    let mut world = world(3);
    let ino = world.striped(b"f", 30);
    world.resize(ino, 0);
    world.ns.write_inline(V, ino, b"tiny", 4, ATTR).unwrap();
    assert_eq!(world.allocated(ino), 30 * 16 + 4);
    assert_eq!(world.ns.inode(V, ino).unwrap().attr().allocated, 4);
    assert!(!world.ns.clean(V, ino).unwrap());
    world.ns.write_inline(V, ino, b"tinier", 6, ATTR).unwrap();
    assert_eq!(world.allocated(ino), 27 * 16 + 6);
    world.put(ino, world.stream.unwrap().0, &[block(50)], LEN);
    assert_eq!((world.allocated(ino), world.data(ino)), (27 * 16 + 16, vec![block(50)]));
    world.clean_all();
    assert_eq!((world.allocated(ino), world.all_live()), (16, 16));
}

#[test]
fn the_moves_of_a_segment_leave_what_is_cut() {
    let mut world = world(3);
    let ino = world.striped(b"f", 30);
    world.resize(ino, block(5));
    let stream: SegmentId = world.stream.unwrap().0;
    let planned = |number| {
        let candidate = Candidate { subvolume: V, ino, block: number };
        world.ns.plan_move(candidate, &|id| id == stream).unwrap().rows.len()
    };
    assert_eq!((planned(4), planned(7)), (1, 0));
}
