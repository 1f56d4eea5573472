//! How many threads serve. The only test of its program, as it counts the threads of the process.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use forebay_fuse::SessionOptions;
use forebay_fuse::flags::OpenFlags;
use support::probe::Probe;
use support::{Mounted, wait_until};

fn serving() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().map(|task| {
        // A thread may end between its listing and its reading.
        fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    });
    names.filter(|name| name.trim() == "fuse").count()
}

#[test]
fn workers_come_as_needed_and_go() {
    let fs = Probe::opened_with(OpenFlags::DIRECT_IO, 100);
    let mounted = Mounted::with(fs, SessionOptions { min_workers: 2, ..SessionOptions::default() });
    let file = File::open(mounted.at("file")).unwrap();
    for _ in 0..3 {
        mounted.fs.block();
        std::thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 8));
            }
            wait_until("all read", || mounted.fs.reading.load(Ordering::SeqCst) == 30);
            wait_until("one more waits", || serving() > 30);
            mounted.fs.release();
        });
        // Two to begin with, and two that are kept for the next burst.
        wait_until("the surplus has gone", || serving() == 4);
    }
    drop(file);
    mounted.finish();
    wait_until("all have gone", || serving() == 0);
}
