use std::fmt::Debug;

use forebay_format::row::{
    AppliedRow, BytesRow, CountersRow, DentryRow, DirectoryRow, Extent, InodeRow, Row, SegmentRow,
    SubvolumeRow,
};
use proptest::prelude::*;

use crate::{
    damage::{never_panics, noise},
    values,
};

fn check<R: Row + PartialEq + Debug>(row: &R) -> Result<(), TestCaseError> {
    let bytes = row.encode();
    let decoded = R::decode(&bytes);
    prop_assert_eq!(decoded.as_ref(), Ok(row));
    never_panics(&bytes, |bytes| drop(R::decode(bytes)));
    let mut newer = bytes;
    newer[0] = 2;
    prop_assert!(R::decode(&newer).is_err(), "a newer version is understood");
    Ok(())
}

proptest! {
    #[test]
    fn inodes(row in values::inode()) { check(&row)?; }
    #[test]
    fn extents(row in values::extent()) { check(&row)?; }
    #[test]
    fn directories(row in values::directory()) { check(&row)?; }
    #[test]
    fn dentries(row in values::dentry()) { check(&row)?; }
    #[test]
    fn segments(row in values::segment()) { check(&row)?; }
    #[test]
    fn counters(row in values::counters()) { check(&row)?; }
    #[test]
    fn subvolumes(row in values::subvolume()) { check(&row)?; }
    #[test]
    fn applied(row in values::applied()) { check(&row)?; }
    #[test]
    fn bytes(row in noise().prop_map(BytesRow)) { check(&row)?; }

    #[test]
    fn noise_does_not_panic(mut bytes in noise()) {
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        drop(InodeRow::decode(&bytes));
        drop(Extent::decode(&bytes));
        drop(DirectoryRow::decode(&bytes));
        drop(DentryRow::decode(&bytes));
        drop(SegmentRow::decode(&bytes));
        drop(CountersRow::decode(&bytes));
        drop(SubvolumeRow::decode(&bytes));
        drop(AppliedRow::decode(&bytes));
    }

    #[test]
    fn a_part_of_an_extent_stays_inside(extent in values::extent(), from in any::<u32>(), len in any::<u32>()) {
        let from = from % extent.len;
        let len = 1 + len % (extent.len - from);
        let part = extent.part(from, len);
        prop_assert_eq!((part.len, part.skip), (len, extent.skip + from));
        prop_assert_eq!(Extent::decode(&part.encode()), Ok(part));
    }
}

#[test]
fn an_extent_outside_its_run_is_refused() {
    let good = Extent::decode(&[1, 0, 2, 7, 0, 9, 3, 1, 0, 0, 0, 0]);
    assert!(good.is_ok_and(|extent| (extent.skip, extent.len, extent.run_len) == (1, 2, 3)));
    assert!(Extent::decode(&[1, 0, 3, 7, 0, 9, 3, 1, 0, 0, 0, 0]).is_err());
    assert!(Extent::decode(&[1, 0, 0, 7, 0, 9, 3, 1, 0, 0, 0, 0]).is_err());
}

#[test]
fn the_common_inode_is_small() {
    use forebay_types::{FileKind, Ino, Timespec};
    let time = Timespec { secs: 1_790_000_000, nanos: 123_456_789 };
    let row = InodeRow {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        size: 8192,
        allocated: 8192,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        parent: Ino(4097),
        has_xattrs: false,
        layout: forebay_format::row::Layout::Empty,
    };
    assert!(row.encode().len() <= 32, "{} bytes", row.encode().len());
}
