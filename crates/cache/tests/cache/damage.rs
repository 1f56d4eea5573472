use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_cache::Hint;

use crate::store::{CHUNK, Cache, MIB, Store, check, object, open, room_for};

const LEN: u64 = 8 * CHUNK - 1000;
/// Where the payload of slot 0 is, after the headers; `docs/design/cache.md`.
const PAYLOADS: u64 = 2 * MIB;
const HEADER: u64 = 128;

fn slab(dir: &Path) -> PathBuf {
    dir.join("slab-00000.chunks")
}

fn flip(file: &File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

/// Caches an object of eight chunks, has its slab damaged (open, and again closed), and reads the object.
/// Returns the caches' counts of what did not check, and of disk errors: while open, then after a restart.
fn damaged(damage: impl Fn(&File)) -> [(u64, u64); 2] {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    let slab_file = || File::options().read(true).write(true).open(slab(dir.path())).unwrap();
    let read_all = |cache: &Cache| {
        check(cache, object(1), LEN, 0..LEN);
        let counts = (cache.stats().corrupt, cache.stats().disk_errors);
        let fetches = cache.stats().fetches;
        check(cache, object(1), LEN, 0..LEN);
        assert_eq!(cache.stats().fetches, fetches, "it is whole again");
        counts
    };
    let while_open = {
        let cache = open(dir.path(), room_for(20), &store);
        check(&cache, object(1), LEN, 0..LEN);
        damage(&slab_file());
        read_all(&cache)
    };
    damage(&slab_file());
    [while_open, read_all(&open(dir.path(), room_for(20), &store))]
}

#[test]
fn a_flipped_byte_anywhere_is_never_returned() {
    for at in [0, 1, 16_383, 16_384, 100_000, CHUNK - 1, 5 * CHUNK + 7, LEN - 1] {
        let counts = damaged(|slab| flip(slab, PAYLOADS + at));
        assert_eq!(counts, [(1, 0), (1, 0)], "byte {at}");
    }
}

#[test]
fn a_small_read_next_to_the_damage_is_served_and_one_over_it_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    let cache = open(dir.path(), room_for(20), &store);
    check(&cache, object(1), LEN, 0..LEN);
    flip(&File::options().read(true).write(true).open(slab(dir.path())).unwrap(), PAYLOADS + 20_000);
    store.take_requests();
    check(&cache, object(1), LEN, 0..16_384);
    check(&cache, object(1), LEN, 32_768..CHUNK);
    assert_eq!(store.take_requests(), []);
    check(&cache, object(1), LEN, 16_384..16_385);
    assert_eq!(store.take_requests(), [0..CHUNK]);
}

#[test]
fn a_damaged_header_costs_its_chunk() {
    let open_and_closed = damaged(|slab| flip(slab, 3 * HEADER + 20));
    assert_eq!(open_and_closed, [(1, 0), (0, 0)], "at opening it is not even seen");
    assert_eq!(damaged(|slab| slab.write_all_at(&[0; 128], HEADER).unwrap())[1], (0, 0));
    let random: Vec<u8> = (0..PAYLOADS).map(|i| (i * i % 253) as u8).collect();
    assert_eq!(damaged(|slab| slab.write_all_at(&random, 0).unwrap()), [(8, 0), (0, 0)]);
}

#[test]
fn headers_of_other_payloads_do_not_fit() {
    let swap = |slab: &File| {
        let (mut one, mut two) = ([0; 128], [0; 128]);
        slab.read_exact_at(&mut one, HEADER).unwrap();
        slab.read_exact_at(&mut two, 2 * HEADER).unwrap();
        slab.write_all_at(&one, 2 * HEADER).unwrap();
        slab.write_all_at(&two, HEADER).unwrap();
    };
    assert_eq!(damaged(swap)[1], (2, 0));
}

#[test]
fn a_payload_torn_at_a_sector_does_not_check() {
    let counts = damaged(|slab| slab.write_all_at(&[0; 512], PAYLOADS + 2 * CHUNK + 512 * 77).unwrap());
    assert_eq!(counts, [(1, 0), (1, 0)]);
}

#[test]
fn a_truncated_slab_costs_what_was_cut_off() {
    for len in [0, 100, PAYLOADS, PAYLOADS + 1, PAYLOADS + 3 * CHUNK + 5, PAYLOADS + LEN - 1] {
        let [(corrupt, errors), restarted] = damaged(|slab| slab.set_len(len).unwrap());
        assert!(corrupt + errors > 0);
        assert_eq!(restarted, (0, 0), "cut to {len}");
    }
}

#[test]
fn two_slots_with_one_chunk_are_one_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    check(&open(dir.path(), room_for(20), &store), object(1), LEN, 0..LEN);
    let file = File::options().read(true).write(true).open(slab(dir.path())).unwrap();
    let mut chunk = vec![0; CHUNK as usize];
    file.read_exact_at(&mut chunk, PAYLOADS).unwrap();
    file.write_all_at(&chunk, PAYLOADS + 12 * CHUNK).unwrap();
    let mut header = [0; 128];
    file.read_exact_at(&mut header, 0).unwrap();
    file.write_all_at(&header, 12 * HEADER).unwrap();

    let cache = open(dir.path(), room_for(20), &store);
    assert_eq!((cache.stats().chunks, cache.stats().used_bytes), (8, LEN));
    cache.forget(object(1));
    assert_eq!((cache.stats().chunks, cache.stats().used_bytes), (0, 0));
    check(&cache, object(2), 20 * CHUNK, 0..20 * CHUNK);
    assert_eq!((cache.stats().chunks, cache.stats().evictions), (20, 0), "no slot is lost");
}

#[test]
fn a_cache_whose_directory_is_removed_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    let cache = open(dir.path(), room_for(20), &store);
    check(&cache, object(1), LEN, 0..LEN);
    fs::remove_dir_all(dir.path()).unwrap();
    for id in 1..9 {
        assert!(cache.read(object(id), LEN, 0, LEN, Hint::Sequential).is_ok());
    }
    check(&cache, object(8), LEN, 0..LEN);
}
