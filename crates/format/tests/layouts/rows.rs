use std::fmt::Debug;

use forebay_format::row::{
    AppliedRow, BytesRow, CountersRow, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Row, SegmentRow,
    SubvolumeRow,
};
use forebay_format::{
    policy_row::{PolicyKeep, PolicyRow},
    set_row::{SegmentSetRow, SetRowState},
};
use forebay_types::{Coherence, Epoch, FileKind, Ino, PolicyId, SyncClass, Timespec};
use proptest::prelude::*;

use crate::{
    damage::{never_panics, noise},
    values,
};

/// A version that no row has yet.
const NEWER: u8 = 4;

fn check<R: Row + PartialEq + Debug>(row: &R) -> Result<(), TestCaseError> {
    let bytes = row.encode();
    let decoded = R::decode(&bytes);
    prop_assert_eq!(decoded.as_ref(), Ok(row));
    never_panics(&bytes, |bytes| drop(R::decode(bytes)));
    let mut newer = bytes;
    newer[0] = NEWER;
    prop_assert!(R::decode(&newer).is_err(), "a newer version is understood");
    Ok(())
}

proptest! {
    #[test]
    fn inodes(row in values::inode()) { check(&row)?; }
    #[test]
    fn extents(row in values::extent()) { check(&row)?; }
    #[test]
    fn cuts(row in values::cuts()) { check(&row)?; }
    #[test]
    fn directories(row in values::directory()) { check(&row)?; }
    #[test]
    fn dentries(row in values::dentry()) { check(&row)?; }
    #[test]
    fn segments(row in values::segment()) { check(&row)?; }
    #[test]
    fn sets(row in values::set()) { check(&row)?; }
    #[test]
    fn policies(row in values::policy()) { check(&row)?; }
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
        if let Some(version) = bytes.first_mut() {
            *version = 2;
        }
        drop(InodeRow::decode(&bytes));
        if let Some(version) = bytes.first_mut() {
            *version = 3;
        }
        drop(InodeRow::decode(&bytes));
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        drop(Extent::decode(&bytes));
        drop(DirectoryRow::decode(&bytes));
        drop(DentryRow::decode(&bytes));
        if let Ok(row) = CutsRow::decode(&bytes) {
            prop_assert!(row.0.iter().all(|cut| cut.first <= cut.last));
            prop_assert!(row.0.windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
        }
        drop(SegmentRow::decode(&bytes));
        drop(SegmentSetRow::decode(&bytes));
        drop(PolicyRow::decode(&bytes));
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
fn a_set_that_cannot_be_is_refused() {
    let row = SegmentSetRow {
        writer: 1,
        epoch: Epoch(1),
        directory: Ino(1),
        group: [0; 16],
        set: vec![[1; 16], [2; 16]],
        joining: Some([3; 16]),
        state: SetRowState::Open,
        settled: false,
        recovered: false,
    };
    let bytes = row.encode();
    assert_eq!(SegmentSetRow::decode(&bytes), Ok(row));
    let members = bytes.len() - 48;
    assert_eq!(bytes[members - 1], 2);
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at..at + 16].fill(value);
        SegmentSetRow::decode(&bytes)
    };
    assert!(with(members, 9).is_ok());
    assert!(with(members, 2).is_err(), "one twice");
    assert!(with(members + 32, 2).is_err(), "one that joins is there");
    for (at, value) in [(members - 1, 0), (members - 1, 17), (1, 4 | 4 << 4), (1, 4 | 5 << 4), (1, 4 | 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(SegmentSetRow::decode(&bytes).is_err(), "{value} at {at}");
    }
}

#[test]
fn cuts_that_no_file_has_are_refused() {
    use forebay_format::row::Cut;
    assert_eq!(CutsRow::decode(&[1, 1, 3, 2]), Ok(CutsRow(vec![Cut { first: 3, last: 5 }])));
    assert!(CutsRow::decode(&[1, 0]).is_err(), "none");
    assert!(CutsRow::decode(&[1, 2, 3, 2]).is_err(), "fewer than it says");
    assert!(CutsRow::decode(&[1, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]).is_err(), "a block beyond all");
    assert!(CutsRow::decode(&[1, 2, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).is_err(), "one behind the last");
}

#[test]
fn only_an_inode_with_a_mode_needs_the_second_version() {
    let row = common();
    assert_eq!(row.encode()[0], 1);
    let sealed = InodeRow { coherence: Coherence::Sealed, ..row };
    let bytes = sealed.encode();
    assert_eq!((bytes[0], bytes.len()), (2, row.encode().len() + 1));
    for wrong in [0, 4, 255] {
        let mut bytes = bytes.clone();
        bytes[2] = wrong;
        assert!(InodeRow::decode(&bytes).is_err(), "mode {wrong}");
    }
}

#[test]
fn only_an_inode_with_a_policy_needs_the_third_version() {
    let row = InodeRow { policy: PolicyId(300), ..common() };
    let bytes = row.encode();
    assert_eq!((bytes[0], bytes[2], bytes.len()), (3, 0, common().encode().len() + 3));
    let sealed = InodeRow { coherence: Coherence::Sealed, ..row };
    assert_eq!(InodeRow::decode(&sealed.encode()), Ok(sealed));
    // The number of none is not written, or there would be two ways to say it; a mode that is none is refused here, too.
    let mut none = InodeRow { policy: PolicyId(1), ..row }.encode();
    none[3] = 0;
    assert!(InodeRow::decode(&none).is_err());
    let mut wrong = bytes;
    wrong[2] = 4;
    assert!(InodeRow::decode(&wrong).is_err());
}

#[test]
fn what_a_policy_says_that_this_release_does_not_know_is_refused() {
    let row = PolicyRow {
        made_for: Ino(5),
        before: PolicyId::NONE,
        durability: Some(SyncClass::Replica(2)),
        keep: PolicyKeep::default(),
        spread: true,
    };
    let bytes = row.encode();
    // Those of groups, without a group.
    for flags in [4, 8, 16, 64, 128] {
        let mut bytes = bytes.clone();
        bytes[1] |= flags;
        assert!(PolicyRow::decode(&bytes).is_err(), "flags {flags}");
    }
    for copies in [9, 255] {
        let mut bytes = bytes.clone();
        *bytes.last_mut().expect("a byte") = copies;
        assert!(PolicyRow::decode(&bytes).is_err(), "{copies} copies");
    }
}

#[test]
fn the_common_inode_is_small() {
    let row = common();
    assert!(row.encode().len() <= 32, "{} bytes", row.encode().len());
}

fn common() -> InodeRow {
    let time = Timespec { secs: 1_790_000_000, nanos: 123_456_789 };
    InodeRow {
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
        has_cuts: false,
        coherence: Coherence::Coherent,
        policy: PolicyId::NONE,
        layout: forebay_format::row::Layout::Empty,
    }
}
