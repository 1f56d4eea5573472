//! Reading what others have told.

use forebay_client::{ContentsOptions, StoreCache};
use forebay_object::{Backend, Operation};

use forebay_types::Compression;

use crate::world::{Random, World, bytes};

#[test]
fn the_owner_is_asked_for_a_map_once() {
    let world = World::new();
    let writer = world.client();
    let (ino, data) = (world.make(), bytes(1, 3 << 20));
    writer.write(ino, 0, &data);
    writer.settle(ino);
    let reader = world.client();
    let mut random = Random(3);
    for _ in 0..50 {
        let at = random.below(3 << 20) as usize;
        let end = data.len().min(at + 50_000);
        assert!(reader.read(ino, at as u64, 50_000) == data[at..end]);
    }
    assert_eq!(world.owner.counted("map"), 1);
    reader.forget(ino);
    reader.read(ino, 0, 10);
    assert_eq!(world.owner.counted("map"), 2);
}

#[test]
fn what_no_lease_keeps_true_is_for_one_read() {
    let world = World::new();
    let (writer, reader) = (world.client(), world.client());
    let ino = world.make();
    // Beyond what one extent has, so that the inode's own row does not tell where the bytes are.
    let write = |seed| {
        let data = bytes(seed, 600_000);
        writer.write(ino, 0, &data);
        writer.settle(ino);
        data
    };
    let read = |leased: bool| {
        let row = world.owner.told(ino).unwrap().row;
        let inode = forebay_meta::Inode::removed(ino, row, None);
        let pieces = reader.contents.read(&inode, 0, 600_000, &|| leased).unwrap();
        let flat = |piece| match piece {
            forebay_data::ReadPiece::Bytes(bytes) => bytes.to_vec(),
            forebay_data::ReadPiece::Zeros(len) => vec![0; len],
        };
        pieces.into_iter().flat_map(flat).collect::<Vec<u8>>()
    };
    let first = write(1);
    assert!(read(false) == first);
    // As if others of this client had got a lease since, with the next row.
    let second = write(2);
    assert!(read(true) == second, "what was known without a lease is old");
    let asked = world.owner.counted("map");
    assert!(read(true) == second);
    assert_eq!(world.owner.counted("map"), asked, "what is known under one is not asked for again");
}

#[test]
fn a_map_of_many_pieces_comes_in_parts() {
    let world = World::new();
    let writer = world.client();
    let ino = world.make();
    let mut expected = vec![0; 3000 * 100];
    for at in 0..3000 {
        // With a gap behind each.
        writer.write(ino, at * 100, &[at as u8; 60]);
        expected[at as usize * 100..at as usize * 100 + 60].fill(at as u8);
    }
    writer.settle(ino);
    expected.truncate(3000 * 100 - 40);
    let reader = world.client();
    assert!(reader.read_all(ino) == expected);
    let asked = world.owner.counted("map");
    assert!(asked >= 5, "{asked}");
    assert!(reader.read_all(ino) == expected);
    assert_eq!(world.owner.counted("map"), asked);
}

#[test]
fn what_was_moved_meanwhile_is_asked_for_again() {
    for cache in [StoreCache::Files, StoreCache::Memory(8 << 20)] {
        let world = World::with(Compression::None);
        let writer = world.client();
        let ino = world.make();
        writer.write(ino, 0, &bytes(1, 500_000));
        writer.settle(ino);
        let reader = world.client_with(ContentsOptions { cache: cache.clone(), ..world.options() });
        assert!(reader.read(ino, 0, 100) == bytes(1, 100));
        let old = *world.objects().first().unwrap();
        writer.write(ino, 0, &bytes(2, 500_000));
        writer.settle(ino);
        world.store().delete(&old.key()).unwrap();
        // This one has the place of what is deleted, and nothing of its bytes further on.
        let (old, new) = (bytes(1, 500_000), bytes(2, 500_000));
        let found = reader.read(ino, 300_000, 1000);
        let files = cache == StoreCache::Files;
        assert!(found == new[300_000..301_000] || (files && found == old[300_000..301_000]));
        reader.forget(ino);
        assert!(reader.read_all(ino) == new);
    }
}

#[test]
fn who_wrote_it_reads_it_without_the_store() {
    let world = World::new();
    let client = world.client();
    let (ino, data) = (world.make(), bytes(1, 2 << 20));
    client.write(ino, 0, &data);
    client.settle(ino);
    assert!(client.read_all(ino) == data);
    client.forget(ino);
    assert!(client.read_all(ino) == data);
    assert_eq!(world.faulty.count(Operation::GetRange), 0);
}

#[test]
fn a_sequential_reader_is_read_ahead_of() {
    let world = World::new();
    let writer = world.client();
    let (ino, data) = (world.make(), bytes(1, 6 << 20));
    writer.write(ino, 0, &data);
    writer.settle(ino);
    let cache = StoreCache::Memory(256 << 20);
    let reader = world.client_with(ContentsOptions { cache, ..world.options() });
    for at in (0..data.len()).step_by(64 << 10) {
        assert!(reader.read(ino, at as u64, 64 << 10) == data[at..at + (64 << 10)]);
    }
    let requests = world.faulty.count(Operation::GetRange);
    assert!(requests < 48, "{requests} requests for 96 reads");
}
