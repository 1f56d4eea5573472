//! A proxy's process that is killed in the middle of appends. It is this test itself, started again with a directory in its environment.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use forebay_protocol::group::{ReadBackAnswer, SegmentAnswer, SegmentRefusal};
use forebay_rpc::Address;
use forebay_types::SegmentId;

use crate::{
    cluster::{Cluster, start, until},
    writers::bytes,
};

const DIRECTORY: &str = "FOREBAY_TEST_PROXY";
const META: &str = "FOREBAY_TEST_META";
const PIECE: u64 = 700;

fn told_at(dir: &Path) -> PathBuf {
    dir.with_extension("address")
}

/// What the other process does: it is a proxy until it is killed. In the test's own process it has nothing to do.
#[test]
fn a_process_that_is_a_proxy() {
    let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let meta = std::env::var(META).unwrap().parse().unwrap();
    let proxy = start(&meta, &dir).unwrap();
    let new = dir.with_extension("new");
    std::fs::write(&new, proxy.addresses()[0].to_string()).unwrap();
    std::fs::rename(new, told_at(&dir)).unwrap();
    loop {
        std::thread::park();
    }
}

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn spawn(cluster: &Cluster, name: &str) -> (Running, Address) {
    let dir = cluster.directory(name);
    let _ = std::fs::remove_file(told_at(&dir));
    let child = Running(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::a_process_that_is_a_proxy", "--nocapture"])
            .env(DIRECTORY, &dir)
            .env(META, cluster.meta.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let address = until("a process that listens", || std::fs::read_to_string(told_at(&dir)).ok());
    (child, address.parse().unwrap())
}

/// Appends until the process is gone, and says up to where that was acknowledged.
fn append_until(
    cluster: &Cluster,
    (dead, address): (&AtomicBool, &Address),
    secret: &str,
    (segment, seed): (SegmentId, u64),
    from: u64,
) -> u64 {
    let caller = cluster.caller(address, secret);
    let mut end = from;
    while !dead.load(Ordering::SeqCst) {
        let piece = bytes(seed + end / PIECE, PIECE as usize);
        let Ok(taken) = caller.appends(&[(segment, end, piece)], 2000) else { break };
        match taken.parts[0] {
            SegmentAnswer::Synced { end: now } => {
                assert_eq!(now, end + PIECE);
                end = now;
            }
            // It has not joined yet: what was acted for before has to be counted out first.
            SegmentAnswer::Refused(SegmentRefusal::Out) => std::thread::sleep(Duration::from_millis(10)),
            other => panic!("{other:?}"),
        }
    }
    end
}

#[test]
fn what_a_process_acknowledged_outlives_it() {
    const WRITERS: u64 = 3;
    let cluster = Cluster::new();
    let secret = cluster.token(false);
    let mut ends = [0_u64; WRITERS as usize];
    let mut before = 0;
    let mut segments = Vec::new();
    for _life in 0..3 {
        let (mut child, address) = spawn(&cluster, "a");
        if segments.is_empty() {
            segments = cluster.opened(WRITERS as u32);
        }
        let second = start(&cluster.meta, &cluster.directory("a")).unwrap_err().to_string();
        assert!(second.contains("is in use by another proxy"), "{second}");
        let dead = AtomicBool::new(false);
        ends = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (told, cluster, secret, from) =
                        ((&dead, &address), &cluster, &secret, ends[writer as usize]);
                    let segment = segments[writer as usize];
                    scope.spawn(move || append_until(cluster, told, secret, (segment, writer), from))
                })
                .collect();
            let goes_on = |member: &forebay_protocol::group::GroupMember| member.numbers.dirty_bytes > before;
            before = cluster.member("its renewals say what was written", goes_on).numbers.dirty_bytes;
            child.kill();
            dead.store(true, Ordering::SeqCst);
            let ends: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            ends.try_into().unwrap()
        });
        // Reads are served at once, by whichever process has the directory.
        let again = cluster.try_proxy("a").unwrap();
        let caller = cluster.caller(&again.addresses()[0], &secret);
        for (writer, acknowledged) in ends.iter_mut().enumerate() {
            let segment = segments[writer];
            let end = again.log().kept(cluster.volume, segment).map_or(0, |kept| kept.end());
            assert!(end >= *acknowledged, "writer {writer}: {end} of {acknowledged}");
            for at in 0..end / PIECE {
                let (answer, back) = caller.read(segment, at * PIECE, (at + 1) * PIECE);
                assert!(matches!(answer, ReadBackAnswer::Read { .. }), "{answer:?}");
                assert_eq!(back, bytes(writer as u64 + at, PIECE as usize));
            }
            // More than was acknowledged may be there.
            *acknowledged = end;
        }
        before = again.log().status().dirty;
        assert_eq!(again.log().status().segments, WRITERS);
    }
    assert!(ends.iter().all(|end| *end > 0), "{ends:?}");
}
