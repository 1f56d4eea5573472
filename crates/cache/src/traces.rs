//! The order of eviction on traces: what share of the uses finds its chunk, beside what could be had with the uses known in advance.

use std::collections::{BTreeSet, HashMap};

use forebay_types::{Epoch, ObjectId};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::{ObjectKey, index::Index, key::ChunkKey};

const SLOTS: u32 = 512;

fn key(chunk: u32) -> ChunkKey {
    ChunkKey { object: ObjectKey { epoch: Epoch(1), id: ObjectId(u64::from(chunk)) }, index: 0 }
}

/// Uses a chunk, as a reader does: whether it was there.
fn touch(index: &mut Index, chunk: u32) -> bool {
    if let Some(found) = index.find(key(chunk)) {
        index.used(found);
        return true;
    }
    let slot = index.reserve().unwrap();
    assert!(index.publish(slot, key(chunk), 1, 1, false));
    false
}

/// How many of these uses find their chunk.
fn hits(index: &mut Index, trace: &[u32]) -> usize {
    trace.iter().filter(|chunk| touch(index, **chunk)).count()
}

/// How many could: whatever is used again last, or never, leaves first (Belady), or is not taken in at all.
fn possible(trace: &[u32]) -> usize {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (at, chunk) in trace.iter().enumerate().rev() {
        next[at] = seen.insert(*chunk, at).unwrap_or(usize::MAX);
    }
    // When each chunk that is there is used next, the latest at the end.
    let (mut there, mut uses) = (BTreeSet::new(), 0);
    for (at, next) in next.into_iter().enumerate() {
        uses += usize::from(there.remove(&at));
        if next < usize::MAX {
            there.insert(next);
        }
        if there.len() > SLOTS as usize {
            there.pop_last();
        }
    }
    uses
}

fn cycle(chunks: u32, times: u32) -> Vec<u32> {
    (0..times).flat_map(|_| 0..chunks).collect()
}

/// Numbers below `chunks`, number n with the probability of 1 / (n + 1) to the power of `skew`, over the whole.
fn zipf(chunks: u32, skew: f64, count: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=chunks)
        .map(|n| {
            sum += f64::from(n).powf(-skew);
            sum
        })
        .collect();
    let mut rng = StdRng::seed_from_u64(7);
    let draw = |_| up_to.partition_point(|upper| *upper < rng.random::<f64>() * sum) as u32;
    (0..count).map(draw).collect()
}

fn share(index: &mut Index, trace: &[u32]) -> f64 {
    hits(index, trace) as f64 / possible(trace) as f64
}

#[test]
fn of_a_cycle_longer_than_the_cache_a_part_stays() {
    for chunks in [SLOTS + 1, SLOTS * 6 / 5, 2 * SLOTS, 5 * SLOTS, 7 * SLOTS] {
        let share = share(&mut Index::new(SLOTS), &cycle(chunks, 20));
        assert!(share > 0.85, "{chunks} chunks: {share}");
    }
}

#[test]
fn a_cycle_through_other_data_takes_over() {
    let mut index = Index::new(SLOTS);
    hits(&mut index, &cycle(5 * SLOTS, 5));
    let other: Vec<u32> = cycle(5 * SLOTS, 16).iter().map(|chunk| chunk + 100_000).collect();
    let (first, rest) = other.split_at(other.len() / 2);
    hits(&mut index, first);
    let share = share(&mut index, rest);
    assert!(share > 0.8, "{share}");
}

/// Each epoch reads everything once, in another order: nothing can be foreseen, and what is there is found.
#[test]
fn shuffled_epochs_find_what_there_is() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut trace = Vec::new();
    for _ in 0..20 {
        let mut epoch: Vec<u32> = (0..5 * SLOTS).collect();
        epoch.shuffle(&mut rng);
        trace.extend(epoch);
    }
    let found = hits(&mut Index::new(SLOTS), &trace) as f64 / trace.len() as f64;
    assert!(found > 0.55 / 5.0, "{found}");
}

#[test]
fn a_hot_set_stays_beside_scans() {
    for every in [2, 4, 10] {
        let mut index = Index::new(SLOTS);
        let mut rng = StdRng::seed_from_u64(5);
        // One use in `every` is of the hot set, the others are of chunks that come but once.
        let trace: Vec<u32> = (0..200 * SLOTS)
            .map(|at| if at % every == 0 { rng.random_range(0..SLOTS / 2) } else { 10_000 + at })
            .collect();
        let (_, settled) = trace.split_at(trace.len() / 2);
        hits(&mut index, &trace[..trace.len() / 2]);
        let share = share(&mut index, settled);
        assert!(share > 0.8, "one in {every}: {share}");
    }
}

/// Readers of small files use a chunk many times within a moment, and then never again.
#[test]
fn a_burst_is_one_use() {
    let mut index = Index::new(SLOTS);
    let hot: Vec<u32> = (0..SLOTS / 2).collect();
    (0..4).for_each(|_| _ = hits(&mut index, &hot));
    for scanned in 10_000..10_000 + 12 * SLOTS {
        (0..5).for_each(|_| _ = touch(&mut index, scanned));
    }
    assert_eq!(hits(&mut index, &hot), hot.len());
}

#[test]
fn what_is_used_often_stays() {
    for (chunks, skew) in [(4 * SLOTS, 0.8), (20 * SLOTS, 1.0)] {
        let trace = zipf(chunks, skew, 100 * SLOTS as usize);
        let share = share(&mut Index::new(SLOTS), &trace);
        assert!(share > 0.75, "{chunks} chunks, {skew}: {share}");
    }
}
