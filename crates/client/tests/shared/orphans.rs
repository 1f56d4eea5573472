//! A file loses its last name while another client has it open, and its remover has not told yet what it wrote: the other one reads that all the same.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use forebay_client::Settings;
use forebay_protocol::Operation;
use forebay_types::Ino;
use forebay_vfs::Files;

use super::world::{Client, World, until};

const HALF_A_SECOND: Duration = Duration::from_millis(500);
/// Bytes that stay in a file's row, and bytes that do not.
const SIZES: [usize; 2] = [100, 5000];

fn clients(world: &Arc<World>, ahead: bool) -> (Client, Client) {
    let client = |name| world.client_with(Settings { names: 10_000, ahead, ..Settings::of("v", name) });
    (client("one"), client("two"))
}

/// A file that `two` has open and has read, and over which `one` has written since.
fn written_over(one: &Client, two: &Client, name: &str, size: usize) -> Ino {
    let ino = one.make(name);
    one.write(ino, 0, &vec![1; size]);
    one.volume.sync_file(ino).unwrap();
    two.volume.opened(ino);
    assert_eq!(two.read(ino), vec![1; size]);
    one.write(ino, 0, &vec![2; size + 1]);
    ino
}

/// The same, and the name is taken away or given to another file, by who has the file open or not.
fn orphaned(one: &Client, two: &Client, (size, moves, open): (usize, bool, bool)) -> Ino {
    let ino = written_over(one, two, "a", size);
    if open {
        one.volume.opened(ino);
    }
    let in_use = |asked| open && asked == ino;
    if moves {
        one.make("b");
        let (from, to) = ((Ino::ROOT, &b"b"[..]), (Ino::ROOT, &b"a"[..]));
        one.volume.rename(from, to, forebay_meta::RenameMode::Replace, &in_use).unwrap();
    } else {
        one.volume.unlink(Ino::ROOT, b"a", &in_use).unwrap();
    }
    ino
}

/// The last handle is closed, as the vfs does it.
fn close(client: &Client, ino: Ino) {
    client.volume.closed(ino);
    if client.volume.nameless(ino).is_some() {
        client.volume.purge(ino);
    }
}

fn all() -> impl Iterator<Item = (usize, bool, bool)> {
    let bits = |bits: usize| (SIZES[bits & 1], bits & 2 > 0, bits & 4 > 0);
    (0..8).map(bits)
}

#[test]
fn what_its_remover_wrote_is_read_by_who_has_it_open() {
    for ahead in [false, true] {
        for case in all() {
            let world = World::new();
            let (one, two) = clients(&world, ahead);
            let ino = orphaned(&one, &two, case);
            assert_eq!(two.read(ino), vec![2; case.0 + 1], "{case:?}");
            two.write(ino, 0, b"two");
            if case.2 {
                assert_eq!(&one.read(ino)[..4], b"two\x02", "{case:?}");
                close(&one, ino);
            }
            assert_eq!(&two.read(ino)[..4], b"two\x02", "{case:?}");
            close(&two, ino);
            world.is_purged(ino);
        }
    }
}

/// Whoever removed the file closes it, and the other one reads only then.
#[test]
fn what_its_remover_wrote_outlives_the_removers_handle() {
    for case in all().filter(|case| case.2) {
        let world = World::new();
        let (one, two) = clients(&world, true);
        let ino = orphaned(&one, &two, case);
        close(&one, ino);
        // Nothing else of it is under way.
        one.volume.sync_all().unwrap();
        assert_eq!(two.read(ino), vec![2; case.0 + 1], "{case:?}");
        close(&two, ino);
        world.is_purged(ino);
        until("what was kept back goes", || one.volume.unsettled_bytes() == 0);
    }
}

/// It is read while the removal is under way: its lease is recalled before the owner has carried that out, or before the remover knows that.
#[test]
fn a_recall_that_meets_the_removal_loses_nothing() {
    for case in all() {
        let world = World::new();
        let (one, two) = clients(&world, false);
        let is_removal =
            |operation: &Operation| matches!(operation, Operation::Unlink(..) | Operation::Rename { .. });
        *one.wire.slow.lock() = Some((is_removal, HALF_A_SECOND));
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| orphaned(&one, &two, case));
            until("a removal is under way", || one.wire.slow_ones.load(SeqCst) == 1);
            let ino = two.find("a").unwrap();
            let expected = vec![2; case.0 + 1];
            while !removal.is_finished() {
                assert_eq!(two.read(ino), expected, "{case:?}");
            }
            assert_eq!((removal.join().unwrap(), two.read(ino)), (ino, expected), "{case:?}");
        });
    }
}

/// The removal is carried out by an owner that dies with the answer, and said to the next one again.
#[test]
fn an_owner_that_dies_meanwhile_loses_nothing() {
    for case in [(SIZES[0], false, false), (SIZES[1], true, true)] {
        let world = World::new();
        let (one, two) = clients(&world, false);
        let ino = written_over(&one, &two, "a", case.0);
        one.make("b");
        one.wire.loses.store(1, SeqCst);
        let is_removal =
            |operation: &Operation| matches!(operation, Operation::Unlink(..) | Operation::Rename { .. });
        *one.wire.slow.lock() = Some((is_removal, HALF_A_SECOND));
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| {
                if case.1 {
                    one.rename("b", "a");
                } else {
                    one.unlink("a", &[]);
                }
            });
            until("a removal is under way", || one.wire.slow_ones.load(SeqCst) == 1);
            until("its answer is lost", || one.wire.loses.load(SeqCst) == 0);
            world.kill();
            world.start();
            removal.join().unwrap();
        });
        *one.wire.slow.lock() = None;
        world.owner().unwrap().tidy().unwrap();
        assert_eq!(two.read(ino), vec![2; case.0 + 1], "{case:?}");
        close(&two, ino);
        world.is_purged(ino);
    }
}

/// Nobody is left to read it: nothing is stored of it.
#[test]
fn what_was_written_to_a_file_that_nobody_has_is_not_stored() {
    for (ahead, open) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        let (one, _two) = clients(&world, ahead);
        for (at, size) in SIZES.into_iter().enumerate() {
            let name = format!("f{at}");
            let ino = one.make(&name);
            if open {
                one.volume.opened(ino);
            }
            one.write(ino, 0, &vec![1; size]);
            one.unlink(&name, if open { std::slice::from_ref(&ino) } else { &[] });
            if open {
                close(&one, ino);
            }
            until("what was kept back goes", || one.volume.unsettled_bytes() == 0);
        }
        one.volume.sync_all().unwrap();
        assert_eq!(one.wire.commits.load(SeqCst), 0, "ahead: {ahead}, open: {open}");
    }
}
