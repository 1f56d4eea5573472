//! Leases, answers and recalls in every order.

use std::sync::Arc;

use forebay_cluster::{Grant, Lease, Moment, Recalled, Stamp, Terms};
use forebay_format::row::{DirectoryRow, InodeRow, Layout};
use forebay_protocol::{Answer, InodeAnswer, Operation, Response};
use forebay_types::{Epoch, FileKind, Ino, Timespec};

use super::Names;
use crate::ticks::SystemTicks;

const FILE: Ino = Ino(7);
const DIR: Ino = Ino::ROOT;

fn names() -> Arc<Names> {
    let names = Names::new(Arc::new(SystemTicks), 1000);
    let now = crate::ticks::Ticks::now(&SystemTicks);
    let terms = Terms { session: std::time::Duration::from_secs(1000), ..Terms::default() };
    names.begun(1, terms, Epoch(1), now);
    names
}

fn stamp(number: u64) -> Stamp {
    Stamp { epoch: Epoch(1), number }
}

fn row(kind: FileKind, size: u64, at: i64) -> InodeRow {
    let time = Timespec { secs: at, nanos: 0 };
    InodeRow {
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        allocated: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        parent: DIR,
        has_xattrs: false,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: Layout::Empty,
    }
}

fn told(ino: Ino, size: u64, grants: &[(Ino, Lease, u64)]) -> Response {
    let directory = (ino == DIR).then_some(DirectoryRow {
        entries: size,
        directories: 0,
        mtime: Timespec { secs: 0, nanos: 0 },
        ctime: Timespec { secs: 0, nanos: 0 },
    });
    let kind = if ino == DIR { FileKind::Directory } else { FileKind::Regular };
    let inode = InodeAnswer { ino, row: row(kind, size, 9), directory, contents: None };
    let grants =
        grants.iter().map(|(ino, lease, number)| Grant { ino: *ino, lease: *lease, stamp: stamp(*number) });
    Response { answer: Answer::Inode(Box::new(inode)), grants: grants.collect() }
}

fn make() -> Operation {
    let new = forebay_meta::NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    };
    Operation::Make(DIR, b"a".to_vec(), new)
}

fn size(names: &Names, ino: Ino) -> Option<u64> {
    names.inode(ino).map(|inode| inode.row.size)
}

const READ: Option<Lease> = Some(Lease::Read);

#[test]
fn an_answer_is_kept_with_its_lease_and_until_that_is_recalled() {
    let names = names();
    let ask = Operation::Inode(FILE);
    let under = names.begin(&ask, READ);
    assert!(names.finish(under, &ask, &told(FILE, 1, &[(FILE, Lease::Read, 1)]), 1, None).0);
    assert_eq!(size(&names, FILE), Some(1));
    assert_eq!(names.recall(FILE, None, stamp(1)), Recalled::GiveBack);
    assert_eq!(size(&names, FILE), None);
    assert_eq!(names.returned(FILE), Some((stamp(1), None)));
    let under = names.begin(&ask, READ);
    assert!(!names.finish(under, &ask, &told(FILE, 2, &[]), 1, None).0, "it came without a lease");
    assert_eq!(size(&names, FILE), None);
    let under = names.begin(&ask, READ);
    names.finish(under, &ask, &told(FILE, 2, &[(FILE, Lease::Read, 5)]), 0, None);
    assert_eq!(size(&names, FILE), None, "an answer of another session");
}

#[test]
fn what_an_own_change_touches_is_not_told_until_it_is_answered_nor_from_older_answers() {
    let names = names();
    let (ask, change) = (Operation::Inode(FILE), Operation::SetAttr(FILE, Default::default()));
    let under = names.begin(&ask, READ);
    names.finish(under, &ask, &told(FILE, 1, &[(FILE, Lease::Read, 1)]), 1, None);
    let older = names.begin(&ask, READ);
    let changing = names.begin(&change, READ);
    assert_eq!(size(&names, FILE), None);
    assert!(names.lifetime(FILE).is_some_and(|time| time.is_zero()));
    names.finish(changing, &change, &told(FILE, 2, &[(FILE, Lease::Read, 2)]), 1, None);
    assert_eq!(size(&names, FILE), Some(2));
    names.finish(older, &ask, &told(FILE, 1, &[(FILE, Lease::Read, 3)]), 1, None);
    assert_eq!(size(&names, FILE), Some(2), "nobody knows which came first");
    drop(names.begin(&change, READ));
    assert_eq!(size(&names, FILE), None, "nobody knows what it did");
}

#[test]
fn a_directory_is_counted_in_whatever_order_its_changes_are_answered() {
    let names = names();
    let ask = Operation::Inode(DIR);
    let under = names.begin(&ask, READ);
    names.finish(under, &ask, &told(DIR, 5, &[(DIR, Lease::Read, 1)]), 1, None);
    let entries = |names: &Names| Some(names.inode(DIR)?.directory?.entries);
    let (one, two) = (names.begin(&make(), READ), names.begin(&make(), READ));
    assert_eq!(entries(&names), None);
    names.finish(two, &make(), &told(FILE, 0, &[(DIR, Lease::Read, 3)]), 1, None);
    assert_eq!(entries(&names), None, "one is on its way");
    names.finish(one, &make(), &told(Ino(8), 0, &[(DIR, Lease::Read, 2)]), 1, None);
    assert_eq!(entries(&names), Some(7));
    assert_eq!(names.inode(DIR).unwrap().directory.unwrap().mtime.secs, 9);
    drop(names.begin(&make(), READ));
    assert_eq!(entries(&names), None, "nobody knows whether it was made");
}

#[test]
fn a_lease_that_was_asked_for_is_used_though_its_recall_comes_first() {
    let names = names();
    let ask = Operation::Inode(FILE);
    let wish = Some(Lease::Write);
    let under = names.begin(&ask, wish);
    let recalling = Arc::clone(&names);
    let recalled = std::thread::spawn(move || {
        let recalled = recalling.recall(FILE, None, stamp(4));
        recalling.wait_for_tenures(FILE);
        (recalled, recalling.returned(FILE))
    });
    // Whichever is first: the recall waits for the answer, and the return for the tenure.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (_, tenure) = names.finish(under, &ask, &told(FILE, 1, &[(FILE, Lease::Write, 4)]), 1, Some(FILE));
    let tenure = tenure.expect("the lease came");
    let began = std::time::Instant::now();
    while names.tenure(FILE).is_some() {
        assert!(began.elapsed().as_secs() < 60, "others write under it still");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!recalled.is_finished(), "somebody writes under it, and nobody else any more");
    drop(tenure);
    let (recalled, returned) = recalled.join().unwrap();
    assert_eq!((recalled, returned), (Recalled::GiveBack, Some((stamp(4), None))));
}

#[test]
fn a_term_that_is_over_ends_all_answers() {
    let names = Names::new(Arc::new(SystemTicks), 1000);
    names.begun(1, Terms::default(), Epoch(1), Moment(0));
    let ask = Operation::Inode(FILE);
    let under = names.begin(&ask, READ);
    names.finish(under, &ask, &told(FILE, 1, &[(FILE, Lease::Read, 1)]), 1, None);
    assert_eq!(size(&names, FILE), None);
    names.heard(2, crate::ticks::Ticks::now(&SystemTicks));
    assert_eq!(size(&names, FILE), None, "another session was heard");
    names.heard(1, crate::ticks::Ticks::now(&SystemTicks));
    assert_eq!(size(&names, FILE), Some(1), "the session lives");
}

#[test]
fn a_path_is_known_as_far_as_leases_go() {
    let names = names();
    let (top, below) = (Ino(3), Ino(5));
    let found = |parent: Ino, name: &str, ino: Ino, kind: FileKind| {
        let ask = Operation::Lookup(parent, name.as_bytes().to_vec());
        let under = names.begin(&ask, READ);
        let row = InodeRow { parent, ..row(kind, 1, 1) };
        let grant = |ino| Grant { ino, lease: Lease::Read, stamp: stamp(1) };
        let time = Timespec { secs: 0, nanos: 0 };
        let directory = (kind == FileKind::Directory).then_some(DirectoryRow {
            entries: 1,
            directories: 0,
            mtime: time,
            ctime: time,
        });
        let answer = Answer::Inode(Box::new(InodeAnswer { ino, row, directory, contents: None }));
        names.finish(under, &ask, &Response { answer, grants: vec![grant(parent), grant(ino)] }, 1, None);
    };
    found(DIR, "top", top, FileKind::Directory);
    found(top, "below", below, FileKind::Directory);
    found(below, "file", FILE, FileKind::Regular);
    let path = |root| names.path_of(FILE, below, root).map(|path| String::from_utf8(path).unwrap());
    assert_eq!(path(DIR).unwrap(), "/top/below/file");
    assert_eq!(path(top).unwrap(), "/below/file", "what a mount shows as its root");
    names.recall(DIR, None, stamp(1));
    names.returned(DIR);
    assert_eq!(path(DIR).unwrap(), ".../below/file");
    names.recall(below, None, stamp(1));
    names.returned(below);
    assert_eq!(path(DIR), None);
}

#[test]
fn what_is_used_by_the_time_it_is_given_up_stays() {
    let names = names();
    let ask = |ino: Ino| {
        let ask = Operation::Inode(ino);
        let under = names.begin(&ask, READ);
        names.finish(under, &ask, &told(ino, 1, &[(ino, Lease::Write, 1)]), 1, None);
    };
    let [free, written, asked, changed, renewed] = [10, 11, 12, 13, 14].map(Ino);
    [free, written, asked, changed, renewed].into_iter().for_each(ask);
    let leases = [free, written, asked, changed, renewed].map(|ino| (ino, stamp(1)));
    let tenure = names.tenure(written);
    let asking = names.begin(&Operation::Inode(asked), None);
    let changing = names.begin(&Operation::SetAttr(changed, Default::default()), None);
    let again = Operation::Inode(renewed);
    let under = names.begin(&again, READ);
    names.finish(under, &again, &told(renewed, 2, &[(renewed, Lease::Write, 2)]), 1, None);
    assert_eq!(names.give_up(&leases), (vec![(free, stamp(1))], false), "files");
    assert_eq!((size(&names, free), size(&names, written), size(&names, renewed)), (None, Some(1), Some(2)));
    assert_eq!(names.returned(free), Some((stamp(1), None)));
    assert_eq!(names.returned(written), None);
    drop((tenure, asking, changing));
    assert_eq!(names.give_up(&leases).0, [written, asked, changed].map(|ino| (ino, stamp(1))));
    ask(Ino(20));
    names.recall(Ino(20), Some(Lease::Read), stamp(1));
    assert!(names.give_up(&[(Ino(20), stamp(1))]).0.is_empty(), "somebody waits for that");
    let ask = Operation::Inode(DIR);
    let under = names.begin(&ask, READ);
    names.finish(under, &ask, &told(DIR, 5, &[(DIR, Lease::Read, 1)]), 1, None);
    assert_eq!(names.give_up(&[(DIR, stamp(1))]), (vec![(DIR, stamp(1))], true));
}
