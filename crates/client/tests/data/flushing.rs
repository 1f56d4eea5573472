//! How what is written is packed, bounded and shared.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_client::{ClientError, ContentsOptions, Room};
use forebay_meta::{SetAttr, SetTime, WriteAttr};
use forebay_object::{Backend, Faults};
use forebay_protocol::Failure;
use forebay_types::{Compression, Timespec, limits::file_size_max};

use crate::world::{BLOCK, World, bytes, until};

#[test]
fn a_thousand_small_files_become_few_objects() {
    let world = World::new();
    let client = world.client();
    let files: Vec<_> = (0..1000).map(|number| (world.make(), bytes(number, 4096))).collect();
    files.iter().for_each(|(ino, data)| client.write(*ino, 0, data));
    client.contents.settle_all().unwrap();
    let stats = client.contents.stats();
    assert!(stats.objects <= 4 && stats.commits <= 4, "{stats:?}");
    assert_eq!((stats.files, stats.kept), (1000, 0));
    let reader = world.client();
    for (ino, data) in &files {
        assert!(reader.read_all(*ino) == *data);
    }
    assert_eq!(world.owner.counted("map"), 0, "an inode's answer is enough for a small file");
}

#[test]
fn tiny_files_need_no_object() {
    let world = World::new();
    let client = world.client();
    let files: Vec<_> =
        (0..100).map(|number| (world.make(), bytes(number, 1 + number as usize * 10))).collect();
    files.iter().for_each(|(ino, data)| client.write(*ino, 0, data));
    client.contents.settle_all().unwrap();
    assert_eq!(client.contents.stats().objects, 0);
    assert_eq!(world.owner.counted("numbers"), 0);
    for (ino, data) in &files {
        assert_eq!(world.read_elsewhere(*ino), *data);
    }
}

#[test]
fn what_is_old_is_committed_unasked() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { age: Duration::from_millis(20), ..world.options() });
    let ino = world.make();
    client.write(ino, 0, &[1; 5000]);
    until("a commit", || !client.contents.has_kept(ino));
    assert_eq!(world.read_elsewhere(ino), [1; 5000]);
}

#[test]
fn a_large_file_goes_out_while_it_is_written() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    let part = bytes(1, 1 << 20);
    for at in 0..80 {
        client.write(ino, at << 20, &part);
    }
    until("an object before anybody asked for it", || client.contents.stats().commits >= 1);
    client.settle(ino);
    let reader = world.client();
    for at in (0..80).step_by(7) {
        assert!(reader.read(ino, at << 20, 1 << 20) == part);
    }
    assert_eq!(reader.inode(ino).row.size, 80 << 20);
}

#[test]
fn what_is_too_much_for_an_object_becomes_equal_ones() {
    let world = World::with(Compression::None);
    let client = world.client_with(ContentsOptions { batches: 1, ..world.options() });
    let (first, ino) = (world.make(), world.make());
    world.gate.set_closed(true);
    client.write(first, 0, &[1; 5000]);
    std::thread::scope(|scope| {
        scope.spawn(|| client.settle(first));
        world.gate.wait_for(1);
        // While the only thread is held back, a layer gets larger than an object.
        let part = bytes(1, 1 << 20);
        for at in 0..70 {
            client.write(ino, at << 20, &part);
        }
        world.gate.set_closed(false);
    });
    client.settle(ino);
    assert_eq!((client.contents.stats().objects, client.contents.stats().commits), (3, 2));
    let sizes = world.objects().into_iter().map(|object| world.store().head(&object.key()).unwrap().size);
    let large: Vec<_> = sizes.filter(|size| *size > 5 << 20).collect();
    assert!(large.len() == 2 && large.iter().all(|size| (30 << 20..40 << 20).contains(size)), "{large:?}");
}

#[test]
fn eight_writers_stay_within_the_budget() {
    let world = World::new();
    let delay_by = Duration::from_millis(5);
    world.faulty.set_faults(Faults { delay: 500, delay_by, ..Faults::default() });
    let budget = 4 << 20;
    let client = world.client_with(ContentsOptions { budget, batch: 1 << 20, ..world.options() });
    let files: Vec<_> = (0..8).map(|_| world.make()).collect();
    std::thread::scope(|scope| {
        for (number, ino) in files.iter().enumerate() {
            let client = &client;
            scope.spawn(move || {
                for at in 0..40 {
                    client.write(*ino, at * 100_000, &bytes(number as u64 * 1000 + at, 100_000));
                }
            });
        }
    });
    client.contents.settle_all().unwrap();
    let stats = client.contents.stats();
    assert!(stats.kept_max <= budget, "{stats:?}");
    assert_eq!(stats.kept, 0);
    let reader = world.client();
    for (number, ino) in files.iter().enumerate() {
        for at in 0..40 {
            let expected = bytes(number as u64 * 1000 + at, 100_000);
            assert!(reader.read(*ino, at * 100_000, 100_000) == expected);
        }
    }
}

#[test]
fn a_page_of_the_kernel_does_not_wait_for_room() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { budget: 100_000, ..world.options() });
    let ino = world.make();
    world.gate.set_closed(true);
    client.write(ino, 0, &[1; 100_000]);
    client.try_write(ino, 100_000, &[2; 50_000], Room::Exceed).unwrap();
    assert!(client.contents.stats().kept > 150_000);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write(ino, 150_000, &[3; 10]);
            written.store(1, Ordering::SeqCst);
        });
        world.gate.wait_for(1);
        assert_eq!(written.load(Ordering::SeqCst), 0);
        world.gate.set_closed(false);
    });
    client.settle(ino);
    assert_eq!(world.read_elsewhere(ino).len(), 150_010);
}

#[test]
fn a_page_of_the_kernel_may_come_with_an_old_inode() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    let old = client.inode(ino);
    client.write(ino, 0, &[1; 900]);
    client.settle(ino);
    client.forget(ino);
    let _took = client.contents.write(&old, 100, &[2; 10], WriteAttr::default(), (Room::Exceed, 1)).unwrap();
    assert_eq!(client.inode(ino).row.size, 900);
    client.settle(ino);
    let expected = [vec![1; 100], vec![2; 10], vec![1; 790]].concat();
    assert_eq!(world.read_elsewhere(ino), expected);
}

#[test]
fn what_was_cut_off_a_tiny_file_does_not_come_back() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &[1; 600]);
    client.settle(ino);
    client.write(ino, 0, &[2; 10]);
    for size in [100, 600] {
        client.set_attr(ino, &SetAttr { size: Some(size), ..SetAttr::default() });
    }
    client.write(ino, 599, &[3]);
    client.settle(ino);
    let expected = [vec![2; 10], vec![1; 90], vec![0; 499], vec![3]].concat();
    assert_eq!(client.read_all(ino), expected);
    assert_eq!(world.read_elsewhere(ino), expected);
}

#[test]
fn a_file_of_very_many_pieces_is_committed_in_parts() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &[1; 10]);
    let row = client.inode(ino);
    let count = 70_000_u64;
    for at in 0..count {
        let _took = client
            .contents
            .write(&row, at * 20, &[at as u8; 10], WriteAttr::default(), (Room::Wait, 1))
            .unwrap();
    }
    client.settle(ino);
    assert!(client.contents.stats().commits >= 2);
    assert_eq!(client.contents.stats().kept, 0);
    let found = world.read_elsewhere(ino);
    assert_eq!(found.len() as u64, count * 20 - 10);
    for (at, piece) in found.chunks(20).enumerate() {
        assert!(piece[..10].iter().all(|byte| *byte == at as u8));
        assert!(piece[10..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_is_written_meanwhile_is_seen_and_comes_next() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &[1; 10_000]);
    world.gate.set_closed(true);
    std::thread::scope(|scope| {
        scope.spawn(|| client.settle(ino));
        world.gate.wait_for(1);
        client.write(ino, 5000, &[2; 10_000]);
        let both = [vec![1; 5000], vec![2; 10_000]].concat();
        assert_eq!(client.read_all(ino), both);
        assert_eq!(client.inode(ino).row.size, 15_000);
        // The second layer's object may be there first; it waits for the first one's commit.
        scope.spawn(|| client.settle(ino));
        world.gate.wait_for(2);
        client.write(ino, 14_000, &[3; 10]);
        world.gate.set_closed(false);
    });
    assert!(client.contents.has_kept(ino));
    client.settle(ino);
    let mut expected = [vec![1; 5000], vec![2; 10_000]].concat();
    expected[14_000..14_010].fill(3);
    assert_eq!(world.read_elsewhere(ino), expected);
    assert_eq!(client.read_all(ino), expected);
}

#[test]
fn many_who_wait_share_a_commit() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { batches: 1, ..world.options() });
    let files: Vec<_> = (0..32).map(|_| world.make()).collect();
    files.iter().for_each(|ino| client.write(*ino, 0, &bytes(ino.0, 100_000)));
    world.gate.set_closed(true);
    let started = Barrier::new(files.len() + 1);
    std::thread::scope(|scope| {
        for ino in &files {
            scope.spawn(|| {
                started.wait();
                client.settle(*ino);
            });
        }
        started.wait();
        world.gate.wait_for(1);
        world.gate.set_closed(false);
    });
    let stats = client.contents.stats();
    assert_eq!(stats.files, 32);
    assert!(stats.commits < 32, "{stats:?}");
}

#[test]
fn attributes_that_are_set_stay_set() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    let kill = WriteAttr { mode: Some(0o777) };
    let _took = client.contents.write(&client.inode(ino), 0, &[1; 3000], kill, (Room::Wait, 1)).unwrap();
    assert_eq!(client.inode(ino).row.mode, 0o755);
    let time = Timespec { secs: 1_000_000, nanos: 5 };
    let set = SetAttr { mode: Some(0o4711), mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    client.set_attr(ino, &set);
    for _ in 0..2 {
        let row = client.inode(ino).row;
        assert_eq!((row.mode, row.mtime, row.size), (0o4711, time, 3000));
        client.settle(ino);
        client.forget(ino);
    }
    let row = world.client().inode(ino).row;
    assert_eq!((row.mode, row.mtime, row.size), (0o4711, time, 3000));
}

#[test]
fn what_was_committed_is_known_though_the_row_is_older() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    let old = client.inode(ino);
    client.write(ino, 0, &[7; 5000]);
    let kept = client.inode(ino).row;
    client.settle(ino);
    let mut row = old.clone();
    client.contents.overlay(&mut row);
    assert_eq!((row.row.size, row.row.mtime, row.row.allocated), (5000, kept.mtime, 5000));
    assert_eq!(client.read_all(ino), [7; 5000]);
    // A row of nothing and a layout without extents are older than the commit, too.
    assert_eq!(client.contents.read(&old, 0, 5000, &|| true).unwrap().len(), 1);
}

#[test]
fn too_large_is_too_large() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    let end = file_size_max(BLOCK);
    let refused = client.try_write(ino, end - 3, &[1; 4], Room::Wait);
    assert_eq!(refused, Err(ClientError::Failed(Failure::FileTooLarge)));
    client.write(ino, end - 4, &[1; 4]);
    client.settle(ino);
    assert_eq!(world.client().read(ino, end - 10, 20), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn a_file_that_is_gone_holds_up_nobody() {
    let world = World::new();
    let client = world.client();
    let (gone, stays) = (world.make(), world.make());
    client.write(gone, 0, &[1; 5000]);
    client.write(stays, 0, &[2; 5000]);
    let name = b"f0";
    world.owner.ns.unlink(crate::owner::V, forebay_types::Ino::ROOT, name, &|_| false).unwrap();
    client.contents.settle_all().unwrap();
    assert!(!client.contents.has_kept(gone));
    assert_eq!(client.contents.take_failure(gone), None);
    assert_eq!(client.contents.stats().kept, 0);
    assert_eq!(world.read_elsewhere(stays), [2; 5000]);
    let again = world.make();
    client.write(again, 0, &[3; 5000]);
    client.contents.discard(again);
    assert_eq!((client.contents.has_kept(again), client.contents.stats().kept), (false, 0));
}

#[test]
fn files_are_written_from_many_threads_at_once() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { batch: 100_000, ..world.options() });
    let files: Arc<Vec<_>> = Arc::new((0..4).map(|_| world.make()).collect());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (client, files) = (&client, Arc::clone(&files));
            scope.spawn(move || {
                // Each has its own pages of every file.
                for round in 0..60 {
                    for ino in files.iter() {
                        let page = round * 4 + thread;
                        client.write(*ino, page * 4096, &[1 + page as u8; 4096]);
                        if (round + thread).is_multiple_of(13) {
                            client.contents.settle(&files).unwrap();
                        }
                        let found = client.read(*ino, page * 4096, 4096);
                        assert!(found.iter().all(|byte| *byte == 1 + page as u8));
                    }
                }
            });
        }
    });
    client.contents.settle_all().unwrap();
    let expected: Vec<u8> = (0..240).flat_map(|page: u8| vec![1 + page; 4096]).collect();
    for ino in files.iter() {
        assert!(world.read_elsewhere(*ino) == expected);
    }
    world.assert_accounted_for();
}

/// A truncation waits for what a batch took while it waited for another one: that one's commit would bring the old size back.
#[test]
fn a_truncation_is_not_undone_by_what_was_on_its_way() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &bytes(1, 100_000));
    client.settle(ino);
    client.forget(ino);
    let (came, commits) = (world.gate.came(), client.contents.stats().commits);
    world.gate.set_closed(true);
    std::thread::scope(|scope| {
        client.write(ino, 0, &bytes(2, 20_000));
        scope.spawn(|| client.settle(ino));
        world.gate.wait_for(1);
        client.write(ino, 50_000, &bytes(3, 20_000));
        scope.spawn(|| client.set_attr(ino, &SetAttr { size: Some(10), ..SetAttr::default() }));
        // It waits for the first one now.
        std::thread::sleep(Duration::from_millis(50));
        scope.spawn(|| client.settle(ino));
        world.gate.wait_for(2);
        world.gate.let_through(came + 1);
        until("the first is committed", || client.contents.stats().commits > commits);
        std::thread::sleep(Duration::from_millis(50));
        world.gate.set_closed(false);
    });
    assert_eq!(world.read_elsewhere(ino), bytes(2, 20_000)[..10]);
}
