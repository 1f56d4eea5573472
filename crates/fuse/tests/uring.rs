//! The other tests of the transport, over io_uring, and what is different there.

#![allow(clippy::unwrap_used)]
// Each of them has its own view of what they share.
#![allow(clippy::duplicate_mod)]

#[path = "files.rs"]
mod files;
#[path = "locks.rs"]
mod locks;
#[path = "passthrough.rs"]
mod passthrough;
#[path = "serving.rs"]
mod serving;
#[path = "support/mod.rs"]
mod support;
#[path = "takeover.rs"]
mod takeover;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use forebay_fuse::SessionOptions;
use forebay_fuse::flags::{Capabilities, OpenFlags};
use support::probe::{Probe, policy_in};
use support::{Mounted, uring_exists, wait_until};

/// Threads that serve a processor's queue, by their directories in `/proc`.
fn ring_threads() -> Vec<String> {
    let own = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let comm = fs::read_to_string(path.join("comm")).ok()?;
        comm.starts_with("fuse-").then(|| path.display().to_string())
    };
    fs::read_dir("/proc/self/task").unwrap().filter_map(own).collect()
}

#[test]
fn requests_travel_over_rings() {
    let mounted = Mounted::new(Probe::of_size(5));
    assert_eq!(fs::metadata(mounted.at("file")).unwrap().len(), 5);
    let agreed = mounted.fs.agreed.lock().unwrap();
    assert_eq!(agreed.capabilities.contains(Capabilities::OVER_IO_URING), uring_exists());
    assert_eq!(!ring_threads().is_empty(), uring_exists());
    mounted.finish();
}

#[test]
fn refused_rings_are_replaced_by_the_device() {
    let options = SessionOptions { ring_payload: Some(4096), ..SessionOptions::default() };
    let mounted = Mounted::with(Probe::of_size(5), options);
    wait_until("the second mount answers", || fs::metadata(mounted.at("file")).is_ok());
    let agreed = mounted.fs.agreed.lock().unwrap();
    assert!(!agreed.capabilities.contains(Capabilities::OVER_IO_URING));
    mounted.notifier.inval_inode(support::probe::FILE, 0, 0).unwrap();
    mounted.finish();
}

#[test]
fn more_requests_wait_on_one_processor_than_it_has_entries() {
    const READERS: usize = 24;
    let mounted = Mounted::new(Probe::opened_with(OpenFlags::DIRECT_IO, 100));
    let file = File::open(mounted.at("file")).unwrap();
    mounted.fs.block();
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                on_the_first_processor();
                let mut bytes = [0; 100];
                assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100);
            });
        }
        wait_until("all wait", || mounted.fs.reading.load(Ordering::SeqCst) == READERS);
        // What lets them go has to get through by the same queue.
        scope.spawn(|| {
            on_the_first_processor();
            assert!(fs::metadata(mounted.at("absent")).is_err());
            mounted.fs.release();
        });
    });
    drop(file);
    mounted.finish();
}

/// Who is sent to and fro is answered under the idle policy, and nothing else happens under it.
#[test]
fn a_caller_is_kept_on_its_processor() {
    const SCHED_IDLE: u32 = 5;
    let mounted = Mounted::new(Probe::of_size(5));
    let processors = std::thread::available_parallelism().unwrap().get();
    let idle = || {
        let policy = |thread: &String| policy_in(&format!("{thread}/stat"));
        ring_threads().iter().filter(|thread| policy(thread) == Some(SCHED_IDLE)).count()
    };
    let ask = |processor| {
        on_processor(processor);
        assert!(fs::metadata(mounted.at("absent")).is_err());
    };
    (0..4).for_each(|_| (0..2).for_each(|processor| ask(processor % processors)));
    assert_eq!(idle() > 0, uring_exists() && processors > 1);
    assert_eq!(*mounted.fs.policies.lock(), [0].into());
    mounted.finish();
}

fn on_the_first_processor() {
    on_processor(0);
}

fn on_processor(processor: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(processor);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
}
