//! How many creates a second an owner commits, by 64 in flight, over an engine in memory whose commits take a given time (4 ms unless said).
//!
//! `cargo run --release -p forebay-owner --example group -- [MILLISECONDS]`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example that measures")]

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use forebay_cluster::{ServerId, SessionId, SlotNumber, Terms};
use forebay_engine::{Batch, Engine, EngineError, MemoryEngine, Outcome, RowPage, Writers};
use forebay_env::SystemClock;
use forebay_meta::{Namespace, NewInode};
use forebay_owner::{SystemTicks, VolumeOwner, take};
use forebay_protocol::{Answer, Operation, Request, Rights};
use forebay_types::{FileKind, Ino, SubvolumeId};
use hdrhistogram::Histogram;

const CLIENTS: u64 = 16;
const EACH: u16 = 4;
const TIME: Duration = Duration::from_secs(5);

/// An engine whose commits take long.
#[derive(Debug)]
struct Slow(MemoryEngine, Duration);

impl Engine for Slow {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.0.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.0.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        std::thread::sleep(self.1);
        self.0.commit(batch)
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

fn main() {
    let milliseconds = std::env::args().nth(1).map_or(4, |time| time.parse().unwrap());
    let engine: Arc<dyn Engine> =
        Arc::new(Slow(MemoryEngine::default(), Duration::from_millis(milliseconds)));
    Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
    let (terms, server) = (Terms::default(), (ServerId([1; 16]), "here"));
    let taken = take(&engine, server, terms, &SystemTicks, std::thread::sleep, &|| false).unwrap().unwrap();
    let at = SubvolumeId::FIRST;
    let (clock, ticks) = (Arc::new(SystemClock), Arc::new(SystemTicks));
    let owner =
        VolumeOwner::open(taken, engine, at, 4 << 20, terms, clock, ticks, Box::new(|_, _| ())).unwrap();
    let owner = Arc::new(owner);
    let committer = Arc::clone(&owner);
    let committer = std::thread::spawn(move || committer.commit_until_stopped());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            std::thread::spawn({
                let owner = Arc::clone(&owner);
                move || client(&owner, id)
            })
        })
        .collect();
    let mut latency = Histogram::<u64>::new(3).unwrap();
    clients.into_iter().for_each(|client| latency.add(client.join().unwrap()).unwrap());
    owner.stop();
    committer.join().unwrap().unwrap();
    let (p50, p99) = (latency.value_at_quantile(0.5), latency.value_at_quantile(0.99));
    let rate = latency.len() / TIME.as_secs();
    println!(
        "{rate} creates a second, {CLIENTS} clients with {EACH} in flight each, commits of {milliseconds} ms: p50 {p50} us, p99 {p99} us"
    );
}

/// One client with several requests in flight, each in a slot of its own, in a directory of its own.
fn client(owner: &VolumeOwner, id: u64) -> Histogram<u64> {
    let session = SessionId(u128::from(id));
    let (to, from) = mpsc::channel();
    owner.begin_session(session, "an example", Rights::ALL, Box::new(move |_| to.send(()).unwrap()));
    from.recv().unwrap();
    let (to, from) = mpsc::channel::<(u16, Answer)>();
    let mut numbers = [0; EACH as usize];
    let mut send = |slot: u16, parent: Ino, kind: FileKind| {
        numbers[usize::from(slot)] += 1;
        let number = numbers[usize::from(slot)];
        let new =
            NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() };
        let name = format!("{id}-{slot}-{number}").into_bytes();
        let operation = Operation::Make(parent, name, new);
        let request = Request { session, slot: Some((SlotNumber(slot), number)), operation, wish: None };
        let to = to.clone();
        owner.submit(request, Box::new(move |response| drop(to.send((slot, response.unwrap().answer)))));
    };
    send(0, Ino::ROOT, FileKind::Directory);
    let directory = from.recv().unwrap().1.inode().unwrap().ino;
    let (started, mut latency) = (Instant::now(), Histogram::new(3).unwrap());
    let mut sent = [started; EACH as usize];
    (0..EACH).for_each(|slot| send(slot, directory, FileKind::Regular));
    while started.elapsed() < TIME {
        let (slot, answer) = from.recv().unwrap();
        assert!(answer.inode().is_some());
        latency.record(sent[usize::from(slot)].elapsed().as_micros() as u64).unwrap();
        sent[usize::from(slot)] = Instant::now();
        send(slot, directory, FileKind::Regular);
    }
    latency
}
