//! One seed is one world: clients, servers, an engine and a store that share registers, files and directories, in one thread and virtual time.
//!
//! The protocols are the crate's; what a server stores and a client keeps is as small as shows their mistakes. Messages get lost, late, twice and out of
//! order; processes crash and stand still; links are cut; the engine is away, and its answers get lost; so do the store's; clocks differ by up to nine per cent in
//! rate. In every other world servers share the engine; in the others one at a time has the place, and its beats in the registry renew its ownership. Checked: what applications saw is
//! linearizable, also what was answered ahead of the owner; changes of names survive as a prefix; what was fsynced stays, and what is lost is said; one server at a time looks things up for
//! others; locks are one client's; an object is named once, and is there; everybody gets on once the faults are over.
//!
//! `FOREBAY_SEEDS=N` runs N seeds (600 by default), from `FOREBAY_FIRST_SEED` on (0 by default); `FOREBAY_SEED=S` runs one, and says what happened in it.

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
mod process;
mod sequential;
mod server;
mod tenure;
mod world;

use faults::Planted;
use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What is wrong in the world of this seed, if anything; how many operations there were, how many of them ahead of the owner, and how many commits went along with those.
fn run(seed: u64, planted: Option<Planted>) -> Result<[usize; 3], String> {
    let mut world = World::new(seed, planted);
    world.run().map_err(|found| format!("seed {seed}: {found}"))?;
    let counts = [world.history.len(), world.history.ahead, world.history.along];
    checker::check(&world.history.settled()).map_err(|found| format!("seed {seed}: {found}"))?;
    Ok(counts)
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
    let (seeds, first) = (number("FOREBAY_SEEDS").unwrap_or(600), number("FOREBAY_FIRST_SEED").unwrap_or(0));
    let (mut all, mut all_ahead, mut all_along) = (0, 0, 0);
    for seed in first..first + seeds {
        let [operations, ahead, along] = run(seed, None).unwrap_or_else(|found| panic!("{found}"));
        all += operations as u64;
        all_ahead += ahead as u64;
        all_along += along as u64;
        if (seed + 1) % 10_000 == 0 {
            println!("seed {seed} is done");
        }
    }
    println!(
        "{seeds} worlds, {all} operations, {all_ahead} of them ahead of the owner, {all_along} commits along with these"
    );
    assert!(all > seeds * 100, "too little happened: {all} operations");
    assert!(all_ahead > seeds * 10, "too little was done ahead: {all_ahead} operations");
    assert!(all_along > seeds, "too little went along: {all_along} commits");
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
        // As many of either kind.
        let found = (0..4000).find_map(|seed| run(seed, Some(*planted)).err().map(|found| (seed, found)));
        let (seed, found) = found.unwrap_or_else(|| panic!("{planted:?} was not found in 4000 worlds"));
        println!("{planted:?}: {found}");
        assert!(run(seed, Some(*planted)).is_err(), "{planted:?}: the same seed finds it again");
    }
}
