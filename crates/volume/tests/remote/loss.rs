//! Machines that are lost with their disks.

use forebay_types::{Durability, Encryption, Sequence};

use crate::world::{Bucket, Random};

/// Random work, then the machine is gone, again and again.
fn machines_are_lost(seed: u64, durability: Durability, encryption: Encryption) {
    let mut random = Random(seed);
    let mut bucket = Bucket::new(seed);
    let mut machine = bucket.create(durability, encryption);
    for _ in 0..3 {
        let mut promised = Sequence(0);
        for _ in 0..10 + random.below(40) {
            match random.below(10) {
                0 | 1 => machine.sync().unwrap(),
                2 | 3 => machine.upkeep(&mut random).unwrap(),
                4 if random.below(3) == 0 => machine.reopen(&bucket),
                5 if random.below(3) == 0 => {
                    promised = machine.volume().namespace().last();
                    machine.volume().ship().unwrap();
                }
                _ => machine.operate(&mut random).unwrap(),
            }
        }
        if durability == Durability::Object {
            promised = promised.max(machine.synced);
        }
        machine.lose(&mut bucket, promised);
    }
    machine.volume().drain(&mut |_| {}).unwrap();
    let all = machine.volume().namespace().last();
    machine.lose(&mut bucket, Sequence(all.0.min(1)));
}

#[test]
fn class_object_loses_nothing_that_was_synced() {
    for seed in 0..2 {
        machines_are_lost(seed, Durability::Object, Encryption::None);
    }
}

#[test]
fn class_object_loses_nothing_that_was_synced_encrypted() {
    for seed in 100..101 {
        machines_are_lost(seed, Durability::Object, Encryption::Aes256Gcm);
    }
}

#[test]
fn class_local_loses_nothing_that_was_shipped() {
    for seed in 200..202 {
        machines_are_lost(seed, Durability::Local, Encryption::None);
    }
}

#[test]
fn a_synced_write_of_any_size_comes_back() {
    for len in [0, 1, 1024, 1025, 70_000, 131_072, 20 << 20] {
        let mut bucket = Bucket::new(1);
        let mut machine = bucket.create(Durability::Object, Encryption::None);
        let bytes = crate::world::pattern(&mut Random(len as u64), len);
        machine.write(b"a", 0, &[]).unwrap();
        for (index, part) in bytes.chunks(1 << 20).enumerate() {
            machine.write(b"a", index << 20, part).unwrap();
        }
        machine.sync().unwrap();
        let synced = machine.synced;
        machine.lose(&mut bucket, synced);
        machine.volume().drain(&mut |_| {}).unwrap();
        machine.lose(&mut bucket, synced);
    }
}

/// The highest number of an object of data in the bucket.
fn highest_object(bucket: &Bucket) -> u64 {
    let number = |key: &String| u64::from_str_radix(key.rsplit_once('-').unwrap().1, 16).unwrap();
    bucket.keys("data").iter().map(number).max().unwrap()
}

#[test]
fn a_recovered_volume_uses_no_number_of_an_object_again() {
    let mut bucket = Bucket::new(1);
    let mut machine = bucket.create(Durability::Object, Encryption::None);
    machine.write(b"a", 0, &crate::world::pattern(&mut Random(1), 100_000)).unwrap();
    machine.volume().seal_all().unwrap();
    // Stores the segment and ships a chunk that names the object; the record that it is stored comes after that.
    machine.sync().unwrap();
    let (synced, named) = (machine.synced, highest_object(&bucket));
    machine.lose(&mut bucket, synced);
    assert!(machine.volume().namespace().new_object().id.0 > named);

    // With nothing left to be recorded, and an object that nothing names.
    machine.volume().drain(&mut |_| {}).unwrap();
    let leaked = bucket.path().join("data/05/00000001-0000000000000105");
    std::fs::create_dir_all(leaked.parent().unwrap()).unwrap();
    std::fs::copy(bucket.path().join(&bucket.keys("data")[0]), &leaked).unwrap();
    machine.lose(&mut bucket, Sequence(0));
    machine.reopen(&bucket);
    assert!(machine.volume().namespace().new_object().id.0 > 0x105);
}
