use super::*;

fn place(dir: u64) -> Place {
    Place { dir: Ino(dir), after: b"name".to_vec(), limit: 4 }
}

fn dir() -> Arc<Inode> {
    use forebay_format::row::{InodeRow, Layout};
    use forebay_types::{Coherence, FileKind, PolicyId, Timespec};
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

fn running() -> Shared {
    let shared = Shared::default();
    shared.state.lock().runs = true;
    shared
}

#[test]
fn what_was_read_is_given_once() {
    let shared = running();
    shared.ask(place(1));
    let mut turn = Turn::next(&shared).expect("a page is wanted");
    turn.read = Some((dir(), Vec::new()));
    drop(turn);
    assert!(shared.take(&place(2)).is_none());
    assert!(shared.take(&place(1)).is_some());
    assert!(shared.take(&place(1)).is_none());
}

#[test]
fn what_is_not_begun_is_left_to_who_comes_for_it() {
    let shared = running();
    shared.ask(place(1));
    assert!(shared.take(&place(1)).is_none());
    assert!(shared.state.lock().pages.is_empty());
}

#[test]
fn who_waits_for_a_page_is_told_also_when_it_cannot_be_read() {
    let shared = running();
    shared.ask(place(1));
    let turn = Turn::next(&shared).expect("a page is wanted");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| shared.take(&place(1)));
        drop(turn);
        assert!(waiter.join().expect("it ends").is_none());
    });
}

#[test]
fn no_more_than_a_few_pages_are_kept_and_none_after_the_end() {
    let shared = running();
    for dir in 0..PAGES as u64 + 3 {
        shared.ask(place(dir));
    }
    assert_eq!(shared.state.lock().pages.len(), PAGES);
    assert!(shared.state.lock().position(&place(2)).is_none());
    let listing = Listing(Arc::new(shared));
    listing.stop();
    assert!(listing.0.state.lock().pages.is_empty());
    listing.0.ask(place(1));
    assert!(listing.0.state.lock().pages.is_empty());
    assert!(Turn::next(&listing.0).is_none());
}

#[test]
fn the_page_after_a_full_one_is_read_ahead_and_not_given_once_a_name_has_changed() {
    use forebay_meta::RenameMode;
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("volume");
    crate::create(&root, &crate::CreateOptions::default()).unwrap();
    let volume =
        Volume::open(&root, &crate::OpenOptions { background: false, ..crate::OpenOptions::default() })
            .unwrap();
    let new = forebay_meta::NewInode {
        kind: forebay_types::FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    };
    let name = |number: usize| format!("{number:03}").into_bytes();
    for number in 0..100 {
        volume.ns.make(volume.subvolume, Ino::ROOT, &name(number), &new).unwrap();
    }
    let shared = &volume.listing.0;
    shared.state.lock().runs = true;
    let list = |after: Option<&[u8]>| volume.page_with_inodes(Ino::ROOT, after, 40).unwrap();
    let read_ahead = || {
        let mut turn = Turn::next(shared).expect("the next page is wanted");
        turn.read = volume.read_page(&turn.place).ok();
    };
    let first = list(None);
    let last = first.last().unwrap().name.clone();
    read_ahead();
    assert!(shared.take(&Place { dir: Ino::ROOT, after: last.clone(), limit: 40 }).is_some());

    list(None);
    read_ahead();
    volume
        .ns
        .rename(volume.subvolume, (Ino::ROOT, &name(60)), (Ino::ROOT, b"moved"), RenameMode::Replace, &|_| {
            false
        })
        .unwrap();
    let second = list(Some(&last));
    assert!(!second.is_empty() && second.iter().all(|entry| entry.name != name(60)), "{second:?}");
}
