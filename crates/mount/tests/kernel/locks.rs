use std::{
    fs,
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::{FlockOperation, fcntl_lock, flock},
    io::Errno,
};

use forebay_vfs::LockKeeper;

use super::*;

/// A mount that keeps the locks itself.
fn lock_keeping() -> Mounted {
    Mounted::with(VfsOptions { locks: LockKeeper::Vfs, ..VfsOptions::default() })
}

/// Another process that takes a lock on `path` by `flock(1)`'s library call, then ends.
fn wait_in_background(path: &Path) -> Child {
    Command::new("flock").arg("--exclusive").arg(path).arg("true").stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn flock_excludes_waits_and_ends_with_the_file() {
    let mounted = lock_keeping();
    let path = mounted.at("a");
    fs::write(&path, b"").unwrap();
    let holder = open(&path);
    flock(&holder, FlockOperation::LockShared).unwrap();
    let other = open(&path);
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    drop(other);
    let mut waiting = wait_in_background(&path);
    wait_until("the other process waits", || mounted.vfs().locks().waiting() == 1);
    drop(holder);
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn a_signal_ends_the_wait() {
    let mounted = lock_keeping();
    let path = mounted.at("a");
    fs::write(&path, b"").unwrap();
    let holder = open(&path);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let mut waiting = wait_in_background(&path);
    wait_until("the other process waits", || mounted.vfs().locks().waiting() == 1);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    wait_until("nobody waits", || mounted.vfs().locks().waiting() == 0);
    flock(&holder, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
#[allow(unsafe_code)]
fn record_locks_are_of_the_process_and_of_the_open_file() {
    let mounted = lock_keeping();
    let path = mounted.at("a");
    fs::write(&path, b"0123456789").unwrap();
    let (first, second) = (open(&path), open(&path));
    fcntl_lock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
    let lock = |file: &File, kind: i32, command: i32| {
        use std::os::fd::AsRawFd;
        // SAFETY: all bytes zero are a valid flock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_len = 5;
        // SAFETY: an open descriptor, and a flock that outlives the call.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
        (result, std::io::Error::last_os_error().raw_os_error())
    };
    assert_eq!(
        lock(&first, libc::F_WRLCK, libc::F_OFD_SETLK),
        (-1, Some(libc::EAGAIN)),
        "the process has it"
    );
    drop(second);
    assert_eq!(lock(&first, libc::F_WRLCK, libc::F_OFD_SETLK).0, 0, "any close released it");
    let third = open(&path);
    assert_eq!(lock(&third, libc::F_RDLCK, libc::F_OFD_SETLK).0, -1);
    drop(first);
    wait_until("the closed file's lock is gone", || lock(&third, libc::F_RDLCK, libc::F_OFD_SETLK).0 == 0);
}

#[test]
fn locks_that_the_kernel_keeps_cost_nothing() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, b"0123456789").unwrap();
    let holder = open(&path);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let mut waiting = wait_in_background(&path);
    let other = open(&path);
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    drop((holder, other));
    assert!(waiting.wait().unwrap().success());
    mounted.costs_nothing(&["setlk", "setlkw", "getlk", "flush"], || {
        let file = open(&path);
        flock(&file, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    });
    assert_eq!(mounted.requests("setlk") + mounted.requests("flush"), 0);
}
