use std::cmp::Ordering;

use forebay_format::key::{self, Key};
use forebay_types::{Ino, SubvolumeId};
use proptest::prelude::*;

use crate::{
    damage::{never_panics, noise},
    values,
};

/// The order that scans rely on: by subvolume, kind of row, the thing itself, then the newest version first.
fn logical(left: &Key, right: &Key) -> Option<Ordering> {
    let (Key::Versioned(left_of, left, left_at), Key::Versioned(right_of, right, right_at)) = (left, right)
    else {
        return None;
    };
    if left_of != right_of {
        return Some(left_of.cmp(right_of));
    }
    let same_kind = std::mem::discriminant(left) == std::mem::discriminant(right);
    same_kind.then(|| left.cmp(right).then(right_at.cmp(left_at)))
}

proptest! {
    #[test]
    fn come_back(key in values::key()) {
        prop_assert_eq!(Key::decode(&key.encode()), Ok(key));
    }

    #[test]
    fn sort_as_what_they_name(left in values::key(), right in values::key()) {
        let bytes = left.encode().cmp(&right.encode());
        prop_assert_eq!(bytes == Ordering::Equal, left == right);
        if let Some(expected) = logical(&left, &right) {
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn of_one_kind_sort_as_what_they_name(
        ino in 0..3u64, left in values::name(), right in values::name(), at in any::<[u32; 2]>()
    ) {
        use forebay_format::key::Item::Dentry;
        let key = |name: &Vec<u8>, at| {
            Key::Versioned(SubvolumeId(1), Dentry(Ino(ino), name.clone()), forebay_types::Generation(at))
        };
        let (left, right) = (key(&left, at[0]), key(&right, at[1]));
        prop_assert_eq!(Some(left.encode().cmp(&right.encode())), logical(&left, &right));
    }

    #[test]
    fn volume_rows_sort_before_and_by_number(left in values::number(), right in values::number()) {
        use forebay_types::SegmentId;
        let (one, other) = (Key::Segment(SegmentId(left)).encode(), Key::Segment(SegmentId(right)).encode());
        prop_assert_eq!(one.cmp(&other), left.cmp(&right));
        let (one, other) = (Key::Garbage(left, right).encode(), Key::Garbage(right, left).encode());
        prop_assert_eq!(one.cmp(&other), (left, right).cmp(&(right, left)));
        prop_assert!(one < key::subvolume_rows(SubvolumeId(1)));
    }

    #[test]
    fn prefixes_enclose_exactly_their_rows(ino in 0..3u64, other in values::key()) {
        let (subvolume, ino) = (SubvolumeId(1), Ino(ino));
        let encoded = other.encode();
        let inside = |prefix: &[u8]| {
            let end = key::after_prefix(prefix).expect("a prefix of a key is not all ones");
            encoded.as_slice() >= prefix && encoded < end
        };
        let (dentry, extent) = match &other {
            Key::Versioned(of, key::Item::Dentry(parent, _), _) => ((*of, *parent) == (subvolume, ino), false),
            Key::Versioned(of, key::Item::Extent(file, ..), _) => (false, (*of, *file) == (subvolume, ino)),
            _ => (false, false),
        };
        prop_assert_eq!(inside(&key::dentries(subvolume, ino)), dentry);
        prop_assert_eq!(inside(&key::extents(subvolume, ino)), extent);
        prop_assert_eq!(inside(&key::segments()), matches!(other, Key::Segment(_)));
        prop_assert_eq!(inside(&key::orphans()), matches!(other, Key::Orphan(..)));
    }

    #[test]
    fn damaged_do_not_panic(key in values::key()) {
        never_panics(&key.encode(), |bytes| drop(Key::decode(bytes)));
    }

    #[test]
    fn noise_does_not_panic(bytes in noise()) {
        if let Ok(key) = Key::decode(&bytes) {
            prop_assert_eq!(key.encode(), bytes);
        }
    }
}

#[test]
fn a_prefix_of_ones_has_no_end() {
    assert_eq!(key::after_prefix(&[0xff, 0xff]), None);
    assert_eq!(key::after_prefix(&[1, 0xff]), Some(vec![2]));
}
