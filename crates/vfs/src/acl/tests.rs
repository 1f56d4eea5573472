use super::*;

fn entry(tag: AclTag, perm: u16) -> AclEntry {
    AclEntry { tag, perm }
}

fn list(entries: &[(AclTag, u16)]) -> Acl {
    Acl::from_entries(entries.iter().map(|(tag, perm)| entry(*tag, *perm)).collect()).unwrap()
}

fn full() -> Acl {
    list(&[
        (AclTag::Owner, 7),
        (AclTag::User(1000), 6),
        (AclTag::User(7), 4),
        (AclTag::OwningGroup, 5),
        (AclTag::Group(50), 7),
        (AclTag::Mask, 6),
        (AclTag::Other, 1),
    ])
}

#[test]
fn the_bytes_are_the_kernels() {
    let acl = list(&[(AclTag::Owner, 6), (AclTag::OwningGroup, 4), (AclTag::Other, 0)]);
    let bytes = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255,
        255, 255,
    ];
    assert_eq!(acl.encode(), bytes);
    assert_eq!(Acl::decode(&bytes).unwrap().unwrap(), acl);
    assert_eq!(Acl::decode(&full().encode()).unwrap().unwrap(), full());
}

#[test]
fn no_entries_mean_no_list() {
    assert!(Acl::decode(&[]).unwrap().is_none());
    assert!(Acl::decode(&[2, 0, 0, 0]).unwrap().is_none());
}

#[test]
fn wrong_bytes_are_refused() {
    let good = full().encode();
    for cut in 1..good.len() {
        let whole = cut == 4;
        assert_eq!(Acl::decode(&good[..cut]).is_ok(), whole, "{cut} bytes");
    }
    for (at, value) in [(0, 3), (4, 2), (6, 8), (4, 0x40), (5, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Acl::decode(&bad).is_err(), "byte {at} = {value}");
    }
    let nobody = [(AclTag::Owner, 7), (AclTag::OwningGroup, 7), (AclTag::Mask, 7), (AclTag::Other, 7)];
    let mut bytes = list(&nobody).encode();
    bytes[20] = 8;
    assert!(Acl::decode(&bytes).is_err(), "a group entry without a group");
}

#[test]
fn what_must_be_there_must_be_there() {
    let whole = full().entries().to_vec();
    for at in 0..whole.len() {
        let mut less = whole.clone();
        let removed = less.remove(at);
        assert_eq!(Acl::from_entries(less).is_ok(), removed.tag.is_named(), "without {removed:?}");
    }
    let mut double = whole.clone();
    double.insert(0, entry(AclTag::Owner, 7));
    assert!(Acl::from_entries(double).is_err());
    let mut swapped = whole;
    swapped.swap(3, 4);
    assert!(Acl::from_entries(swapped).is_err());
    let plain = [entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 7), entry(AclTag::Other, 7)];
    assert!(Acl::from_entries(plain.to_vec()).is_ok());
}

#[test]
fn the_modes_group_bits_are_the_mask() {
    assert_eq!(full().mode(), 0o761);
    assert!(!full().is_mode_only());
    let changed = full().with_mode(0o4640);
    assert_eq!(changed.mode(), 0o640);
    assert!(changed.entries().contains(&entry(AclTag::OwningGroup, 5)));
    assert!(changed.entries().contains(&entry(AclTag::Mask, 4)));
    let plain = list(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 5)]);
    assert!(plain.is_mode_only());
    assert_eq!(plain.with_mode(0o604).mode(), 0o604);
}

#[test]
fn a_default_list_is_cut_by_the_mode_of_what_is_made() {
    let (acl, mode) = full().for_new(0o640);
    assert_eq!(mode, 0o640);
    assert!(acl.entries().contains(&entry(AclTag::Owner, 6)));
    assert!(acl.entries().contains(&entry(AclTag::User(1000), 6)));
    assert!(acl.entries().contains(&entry(AclTag::Mask, 4)));
    assert!(acl.entries().contains(&entry(AclTag::Other, 0)));
    let plain = list(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 0)]);
    assert_eq!(plain.for_new(0o666).1, 0o640);
}
