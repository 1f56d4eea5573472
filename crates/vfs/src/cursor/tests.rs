use std::{cell::RefCell, collections::BTreeSet, ops::Bound};

use forebay_format::row::{InodeRow, Layout};
use forebay_types::{Coherence, PolicyId, Timespec};
use proptest::prelude::*;

use super::*;

/// A directory of names; inode numbers follow from them.
struct Directory {
    names: RefCell<BTreeSet<Vec<u8>>>,
    inode: RefCell<Arc<Inode>>,
    page: usize,
}

impl Directory {
    fn of(names: impl IntoIterator<Item = u32>, page: usize) -> Directory {
        let names = names.into_iter().map(name).collect();
        Directory { names: RefCell::new(names), inode: RefCell::new(inode()), page }
    }

    fn add(&self, number: u32) {
        self.names.borrow_mut().insert(name(number));
        self.inode.replace(inode());
    }

    fn remove(&self, number: u32) {
        self.names.borrow_mut().remove(&name(number));
        self.inode.replace(inode());
    }

    fn fetch(&self, after: Option<&[u8]>) -> Vec<DirEntry> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_vec()));
        let entry = |name: &Vec<u8>| DirEntry { name: name.clone(), ino: Ino(9), kind: FileKind::Regular };
        self.names.borrow().range((from, Bound::Unbounded)).take(self.page).map(entry).collect()
    }

    /// At most `limit` entries from `cookie` on.
    fn list(&self, cursor: &mut Cursor, cookie: u64, limit: usize) -> Vec<(Vec<u8>, u64)> {
        let mut out = Vec::new();
        let fetch = |after: Option<&[u8]>, _: usize| Ok(self.fetch(after));
        let mut emit = |listed: Listed<'_>| {
            let takes = out.len() < limit;
            if takes {
                out.push((listed.name.to_vec(), listed.cookie));
            }
            takes
        };
        cursor.list(cookie, &self.inode.borrow(), &fetch, &mut emit).unwrap();
        out
    }
}

/// What a directory's inode is, at any time: the clock stands still.
fn inode() -> Arc<Inode> {
    let time = Timespec { secs: 0, nanos: 0 };
    let row = InodeRow {
        kind: FileKind::Directory,
        mode: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        parent: Ino(1),
        has_xattrs: false,
        has_cuts: false,
        coherence: Coherence::Coherent,
        policy: PolicyId::NONE,
        layout: Layout::Empty,
    };
    Arc::new(Inode::removed(Ino(1), row, None))
}

fn name(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

#[test]
fn every_cookie_can_be_gone_back_to() {
    let directory = Directory::of(0..40, 7);
    let mut cursor = Cursor::default();
    let all = directory.list(&mut cursor, 0, usize::MAX);
    assert_eq!(all.len(), 42);
    assert_eq!((all[0].0.as_slice(), all[1].0.as_slice()), (&b"."[..], &b".."[..]));
    for (at, (_, cookie)) in all.iter().enumerate().rev() {
        assert_eq!(
            directory.list(&mut cursor, *cookie, 3),
            all[at + 1..].iter().take(3).cloned().collect::<Vec<_>>()
        );
    }
}

#[test]
fn going_back_leaves_out_what_is_gone_and_what_is_new() {
    let directory = Directory::of([10, 20, 30, 40], 2);
    let mut cursor = Cursor::default();
    let all = directory.list(&mut cursor, 0, usize::MAX);
    directory.remove(20);
    for new in [15, 16, 17, 18, 19, 25, 50] {
        directory.add(new);
    }
    let again = directory.list(&mut cursor, all[2].1, usize::MAX);
    let names: Vec<_> = again.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, [name(30), name(40), name(50)]);
    assert_eq!(again[..2], all[4..]);
    assert_eq!(directory.list(&mut cursor, 0, usize::MAX).len(), 2 + 10);
}

#[test]
fn a_cookie_never_given_is_counted_from_the_start() {
    let directory = Directory::of(0..20, 6);
    let all = directory.list(&mut Cursor::default(), 0, usize::MAX);
    let later = directory.list(&mut Cursor::default(), all[11].1, usize::MAX);
    assert_eq!(later, all[12..]);
    assert_eq!(directory.list(&mut Cursor::default(), u64::MAX, 5), []);
}

proptest! {
    #[test]
    fn what_stays_is_listed_exactly_once(
        stay in prop::collection::btree_set(0_u32..500, 0..60),
        changes in prop::collection::vec((0_u32..500, any::<bool>()), 0..80),
        chunk in 1_usize..9,
        page in 1_usize..9,
    ) {
        let directory = Directory::of(stay.iter().copied(), page);
        let (mut cursor, mut cookie, mut seen) = (Cursor::default(), 0, Vec::new());
        let mut changes = changes.into_iter();
        loop {
            let part = directory.list(&mut cursor, cookie, chunk);
            let Some((_, last)) = part.last() else { break };
            cookie = *last;
            let now = directory.names.borrow();
            prop_assert!(part.iter().all(|(name, _)| name.starts_with(b".") || now.contains(name)));
            drop(now);
            seen.extend(part.into_iter().map(|(name, _)| name));
            for (number, add) in changes.by_ref().take(3).filter(|(number, _)| !stay.contains(number)) {
                match add {
                    true => directory.add(number),
                    false => directory.remove(number),
                }
            }
        }
        let distinct: BTreeSet<_> = seen.iter().cloned().collect();
        prop_assert_eq!(distinct.len(), seen.len());
        prop_assert!(stay.iter().all(|number| distinct.contains(&name(*number))));
    }
}
