//! Sessions that are paused and gone on with, under callers that notice nothing.

#![allow(clippy::unwrap_used)]
// Each of them has its own view of what they share.
#![allow(clippy::duplicate_mod)]

#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_fuse::flags::OpenFlags;
use forebay_fuse::null::{NullConfig, NullFs};
use forebay_fuse::{Ended, Filesystem, MountOptions, PauseError, Paused, Pauser, SessionOptions};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use support::probe::Probe;
use support::{Mounted, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSES: usize = 20;

/// As another process would have it: by its bytes and copies of its descriptors.
fn handed_over(paused: Paused, path: &Path) -> Paused {
    let state = paused.state();
    let copy = |of: forebay_fuse::OwnedFdOf| of.fd().try_clone_to_owned().unwrap();
    let descriptors = paused.descriptors().into_iter().map(copy).collect();
    paused.release();
    Paused::take(&state, descriptors, path, &MountOptions::default()).unwrap()
}

/// How often a session was gone on with, and by what it is paused the next time.
#[derive(Default)]
struct Turns {
    count: AtomicUsize,
    pauser: Mutex<Option<Pauser>>,
}

impl Turns {
    /// Pauses, and waits until it is gone on with.
    fn next(&self, mounted: &Mounted<impl Filesystem>) {
        let (before, path) = (self.count.load(Ordering::SeqCst), mounted.path());
        let pauser = self.pauser.lock().clone().unwrap_or_else(|| mounted.pauser.clone());
        pauser.pause(PATIENCE, &mut |processor, count| knock(path, processor, count)).unwrap();
        wait_until("it is gone on with", || self.count.load(Ordering::SeqCst) > before);
    }
}

/// Serves until it is unmounted, going on after each pause.
fn mounted<F: Filesystem>(fs: F, hand_over: bool) -> (Mounted<F>, Arc<Turns>) {
    let turns = Arc::new(Turns::default());
    let counted = Arc::clone(&turns);
    let mounted = Mounted::run_by(fs, SessionOptions::default(), move |session, fs, options| {
        let path = session.mountpoint().to_owned();
        let mut ended = session.run(Arc::clone(&fs), options)?;
        loop {
            match ended {
                Ended::Unmounted => return Ok(()),
                Ended::Paused(paused) => {
                    let next = if hand_over { handed_over(*paused, &path) } else { *paused };
                    *counted.pauser.lock() = Some(next.session().pauser());
                    counted.count.fetch_add(1, Ordering::SeqCst);
                    ended = next.run(Arc::clone(&fs), options)?;
                }
            }
        }
    });
    (mounted, turns)
}

/// Makes requests on a processor, each in a thread of its own, as they may have to wait for the next server.
fn knock(path: &Path, processor: u16, count: usize) {
    for _ in 0..count {
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut only = rustix::thread::CpuSet::new();
            only.set(usize::from(processor));
            rustix::thread::sched_setaffinity(None, &only).unwrap();
            rustix::fs::statfs(&path).unwrap();
        });
    }
}

/// Works on files of its own until it is told to stop; all must go well.
fn work(dir: &Path, number: usize, done: &AtomicBool) -> usize {
    let (file, other) = (dir.join(format!("file-{number}")), dir.join(format!("other-{number}")));
    let mut rounds = 0;
    while !done.load(Ordering::SeqCst) {
        let open = File::create_new(&file).unwrap();
        open.write_all_at(&[7; 100_000], 0).unwrap();
        fs::rename(&file, &other).unwrap();
        assert!(fs::metadata(&file).is_err());
        assert_eq!(open.metadata().unwrap().len(), 100_000);
        fs::remove_file(&other).unwrap();
        assert_eq!(open.metadata().unwrap().len(), 100_000);
        assert!(fs::read_dir(dir).unwrap().all(|entry| entry.is_ok()));
        rounds += 1;
    }
    rounds
}

/// Tells workers to stop when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn nobody_notices(hand_over: bool) {
    let (mounted, turns) = mounted(NullFs::new(NullConfig::default()), hand_over);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|number| {
                scope.spawn({
                    let (path, done) = (mounted.path(), &done);
                    move || work(path, number, done)
                })
            })
            .collect();
        // Also when a pause fails: otherwise the workers would be waited for, and they for this.
        let stop = Stop(&done);
        for _ in 0..PAUSES {
            turns.next(&mounted);
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(stop);
        assert!(workers.into_iter().all(|worker| worker.join().unwrap() > 0));
    });
    mounted.finish();
}

#[test]
fn callers_do_not_notice_a_pause() {
    nobody_notices(false);
}

#[test]
fn callers_do_not_notice_another_server() {
    nobody_notices(true);
}

/// Requests that wait for locks are asked again of whoever goes on, which has the locks that were held.
fn waiters_get_their_locks(hand_over: bool) {
    const WAITERS: usize = 12;
    let (mounted, turns) = mounted(NullFs::new(NullConfig::default()), hand_over);
    let path = mounted.at("file");
    let holder = File::create(&path).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let held = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let file = File::open(&path).unwrap();
                flock(&file, FlockOperation::LockExclusive).unwrap();
                held.fetch_add(1, Ordering::SeqCst);
                // Each is the only one that has it.
                assert_eq!(
                    flock(File::open(&path).unwrap(), FlockOperation::NonBlockingLockShared),
                    Err(Errno::WOULDBLOCK)
                );
            });
        }
        for _ in 0..3 {
            wait_until("all wait", || mounted.fs.waiting_locks() >= WAITERS);
            turns.next(&mounted);
            assert_eq!(held.load(Ordering::SeqCst), 0);
        }
        drop(holder);
        wait_until("all have had it", || held.load(Ordering::SeqCst) == WAITERS);
    });
    mounted.finish();
}

#[test]
fn a_pause_does_not_answer_those_who_wait_for_locks() {
    waiters_get_their_locks(false);
}

#[test]
fn another_server_answers_those_who_wait_for_locks() {
    waiters_get_their_locks(true);
}

#[test]
fn an_idle_session_is_paused_by_knocks() {
    let (mounted, turns) = mounted(NullFs::new(NullConfig::default()), true);
    for _ in 0..3 {
        turns.next(&mounted);
        assert!(fs::read_dir(mounted.path()).unwrap().next().is_none());
    }
    mounted.finish();
}

#[test]
fn a_pause_is_given_up_while_a_request_takes_longer() {
    let (mounted, turns) = mounted(Probe::opened_with(OpenFlags::DIRECT_IO, 100), false);
    let file = File::open(mounted.at("file")).unwrap();
    mounted.fs.block();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(&mut [0; 100], 0).unwrap());
        wait_until("it reads", || mounted.fs.reading.load(Ordering::SeqCst) == 1);
        let path = mounted.path().to_owned();
        let patience = Duration::from_millis(100);
        let refused = mounted.pauser.pause(patience, &mut |processor, count| knock(&path, processor, count));
        assert_eq!(refused, Err(PauseError::Busy(patience)));
        // Served as before, although that request still takes its time.
        for number in 0..20 {
            assert!(fs::metadata(mounted.at(&format!("absent-{number}"))).is_err());
        }
        mounted.fs.release();
        assert_eq!(reader.join().unwrap(), 100);
    });
    assert_eq!(turns.count.load(Ordering::SeqCst), 0);
    turns.next(&mounted);
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
    drop(file);
    mounted.finish();
}

#[test]
fn nothing_is_paused_that_has_ended() {
    let (mounted, _) = mounted(Probe::of_size(5), false);
    let pauser = mounted.pauser.clone();
    mounted.finish();
    assert_eq!(pauser.pause(PATIENCE, &mut |_, _| ()), Err(PauseError::NotServing));
}
