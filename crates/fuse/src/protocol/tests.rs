//! Layouts byte by byte, and bytes that are no requests.

use std::time::Duration;

use super::*;
use crate::flags::{Capabilities, WriteFlags};
use crate::types::*;

const OLD: Dialect = Dialect { setxattr_ext: false };
const NEW: Dialect = Dialect { setxattr_ext: true };

/// A contiguous request: header, then 64-bit words, then bytes.
fn request(op: u32, words: &[u64], payload: &[u8], extensions: &[u8]) -> Vec<u8> {
    let len = IN_HEADER + words.len() * 8 + payload.len() + extensions.len();
    let mut bytes = Vec::new();
    put_u32(&mut bytes, len as u32);
    put_u32(&mut bytes, op);
    put_u64(&mut bytes, 0x1111);
    put_u64(&mut bytes, 0x2222);
    put_u32(&mut bytes, 1000);
    put_u32(&mut bytes, 100);
    put_u32(&mut bytes, 4321);
    put_u32(&mut bytes, u32::from_ne_bytes([(extensions.len() / 8) as u8, 0, 0, 0]));
    words.iter().for_each(|word| put_u64(&mut bytes, *word));
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(extensions);
    bytes
}

/// Two 32-bit integers side by side.
fn pair(low: u32, high: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low.to_ne_bytes());
    bytes[4..].copy_from_slice(&high.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn parse(bytes: &[u8], dialect: Dialect) -> Result<(Header, Operation<'_>), DecodeError> {
    let header = Header::decode(bytes)?;
    let op = Opcode::from_raw(header.opcode).ok_or(DecodeError::UnknownOpcode(header.opcode))?;
    let parts = split(&header, op, bytes, dialect)?;
    supplementary_group(parts.extensions);
    let operation = decode(op, header.nodeid, parts.fixed, parts.payload, dialect)?;
    if let Operation::BatchForget { forgets } = operation {
        forgets.for_each(drop);
    }
    Ok((header, operation))
}

fn expect(op: Opcode, words: &[u64], payload: &[u8], expected: Operation<'_>) {
    let bytes = request(op.raw(), words, payload, &[]);
    assert_eq!(parse(&bytes, NEW).unwrap().1, expected);
}

#[test]
fn headers_and_extensions_are_taken_apart() {
    let mut extensions = Vec::new();
    // A security context's header with nothing more, then one group.
    [16, 1, 0, 0, 24, 32, 1, 555, 0, 0].iter().for_each(|word| put_u32(&mut extensions, *word));
    let bytes = request(Opcode::Mkdir.raw(), &[pair(0o755, 0o22)], b"dir\0", &extensions);
    let (header, operation) = parse(&bytes, NEW).unwrap();
    assert_eq!((header.unique, header.nodeid), (0x1111, 0x2222));
    assert_eq!((header.uid, header.gid, header.pid), (1000, 100, 4321));
    assert_eq!(operation, Operation::Mkdir { name: b"dir", mode: 0o755, umask: 0o22 });
    let parts = split(&header, Opcode::Mkdir, &bytes, NEW).unwrap();
    assert_eq!(supplementary_group(parts.extensions), Some(555));
    assert_eq!(supplementary_group(&[]), None);
    assert_eq!(supplementary_group(&[0; 64]), None);
}

#[test]
fn names_are_taken_apart() {
    expect(Opcode::Lookup, &[], b"name\0\0", Operation::Lookup { name: b"name" });
    let symlink = Operation::Symlink { name: b"n", target: b"/t" };
    expect(Opcode::Symlink, &[], b"n\0/t\0", symlink);
    let args = Mknod { mode: 1, rdev: 2, umask: 3 };
    expect(Opcode::Mknod, &[pair(1, 2), pair(3, 0)], b"n\0", Operation::Mknod { name: b"n", args });
    let rename = |flags| Operation::Rename { name: b"a", new_parent: 9, new_name: b"b", flags };
    expect(Opcode::Rename, &[9], b"a\0b\0", rename(0));
    expect(Opcode::Rename2, &[9, pair(2, 0)], b"a\0b\0", rename(2));
    expect(Opcode::Link, &[8], b"n\0", Operation::Link { ino: 8, new_name: b"n" });
    let args = Create { flags: 1, mode: 2, umask: 3, kill_suidgid: true };
    expect(Opcode::Create, &[pair(1, 2), pair(3, 1)], b"n\0", Operation::Create { name: b"n", args });
    expect(Opcode::Tmpfile, &[pair(1, 2), pair(3, 1)], b"/\0", Operation::Tmpfile(args));
    for (op, payload) in [(Opcode::Lookup, &b"\0"[..]), (Opcode::Unlink, b"no end"), (Opcode::Rename, b"a\0")]
    {
        let words = if op == Opcode::Rename { &[9][..] } else { &[] };
        let bytes = request(op.raw(), words, payload, &[]);
        assert_eq!(parse(&bytes, NEW).unwrap_err(), DecodeError::Malformed(op));
    }
}

#[test]
fn setattr_takes_what_is_valid() {
    let words = |valid: u32| {
        let nanos = [pair(11, 12), pair(1_000_000_013, 0o600), pair(0, 77), pair(88, 0)];
        let mut all = vec![pair(valid, 0), 1, 2, 3, 4, -5i64 as u64, 6];
        all.extend_from_slice(&nanos);
        all
    };
    expect(Opcode::Setattr, &words(0), &[], Operation::Setattr(SetAttr::default()));
    let all = SetAttr {
        mode: Some(0o600),
        uid: Some(77),
        gid: Some(88),
        size: Some(2),
        atime: Some(SetTime::Set(Timestamp { secs: 4, nanos: 11 })),
        mtime: Some(SetTime::Set(Timestamp { secs: -5, nanos: 12 })),
        ctime: Some(Timestamp { secs: 6, nanos: 999_999_999 }),
        fh: Some(1),
        lock_owner: Some(3),
        kill_suidgid: true,
    };
    expect(Opcode::Setattr, &words(0b1110_0111_1111), &[], Operation::Setattr(all));
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..all };
    expect(Opcode::Setattr, &words(0b1111_1111_1111), &[], Operation::Setattr(now));
}

#[test]
fn reads_writes_and_releases_are_taken_apart() {
    let read = Read { fh: 1, offset: 2, size: 3, lock_owner: Some(5), flags: 6 };
    expect(Opcode::Read, &[1, 2, pair(3, 2), 5, pair(6, 0)], &[], Operation::Read(read));
    let read = Read { lock_owner: None, ..read };
    expect(Opcode::Read, &[1, 2, pair(3, 0), 5, pair(6, 0)], &[], Operation::Read(read));
    let write_flags = WriteFlags::CACHE | WriteFlags::KILL_SUIDGID;
    let args = Write { fh: 1, offset: 2, write_flags, lock_owner: None, flags: 6 };
    let words = [1, 2, pair(4, 5), 5, pair(6, 0)];
    expect(Opcode::Write, &words, b"data", Operation::Write { args, data: b"data" });
    let short = request(Opcode::Write.raw(), &words, b"dat", &[]);
    assert_eq!(parse(&short, NEW).unwrap_err(), DecodeError::Malformed(Opcode::Write));
    let release = Release { fh: 1, flags: 2, lock_owner: 4, flock_release: true };
    expect(Opcode::Release, &[1, pair(2, 2), 4], &[], Operation::Release(release));
    expect(Opcode::Flush, &[1, 0, 4], &[], Operation::Flush { fh: 1, lock_owner: 4 });
    expect(Opcode::Fsync, &[1, pair(1, 0)], &[], Operation::Fsync { fh: 1, datasync: true });
    let copy = |len| CopyRange {
        ino_in: 0x2222,
        fh_in: 1,
        offset_in: 2,
        ino_out: 3,
        fh_out: 4,
        offset_out: 5,
        len,
        flags: 7,
    };
    let words = [1, 2, 3, 4, 5, 1 << 40, 7];
    let wide = Operation::CopyFileRange { args: copy(1 << 40), wide: true };
    expect(Opcode::CopyFileRange64, &words, &[], wide);
    let narrow = Operation::CopyFileRange { args: copy(0x7fff_f000), wide: false };
    expect(Opcode::CopyFileRange, &words, &[], narrow);
}

#[test]
fn the_rest_is_taken_apart() {
    let range = LockRange { start: 10, end: 20, kind: LockKind::Write, pid: 99 };
    let lock = Lock { fh: 1, owner: 2, range, flock: true };
    let words = [1, 2, 10, 20, pair(libc::F_WRLCK as u32, 99), pair(1, 0)];
    expect(Opcode::Setlkw, &words, &[], Operation::Setlkw(lock));
    let backwards = [1, 2, 20, 10, pair(libc::F_WRLCK as u32, 99), pair(1, 0)];
    let bytes = request(Opcode::Setlk.raw(), &backwards, &[], &[]);
    assert_eq!(parse(&bytes, NEW).unwrap_err(), DecodeError::Malformed(Opcode::Setlk));

    let args = SetXattr { flags: 1, acl_kill_sgid: true };
    let set = |args| Operation::Setxattr { name: b"user.a", value: b"val", args };
    expect(Opcode::Setxattr, &[pair(3, 1), pair(1, 0)], b"user.a\0val", set(args));
    let old = request(Opcode::Setxattr.raw(), &[pair(3, 1)], b"user.a\0val", &[]);
    let args = SetXattr { acl_kill_sgid: false, ..args };
    assert_eq!(parse(&old, OLD).unwrap().1, set(args));

    let bytes = request(Opcode::BatchForget.raw(), &[pair(2, 0), 5, 1, 6, 7], &[], &[]);
    let Operation::BatchForget { forgets } = parse(&bytes, NEW).unwrap().1 else { panic!() };
    let forgets: Vec<Forget> = forgets.collect();
    assert_eq!(forgets, [Forget { ino: 5, nlookup: 1 }, Forget { ino: 6, nlookup: 7 }]);

    let statx = Statx { fh: Some(5), flags: 6, mask: 7 };
    expect(Opcode::Statx, &[pair(1, 0), 5, pair(6, 7)], &[], Operation::Statx(statx));
    expect(Opcode::Syncfs, &[0], &[], Operation::Syncfs);
    let unknown = request(7777, &[], &[], &[]);
    assert_eq!(parse(&unknown, NEW).unwrap_err(), DecodeError::UnknownOpcode(7777));
}

#[test]
fn init_is_understood_in_all_its_lengths() {
    let ext = Capabilities::INIT_EXT.bits() as u32;
    let long = request(26, &[pair(7, 45), pair(4096, 3 | ext), pair(1 << 9, 0), 0, 0, 0, 0, 0], &[], &[]);
    let Operation::Init(init) = parse(&long, OLD).unwrap().1 else { panic!() };
    assert_eq!((init.major, init.minor, init.max_readahead), (7, 45, 4096));
    assert!(init.capabilities.contains(Capabilities::OVER_IO_URING | Capabilities::POSIX_LOCKS));
    let short = request(26, &[pair(7, 31), pair(4096, 3)], &[], &[]);
    let Operation::Init(init) = parse(&short, OLD).unwrap().1 else { panic!() };
    assert_eq!(init.capabilities, Capabilities::ASYNC_READ | Capabilities::POSIX_LOCKS);
    let newer = request(26, &[pair(8, 0)], &[], &[]);
    assert!(matches!(parse(&newer, OLD).unwrap().1, Operation::Init(InitIn { major: 8, .. })));
}

/// Xorshift: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn cut_and_random_requests_are_refused_or_understood() {
    let mut random = Random(0x5eed);
    let mut understood = 0;
    for op in Opcode::ALL {
        for round in 0..200 {
            let words: Vec<u64> =
                (0..random.next() % 14).map(|_| random.next() >> (random.next() % 64)).collect();
            let payload: Vec<u8> = (0..random.next() % 64).map(|_| (random.next() % 4 * 30) as u8).collect();
            let extensions = vec![round as u8; (random.next() % 3 * 8) as usize];
            let whole = request(op.raw(), &words, &payload, &extensions);
            for dialect in [OLD, NEW] {
                understood += usize::from(parse(&whole, dialect).is_ok());
                for len in 0..whole.len() {
                    // Cut off with the length it had: always short. With its length made true: as it comes.
                    assert!(matches!(parse(&whole[..len], dialect), Err(DecodeError::Short { .. })));
                    let mut cut = whole[..len].to_vec();
                    if let Some(field) = cut.first_chunk_mut::<4>() {
                        *field = (len as u32).to_ne_bytes();
                    }
                    let _ = parse(&cut, dialect);
                }
            }
        }
    }
    assert!(understood > 2000, "only {understood} random requests were understood");
    for _ in 0..20_000 {
        let noise: Vec<u8> = (0..random.next() % 200).map(|_| random.next() as u8).collect();
        let _ = parse(&noise, NEW);
    }
}

#[test]
fn replies_have_the_sizes_the_kernel_expects() {
    let size = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        out.len()
    };
    let entry = Entry::negative(Duration::MAX);
    let attr = entry.attr;
    let init = InitOut {
        minor: MINOR,
        max_readahead: 0,
        capabilities: Capabilities::NONE,
        max_background: 0,
        congestion_threshold: 0,
        max_write: 0,
        time_gran: 1,
        max_pages: 1,
        max_stack_depth: 0,
    };
    let statx =
        StatxReply { attr, btime: None, attributes: 0, attributes_mask: 0, ttl: Duration::from_millis(1500) };
    let range = LockRange { start: 0, end: 0, kind: LockKind::Unlock, pid: 0 };
    assert_eq!(size(&|out| put_entry(out, &entry)), ENTRY_OUT);
    assert_eq!(size(&|out| put_attr_out(out, &Attr { attr, ttl: Duration::ZERO })), 104);
    assert_eq!(size(&|out| put_open(out, &Opened::default())), 16);
    assert_eq!(size(&|out| put_statfs(out, &StatFs::default())), 80);
    assert_eq!(size(&|out| put_lock(out, &range)), 24);
    assert_eq!(size(&|out| put_init(out, &init)), 64);
    assert_eq!(size(&|out| put_statx(out, &statx)), 288);
    for len in 1..40 {
        let put = |out: &mut Vec<u8>| put_dirent(out, 1, 2, FileKind::Dir, &vec![b'n'; len]);
        assert_eq!(size(&put), (DIRENT + len).next_multiple_of(8));
    }
    let mut out = Vec::new();
    put_entry(&mut out, &Entry::negative(Duration::MAX));
    let century = 100 * 365 * 24 * 3600u64;
    assert_eq!(out.get(16..24), Some(&century.to_ne_bytes()[..]));
}

#[test]
fn statx_splits_device_numbers() {
    // Major 0x123, minor 0x45678, as the kernel packs them into 32 bits.
    let attr = FileAttr { rdev: 0x4561_2378, ino: 9, ..Entry::negative(Duration::ZERO).attr };
    let btime = Some(Timestamp { secs: -1, nanos: 5 });
    let mut out = Vec::new();
    let reply = StatxReply { attr, btime, attributes: 1, attributes_mask: 3, ttl: Duration::ZERO };
    put_statx(&mut out, &reply);
    // The structure begins after 32 bytes of lifetime and flags.
    let field = |at: usize| out.get(32 + at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap();
    assert_eq!(u32::from_ne_bytes(field(0)), 0xfff);
    assert_eq!(u32::from_ne_bytes(field(8)), 1);
    assert_eq!(u32::from_ne_bytes(field(32)), 9);
    assert_eq!(u32::from_ne_bytes(field(56)), 3);
    assert_eq!((i32::from_ne_bytes(field(80)), u32::from_ne_bytes(field(88))), (-1, 5));
    assert_eq!(u32::from_ne_bytes(field(128)), 0x123);
    assert_eq!(u32::from_ne_bytes(field(132)), 0x4_5678);
}

#[test]
fn opcodes_are_known_by_their_codes() {
    for op in Opcode::ALL {
        assert_eq!(Opcode::from_raw(op.raw()), Some(*op));
    }
    assert_eq!(Opcode::from_raw(0), None);
    assert_eq!(Opcode::from_raw(4096), None);
    assert_eq!(Opcode::CopyFileRange64.name(), "copy_file_range_64");
    let flags = Capabilities::BIG_WRITES | Capabilities::PASSTHROUGH | Capabilities::from_bits(1 << 60);
    assert_eq!(format!("{flags:?}"), "BIG_WRITES|PASSTHROUGH|0x1000000000000000");
    assert_eq!(format!("{:?}", Capabilities::NONE), "NONE");
}
