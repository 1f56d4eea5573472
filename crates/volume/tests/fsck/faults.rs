//! One fault at a time: it is found as what it is and as nothing else, and repair puts right what can be.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use forebay_format::{
    key::{Item, Key},
    row::{
        AppliedRow, CountersRow, DirectoryRow, InodeRow, Layout, Row, SegmentState, SubvolumeRow, TOMBSTONE,
    },
};
use forebay_types::{Epoch, FileKind, Generation, Ino, SegmentId, Sequence};
use forebay_volume::fsck::{FsckOptions, repair};

use crate::{
    plant::{Rows, torn},
    volumes::{AT, fingerprint, full, looked_at, open},
};

/// Plants a fault in a copy of the full volume. Exactly the codes `expected` are found; after repair exactly those of `left`, and a
/// second repair does nothing.
fn fault(name: &str, plant: impl FnOnce(&Path), expected: &[&str], left: &[&str]) {
    let (_dir, root) = full();
    plant(&root);
    let before = fingerprint(&root);
    let report = looked_at(&root);
    assert_eq!(fingerprint(&root), before, "{name}: the check changed something");
    assert_eq!(report.codes(), expected, "{name}: {report}");
    let repaired = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    let after = looked_at(&root);
    assert_eq!(after.codes(), left, "{name} after repair: {after}\nwas: {repaired}");
    let before = fingerprint(&root);
    let again = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(again.repaired, 0, "{name} repaired again: {again}");
    assert_eq!(fingerprint(&root), before, "{name}: a second repair changed something");
}

/// Like [`fault`], for one in the rows that is put right for good.
fn row_fault(name: &str, plant: impl FnOnce(&Rows), expected: &[&str]) {
    fault(name, |root| plant(&Rows::of(root)), expected, &[]);
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

fn dentry(parent: Ino, name: &str) -> Item {
    Item::Dentry(parent, name.as_bytes().to_vec())
}

fn unname(rows: &Rows, name: &str) {
    rows.set(dentry(Ino::ROOT, name).key(AT, rows.head()), Some(TOMBSTONE.to_vec()));
}

#[test]
fn files_of_the_volume() {
    fault("no lock file", |root| fs::remove_file(root.join("lock")).unwrap(), &["lock-missing"], &[]);
    fault(
        "an epoch of letters",
        |root| fs::write(root.join("epoch"), "x\n").unwrap(),
        &["epoch-unreadable"],
        &[],
    );
    fault("an old epoch", |root| fs::write(root.join("epoch"), "0\n").unwrap(), &["epoch-behind"], &[]);
    fault(
        "no staging",
        |root| fs::remove_dir_all(root.join("staging")).unwrap(),
        &["directory-missing", "segment-missing"],
        &["segment-missing"],
    );
    fault(
        "no store",
        |root| fs::remove_dir_all(root.join("objects")).unwrap(),
        &["data-corrupt", "store-unreachable"],
        &["data-corrupt", "store-unreachable"],
    );
    fault(
        "rests in staging",
        |root| {
            fs::write(root.join("staging/00000000000000ff.seg"), "x").unwrap();
            fs::write(root.join("staging/00000000000000fe.part"), "x").unwrap();
            fs::write(root.join("staging/00000000000000fd.object"), "x").unwrap();
        },
        &["staging-leaked"],
        &[],
    );
    fault(
        "an object of nobody",
        |root| {
            fs::create_dir_all(root.join("objects/data/ff")).unwrap();
            fs::write(root.join("objects/data/ff/00000001-00000000000000ff"), "x").unwrap();
        },
        &["object-leaked"],
        &[],
    );
}

#[test]
fn rows_of_the_volume() {
    let undecodable = |key: fn(&Rows) -> Vec<u8>| {
        move |rows: &Rows| {
            let key = key(rows);
            rows.set(key, Some(vec![1, 0xff]));
        }
    };
    row_fault(
        "a key that is none",
        |rows| rows.set(vec![0, 0, 0, 1, b'z'], Some(vec![1])),
        &["row-undecodable"],
    );
    row_fault(
        "torn counters",
        undecodable(|_| Key::Counters.encode()),
        &["counter-behind", "row-undecodable"],
    );
    row_fault(
        "a torn segment",
        undecodable(|rows| Key::Segment(rows.segment_of("packed")).encode()),
        &["row-undecodable", "segment-row-missing"],
    );
    row_fault(
        "a torn subvolume",
        undecodable(|_| Key::Subvolume(AT).encode()),
        &["origin", "row-undecodable", "subvolume-missing"],
    );
    row_fault(
        "no subvolume",
        |rows| rows.set(Key::Subvolume(AT).encode(), None),
        &["origin", "subvolume-missing"],
    );
    row_fault(
        "a row of the future",
        |rows| {
            let item = Item::Xattr(rows.ino("attrs"), b"user.two".to_vec());
            rows.set(item.key(AT, Generation(9)), Some(vec![1, 2]));
        },
        &["generation"],
    );
    row_fault(
        "a clone of nothing",
        |rows| {
            let row = SubvolumeRow::decode(&rows.get(&Key::Subvolume(AT))).unwrap();
            let row = SubvolumeRow { snapshots: Vec::new(), ..row };
            rows.set(Key::Subvolume(AT).encode(), Some(row.encode()));
        },
        &["origin"],
    );
    row_fault(
        "low counters",
        |rows| {
            let row = CountersRow { run: 1, segment: 1, object: 1, subvolume: 2, inodes: None };
            rows.set(Key::Counters.encode(), Some(row.encode()));
        },
        &["counter-behind"],
    );
    row_fault(
        "garbage that is used",
        |rows| {
            let object = rows.segment(rows.segment_of("big")).object.unwrap();
            rows.set(Key::Garbage(object.epoch.0, object.id.0).encode(), Some(Vec::new()));
        },
        &["garbage-in-use"],
    );
    row_fault(
        "shares of nothing",
        |rows| rows.set(Key::Share(SegmentId(999), AT, Ino::ROOT, 0).encode(), Some(Vec::new())),
        &["share-stale"],
    );
}

#[test]
fn names() {
    row_fault("no root", |rows| rows.wipe(&Item::Inode(Ino::ROOT)), &["root-missing"]);
    row_fault(
        "an entry of a file",
        |rows| rows.name(rows.ino("attrs"), "x", rows.ino("packed"), FileKind::Regular),
        &["entry-misplaced"],
    );
    row_fault(
        "a name that is none",
        |rows| {
            let ino = rows.ino("packed");
            rows.set(dentry(Ino::ROOT, "packed").key(AT, rows.head()), None);
            rows.name(Ino::ROOT, "..", ino, FileKind::Regular);
        },
        &["name-invalid"],
    );
    row_fault(
        "an entry of another type",
        |rows| rows.name(Ino::ROOT, "packed", rows.ino("packed"), FileKind::Fifo),
        &["entry-kind"],
    );
    row_fault(
        "two names of a directory",
        |rows| rows.name(Ino::ROOT, "inner2", rows.ino("dir/inner"), FileKind::Directory),
        &["directory-names", "entry-count"],
    );
    row_fault("no name", |rows| unname(rows, "packed"), &["entry-count", "unreachable"]);
    row_fault("no name of a directory", |rows| unname(rows, "dir"), &["entry-count", "unreachable"]);
    row_fault(
        "nothing behind a name",
        |rows| rows.wipe(&Item::Inode(rows.ino("packed"))),
        &["entry-dangling", "live-bytes"],
    );
    row_fault(
        "inline data alone",
        |rows| rows.wipe(&Item::Inode(rows.ino("dir/inner/leaf"))),
        &["inode-missing"],
    );
    row_fault("extents alone", |rows| rows.wipe(&Item::Inode(rows.ino("many"))), &["inode-missing"]);
    row_fault("a link's target alone", |rows| rows.wipe(&Item::Inode(rows.ino("link"))), &["inode-missing"]);
    row_fault("entries alone", |rows| rows.wipe(&Item::Inode(rows.ino("dir/inner"))), &["inode-missing"]);
    row_fault(
        "a directory in itself",
        |rows| {
            let (dir, inner) = (rows.ino("dir"), rows.ino("dir/inner"));
            rows.change("dir", |row| row.parent = inner);
            unname(rows, "dir");
            rows.name(inner, "loop", dir, FileKind::Directory);
        },
        &["directory-cycle", "entry-count"],
    );
}

#[test]
fn inodes() {
    row_fault(
        "a torn inode",
        |rows| {
            let ino = rows.ino("dir/inner/leaf");
            rows.put(&Item::Inode(ino), torn(rows.shown(&Item::Inode(ino)).unwrap().1));
        },
        &["inode-missing", "row-undecodable"],
    );
    row_fault("links", |rows| rows.change("hard1", |row| row.nlink = 5), &["link-count"]);
    row_fault("links of a directory", |rows| rows.change("dir", |row| row.nlink = 7), &["link-count"]);
    row_fault("a wrong parent", |rows| rows.change("dir/inner", |row| row.parent = Ino::ROOT), &["parent"]);
    row_fault(
        "hidden attributes",
        |rows| rows.change("attrs", |row| row.has_xattrs = false),
        &["xattr-flag"],
    );
    row_fault("no attributes", |rows| rows.change("packed", |row| row.has_xattrs = true), &["xattr-flag"]);
    row_fault(
        "counts of entries",
        |rows| {
            let item = Item::Directory(rows.ino("dir"));
            let row = DirectoryRow::decode(&rows.shown(&item).unwrap().1).unwrap();
            rows.put(&item, DirectoryRow { entries: 7, directories: 5, ..row }.encode());
        },
        &["entry-count"],
    );
    row_fault(
        "no counts of entries",
        |rows| rows.wipe(&Item::Directory(rows.ino("dir/inner"))),
        &["directory-row-missing"],
    );
    row_fault(
        "counts of a file",
        |rows| rows.put(&Item::Directory(rows.ino("packed")), DirectoryRow::default().encode()),
        &["row-stray"],
    );
    row_fault(
        "attributes of nothing",
        |rows| rows.put(&Item::Xattr(Ino(4095), b"user.x".to_vec()), vec![1]),
        &["row-stray"],
    );
    row_fault(
        "nameless and not listed",
        |rows| {
            rows.change("packed", |row| row.nlink = 0);
            unname(rows, "packed");
        },
        &["entry-count", "orphan-unlisted"],
    );
    row_fault(
        "listed and named",
        |rows| rows.set(Key::Orphan(AT, rows.ino("packed")).encode(), Some(Vec::new())),
        &["orphan-named"],
    );
    row_fault(
        "listed and gone",
        |rows| rows.set(Key::Orphan(AT, Ino(4095)).encode(), Some(Vec::new())),
        &["orphan-stale"],
    );
}

#[test]
fn data_of_inodes() {
    row_fault("a short size", |rows| rows.change("fresh", |row| row.size = 4000), &["extent-bounds"]);
    row_fault(
        "an extent beyond its block",
        |rows| {
            let extent = rows.extents("many")[0].1;
            rows.set_extent("many", 2, 200_000, extent);
        },
        &["extent-bounds", "live-bytes"],
    );
    row_fault(
        "extents over each other",
        |rows| {
            let extent = rows.extents("many")[0].1.part(1000, 500);
            rows.set_extent("many", 0, 1000, extent);
        },
        &["extent-overlap", "live-bytes"],
    );
    row_fault(
        "extents nobody reads",
        |rows| rows.change("many", |row| row.layout = Layout::Empty),
        &["layout"],
    );
    row_fault(
        "extents that are not there",
        |rows| rows.change("attrs", |row| row.layout = Layout::Extents),
        &["layout"],
    );
    row_fault(
        "inline data that is not there",
        |rows| rows.wipe(&Item::Inline(rows.ino("dir/inner/leaf"))),
        &["layout"],
    );
    row_fault(
        "inline data nobody reads",
        |rows| rows.put(&Item::Inline(rows.ino("packed")), vec![1, 2]),
        &["layout"],
    );
    row_fault(
        "one extent in two places",
        |rows| {
            let Layout::Single(_, _, extent) = rows.inode("packed").layout else {
                panic!("it has one extent")
            };
            rows.set_extent("packed", 0, 0, extent);
        },
        &["layout", "live-bytes"],
    );
    row_fault(
        "data of a directory",
        |rows| rows.put(&Item::Inline(rows.ino("dir")), vec![1, 2]),
        &["layout"],
    );
    row_fault("more than its size", |rows| rows.change("dir/inline", |row| row.size = 50), &["inline-size"]);
    row_fault("stored bytes", |rows| rows.change("fresh", |row| row.allocated = 1), &["allocated"]);
    row_fault("the size of a link", |rows| rows.change("link", |row| row.size = 3), &["target-size"]);
    fault(
        "no target",
        |root| {
            let rows = Rows::of(root);
            rows.wipe(&Item::Inline(rows.ino("link")));
        },
        &["target-lost"],
        &["target-lost"],
    );
    fault(
        "a form that is none",
        |root| {
            Rows::of(root).change("fresh", |row| {
                if let Layout::Single(_, _, extent) = &mut row.layout {
                    extent.form = 7;
                }
            });
        },
        &["data-corrupt", "extent-run"],
        &["data-corrupt", "extent-run"],
    );
}

#[test]
fn segments() {
    for path in ["big", "sealed", "packed", "staged", "fresh", "many"] {
        row_fault(path, |rows| rows.change_segment(path, |row| row.live += 1), &["live-bytes"]);
        row_fault(path, |rows| rows.change_segment(path, |row| row.live = 0), &["live-bytes"]);
        row_fault(
            path,
            |rows| rows.set(Key::Segment(rows.segment_of(path)).encode(), None),
            &["segment-row-missing"],
        );
    }
    for path in ["sealed", "packed", "staged", "fresh"] {
        let lose = |root: &Path| fs::remove_file(Rows::of(root).place_of(root, path)).unwrap();
        fault(path, lose, &["segment-missing"], &["segment-missing"]);
        let lose_all = |root: &Path| {
            lose(root);
            let rows = Rows::of(root);
            rows.set(Key::Segment(rows.segment_of(path)).encode(), None);
        };
        fault(path, lose_all, &["segment-lost"], &["segment-lost"]);
    }
    for path in ["sealed", "packed", "staged"] {
        let shorten = |root: &Path| cut(&Rows::of(root).place_of(root, path), 200);
        fault(path, shorten, &["segment-short"], &["segment-short"]);
    }
    // The metadata has what the records did.
    let shorten = |root: &Path| cut(&Rows::of(root).place_of(root, "fresh"), 200);
    let codes = ["journal-record", "segment-short"];
    fault("half a journal", shorten, &codes, &codes);
    for path in ["sealed", "packed"] {
        let footless = |root: &Path| {
            let place = Rows::of(root).place_of(root, path);
            cut(&place, len(&place) - 10);
        };
        fault(path, footless, &["segment-footer"], &[]);
    }
    row_fault(
        "an open packed segment",
        |rows| rows.change_segment("packed", |row| (row.state, row.len) = (SegmentState::Open, 0)),
        &["segment-state"],
    );
    row_fault(
        "stored nowhere",
        |rows| rows.change_segment("sealed", |row| row.state = SegmentState::Stored),
        &["segment-state"],
    );
    row_fault(
        "a journal that is sealed",
        |rows| rows.change_segment("fresh", |row| row.state = SegmentState::Sealed),
        &["segment-state"],
    );
}

#[test]
fn objects() {
    let place = |root: &Path| Rows::of(root).place_of(root, "big");
    let gone = ["object-missing"];
    fault("no object", |root| fs::remove_file(place(root)).unwrap(), &gone, &gone);
    fault("half an object", |root| cut(&place(root), 100), &["object-short"], &["object-short"]);
    let footless = |root: &Path| cut(&place(root), len(&place(root)) - 1);
    fault("no footer", footless, &["object-footer"], &["object-footer"]);
    fault("a wrong byte", |root| flip(&place(root), 5000), &["data-corrupt"], &["data-corrupt"]);
    fault(
        "a copy in staging",
        |root| {
            let rows = Rows::of(root);
            let (from, row) = (rows.place_of(root, "sealed"), rows.segment(rows.segment_of("big")));
            rows.change_segment("sealed", |segment| {
                (segment.state, segment.object) = (SegmentState::Stored, row.object);
                segment.object = segment.object.map(|mut object| {
                    object.id.0 -= 1;
                    object.epoch = Epoch(0);
                    object
                });
            });
            assert!(from.exists());
        },
        &["object-missing"],
        &[],
    );
}

#[test]
fn bytes() {
    for path in ["sealed", "packed", "staged", "fresh"] {
        let flipped = |root: &Path| {
            let rows = Rows::of(root);
            let Layout::Single(_, _, extent) = rows.inode(path).layout else { panic!("it has one extent") };
            flip(&rows.place_of(root, path), extent.run_offset + 1000);
        };
        let codes: &[&str] =
            if path == "fresh" { &["data-corrupt", "journal-record"] } else { &["data-corrupt"] };
        fault(path, flipped, codes, codes);
    }
}

#[test]
fn the_journal() {
    let none = |root: &Path| {
        let applied = AppliedRow { sequence: Sequence(0), epoch: Epoch(1) };
        Rows::of(root).set(Key::Applied.encode(), Some(applied.encode()));
    };
    fault("records that are gone", none, &["journal-gap"], &["journal-gap"]);
    let damaged = |root: &Path| {
        for entry in fs::read_dir(root.join("journal")).unwrap() {
            let path = entry.unwrap().path();
            flip(&path, 20);
            if len(&path) > 70 {
                flip(&path, 70);
            }
        }
    };
    fault("no heads", damaged, &["journal-gap"], &["journal-gap"]);
    let newer = |root: &Path| {
        for entry in fs::read_dir(root.join("journal")).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            bytes[8] = 2;
            let sum = crc32c::crc32c(&bytes[..52]).to_le_bytes();
            bytes[52..56].copy_from_slice(&sum);
            fs::write(&path, bytes).unwrap();
        }
    };
    fault("a newer journal", newer, &["journal-damaged"], &["journal-damaged"]);
}

#[test]
fn what_is_lost_becomes_holes_when_asked() {
    let options = FsckOptions { drop_lost: true, data: true, ..FsckOptions::default() };
    let (_dir, root) = full();
    let rows = Rows::of(&root);
    let (lost, many) = (rows.place_of(&root, "packed"), rows.place_of(&root, "many"));
    let row = |path: &str| -> InodeRow { rows.inode(path) };
    let sizes = (row("packed").size, row("many").size);
    drop(rows);
    fs::remove_file(lost).unwrap();
    flip(&many, 5000);
    let found = repair(&root, &options, &mut |_| {}).unwrap();
    assert_eq!(found.codes(), ["data-corrupt", "segment-missing"]);
    let named: Vec<&str> =
        found.findings.iter().flat_map(|finding| &finding.files).map(String::as_str).collect();
    assert!(named.contains(&"/packed"), "{named:?}");
    let after = looked_at(&root);
    assert!(after.is_clean(), "{after}");
    let rows = Rows::of(&root);
    assert_eq!((rows.inode("packed").size, rows.inode("packed").layout), (sizes.0, Layout::Empty));
    assert_eq!(rows.inode("many").size, sizes.1);
    drop(rows);
    open(&root).close().unwrap();
}
