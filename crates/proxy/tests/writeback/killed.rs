//! A real process that is killed in the middle of appends. It is this test itself, started again with a directory in its environment.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use forebay_protocol::group::{ReadBackAnswer, SegmentAnswer};
use forebay_rpc::Address;
use forebay_types::SegmentId;

use crate::bed::{Caller, bytes, serve};

const DIRECTORY: &str = "FOREBAY_TEST_MEMBER";
const LIFE: &str = "FOREBAY_TEST_LIFE";

/// What the other process does: it serves until it is killed. In the test's own process it has nothing to do.
#[test]
fn a_process_that_serves() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let life = std::env::var(LIFE).unwrap().parse().unwrap();
    let _bed = serve(Path::new(&dir), 1 << 30, life);
    loop {
        std::thread::park();
    }
}

fn start(dir: &Path, life: u8) -> Child {
    let socket = dir.join("socket");
    let _ = std::fs::remove_file(&socket);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_process_that_serves", "--nocapture"])
        .env(DIRECTORY, dir)
        .env(LIFE, life.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !socket.exists() {
        std::thread::yield_now();
    }
    child
}

/// Several writers append until the process is gone. What each was told is there afterwards, byte for byte, and the segments go on.
#[test]
fn what_was_acknowledged_outlives_the_process() {
    const WRITERS: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("socket"));
    let mut ends = [0_u64; WRITERS as usize];
    for life in 1..=6 {
        let mut child = start(dir.path(), life);
        let dead = AtomicBool::new(false);
        ends = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (dead, address, from) = (&dead, &address, ends[writer as usize]);
                    scope.spawn(move || append_until(dead, address, writer, from))
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(100 + 50 * u64::from(life)));
            child.kill().unwrap();
            child.wait().unwrap();
            dead.store(true, Ordering::SeqCst);
            let ends: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            ends.try_into().unwrap()
        });
        let again = serve(dir.path(), 1 << 30, 100 + life);
        let caller = Caller::greeted(&again.address, "read");
        for writer in 0..WRITERS {
            let kept = again.log.kept(crate::bed::V, SegmentId(writer));
            let end = kept.map_or(0, |kept| {
                assert!(!kept.damaged);
                kept.end()
            });
            assert!(end >= ends[writer as usize], "writer {writer}: {end} of {}", ends[writer as usize]);
            for at in 0..end / 700 {
                let (answer, back) = caller.read(SegmentId(writer), at * 700, (at + 1) * 700);
                assert!(matches!(answer, ReadBackAnswer::Read { .. }) && back == bytes(writer + at, 700));
            }
            // More than was acknowledged may be there: the next life goes on behind it.
            ends[writer as usize] = end;
        }
    }
    assert!(ends.iter().all(|end| *end > 0), "nothing was written: {ends:?}");
}

fn append_until(dead: &AtomicBool, address: &Address, writer: u64, from: u64) -> u64 {
    let caller = Caller::connect(address);
    let mut end = from;
    if caller.greet("write").is_err() {
        return end;
    }
    while !dead.load(Ordering::SeqCst) {
        let piece = bytes(writer + end / 700, 700);
        match caller.appends(&[(SegmentId(writer), end, piece)], 2000) {
            Ok(taken) if taken.parts == [SegmentAnswer::Synced { end: end + 700 }] => end += 700,
            Ok(taken) => panic!("{taken:?}"),
            Err(_) => break,
        }
    }
    end
}
