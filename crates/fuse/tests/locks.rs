//! Locks that wait, through the kernel.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_fuse::null::{NullConfig, NullFs};
use forebay_fuse::{Observer, Opcode, SessionOptions};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use support::{Mounted, wait_until};

/// Two workers and no more: fewer than there are waiters.
fn mounted() -> Mounted<NullFs> {
    let options = SessionOptions { min_workers: 2, max_workers: 2, ..SessionOptions::default() };
    let mounted = Mounted::with(NullFs::new(NullConfig::default()), options);
    File::create(mounted.at("file")).unwrap();
    mounted
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn waiters_hold_no_worker() {
    const WAITERS: usize = 16;
    let mounted = mounted();
    let path = mounted.at("file");
    let holder = open(&path);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    assert_eq!(flock(open(&path), FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let file = open(&path);
                flock(&file, FlockOperation::LockExclusive).unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold an exclusive lock");
                inside.fetch_sub(1, Ordering::SeqCst);
                flock(&file, FlockOperation::Unlock).unwrap();
            });
        }
        wait_until("all wait", || mounted.fs.waiting_locks() == WAITERS);
        // The two workers are free for other work, and for the unlock.
        assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), 1);
        flock(&holder, FlockOperation::Unlock).unwrap();
    });
    assert_eq!(mounted.fs.waiting_locks(), 0);
    drop(holder);
    mounted.finish();
}

#[test]
fn closing_releases() {
    let mounted = mounted();
    let path = mounted.at("file");
    let holder = open(&path);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| flock(open(&path), FlockOperation::LockShared).unwrap());
        wait_until("one waits", || mounted.fs.waiting_locks() == 1);
        drop(holder);
    });
    mounted.finish();
}

/// The `flock` program, which waits for the lock in a process of its own.
fn flock_program(arguments: &[&str], path: &Path) -> Command {
    let mut command = Command::new("flock");
    command.args(arguments).arg(path).arg("true");
    command
}

#[test]
fn a_killed_waiter_is_gone() {
    let mounted = mounted();
    let path = mounted.at("file");
    let holder = open(&path);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let mut waiter = flock_program(&[], &path).spawn().unwrap();
    wait_until("it waits", || mounted.fs.waiting_locks() == 1);
    kill_process(Pid::from_child(&waiter), Signal::KILL).unwrap();
    let status: ExitStatus = waiter.wait().unwrap();
    assert!(!status.success());
    assert_eq!(mounted.fs.waiting_locks(), 0);
    flock(&holder, FlockOperation::Unlock).unwrap();
    assert!(flock_program(&["-n"], &path).status().unwrap().success());
    drop(holder);
    mounted.finish();
}

#[derive(Default)]
struct Interrupted(AtomicUsize);

impl Observer for Interrupted {
    fn request(&self, op: Opcode, _nanos: u64, error: Option<forebay_fuse::Errno>, _bytes: u64) {
        if op == Opcode::Setlkw && error == Some(forebay_fuse::Errno::EINTR) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_signal_that_is_handled_interrupts_the_wait() {
    let seen = Arc::new(Interrupted::default());
    let options = SessionOptions { observer: Some(seen.clone()), ..SessionOptions::default() };
    let mounted = Mounted::with(NullFs::new(NullConfig::default()), options);
    let path = mounted.at("file");
    let holder = File::create(&path).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    // With a time limit it handles SIGALRM, and waits anew when it was not its timer's.
    let mut waiter = flock_program(&["-w", "100000"], &path).spawn().unwrap();
    wait_until("it waits", || mounted.fs.waiting_locks() == 1);
    kill_process(Pid::from_child(&waiter), Signal::ALARM).unwrap();
    wait_until("its wait is interrupted", || seen.0.load(Ordering::SeqCst) == 1);
    wait_until("it waits again", || mounted.fs.waiting_locks() == 1);
    flock(&holder, FlockOperation::Unlock).unwrap();
    assert!(waiter.wait().unwrap().success());
    drop(holder);
    mounted.finish();
}

/// An open-file-description lock: POSIX locks by range, owned by the open file.
#[allow(unsafe_code)]
fn range_command(file: &File, command: i32, kind: i32, start: i64, len: i64) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: for these commands fcntl reads and writes one struct flock; `lock` is one, borrowed for the call alone, and
    // the descriptor is open as long as `file` is borrowed.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == 0 {
        return Ok(lock);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
}

fn range_lock(file: &File, kind: i32, start: i64, len: i64, wait: bool) -> Result<(), Errno> {
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    range_command(file, command, kind, start, len).map(drop)
}

#[test]
fn ranges_conflict_where_they_overlap() {
    let mounted = mounted();
    let path = mounted.at("file");
    let (a, b) = (open(&path), open(&path));
    range_lock(&a, libc::F_WRLCK, 0, 100, false).unwrap();
    range_lock(&b, libc::F_WRLCK, 100, 100, false).unwrap();
    assert_eq!(range_lock(&b, libc::F_RDLCK, 99, 1, false), Err(Errno::AGAIN));
    let blocker = range_command(&b, libc::F_OFD_GETLK, libc::F_RDLCK, 50, 60).unwrap();
    assert_eq!((i32::from(blocker.l_type), blocker.l_start, blocker.l_len), (libc::F_WRLCK, 0, 100));
    let free = range_command(&b, libc::F_OFD_GETLK, libc::F_WRLCK, 200, 0).unwrap();
    assert_eq!(i32::from(free.l_type), libc::F_UNLCK);
    // A hole in the middle of what is held.
    range_lock(&a, libc::F_UNLCK, 40, 20, false).unwrap();
    range_lock(&b, libc::F_RDLCK, 40, 20, false).unwrap();
    assert_eq!(range_lock(&b, libc::F_RDLCK, 39, 1, false), Err(Errno::AGAIN));
    assert_eq!(range_lock(&b, libc::F_RDLCK, 60, 1, false), Err(Errno::AGAIN));
    std::thread::scope(|scope| {
        scope.spawn(|| range_lock(&b, libc::F_WRLCK, 0, 0, true).unwrap());
        wait_until("one waits", || mounted.fs.waiting_locks() == 1);
        range_lock(&a, libc::F_UNLCK, 0, 0, false).unwrap();
    });
    assert_eq!(range_lock(&a, libc::F_RDLCK, 5000, 1, false), Err(Errno::AGAIN));
    drop((a, b));
    mounted.finish();
}
