//! The bytes of version 1, in `tests/fixtures/v1/*.hex`. They never change: a release that writes others has a new version and still reads
//! these. `FOREBAY_WRITE_FIXTURES=1` writes those that are not there.

use std::{fmt::Debug, path::PathBuf};

use forebay_format::{
    Keyring, MasterKey, RunSealer,
    footer::{Footer, RunEntry, SegmentEntry, TAIL_LEN},
    key::{Item, Key},
    moving_row::MovingRow,
    policy_row::{PolicyKeep, PolicyRow},
    record::{Changes, FileHead, RecordHead, StreamRun},
    row::{
        AppliedRow, BytesRow, CountersRow, Cut, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Layout,
        ObjectRef, Row, SegmentKind, SegmentRow, SegmentState, SubvolumeRow,
    },
    run::{self, RunTable},
    set_row::{SegmentSetRow, SetRowState},
    shared_row::{FenceRow, HeldLock, LocksRow, NumbersRow, RetryRow, SessionRow},
    stream,
};
use forebay_types::{
    Compression, Epoch, FileKind, Generation, Ino, ObjectId, PolicyId, SegmentId, Sequence, SubvolumeId,
    SyncClass, Timespec, VolumeId,
};

fn to_hex(bytes: &[u8]) -> String {
    let lines: Vec<_> = bytes
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .collect();
    lines.join("\n") + "\n"
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.chunks(2).map(|pair| value(pair).expect("a byte")).collect()
}

/// The stored bytes of a fixture; `now` is what they would be if it were new.
fn stored(name: &str, now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v1/{name}.hex"));
    if !path.exists() && std::env::var_os("FOREBAY_WRITE_FIXTURES").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("fixtures");
        std::fs::write(&path, to_hex(now)).expect("a fixture");
    }
    from_hex(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn pinned(name: &str, now: &[u8]) -> Vec<u8> {
    let stored = stored(name, now);
    assert_eq!(to_hex(now), to_hex(&stored), "version 1 of {name} is written in another way");
    stored
}

fn row<R: Row + PartialEq + Debug>(name: &str, row: &R) {
    assert_eq!(R::decode(&pinned(name, &row.encode())).as_ref(), Ok(row));
}

const VOLUME: VolumeId = VolumeId(*b"a test's volume.");

fn extent() -> Extent {
    let (segment, check) = (SegmentId(0x1234), 0x8765_4321);
    let (stored_len, run_len) = (99_000, 200_000);
    Extent { len: 100_000, segment, run_offset: 1 << 33, stored_len, run_len, skip: 70_000, form: 1, check }
}

fn run_entry() -> RunEntry {
    RunEntry {
        subvolume: SubvolumeId(1),
        generation: Generation(3),
        ino: Ino(0x1001),
        block: 5,
        offset: 65536,
        run_len: 200_000,
        run_offset: 128 + 64,
        stored_len: 150_000,
        form: 0,
        check: 0xdead_beef,
    }
}

#[test]
fn rows() {
    let time = |secs| Timespec { secs, nanos: 999_999_999 };
    let inode = InodeRow {
        kind: FileKind::Regular,
        mode: 0o4755,
        nlink: 2,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 5_000_000_000,
        allocated: 100_000,
        atime: time(-5),
        mtime: time(1_790_000_000),
        ctime: time(1_790_000_001),
        btime: time(1_790_000_000),
        parent: Ino(0x1000),
        has_xattrs: true,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: Layout::Single(5, 65536, extent()),
    };
    row("inode", &inode);
    row("inode-cut", &InodeRow { has_cuts: true, layout: Layout::Extents, ..inode });
    row("inode-sealed", &InodeRow { coherence: forebay_types::Coherence::Sealed, ..inode });
    row("inode-policy", &InodeRow { policy: PolicyId(300), ..inode });
    let coherence = forebay_types::Coherence::Immutable;
    row("inode-policy-immutable", &InodeRow { policy: PolicyId(1), coherence, ..inode });
    let (made_for, before) = (Ino(0x1001), PolicyId(1));
    let (durability, keep) = (Some(SyncClass::Replica(3)), PolicyKeep::default());
    let policy = PolicyRow { made_for, before, durability, keep, spread: false };
    row("policy-replica", &policy);
    row("policy-object", &PolicyRow { durability: Some(SyncClass::Object), spread: true, ..policy });
    row("policy-local", &PolicyRow { durability: Some(SyncClass::Local), ..policy });
    row("policy-unset", &PolicyRow { durability: None, before: PolicyId::NONE, ..policy });
    let pinned = PolicyKeep { pin: true, ..keep };
    row("policy-pin", &PolicyRow { durability: None, keep: pinned, ..policy });
    let [confine, place, exclude] =
        [b"the first group.", b"a second of them", b"and a third one."].map(|id| Some(*id));
    let keep = PolicyKeep { pin: true, confine, place, exclude };
    row("policy-all", &PolicyRow { keep, spread: true, ..policy });
    row("cuts", &CutsRow(vec![Cut { first: 0, last: 4 }, Cut { first: 300, last: u32::MAX }]));
    row("extent", &extent());
    row("directory", &DirectoryRow { entries: 1_000_000, directories: 3, mtime: time(7), ctime: time(8) });
    row("dentry", &DentryRow { ino: Ino(0x1001), kind: FileKind::Symlink });
    row("bytes", &BytesRow(b"inline".to_vec()));
    let object = Some(ObjectRef { epoch: Epoch(4), id: ObjectId(300) });
    let (kind, state) = (SegmentKind::Packed, SegmentState::Stored);
    let (object_offset, len) = (1 << 24, 1 << 25);
    let epoch = Epoch(4);
    row("segment", &SegmentRow { kind, state, object, object_offset, len, raw: 1 << 26, live: 9, epoch });
    let counters = CountersRow { run: 2, segment: 300, object: 70_000, subvolume: 2, inodes: None };
    row("counters", &counters);
    row("counters-inodes", &CountersRow { inodes: Some(1_000_000), ..counters });
    let snapshots = vec![Generation(1), Generation(4)];
    let origin = Some((SubvolumeId(1), Generation(2)));
    row("subvolume", &SubvolumeRow { generation: Generation(5), origin, snapshots });
    row("applied", &AppliedRow { sequence: Sequence(1 << 40), epoch: Epoch(4) });
}

const SESSION: u128 = 0x0123_4567_89ab_cdef_1122_3344_5566_7788;

#[test]
fn rows_of_clients() {
    let epoch = Epoch(4);
    let (server, address) = (Some(*b"a server's name."), "[2001:db8::1]:7117".to_owned());
    row("fence", &FenceRow { epoch, server, beat: 300, address });
    let nonce = *b"one move of many";
    row("incoming", &MovingRow::Incoming { nonce, batches: 300 });
    row("moved", &MovingRow::Moved { nonce, epoch, to: "postgres://me@host/meta".to_owned() });
    let (client, root) = ("host:/mnt".to_owned(), Ino(0x1000));
    let session =
        SessionRow { epoch, client, root, read_only: true, no_exec: false, root_squash: true, token: None };
    row("session", &session);
    row("session-2", &SessionRow { token: Some(0x0123_4567_89ab_cdef), ..session });
    row("retry", &RetryRow { number: 300, answer: b"answer".to_vec() });
    let segments = vec![(7, 1), (300, 16)];
    row("numbers", &NumbersRow { segments, objects: vec![(epoch, (70_000, 4))] });
    let lock = HeldLock {
        flock: false,
        exclusive: true,
        owner: u64::MAX,
        handle: 3,
        start: 10,
        end: u64::MAX,
        pid: 77,
    };
    row("locks", &LocksRow(vec![lock, HeldLock { flock: true, exclusive: false, start: 0, end: 9, ..lock }]));
}

#[test]
fn sets_of_segments() {
    let set = vec![*b"the first member", *b"the second one.."];
    let open = SegmentSetRow {
        writer: SESSION,
        epoch: Epoch(1),
        directory: Ino(0x1000),
        group: *b"a group's id....",
        set,
        joining: None,
        state: SetRowState::Open,
        settled: false,
        recovered: false,
    };
    row("set-open", &open);
    let state = SetRowState::Sealed { len: 4 << 20, check: 0xdead_beef };
    let joining = Some(*b"who joins later.");
    row("set-sealed", &SegmentSetRow { epoch: Epoch(300), joining, state, ..open.clone() });
    row("set-recovered", &SegmentSetRow { settled: true, recovered: true, state, ..open.clone() });
    row("set-stored", &SegmentSetRow { settled: true, state: SetRowState::Stored, ..open });
}

#[test]
fn keys() {
    let (subvolume, ino, segment) = (SubvolumeId(1), Ino(0x1001), SegmentId(0x1234));
    let versioned = |item| Key::Versioned(subvolume, item, Generation(3));
    for (name, key) in [
        ("key-inode", versioned(Item::Inode(ino))),
        ("key-inline", versioned(Item::Inline(ino))),
        ("key-cuts", versioned(Item::Cuts(ino))),
        ("key-directory", versioned(Item::Directory(ino))),
        ("key-dentry", versioned(Item::Dentry(ino, b"a name".to_vec()))),
        ("key-extent", versioned(Item::Extent(ino, 5, 65536))),
        ("key-xattr", versioned(Item::Xattr(ino, b"user.x".to_vec()))),
        ("key-segment", Key::Segment(segment)),
        ("key-share", Key::Share(segment, subvolume, ino, 5)),
        ("key-counters", Key::Counters),
        ("key-subvolume", Key::Subvolume(subvolume)),
        ("key-applied", Key::Applied),
        ("key-orphan", Key::Orphan(subvolume, ino)),
        ("key-garbage", Key::Garbage(4, 300)),
        ("key-fence", Key::Fence),
        ("key-policy", Key::Policy(PolicyId(300))),
        ("key-session", Key::Session(SESSION)),
        ("key-retry", Key::Retry(SESSION, 63)),
        ("key-write-lease", Key::WriteLease(SESSION, subvolume, ino)),
        ("key-numbers", Key::Numbers(SESSION)),
        ("key-open", Key::Open(SESSION, subvolume, ino)),
        ("key-set", Key::Set(segment)),
        ("key-locks", Key::Locks(SESSION, subvolume, ino)),
    ] {
        assert_eq!(Key::decode(&pinned(name, &key.encode())), Ok(key));
    }
}

#[test]
fn journal_file() {
    let (segment, epoch) = (SegmentId(0x1234), Epoch(4));
    let head = FileHead { volume: VOLUME, segment, epoch, first: Sequence(77) };
    assert_eq!(FileHead::decode(&pinned("journal-file-head", &head.encode())), Ok(head));
    let stream = StreamRun {
        segment: SegmentId(0x1235),
        run_offset: 64,
        stored_len: 150_000,
        run_len: 200_000,
        form: 0,
        check: 0xdead_beef,
    };
    let changes = Changes {
        rows: vec![
            (b"key".to_vec(), Some(b"value".to_vec())),
            (b"gone".to_vec(), None),
            (b"end".to_vec(), Some(vec![])),
        ],
        live: vec![(segment, -4096), (SegmentId(2), 1 << 40)],
        streams: vec![stream],
    };
    let mut encoded = Vec::new();
    changes.encode_to(&mut encoded);
    let encoded = pinned("journal-changes", &encoded);
    assert_eq!(Changes::decode(&encoded), Ok(changes));
    let head = RecordHead::new(Sequence(77), epoch, b"data of a small write", &encoded);
    assert_eq!(RecordHead::decode(&pinned("journal-record-head", &head.encode())), Ok(head));
}

#[test]
fn object_footer_and_stream_head() {
    let segment =
        SegmentEntry { id: SegmentId(0x1234), offset: 1 << 20, len: 1 << 24, runs: vec![run_entry()] };
    let footer = Footer { volume: VOLUME, segments: vec![segment] };
    let mut bytes = Vec::new();
    footer.encode_to(&mut bytes);
    let bytes = pinned("object-footer", &bytes);
    let (body, tail) = bytes.split_last_chunk::<TAIL_LEN>().expect("a tail");
    assert_eq!(Footer::len_from_tail(tail), Ok(body.len()));
    assert_eq!(Footer::decode(body, tail), Ok(footer));
    let head = pinned("stream-head", &stream::encode(SegmentId(0x1234), &run_entry()));
    assert_eq!(stream::decode(&head, SegmentId(0x1234), 128), Ok(run_entry()));
}

#[test]
fn runs() {
    let raw: Vec<u8> = (0..70_000u32).map(|at| (at / 1000) as u8).collect();
    let master = || MasterKey::new(1, [0x42; 32]);
    let keys = Keyring::new(vec![master()]);
    for (name, compression, sealed) in [
        ("run-lz4", Compression::Lz4, false),
        ("run-zstd", Compression::Zstd, false),
        ("run-lz4-sealed", Compression::Lz4, true),
    ] {
        let sealer = RunSealer::new(&master(), *b"sixteen salt bit").expect("a sealer");
        let mut now = Vec::new();
        let about = run::encode(&raw, compression, sealed.then_some(&sealer), &mut now).expect("a run");
        let mut with_check = now;
        with_check.extend_from_slice(&about.check.to_le_bytes());
        // Compressors may find shorter bytes one day; what must not change is that these are read.
        let stored = stored(name, &with_check);
        let (stored, check) = stored.split_last_chunk::<4>().expect("a check");
        let (len, check) = (stored.len() as u32, u32::from_le_bytes(*check));
        let table = RunTable::decode(stored, about.form, 70_000, len, check).expect("a frame table");
        let mut found = Vec::new();
        for index in 0..2 {
            let (at, len) = table.stored(index, index).expect("a frame");
            let frame = &stored[at as usize..(at + len) as usize];
            table.decode_frame(index, frame, &keys, &mut found).expect("a whole frame");
        }
        assert!(found == raw, "{name} is read as something else");
    }
}

#[test]
fn a_raw_run_and_a_sealed_one() {
    let sealer = RunSealer::new(&MasterKey::new(1, [0x42; 32]), *b"sixteen salt bit").expect("a sealer");
    for (name, sealer) in [("run-raw", None), ("run-raw-sealed", Some(&sealer))] {
        let mut bytes = Vec::new();
        let about = run::encode(b"forebay", Compression::None, sealer, &mut bytes).expect("a run");
        let bytes = pinned(name, &bytes);
        assert!(run::verify(&bytes, about.form, 7, about.check).is_ok());
    }
}

#[test]
fn the_log_of_a_member() {
    use forebay_format::member_log::{FileHead, RecordKind};

    use crate::member_log::{decoded, encoded, file_head, record_head};

    // All that is not zero.
    let head = file_head().encode();
    let mut stored = pinned("member-log-file-head", &head[..96]);
    stored.resize(head.len(), 0);
    assert_eq!(FileHead::decode(&stored), Ok(file_head()));
    for (name, kind) in [
        ("append", RecordKind::Append),
        ("fence", RecordKind::Fence),
        ("seal", RecordKind::Seal),
        ("drop", RecordKind::Drop),
        ("view", RecordKind::View),
        ("lost", RecordKind::Lost),
        ("again", RecordKind::Again),
    ] {
        let stored = pinned(&format!("member-log-{name}"), &encoded(&record_head(kind)));
        assert_eq!(decoded(&stored), Some(record_head(kind)), "{name}");
    }
}
