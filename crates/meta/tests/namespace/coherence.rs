//! Modes of coherence, below whoever asks first: sealed contents are refused every change.

use std::sync::Arc;

use forebay_format::row::{Extent, ObjectRef};
use forebay_meta::{MemoryEngine, MetaError, NewContents, NewSegment, SetAttr, SetXattr, WriteAttr};
use forebay_types::{Coherence, Epoch, FileKind, Ino, ObjectId, SegmentId, SubvolumeId};

use crate::{
    name_ops::new_inode,
    world::{World, time},
};

const V: SubvolumeId = SubvolumeId::FIRST;
const ATTR: WriteAttr = WriteAttr { mode: None };
const NAME: &[u8] = Coherence::ATTRIBUTE.as_bytes();

fn mode(world: &World, ino: Ino) -> Coherence {
    world.ns.inode(V, ino).unwrap().row.coherence
}

/// A world whose root is an immutable directory.
fn world() -> World {
    let world = World::new(Arc::new(MemoryEngine::default()), 0);
    world.ns.set_xattr(V, Ino::ROOT, NAME, b"immutable", SetXattr::Any).unwrap();
    world
}

#[test]
fn a_mode_is_a_directorys_row() {
    let world = world();
    assert_eq!(world.ns.xattr(V, Ino::ROOT, NAME).unwrap(), b"immutable");
    assert!(!world.ns.inode(V, Ino::ROOT).unwrap().row.has_xattrs);
    let ino = world.file(b"file");
    assert_eq!(mode(&world, ino), Coherence::Immutable);
    for wrong in [b"sealed".as_slice(), b"none", b""] {
        let set = world.ns.set_xattr(V, Ino::ROOT, NAME, wrong, SetXattr::Any);
        assert!(matches!(set, Err(MetaError::Invalid(_))), "{set:?}");
    }
    let set = world.ns.set_xattr(V, ino, NAME, b"coherent", SetXattr::Any);
    assert!(matches!(set, Err(MetaError::NotDirectory(_))), "{set:?}");
    let removed = world.ns.remove_xattr(V, ino, NAME);
    assert!(matches!(removed, Err(MetaError::NotDirectory(_))), "{removed:?}");
    world.ns.remove_xattr(V, Ino::ROOT, NAME).unwrap();
    assert_eq!((mode(&world, Ino::ROOT), mode(&world, ino)), (Coherence::Coherent, Coherence::Immutable));
}

#[test]
fn only_files_with_contents_are_sealed() {
    let world = world();
    let (written, empty, gone) = (world.file(b"written"), world.file(b"empty"), world.file(b"gone"));
    let directory =
        world.ns.make(V, Ino::ROOT, b"directory", &new_inode(FileKind::Directory, 0o755)).unwrap();
    world.ns.remove_xattr(V, Ino::ROOT, NAME).unwrap();
    let coherent = world.file(b"coherent");
    for ino in [written, coherent] {
        world.ns.write_inline(V, ino, b"bytes", 5, ATTR).unwrap();
    }
    world.ns.unlink(V, Ino::ROOT, b"gone", &|_| false).unwrap();
    for _ in 0..2 {
        world.ns.seal(V, &[gone, written, empty, coherent, directory.ino]).unwrap();
        assert_eq!(mode(&world, written), Coherence::Sealed);
        assert_eq!(
            (mode(&world, empty), mode(&world, coherent)),
            (Coherence::Immutable, Coherence::Coherent)
        );
        assert_eq!(mode(&world, directory.ino), Coherence::Immutable);
    }
}

#[test]
fn sealed_contents_are_refused_every_change() {
    let world = world();
    let (ino, large) = (world.file(b"file"), world.file(b"large"));
    world.ns.write_inline(V, ino, b"bytes", 5, ATTR).unwrap();
    world.put(large, SegmentId(900), &[0], 16);
    world.ns.seal(V, &[ino, large]).unwrap();
    let before = [ino, large]
        .map(|ino| (world.ns.inode(V, ino).unwrap().row, world.ns.map(V, ino, 0, u64::MAX).unwrap()));
    let resize = SetAttr { size: Some(2), ..SetAttr::default() };
    for ino in [ino, large] {
        let done = [
            world.ns.write_inline(V, ino, b"other", 5, ATTR),
            world.ns.write(V, ino, &[], &[], 100, ATTR),
            world.ns.punch(V, ino, 0, 3, None, ATTR),
            world.ns.punch(V, ino, 0, 0, Some(9000), ATTR),
            world.ns.set_attr(V, ino, &resize),
        ];
        for (at, done) in done.into_iter().enumerate() {
            let refused = matches!(done, Err(MetaError::Sealed(_) | MetaError::Invalid(_)));
            assert!(refused, "change {at}: {done:?}");
        }
    }
    let shared = world.ns.share(V, (large, 0), (large, 32), 16, ATTR);
    assert!(matches!(shared, Err(MetaError::Sealed(_))), "{shared:?}");

    // What somebody has put into the store for them is taken for that of files that are gone.
    let (segments, object) = (SegmentId(7000), ObjectRef { epoch: Epoch(1), id: ObjectId(7000) });
    let new = NewSegment { id: segments, offset: 0, len: 40, raw: 16 };
    let (run_len, stored_len) = (16, 24);
    let extent =
        Extent { len: 16, segment: segments, run_offset: 0, stored_len, run_len, skip: 0, form: 1, check: 1 };
    let extents = [(0, extent)];
    let contents =
        |ino| NewContents { ino, inline: None, extents: &extents, size: 0, attr: ATTR, mtime: time(9) };
    let gone = world.ns.take_in(V, &[(object, vec![new])], &[contents(ino), contents(large)]).unwrap();
    assert_eq!(gone, [ino, large]);
    let after = [ino, large]
        .map(|ino| (world.ns.inode(V, ino).unwrap().row, world.ns.map(V, ino, 0, u64::MAX).unwrap()));
    assert_eq!(before, after);

    // Its other attributes and its names are free.
    world.ns.set_attr(V, ino, &SetAttr { mode: Some(0o400), ..SetAttr::default() }).unwrap();
    world.ns.link(V, ino, Ino::ROOT, b"second").unwrap();
    world.ns.unlink(V, Ino::ROOT, b"file", &|_| false).unwrap();
}
