//! What a place costs: how long commits take, and how many requests are made while nothing is asked for.
//!
//! `cargo run --release -p forebay-slate --example cost -- STORE [SECONDS]`, where STORE is `file:///DIR` or `s3://BUCKET/PREFIX` (credentials and
//! endpoint from the environment), not used by anything else.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_engine::{Batch, Engine, EngineHost, Outcome};
use forebay_object::{ObjectStore, Operation, Patience, StoreOptions, StoreUrl};
use forebay_slate::{SlateHost, Waits};

const COMMITS: u32 = 500;
const ROWS: u32 = 20;

fn counts(store: &ObjectStore) -> [u64; Operation::ALL.len()] {
    Operation::ALL.map(|operation| store.counters().operation(operation).calls)
}

fn commit(engine: &dyn Engine, writer: u32, number: u32) -> Duration {
    let row = |at: u32| {
        let key = [writer, number, at].map(u32::to_be_bytes).concat();
        (key, Some(vec![at as u8; 150]))
    };
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    let start = Instant::now();
    assert_eq!(engine.commit(&Batch::of(&rows)).unwrap(), Outcome::Committed);
    start.elapsed()
}

fn report(what: &str, mut took: Vec<Duration>, all: Duration) {
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 1000];
    println!(
        "{what}: p50 {:.2?}, p99 {:.2?}, {:.0} commits a second",
        at(500),
        at(990),
        took.len() as f64 / all.as_secs_f64()
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let url: StoreUrl = arguments.next().unwrap().parse().unwrap();
    let idle = arguments.next().map_or(300, |seconds| seconds.parse().unwrap());
    let options = StoreOptions { create_directory: true, ..StoreOptions::default() };
    let store = ObjectStore::open(&url, &options).unwrap().patient(Patience::Patient);
    let place = SlateHost::over(store.clone(), Waits::default()).unwrap();
    let engine = place.create(&"cost".parse().unwrap()).unwrap();

    let start = Instant::now();
    let took = (0..COMMITS).map(|number| commit(engine.as_ref(), 0, number)).collect();
    report("one writer", took, start.elapsed());
    let start = Instant::now();
    let took = thread::scope(|scope| {
        let engine = engine.as_ref();
        let write =
            |writer| move || (0..COMMITS).map(|number| commit(engine, writer, number)).collect::<Vec<_>>();
        let writers: Vec<_> = (1..=8).map(|writer| scope.spawn(write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    report("eight writers", took, start.elapsed());

    // What was begun comes to its end.
    thread::sleep(Duration::from_secs(30));
    let before = counts(&store);
    thread::sleep(Duration::from_secs(idle));
    for ((operation, before), after) in Operation::ALL.iter().zip(before).zip(counts(&store)) {
        println!("idle: {:.0} {} an hour", (after - before) as f64 * 3600.0 / idle as f64, operation.name());
    }
    println!("{} bytes of tables", engine.size_on_disk());
}
