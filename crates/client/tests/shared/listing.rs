//! One client lists what another one makes and writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use forebay_client::Settings;
use forebay_meta::Inode;
use forebay_types::Ino;
use forebay_vfs::Files;

use super::world::{Client, NEVER, World, directory, file};

/// Entries that a listing of the vfs asks for at a time.
const PAGE: usize = 512;

fn ahead(world: &Arc<World>, name: &str) -> Client {
    world.client_with(Settings { ahead: true, ..Settings::of("v", name) })
}

fn name(at: usize) -> Vec<u8> {
    format!("f{at:05}").into_bytes()
}

/// Lists a directory with the inodes of its entries, as the vfs does.
fn list(client: &Client, directory: Ino) -> Vec<(Vec<u8>, Arc<Inode>)> {
    let mut all: Vec<(Vec<u8>, Arc<Inode>)> = Vec::new();
    loop {
        let after = all.last().map(|(name, _)| name.clone());
        let page = client.volume.entries(directory, after.as_deref(), PAGE, true).unwrap();
        if page.is_empty() {
            return all;
        }
        for entry in page {
            let inode = client.volume.inode(entry.ino).unwrap();
            all.push((entry.name, inode));
        }
    }
}

/// Messages of two clients and their owner while one lists what the other has made: requests, recalls and returns.
fn messages(world: &World, clients: [&Client; 2], work: impl FnOnce()) -> [u64; 3] {
    let count = || {
        let asked = clients.iter().map(|client| client.asked()).sum::<u64>();
        let returns = clients.iter().map(|client| client.wire.returns.load(SeqCst)).sum::<u64>();
        [asked, world.pushes.load(SeqCst), returns]
    };
    let before = count();
    work();
    let after = count();
    [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
}

#[test]
fn what_another_client_has_made_is_listed_with_a_few_messages_a_page() {
    const FILES: usize = 4000;
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    let directory = one.volume.make(Ino::ROOT, b"directory", &directory()).unwrap().ino;
    let made: Vec<Ino> =
        (0..FILES).map(|at| one.volume.make(directory, &name(at), &file()).unwrap().ino).collect();
    one.volume.sync_all().unwrap();
    two.volume.lookup(Ino::ROOT, b"directory").unwrap();
    let check = || {
        let listed = list(&two, directory);
        assert_eq!(listed.len(), FILES);
        for (at, (named, inode)) in listed.iter().enumerate() {
            assert_eq!((named, inode.ino), (&name(at), made[at]));
        }
    };
    let [asked, recalls, returns] = messages(&world, [&one, &two], check);
    // A request for each page and for the end of the directory; a recall of each page and its return, and one of the directory.
    let pages = FILES.div_ceil(PAGE) as u64;
    assert!(asked <= pages + 1, "{asked} requests for {pages} pages");
    assert!(recalls <= pages + 1 && returns <= pages + 1, "{recalls} recalls, {returns} returns");
    assert_eq!(messages(&world, [&one, &two], check), [0; 3], "all of it is known now");
    // What was listed is written to again, and told.
    one.write(made[7], 0, b"written");
    assert_eq!(two.size(made[7]), 7);
}

#[test]
fn what_another_client_keeps_back_is_stored_by_the_page_when_it_is_listed() {
    const FILES: usize = 1500;
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    let directory = one.volume.make(Ino::ROOT, b"directory", &directory()).unwrap().ino;
    let contents = |at: usize| vec![at as u8; 1 + at % 3000];
    for at in 0..FILES {
        let ino = one.volume.make(directory, &name(at), &file()).unwrap().ino;
        one.write(ino, 0, &contents(at));
    }
    let check = || {
        for (at, (_, inode)) in list(&two, directory).iter().enumerate() {
            assert_eq!(inode.row.size, contents(at).len() as u64, "{at}");
        }
    };
    let [asked, recalls, returns] = messages(&world, [&one, &two], check);
    let most = FILES as u64 / 10;
    assert!(asked < most && recalls < most && returns < most, "{asked}, {recalls}, {returns}");
    for (at, (_, inode)) in list(&two, directory).iter().enumerate().step_by(50) {
        assert_eq!(two.read(inode.ino), contents(at), "{at}");
    }
}

/// One goes on appending, in several threads, while another one lists: nothing that was answered before a listing began is missing in it.
#[test]
fn a_listing_tells_nothing_older_than_what_writers_were_answered() {
    const FILES: usize = 300;
    let world = World::new();
    let (one, two, three) = (ahead(&world, "one"), ahead(&world, "two"), ahead(&world, "three"));
    let directory = one.volume.make(Ino::ROOT, b"directory", &directory()).unwrap().ino;
    let made: Vec<Ino> =
        (0..FILES).map(|at| one.volume.make(directory, &name(at), &file()).unwrap().ino).collect();
    let sizes: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let is_whole = |lister: &Client| {
        let before: Vec<u64> = sizes.iter().map(|size| size.load(SeqCst)).collect();
        let listed = list(lister, directory);
        assert_eq!(listed.len(), FILES);
        for (at, (_, inode)) in listed.iter().enumerate() {
            assert!(inode.row.size >= before[at], "{at}: {} of {}", inode.row.size, before[at]);
        }
    };
    let append = |of: usize| {
        // Each file has one writer, so that what was answered says how long it is.
        let mut at = of;
        while !over.load(SeqCst) {
            one.append(made[at], &[7; 100]);
            sizes[at].fetch_add(100, SeqCst);
            at = (at + 3 * 7) % FILES;
        }
    };
    let some_grow = || sizes.iter().any(|size| size.load(SeqCst) > 100);
    // At least so often, and until something was written to again.
    let list_often = |lister: &Client| {
        let (mut rounds, began) = (0, Instant::now());
        while rounds < 12 || !some_grow() {
            assert!(rounds < 12 || began.elapsed() < NEVER, "nothing is written");
            is_whole(lister);
            rounds += 1;
        }
    };
    std::thread::scope(|scope| {
        let append = &append;
        (0..3).for_each(|of| drop(scope.spawn(move || append(of))));
        let (lists, list_often) = ([&two, &three], &list_often);
        let listing = lists.map(|lister| scope.spawn(move || list_often(lister)));
        let ended: Vec<_> = listing.into_iter().map(|listing| listing.join()).collect();
        over.store(true, SeqCst);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(some_grow(), "something was written meanwhile");
    is_whole(&two);
    for (at, ino) in made.iter().enumerate() {
        assert_eq!(three.size(*ino), sizes[at].load(SeqCst), "{at}");
    }
}
