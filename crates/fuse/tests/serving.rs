//! The transport: threads, failures, notifications, the end of a mount.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_fuse::flags::OpenFlags;
use forebay_fuse::null::{NullConfig, NullFs};
use forebay_fuse::types::ROOT_INO;
use forebay_fuse::{
    Errno, MountError, MountOptions, Observer, Opcode, SessionError, SessionOptions, UnmountError,
    is_mounted, mount, unmount,
};
use parking_lot::Mutex;
use support::probe::{FILE, Probe};
use support::{Mounted, over_uring, wait_until};

fn null() -> Mounted<NullFs> {
    Mounted::new(NullFs::new(NullConfig::default()))
}

#[test]
fn a_panic_is_an_io_error_and_no_more() {
    let mounted = Mounted::new(Probe::of_size(5));
    for _ in 0..20 {
        let error = fs::metadata(mounted.at("panic")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    assert_eq!(fs::metadata(mounted.at("file")).unwrap().len(), 5);
    mounted.finish();
}

#[test]
fn what_is_not_implemented_fails_as_such() {
    let mounted = Mounted::new(Probe::default());
    let error = fs::create_dir(mounted.at("dir")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
    let file = File::open(mounted.at("file")).unwrap();
    // No fsync: the kernel takes that for success.
    file.sync_all().unwrap();
    drop(file);
    mounted.finish();
}

#[test]
fn blocked_requests_leave_room_for_others() {
    const READERS: usize = 40;
    let fs = Probe::opened_with(OpenFlags::DIRECT_IO, 100);
    let mounted = Mounted::with(fs, SessionOptions { min_workers: 2, ..SessionOptions::default() });
    mounted.fs.block();
    let path = mounted.at("file");
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| fs::read(&path).unwrap().len())).collect();
        wait_until("all reads are in the file system", || {
            mounted.fs.reading.load(Ordering::SeqCst) == READERS
        });
        assert_eq!(fs::metadata(mounted.at("nothing")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        mounted.fs.release();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 100));
    });
    mounted.finish();
}

#[test]
fn the_limit_of_workers_delays_and_loses_nothing() {
    let fs = Probe::opened_with(OpenFlags::DIRECT_IO, 100);
    let options = SessionOptions { min_workers: 2, max_workers: 3, ..SessionOptions::default() };
    let mounted = Mounted::with(fs, options);
    mounted.fs.block();
    let path = mounted.at("file");
    let opened: Vec<File> = (0..10).map(|_| File::open(&path).unwrap()).collect();
    std::thread::scope(|scope| {
        let read = |file: &File| file.read_at(&mut [0; 10], 0).unwrap();
        let readers: Vec<_> = opened.iter().map(|file| scope.spawn(move || read(file))).collect();
        // Over io_uring the limit is each processor's.
        let full = |reading: usize| if over_uring() { reading >= 3 } else { reading == 3 };
        wait_until("the workers are full", || full(mounted.fs.reading.load(Ordering::SeqCst)));
        mounted.fs.release();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 10));
    });
    drop(opened);
    mounted.finish();
}

#[test]
fn a_read_is_put_together_of_pieces() {
    let fs = Probe::opened_with(OpenFlags::DIRECT_IO, 1 << 20);
    let mounted = Mounted::new(fs);
    let file = File::open(mounted.at("file")).unwrap();
    // From one piece to more than a system call takes at once.
    for count in [1, 7, 19, 20, 100, 1023, 1024, 3000] {
        let pieces: Vec<Bytes> = (0..count).map(|n| Bytes::from(vec![n as u8; 1 + n % 300])).collect();
        let expected = pieces.concat();
        *mounted.fs.pieces.lock() = pieces;
        let mut buffer = vec![0; 1 << 20];
        let len = file.read_at(&mut buffer, 0).unwrap();
        assert_eq!(len, expected.len(), "{count} pieces");
        assert_eq!(buffer.get(..len), Some(&expected[..]), "{count} pieces");
        // What goes beyond the request is cut off.
        let short = file.read_at(&mut buffer[..100], 0).unwrap();
        assert_eq!(short, expected.len().min(100));
        assert_eq!(buffer.get(..short), expected.get(..short));
    }
    drop(file);
    mounted.finish();
}

#[test]
fn the_caller_is_known() {
    let mounted = Mounted::new(Probe::default());
    assert!(!mounted.at("who").exists());
    let request = mounted.fs.last_request.lock().unwrap();
    assert_eq!((request.uid, request.gid), (0, 0));
    assert_ne!(request.pid, 0);
    let groups = request.groups().unwrap();
    let own = rustix::process::getgroups().unwrap();
    assert_eq!(groups.len(), own.len());
    assert!(own.iter().all(|group| groups.contains(&group.as_raw())));
    assert!(request.in_group(0));
    mounted.finish();
}

// What is cached stays cached in these tests because an open file holds it, whatever else goes on on the machine.

#[test]
fn cached_attributes_change_when_told() {
    let mounted = Mounted::new(Probe::of_size(1));
    let file = File::open(mounted.at("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1);
    mounted.fs.size.store(2, Ordering::SeqCst);
    assert_eq!(file.metadata().unwrap().len(), 1);
    mounted.notifier.inval_inode(FILE, -1, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2);
    // An inode that the kernel does not know is no error.
    mounted.notifier.inval_inode(12345, 0, 0).unwrap();
    drop(file);
    mounted.finish();
}

#[test]
fn cached_names_go_when_told() {
    let mounted = Mounted::new(Probe::of_size(1));
    let lookups = |which: usize| mounted.fs.lookups[which].load(Ordering::SeqCst);
    let path = mounted.at("file");
    let file = File::open(&path).unwrap();
    assert!(path.exists());
    assert_eq!(lookups(0), 1);
    mounted.notifier.inval_entry(ROOT_INO, b"file").unwrap();
    mounted.notifier.inval_entry(ROOT_INO, b"unheard of").unwrap();
    assert_eq!(lookups(0), 1);
    let file_again = File::open(&path).unwrap();
    assert_eq!(lookups(0), 2);
    mounted.notifier.delete(ROOT_INO, FILE, b"file").unwrap();
    assert!(path.exists());
    assert_eq!(lookups(0), 3);

    assert!(!mounted.at("missing").exists());
    let before = lookups(1);
    mounted.notifier.inval_entry(ROOT_INO, b"missing").unwrap();
    assert!(!mounted.at("missing").exists());
    assert!(lookups(1) > before);
    drop((file, file_again));
    mounted.finish();
}

#[test]
fn pages_can_be_stored_and_dropped() {
    let mounted = Mounted::new(Probe::opened_with(OpenFlags::KEEP_CACHE, 4096));
    assert_eq!(mounted.notifier.store(FILE, 0, &[1]), Err(Errno::ENOENT));
    let file = File::open(mounted.at("file")).unwrap();
    let read = || {
        let mut page = [1; 4096];
        file.read_exact_at(&mut page, 0).unwrap();
        page
    };
    // Clean pages may be dropped at any time.
    wait_until("a stored page is read", || {
        mounted.notifier.store(FILE, 0, &[9; 4096]).unwrap();
        read() == [9; 4096]
    });
    mounted.notifier.inval_inode(FILE, 0, 0).unwrap();
    assert_eq!(read(), [0; 4096]);
    drop(file);
    mounted.finish();
}

#[test]
fn birth_times_holes_and_flags_come_through() {
    let mounted = Mounted::new(Probe::of_size(1000));
    let path = mounted.at("file");
    let born = fs::metadata(&path).unwrap().created().unwrap();
    assert_eq!(born, std::time::UNIX_EPOCH + std::time::Duration::new(1000, 7));
    let file = File::open(&path).unwrap();
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(5)), Ok(1000));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(5)), Ok(15));
    assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap().bits(), 0x10);
    drop(file);
    mounted.finish();
}

#[derive(Default)]
struct Seen(Mutex<Vec<(Opcode, Option<Errno>, u64)>>);

impl Observer for Seen {
    fn request(&self, op: Opcode, _nanos: u64, error: Option<Errno>, bytes: u64) {
        self.0.lock().push((op, error, bytes));
    }
}

#[test]
fn every_answer_is_observed() {
    let seen = Arc::new(Seen::default());
    let options = SessionOptions { observer: Some(seen.clone()), ..SessionOptions::default() };
    let mounted = Mounted::with(NullFs::new(NullConfig::default()), options);
    assert!(!mounted.at("none").exists());
    let mut file = File::create(mounted.at("file")).unwrap();
    file.write_all(&[1; 1000]).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    drop(file);
    // Nobody waits for a release, and one that is not read before the end of the mount is never sent.
    wait_until("the release is answered", || seen.0.lock().iter().any(|(op, ..)| *op == Opcode::Release));
    let path = mounted.path().to_owned();
    mounted.finish();
    assert!(!is_mounted(&path).unwrap());
    let seen = seen.0.lock();
    for expected in [
        (Opcode::Lookup, Some(Errno::ENOENT), 0),
        (Opcode::Create, None, 0),
        (Opcode::Write, None, 1000),
        (Opcode::Setlkw, None, 0),
        (Opcode::Flush, None, 0),
        (Opcode::Release, None, 0),
    ] {
        assert!(seen.contains(&expected), "{expected:?} is not in {seen:?}");
    }
}

#[test]
fn a_busy_mount_stays_until_asked_lazily() {
    let mounted = null();
    let file = File::create(mounted.at("file")).unwrap();
    let busy = unmount(mounted.path(), false).unwrap_err();
    assert!(matches!(busy, UnmountError::Busy(_)), "{busy}");
    assert!(is_mounted(mounted.path()).unwrap());

    unmount(mounted.path(), true).unwrap();
    assert!(!is_mounted(mounted.path()).unwrap());
    file.write_all_at(&[1; 5000], 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    assert!(!mounted.has_ended());
    drop(file);
    mounted.join().unwrap();
}

#[test]
fn a_session_ends_only_after_what_is_in_flight() {
    let fs = Probe::opened_with(OpenFlags::DIRECT_IO, 100);
    let mounted = Mounted::new(fs);
    mounted.fs.block();
    let path = mounted.at("file");
    let reader = std::thread::spawn(move || fs::read(path));
    wait_until("the read is in the file system", || mounted.fs.reading.load(Ordering::SeqCst) == 1);
    // The connection is aborted: the reader gets an error, while the method still runs.
    let forced = rustix::mount::unmount(mounted.path(), rustix::mount::UnmountFlags::FORCE);
    assert!(matches!(forced, Ok(()) | Err(rustix::io::Errno::BUSY)), "{forced:?}");
    reader.join().unwrap().unwrap_err();
    assert_eq!(mounted.fs.reading.load(Ordering::SeqCst), 1);
    assert!(!mounted.has_ended() && !mounted.fs.destroyed.load(Ordering::SeqCst));
    mounted.fs.release();
    let (fs, path) = (Arc::clone(&mounted.fs), mounted.path().to_owned());
    mounted.join().unwrap();
    assert!(fs.destroyed.load(Ordering::SeqCst));
    assert!(!is_mounted(&path).unwrap());
}

struct Unwilling(bool);

impl forebay_fuse::Filesystem for Unwilling {
    fn init(&self, offer: &forebay_fuse::KernelOffer) -> Result<forebay_fuse::InitConfig, Errno> {
        assert!(offer.minor >= 31);
        assert!(!self.0, "as asked");
        Err(Errno::EACCES)
    }
}

#[test]
fn a_file_system_may_refuse_to_begin() {
    for (panics, errno) in [(false, Errno::EACCES), (true, Errno::EIO)] {
        let mounted = Mounted::new(Unwilling(panics));
        let path = mounted.path().to_owned();
        let error = mounted.join().unwrap_err();
        assert!(matches!(error, SessionError::Declined(given) if given == errno), "{error}");
        assert!(!is_mounted(&path).unwrap());
    }
}

#[test]
fn a_session_that_never_ran_leaves_no_mount() {
    let dir = tempfile::tempdir().unwrap();
    let session = mount(dir.path(), &MountOptions::default()).unwrap();
    assert!(is_mounted(dir.path()).unwrap());
    assert_eq!(session.mountpoint(), dir.path().canonicalize().unwrap());
    drop(session);
    assert!(!is_mounted(dir.path()).unwrap());
}

#[test]
fn mount_points_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let options = MountOptions::default();
    let missing = mount(&dir.path().join("missing"), &options).unwrap_err();
    assert!(matches!(missing, MountError::NoMountPoint(_)), "{missing}");
    fs::write(dir.path().join("file"), b"").unwrap();
    let file = mount(&dir.path().join("file"), &options).unwrap_err();
    assert!(matches!(file, MountError::NotADirectory(_)), "{file}");
    let below_file = mount(&dir.path().join("file/x"), &options).unwrap_err();
    assert!(matches!(below_file, MountError::NotADirectory(_)), "{below_file}");

    let mounted = null();
    let twice = mount(mounted.path(), &options).unwrap_err();
    assert!(matches!(&twice, MountError::AlreadyMounted { fsname, .. } if fsname == "forebay"), "{twice}");
    mounted.finish();

    let none = unmount(dir.path(), false).unwrap_err();
    assert!(matches!(none, UnmountError::NotMounted(_)), "{none}");
    let none = unmount(&dir.path().join("missing"), true).unwrap_err();
    assert!(matches!(none, UnmountError::NotMounted(_)), "{none}");
    let not_fuse = unmount(std::path::Path::new("/proc"), false).unwrap_err();
    assert!(matches!(not_fuse, UnmountError::NotMounted(_)), "{not_fuse}");
}

#[test]
fn options_reach_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let options = MountOptions {
        fsname: "a volume, with comma".to_owned(),
        read_only: true,
        noatime: true,
        noexec: true,
        allow_other: true,
        ..MountOptions::default()
    };
    let session = mount(dir.path(), &options).unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = dir.path().canonicalize().unwrap();
    let line = table.lines().find(|line| line.contains(path.to_str().unwrap())).unwrap();
    assert!(line.contains("ro,nosuid,nodev,noexec,noatime"), "{line}");
    assert!(line.contains(r"- fuse.forebay a\040volume,\040with\040comma"), "{line}");
    assert!(line.contains("default_permissions,allow_other"), "{line}");
    drop(session);
}

#[test]
fn read_ahead_is_raised() {
    let options = SessionOptions { read_ahead_kb: Some(2048), ..SessionOptions::default() };
    let mounted = Mounted::with(NullFs::new(NullConfig::default()), options);
    let device = fs::metadata(mounted.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    assert_eq!(setting.trim(), "2048");
    mounted.finish();
}
