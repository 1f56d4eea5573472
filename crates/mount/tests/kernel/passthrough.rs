use std::{
    fs,
    io::ErrorKind,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_mount::PassthroughStatus;
use forebay_types::Ino;
use forebay_vfs::LockKeeper;
use rustix::{
    fs::{FallocateFlags, FlockOperation, copy_file_range, fallocate, flock},
    io::Errno,
    thread::{CapabilitySet, capabilities, set_capabilities},
};

use super::{handles::Handle, mapping::Map, *};

const MIB: usize = 1 << 20;
const LEN: usize = 3 * MIB + 17;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 4099) as u8).collect()
}

fn options() -> OpenOptions {
    OpenOptions { assembled_size: 64 << 20, ..OpenOptions::default() }
}

/// A file may have two numbers in the kernel, which keeps locks by number.
fn locks_here() -> VfsOptions {
    VfsOptions { locks: LockKeeper::Vfs, ..VfsOptions::default() }
}

/// A volume with a file `a`, mounted with room for assembled files.
fn mounted(read_only: bool) -> Mounted {
    let mut first = Mounted::new();
    fs::write(first.at("a"), pattern(LEN)).unwrap();
    let dir = first.stop();
    Mounted::served(dir, &OpenOptions { read_only, ..options() }, locks_here(), || {})
}

impl Mounted {
    fn through(&self) -> PassthroughStatus {
        self.fs.as_ref().unwrap().passthrough().unwrap()
    }

    fn ino(&self, name: &str) -> Ino {
        Ino(fs::metadata(self.at(name)).unwrap().ino())
    }

    /// A file that the kernel reads by itself.
    fn open_through(&self, name: &str) -> File {
        let mut opened = None;
        wait_until("the kernel reads the file by itself", || {
            let before = self.through().opens;
            let file = File::open(self.at(name)).unwrap();
            let through = self.through().opens > before;
            opened = Some(file);
            through
        });
        opened.unwrap()
    }
}

fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize + 1];
    let mut done = 0;
    loop {
        match file.read_at(&mut bytes[done..], done as u64).unwrap() {
            0 => break,
            got => done += got,
        }
    }
    bytes.truncate(done);
    bytes
}

#[test]
fn a_file_that_is_read_again_costs_no_reads() {
    for read_only in [true, false] {
        let mounted = mounted(read_only);
        let file = mounted.open_through("a");
        let before = mounted.requests("read");
        assert_eq!(all(&file), pattern(LEN));
        let map = Map::of(&file, LEN, false);
        assert!((0..LEN).step_by(4096).all(|at| map.get(at) == pattern(LEN)[at]));
        assert_eq!(fs::read(mounted.at("a")).unwrap(), pattern(LEN));
        assert_eq!(mounted.requests("read"), before);
        assert_eq!(file.metadata().unwrap().ino(), mounted.ino("a").0);
        drop((file, map));
        wait_until("the kernel has let go of it", || mounted.through().open == 0);
    }
}

#[test]
fn a_change_is_seen_by_those_who_have_it_open() {
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    let map = Map::of(&reader, MIB, false);
    let mut model = pattern(LEN);
    let writer = open(&mounted.at("a"));
    writer.write_all_at(b"changed", 100).unwrap();
    model[100..107].copy_from_slice(b"changed");
    assert_eq!((map.get(100), all(&reader) == model), (b'c', true));
    writer.write_all_at(&[9; 200_000], LEN as u64 + 50).unwrap();
    model.resize(LEN + 50, 0);
    model.resize(LEN + 200_050, 9);
    assert_eq!((reader.metadata().unwrap().len(), all(&reader) == model), (model.len() as u64, true));
    fallocate(&writer, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 5000, 300_000).unwrap();
    model[5000..305_000].fill(0);
    assert_eq!((map.get(5001), all(&reader) == model), (0, true));
    fallocate(&writer, FallocateFlags::ZERO_RANGE, LEN as u64, 1_000_000).unwrap();
    model.truncate(LEN);
    model.resize(LEN + 1_000_000, 0);
    assert!(all(&reader) == model);
    let copied =
        copy_file_range(&writer, Some(&mut 400_000), &writer, Some(&mut 2_000_000), 100_000).unwrap();
    model.copy_within(400_000..400_000 + copied, 2_000_000);
    assert!(all(&reader) == model);
    writer.set_len(2 * MIB as u64 + 5).unwrap();
    model.truncate(2 * MIB + 5);
    assert_eq!((reader.metadata().unwrap().len(), all(&reader) == model), (model.len() as u64, true));
    rustix::fs::fsync(&writer).unwrap();
    drop((reader, map, writer));
    assert!(fs::read(mounted.at("a")).unwrap() == model);
    assert!(fs::read(mounted.again().at("a")).unwrap() == model);
}

#[test]
fn a_path_leads_writers_to_the_page_cache_and_readers_back() {
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    // By path, without an open: through the number that the reader's name led to.
    rustix::fs::chmod(mounted.at("a"), 0o640.into()).unwrap();
    assert_eq!(reader.metadata().unwrap().mode() & 0o777, 0o640);
    let shortened = std::ffi::CString::new(mounted.at("a").to_str().unwrap()).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: the name is a string that ends in NUL.
    let result = unsafe { libc::truncate(shortened.as_ptr(), MIB as i64 * 2) };
    assert_eq!((result, reader.metadata().unwrap().len()), (0, 2 * MIB as u64));
    let writer = open(&mounted.at("a"));
    let map = Map::of(&writer, MIB, true);
    map.set(5, b'M');
    map.sync();
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 5).unwrap();
    assert_eq!(&byte, b"M");
    // While it is open for writing, names lead to the page cache.
    let before = mounted.through().opens;
    let cached = File::open(mounted.at("a")).unwrap();
    assert_eq!(mounted.through().opens, before);
    map.set(6, b'N');
    cached.read_exact_at(&mut byte, 6).unwrap();
    assert_eq!(&byte, b"N");
    drop((cached, map, writer, reader));
    let reader = mounted.open_through("a");
    reader.read_exact_at(&mut byte, 6).unwrap();
    assert_eq!((&byte, reader.metadata().unwrap().len()), (b"N", 2 * MIB as u64));
}

#[test]
fn opens_by_number_do_what_they_can() {
    let mounted = mounted(false);
    let cached = File::open(mounted.at("a")).unwrap();
    let by_fd = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
    drop(mounted.open_through("a"));
    // It cannot follow the name to the other number, so it is served where it is.
    assert_eq!(all(&File::open(by_fd(&cached)).unwrap()), pattern(LEN));
    let through = mounted.open_through("a");
    assert_eq!(all(&File::open(by_fd(&through)).unwrap()), pattern(LEN));
    let writer = File::options().write(true).open(by_fd(&through)).unwrap_err();
    assert_eq!(writer.kind(), ErrorKind::StaleNetworkFileHandle);
    open(&mounted.at("a")).write_all_at(b"!", 0).unwrap();
    assert_eq!((all(&through)[0], all(&cached)[0]), (b'!', b'!'));
}

#[test]
fn a_handle_leads_to_the_file_by_either_number() {
    let mounted = mounted(false);
    let cached = File::open(mounted.at("a")).unwrap();
    let own = Handle::of(&cached);
    let through = mounted.open_through("a");
    let beside = Handle::of(&through);
    let root = File::open(mounted.root()).unwrap();
    assert_ne!(own, beside);
    let both = || {
        for handle in [&own, &beside] {
            assert!(all(&handle.open(&root).unwrap()) == pattern(LEN), "{handle:?}");
        }
    };
    both();
    drop((cached, through));
    // Later the kernel knows neither number any more, and asks.
    wait_until("the kernel forgets the number beside", || {
        mounted.notifier.inval_entry(1, b"a").unwrap();
        mounted.through().known == 0
    });
    both();
    mounted.volume().stop_assembling();
    both();
}

#[test]
fn attributes_that_were_cached_before_are_not_believed() {
    let mounted = mounted(false);
    let cached = File::open(mounted.at("a")).unwrap();
    mounted.costs_nothing(&["getattr", "statx"], || assert!(cached.metadata().is_ok()));
    let through = mounted.open_through("a");
    rustix::fs::fchmod(&through, 0o604.into()).unwrap();
    assert_eq!(cached.metadata().unwrap().mode() & 0o777, 0o604);
    rustix::fs::fchmod(&cached, 0o640.into()).unwrap();
    assert_eq!(through.metadata().unwrap().mode() & 0o777, 0o640);
}

#[test]
fn locks_are_of_the_file_whatever_its_number() {
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    let writer = open(&mounted.at("a"));
    flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(flock(&writer, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    drop(reader);
    wait_until("the lock goes with the file", || {
        flock(&writer, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

/// The kernel does not wait for the answer to the last close, and another processor's requests come by another queue.
#[test]
fn a_lock_goes_with_the_last_close_before_the_next_request() {
    let mounted = mounted(false);
    let processors = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..1000 {
                let (holder, next) = (open(&mounted.at("a")), open(&mounted.at("a")));
                flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
                assert_eq!(flock(&next, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
                on_processor(round % processors);
                drop(holder);
                on_processor((round + 1) % processors);
                assert_eq!(flock(&next, FlockOperation::NonBlockingLockExclusive), Ok(()), "round {round}");
            }
        });
    });
}

fn on_processor(number: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(number);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
}

#[test]
fn a_removed_file_stays_readable() {
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    fs::remove_file(mounted.at("a")).unwrap();
    fs::write(mounted.at("a"), b"another").unwrap();
    assert_eq!((all(&reader) == pattern(LEN), reader.metadata().unwrap().nlink()), (true, 0));
    assert_eq!(fs::read(mounted.at("a")).unwrap(), b"another");
    drop(reader);
    let namespace = mounted.volume().namespace();
    wait_until("it is purged", || namespace.orphans().unwrap().is_empty());
    wait_until("its assembled file goes", || mounted.volume().assembled_status().unwrap().files == 0);
}

#[test]
fn a_mapping_that_outlives_its_file_sees_changes() {
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    let map = Map::of(&reader, MIB, false);
    drop(reader);
    // Longer than it takes until a file that nobody has open is given back.
    let rounds = || mounted.volume().assembled_status().unwrap().leased;
    wait_until("it is closed", || mounted.through().open == 0);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(rounds(), 1);
    open(&mounted.at("a")).write_all_at(b"seen", 0).unwrap();
    assert_eq!(map.get(0), b's');
    drop(map);
    wait_until("it is given back", || rounds() == 0);
}

#[test]
fn without_the_capability_all_is_as_ever() {
    let mut first = Mounted::new();
    fs::write(first.at("a"), pattern(LEN)).unwrap();
    let mounted = Mounted::served(first.stop(), &options(), locks_here(), || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets).unwrap();
    });
    for _ in 0..5 {
        assert_eq!(fs::read(mounted.at("a")).unwrap(), pattern(LEN));
    }
    let through = mounted.through();
    assert_eq!((through.on, through.opens), (false, 0));
    assert!(through.why_not.unwrap().contains("CAP_SYS_ADMIN"));
    assert_eq!(mounted.volume().assembled_status().unwrap().files, 0);
}

/// Small random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn readers_see_each_change_when_it_has_returned() {
    const STEPS: usize = 3000;
    let mounted = mounted(false);
    let path = mounted.at("a");
    let mut model = pattern(LEN);
    let mut dice = Dice(7);
    let mut readers = vec![mounted.open_through("a")];
    let mut writers: Vec<File> = Vec::new();
    for step in 0..STEPS {
        if step % 1000 == 999 {
            writers.clear();
            readers[0] = mounted.open_through("a");
        }
        let at = dice.below(model.len() + 1);
        let most = if dice.below(10) == 0 { 300_000 } else { 9000 };
        let len = 1 + dice.below(most);
        match dice.below(16) {
            0 => readers.push(File::open(&path).unwrap()),
            1 if readers.len() > 1 => drop(readers.swap_remove(1 + dice.below(readers.len() - 1))),
            2 => writers.push(open(&path)),
            3 | 4 if !writers.is_empty() => drop(writers.swap_remove(dice.below(writers.len()))),
            5 => {
                let size = MIB + dice.below(4 * MIB);
                match writers.last() {
                    Some(writer) => writer.set_len(size as u64).unwrap(),
                    None => open(&path).set_len(size as u64).unwrap(),
                }
                model.resize(size, 0);
            }
            6 if !writers.is_empty() => {
                let writer = &writers[dice.below(writers.len())];
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(writer, flags, at as u64, len as u64).unwrap();
                let end = model.len().min(at + len);
                model[at..end].fill(0);
            }
            7 if !writers.is_empty() => {
                let (to, writer) = (dice.below(model.len()), &writers[0]);
                let copied =
                    copy_file_range(writer, Some(&mut (at as u64)), writer, Some(&mut (to as u64)), len);
                if let Ok(copied) = copied {
                    let bytes = model[at..at + copied].to_vec();
                    model.resize(model.len().max(to + copied), 0);
                    model[to..to + copied].copy_from_slice(&bytes);
                }
            }
            _ if !writers.is_empty() => {
                let bytes = vec![dice.below(256) as u8; len];
                writers[dice.below(writers.len())].write_all_at(&bytes, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
            }
            _ => {}
        }
        model.truncate(6 * MIB);
        if path.metadata().unwrap().len() > 6 * MIB as u64 {
            open(&path).set_len(6 * MIB as u64).unwrap();
        }
        for reader in readers.iter().chain(&writers) {
            assert_eq!(reader.metadata().unwrap().len(), model.len() as u64, "step {step}");
            let from = dice.below(model.len());
            let mut bytes = vec![0; 20_000.min(model.len() - from)];
            reader.read_exact_at(&mut bytes, from as u64).unwrap();
            assert!(bytes == model[from..from + bytes.len()], "step {step} at {from}");
        }
    }
    for reader in &readers {
        assert!(all(reader) == model);
    }
    assert!(mounted.through().opens >= 4, "{:?}", mounted.through());
    drop((readers, writers));
    assert!(fs::read(mounted.again().at("a")).unwrap() == model);
}

#[test]
fn writers_and_readers_at_once() {
    const SLOT: usize = 64 << 10;
    let mounted = mounted(false);
    let reader = mounted.open_through("a");
    let path = mounted.at("a");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|slot| {
                let (path, reader) = (&path, &reader);
                scope.spawn(move || {
                    let at = (slot * SLOT) as u64;
                    for round in 0..300_u32 {
                        let bytes = [round as u8 ^ slot as u8; SLOT];
                        open(path).write_all_at(&bytes, at).unwrap();
                        let mut seen = [0; SLOT];
                        reader.read_exact_at(&mut seen, at).unwrap();
                        assert!(seen == bytes, "slot {slot}, round {round}");
                    }
                })
            })
            .collect();
        let lengths = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                for len in [MIB as u64, LEN as u64] {
                    open(&path).set_len(len).unwrap();
                    assert_eq!(reader.metadata().unwrap().len(), len);
                }
                let other = File::open(&path).unwrap();
                assert_eq!(all(&other).len(), LEN);
            }
        });
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::SeqCst);
        lengths.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(all(&reader) == fs::read(&path).unwrap());
}
