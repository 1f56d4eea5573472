//! Two machines that both believe that the volume is theirs.

use std::time::Duration;

use forebay_meta::MetaError;
use forebay_types::{Durability, Encryption, Sequence};
use forebay_volume::{Volume, VolumeError};

use crate::world::{Bucket, Machine, Random, pattern};

/// Refused because of the other machine, whichever layer noticed.
fn is_fenced(error: &VolumeError) -> bool {
    match error {
        VolumeError::Fenced { .. } => true,
        VolumeError::Meta(MetaError::Log(error)) => error.to_string().contains("taken this volume over"),
        _ => false,
    }
}

/// The deposed machine tries everything; nothing of it may be answered as durable.
fn struggle(old: &mut Machine, random: &mut Random) {
    for _ in 0..20 {
        if let Err(error) = old.operate(random) {
            assert!(is_fenced(&error), "{error}");
        }
        if let Err(error) = old.upkeep(random) {
            assert!(is_fenced(&error), "{error}");
        }
    }
    // A check that is less than a second old still lets a put of a new name through; then comes one that does not.
    let refused = (0..400).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let wrote = old.write(b"h", 0, b"something new");
        wrote.and_then(|()| old.volume().drain(&mut |_| {})).err()
    });
    let error = refused.expect("the other owner is noticed");
    assert!(is_fenced(&error), "{error}");
    assert!(is_fenced(&old.volume().sync().unwrap_err()));
    assert!(is_fenced(&old.write(b"a", 0, b"too late").unwrap_err()));
    assert!(old.volume().status().bucket.unwrap().taken_over_by.is_some());
}

#[test]
fn a_deposed_machine_gets_no_answer_and_does_no_damage() {
    for (seed, durability) in [(1, Durability::Object), (2, Durability::Object), (3, Durability::Local)] {
        let mut random = Random(seed);
        let mut bucket = Bucket::new(seed);
        let mut machine = bucket.create(durability, Encryption::None);
        for _ in 0..30 {
            machine.operate(&mut random).unwrap();
            if random.below(4) == 0 {
                machine.upkeep(&mut random).unwrap();
            }
        }
        machine.sync().unwrap();
        let least = if durability == Durability::Object { machine.synced } else { Sequence(1) };
        let mut old = machine.take_over(&mut bucket, least);

        // Something new, so that the old one has what to lose.
        old.write(b"a", 0, &pattern(&mut random, 200_000)).unwrap();
        old.write(b"b", 0, &pattern(&mut random, 20_000)).unwrap();
        match (old.sync(), durability) {
            (Err(VolumeError::Fenced { .. }), Durability::Object) | (Ok(()), Durability::Local) => {}
            (answer, class) => panic!("class {class}: {answer:?}"),
        }
        for _ in 0..10 {
            machine.operate(&mut random).unwrap();
        }
        machine.sync().unwrap();
        machine.volume().ship().unwrap();
        let promised = machine.synced;
        struggle(&mut old, &mut random);
        for _ in 0..10 {
            machine.operate(&mut random).unwrap();
            machine.upkeep(&mut random).unwrap();
        }
        machine.reopen(&bucket);
        let root = old.root.clone();
        drop(old);
        assert!(matches!(Volume::open(&root, &bucket.options()), Err(VolumeError::Fenced { .. })));
        machine.lose(&mut bucket, promised);
        machine.volume().drain(&mut |_| {}).unwrap();
        machine.reopen(&bucket);
    }
}

#[test]
fn what_a_deposed_machine_puts_late_does_not_count() {
    let mut random = Random(7);
    let mut bucket = Bucket::new(7);
    let mut machine = bucket.create(Durability::Object, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 5000)).unwrap();
    machine.sync().unwrap();
    let synced = machine.synced;
    // The old machine has just checked that it is the owner, so its next chunk still arrives, and is not answered.
    let mut old = machine.take_over(&mut bucket, synced);
    let before = bucket.keys("journal").len();
    old.write(b"b", 0, &pattern(&mut random, 300_000)).unwrap();
    old.write(b"a", 100, &pattern(&mut random, 9000)).unwrap();
    assert!(matches!(old.sync(), Err(VolumeError::Fenced { .. })));
    let late = bucket.keys("journal").len() - before;
    machine.write(b"c", 0, &pattern(&mut random, 4000)).unwrap();
    machine.write(b"a", 0, &pattern(&mut random, 150_000)).unwrap();
    machine.sync().unwrap();
    let synced = machine.synced;
    drop(old);
    let report = machine.lose(&mut bucket, synced);
    assert!(report.last >= synced, "{late} late chunks");
    machine.volume().drain(&mut |_| {}).unwrap();
    machine.reopen(&bucket);
}

/// A directory that was copied, and later put back in the place of the one that went on.
#[test]
fn an_older_copy_of_the_directory_is_refused() {
    let mut random = Random(11);
    let mut bucket = Bucket::new(11);
    let mut machine = bucket.create(Durability::Object, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 5000)).unwrap();
    machine.sync().unwrap();
    let copy = machine.root.with_extension("copy");
    copy_tree(&machine.root, &copy);
    machine.write(b"b", 0, &pattern(&mut random, 300_000)).unwrap();
    machine.sync().unwrap();
    let error = Volume::open(&copy, &bucket.options()).unwrap_err();
    assert!(error.to_string().contains("older copy"), "{error}");
    let synced = machine.synced;
    machine.lose(&mut bucket, synced);
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
