//! One seed is one world: members with disks, clients that write, two metadata servers over one engine, and a store, in one thread and virtual time.
//!
//! The protocols are the crate's; around them is as little as shows their mistakes. The clients do as the product's do (`crates/client/src/data`): bytes are appended to open segments,
//! or put where members are too few, then named to the owner, and what they wrote counts once the owner has answered that. Messages get lost, late, twice and out of order; processes crash and
//! stand still; links are cut; disks lose what was not synced, or everything; engine and store are away, and their answers get lost; clocks
//! differ by up to nine per cent in rate; members are drained and removed, and new ones join. Checked (`promise.rs`): nothing that was acknowledged is
//! lost while fewer than k copies are (in every second pair of worlds one client writes in class `local`, to the member of its machine alone; in every second world all copies of something may be lost: then only what nobody has who was not given up, and it is named as lost); the owner knows what was acknowledged; whoever takes something in is in the view; no copy is given up that is needed; a drained member has nothing; no object
//! is deleted of which anything is in use, and no segment goes that a request still names; and everything is in the store once the faults are over.
//!
//! `FOREBAY_SEEDS=N` runs N seeds (150 by default), from `FOREBAY_FIRST` on; `FOREBAY_SEED=S` one, and says what happened in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends where it cannot go on"
)]

mod batch;
mod client;
mod engine;
mod faults;
mod lanes;
mod member;
mod messages;
mod meta;
mod promise;
mod world;

use faults::Planted;
use world::{Counts, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What is wrong in the world of this seed, if anything.
fn run(seed: u64, planted: Option<Planted>) -> Result<Counts, String> {
    let mut world = World::new(seed, planted);
    world.run().map_err(|found| format!("seed {seed}: {found}"))?;
    Ok(world.counts)
}

#[test]
fn worlds_keep_the_promise() {
    if let Some(seed) = number("FOREBAY_SEED") {
        let mut world = World::new(seed, None);
        world.tell = true;
        world.run().unwrap_or_else(|found| panic!("{found}"));
        return;
    }
    let (first, seeds) = (number("FOREBAY_FIRST").unwrap_or(0), number("FOREBAY_SEEDS").unwrap_or(150));
    let mut sum = Counts::default();
    for seed in first..first + seeds {
        let counts = run(seed, None).unwrap_or_else(|found| panic!("{found}"));
        sum.acknowledged += counts.acknowledged;
        sum.local += counts.local;
        sum.direct += counts.direct;
        sum.ended += counts.ended;
        sum.recovered += counts.recovered;
        sum.lost_disks += counts.lost_disks;
        sum.removed += counts.removed;
        sum.seated += counts.seated;
        sum.given_up += counts.given_up;
        sum.shortened += counts.shortened;
    }
    println!("{seeds} worlds: {sum:?}");
    let seeds = seeds as usize;
    assert!(sum.acknowledged > seeds * 100 && sum.recovered > seeds, "too little happened: {sum:?}");
    assert!(seeds < 4 || sum.local > seeds * 10, "{sum:?}");
    assert!(seeds < 100 || sum.direct > seeds, "{sum:?}");
    assert!(seeds < 100 || sum.given_up > seeds / 20, "{sum:?}");
    assert!(seeds < 1000 || sum.shortened > 0, "{sum:?}");
    assert!(seeds < 100 || sum.lost_disks.min(sum.removed).min(sum.seated) > seeds / 20, "{sum:?}");
}

#[test]
fn a_seed_is_replayed_exactly() {
    let once = |seed| {
        let mut world = World::new(seed, None);
        world.run().unwrap_or_else(|found| panic!("{found}"));
        world.digest()
    };
    assert_eq!(once(5), once(5));
    assert_ne!(once(5), once(6));
}

#[test]
fn planted_mistakes_are_found() {
    for planted in Planted::ALL {
        let found = (0..1000).find_map(|seed| run(seed, Some(*planted)).err().map(|found| (seed, found)));
        let (seed, found) = found.unwrap_or_else(|| panic!("{planted:?} was not found in 1000 worlds"));
        println!("{planted:?}: {}", found.chars().take(200).collect::<String>());
        assert!(run(seed, Some(*planted)).is_err(), "{planted:?}: the same seed finds it again");
    }
}
