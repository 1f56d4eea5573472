//! One seed is one world: clients, servers and an engine that share registers (inodes with a value each), in one thread and virtual time.
//!
//! The protocols are the crate's; what a server stores and a client keeps is as small as shows their mistakes. Messages get lost, late, twice and out of
//! order; processes crash and stand still; links are cut; the engine is away, and its answers get lost; clocks differ by up to nine per cent in rate.
//! Checked: what applications saw is linearizable, acknowledged changes stay, and everybody gets on once the faults are over.
//!
//! `FOREBAY_SEEDS=N` runs N seeds (300 by default), `FOREBAY_SEED=S` one, and says what happened in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends where it cannot go on"
)]

mod checker;
mod client;
mod engine;
mod faults;
mod history;
mod messages;
mod owner;
mod server;
mod world;

use faults::Planted;
use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What is wrong in the world of this seed, if anything.
fn run(seed: u64, planted: Option<Planted>) -> Result<usize, String> {
    let mut world = World::new(seed, planted);
    world.run().map_err(|found| format!("seed {seed}: {found}"))?;
    let operations = world.history.len();
    checker::check(&world.history.settled()).map_err(|found| format!("seed {seed}: {found}"))?;
    Ok(operations)
}

#[test]
fn worlds_keep_the_promise() {
    if let Some(seed) = number("FOREBAY_SEED") {
        let mut world = World::new(seed, None);
        world.tell = true;
        world.run().unwrap();
        checker::check(&world.history.settled()).unwrap();
        return;
    }
    let seeds = number("FOREBAY_SEEDS").unwrap_or(300);
    let mut operations = 0;
    for seed in 0..seeds {
        operations += run(seed, None).unwrap_or_else(|found| panic!("{found}"));
    }
    println!("{seeds} worlds, {operations} operations");
    assert!(operations as u64 > seeds * 100, "too little happened: {operations} operations");
}

#[test]
fn a_seed_is_replayed_exactly() {
    let once = |seed| {
        let mut world = World::new(seed, None);
        world.run().unwrap();
        world.history.digest()
    };
    assert_eq!(once(5), once(5));
    assert_ne!(once(5), once(6));
}

#[test]
fn planted_mistakes_are_found() {
    for planted in Planted::ALL {
        let found = (0..2000).find_map(|seed| run(seed, Some(*planted)).err().map(|found| (seed, found)));
        let (seed, found) = found.unwrap_or_else(|| panic!("{planted:?} was not found in 2000 worlds"));
        println!("{planted:?}: {found}");
        assert!(run(seed, Some(*planted)).is_err(), "{planted:?}: the same seed finds it again");
    }
}
