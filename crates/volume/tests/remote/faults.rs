//! Stores that lose requests and answers, flip bits, or are away.

use std::{sync::Arc, time::Duration};

use forebay_meta::WriteAttr;
use forebay_object::{Faults, Operation};
use forebay_types::{Durability, Encryption, Ino, Sequence};
use forebay_volume::{OpenOptions, Volume, VolumeError};

use crate::world::{AT, Bucket, Random, file, pattern, read};

const FAULTS: Faults = Faults {
    fail_before: 30,
    lose_answer: 40,
    throttle: 20,
    flip_bit: 20,
    truncate: 5,
    delay: 0,
    delay_by: Duration::ZERO,
};

fn machines_are_lost_behind_a_bad_store(seed: u64, durability: Durability, encryption: Encryption) {
    let mut random = Random(seed);
    let mut bucket = Bucket::new(seed);
    let mut machine = bucket.create(durability, encryption);
    for _ in 0..3 {
        let mut promised = Sequence(0);
        bucket.faulty.set_faults(FAULTS);
        for _ in 0..50 {
            match random.below(10) {
                0 | 1 => {
                    let _may_fail = machine.sync();
                }
                2..5 => {
                    let _may_fail = machine.upkeep(&mut random);
                }
                5 if random.below(4) == 0 => {
                    machine.reopen(&bucket);
                    bucket.faulty.set_faults(FAULTS);
                }
                6 if random.below(3) == 0 => {
                    let last = machine.volume().namespace().last();
                    if machine.volume().ship().is_ok() {
                        promised = last;
                    }
                }
                _ => machine.operate(&mut random).unwrap(),
            }
        }
        if durability == Durability::Object {
            promised = promised.max(machine.synced);
        }
        machine.lose(&mut bucket, promised);
    }
}

#[test]
fn lost_answers_lose_nothing_in_class_object() {
    for seed in 0..2 {
        machines_are_lost_behind_a_bad_store(seed, Durability::Object, Encryption::None);
    }
}

#[test]
fn lost_answers_lose_nothing_in_class_local() {
    machines_are_lost_behind_a_bad_store(10, Durability::Local, Encryption::None);
    machines_are_lost_behind_a_bad_store(11, Durability::Local, Encryption::Aes256Gcm);
}

#[test]
fn a_store_that_was_away_gets_everything_in_the_end() {
    let mut random = Random(3);
    let mut bucket = Bucket::new(3);
    for durability in [Durability::Local, Durability::Object] {
        bucket = Bucket::new(3 + bucket.keys("").len() as u64);
        let mut machine = bucket.create(durability, Encryption::None);
        machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
        machine.volume().drain(&mut |_| {}).unwrap();
        bucket.faulty.set_away(true);
        for _ in 0..60 {
            // Everything but reads of what only the bucket has goes on.
            let bytes = pattern(&mut random, 50_000);
            machine.write(b"b", random.below(100_000) as usize, &bytes).unwrap();
            match (machine.sync(), durability) {
                (Ok(()), Durability::Local) | (Err(VolumeError::Object(_)), Durability::Object) => {}
                (answer, class) => panic!("class {class}: {answer:?}"),
            }
            machine.volume().checkpoint_now().unwrap();
            let _fails = machine.upkeep(&mut random);
        }
        bucket.faulty.set_away(false);
        machine.sync().unwrap();
        machine.volume().drain(&mut |_| {}).unwrap();
        let all = machine.volume().status().bucket.unwrap().journal_last;
        machine.lose(&mut bucket, Sequence(all));
        assert_eq!(machine.files.len(), 2);
    }
}

#[test]
fn many_who_sync_at_once_are_each_answered_truly() {
    let mut bucket = Bucket::new(5);
    let machine = bucket.create(Durability::Object, Encryption::None);
    let root = machine.root.clone();
    drop(machine);
    let volume = Volume::open(&root, &OpenOptions { background: true, ..bucket.options() }).unwrap();
    bucket.faulty.set_faults(Faults { fail_before: 20, lose_answer: 20, ..Faults::default() });
    let workers: Vec<_> = (0..6u64)
        .map(|worker| {
            let volume = Arc::clone(&volume);
            std::thread::spawn(move || {
                let mut random = Random(worker);
                let mut answered = Vec::new();
                for index in 0..15 {
                    let name = format!("{worker}-{index}").into_bytes();
                    let inode = volume.namespace().make(AT, Ino::ROOT, &name, &file()).unwrap();
                    let len = [500, 20_000, 140_000][random.below(3) as usize];
                    let bytes = pattern(&mut random, len);
                    volume.write(inode.ino, 0, &bytes, WriteAttr::default()).unwrap();
                    if volume.sync().is_ok() {
                        answered.push((name, bytes));
                    }
                }
                answered
            })
        })
        .collect();
    let answered: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    drop(volume);
    std::fs::remove_dir_all(&root).unwrap();
    bucket.faulty.set_faults(Faults::default());
    assert!(bucket.faulty.count(Operation::PutNew) > 0 && answered.len() > 20);
    let (_, volume, report) = bucket.recover(None);
    assert_eq!(report.missing, Vec::<String>::new());
    for (name, bytes) in answered {
        let inode = volume.namespace().lookup(AT, Ino::ROOT, &name).unwrap();
        assert!(read(&volume, inode.ino) == bytes, "{} differs", name.escape_ascii());
    }
}
