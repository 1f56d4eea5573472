use std::{fs::File, os::unix::fs::FileExt, path::Path, thread};

use forebay_cache::Hint;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::store::{CHUNK, Cache, Store, check_as, content, object, open, room_for};

const OBJECTS: u64 = 12;

/// Objects of no bytes, of less than a chunk, of whole chunks, and others.
fn len_of(id: u64) -> u64 {
    match id {
        0 => 0,
        1 => 10,
        2 => 3 * CHUNK,
        id => id * 3 * CHUNK / 4 + id,
    }
}

fn read_some(cache: &Cache, rng: &mut StdRng) {
    let id = rng.random_range(0..OBJECTS);
    let len = len_of(id);
    let start = rng.random_range(0..=len);
    let end = match rng.random_range(0..3) {
        0 => len,
        1 => rng.random_range(start..=len),
        _ => (start + 5000).min(len),
    };
    let hint = [Hint::Nearby, Hint::Sequential, Hint::Random][rng.random_range(0..3)];
    check_as(cache, object(id), len, start..end, hint);
}

fn change_some(cache: &Cache, rng: &mut StdRng) {
    let id = rng.random_range(0..OBJECTS);
    let len = len_of(id);
    let start = rng.random_range(0..=len);
    let end = rng.random_range(start..=len);
    match rng.random_range(0..4) {
        0 => cache.insert(object(id), len, start, &content(object(id), start..end)),
        1 => cache.forget(object(id)),
        2 => cache.distrust(object(id), start, end - start),
        _ => cache.prefetch(object(id), len, start..end),
    }
}

/// Overwrites, flips or cuts something in the slab.
fn damage_some(dir: &Path, rng: &mut StdRng) {
    let file = File::options().read(true).write(true).open(dir.join("slab-00000.chunks")).unwrap();
    let len = file.metadata().unwrap().len();
    let at = match rng.random_bool(0.3) {
        true => rng.random_range(0..4096),
        false => rng.random_range(0..=len),
    };
    match rng.random_range(0..8) {
        0 => file.set_len(at).unwrap(),
        1 => file.write_all_at(&[0; 4096], at).unwrap(),
        _ => file.write_all_at(&[rng.random()], at).unwrap(),
    }
}

#[test]
fn whatever_happens_the_bytes_are_right_and_the_capacity_is_kept() {
    for seed in 0..8 {
        let mut rng = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new();
        for _ in 0..8 {
            let capacity = room_for(rng.random_range(0..40)) + 1;
            let cache = open(dir.path(), capacity, &store);
            for _ in 0..80 {
                match rng.random_range(0..10) {
                    0..7 => read_some(&cache, &mut rng),
                    7..9 => change_some(&cache, &mut rng),
                    _ if capacity > room_for(1) => damage_some(dir.path(), &mut rng),
                    _ => {}
                }
                let used = cache.stats().used_bytes;
                assert!(used <= capacity, "seed {seed}: {used} of {capacity}");
            }
        }
    }
}

#[test]
fn threads_that_push_each_others_chunks_out_read_the_right_bytes() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new();
        let cache = open(dir.path(), room_for(4 + 3 * seed), &store);
        thread::scope(|scope| {
            for thread in 0..6 {
                let (cache, dir) = (&cache, dir.path());
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(100 * seed + thread);
                    for _ in 0..100 {
                        read_some(cache, &mut rng);
                        if rng.random_bool(0.2) {
                            change_some(cache, &mut rng);
                        }
                        if seed % 2 == 1 && rng.random_bool(0.05) {
                            damage_some(dir, &mut rng);
                        }
                    }
                });
            }
        });
        cache.shutdown();
        let stats = cache.stats();
        assert!(stats.evictions > 0 && stats.in_flight == 0 && stats.used_bytes <= stats.capacity_bytes);
        if seed % 2 == 0 {
            assert_eq!(
                (stats.corrupt, stats.disk_errors),
                (0, 0),
                "slots used anew are not taken for damage"
            );
        }
    }
}
