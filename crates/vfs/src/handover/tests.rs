use forebay_format::row::Layout;
use forebay_types::{FileKind, Timespec};

use super::*;

fn row(size: u64) -> InodeRow {
    let time = Timespec { secs: 5, nanos: 6 };
    InodeRow {
        kind: FileKind::Regular,
        mode: 0o640,
        nlink: 0,
        uid: 7,
        gid: 8,
        rdev: 0,
        size,
        allocated: 4096,
        atime: time,
        mtime: Timespec { secs: -9, nanos: 1 },
        ctime: time,
        btime: time,
        parent: Ino(3),
        has_xattrs: true,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: Layout::Empty,
    }
}

fn state() -> Handover {
    let time = Timespec { secs: 1, nanos: 2 };
    let directory = DirectoryRow { entries: 0, directories: 0, mtime: time, ctime: time };
    let lock = |space, kind| LockRequest {
        space,
        owner: u64::MAX - 4,
        fh: 9,
        range: LockRange { start: 10, end: u64::MAX, kind, pid: 77 },
    };
    Handover {
        next_fh: 1 << 40,
        open: vec![
            HeldOpen { ino: Ino(5), handles: 300, linkable: true },
            HeldOpen { ino: Ino(u64::MAX), handles: 1, linkable: false },
        ],
        retired: vec![Ino(6), Ino(7)],
        dirs: vec![
            HeldDir {
                fh: 3,
                ino: Ino(1),
                counted: true,
                place: Place::of(&[b"a", b"bcd\xff"], 1, Some(b"a")),
            },
            HeldDir { fh: 4, ino: Ino(2), counted: false, place: Place::default() },
        ],
        ghosts: vec![
            Inode::removed(Ino(20), row(12), None),
            Inode::removed(Ino(21), InodeRow { kind: FileKind::Directory, ..row(0) }, Some(directory)),
        ],
        locks: vec![
            (Ino(5), lock(LockSpace::Flock, LockKind::Shared)),
            (Ino(6), lock(LockSpace::Record, LockKind::Exclusive)),
        ],
    }
}

#[test]
fn a_state_is_read_back() {
    for state in [state(), Handover::default()] {
        assert_eq!(Handover::decode(&state.encode()).unwrap(), state);
    }
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let bytes = state().encode();
    for len in 0..bytes.len() {
        Handover::decode(&bytes[..len]).unwrap_err();
    }
    Handover::decode(&[&bytes[..], &[0]].concat()).unwrap_err();
    let place = Place::of(&[b"a"], 2, None);
    let dirs = vec![HeldDir { fh: 1, ino: Ino(1), counted: true, place }];
    Handover::decode(&Handover { dirs, ..Handover::default() }.encode()).unwrap_err();
}
