//! A file that others replace by rename again and again is opened by its name: there is always one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use forebay_client::Settings;
use forebay_types::Ino;
use forebay_vfs::{Caller, Files, Open, Vfs, VfsError, VfsOptions};

use super::world::{Client, NEVER, World};

const NAME: &[u8] = b"target";

/// What the file has that replaced the others at last.
fn contents(number: u64) -> Vec<u8> {
    vec![number as u8; 3000]
}

fn replace(client: &Client, number: u64) -> Ino {
    let new = format!("new{number}");
    let ino = client.make(&new);
    client.write(ino, 0, &contents(number));
    client.rename(&new, "target");
    ino
}

/// As the kernel opens a file by its name: that is looked up, and then opened by its number; where that is gone, once more and not again.
fn open_by_name(client: &Client, mut between: impl FnMut()) -> Result<Ino, VfsError> {
    let mut again = true;
    loop {
        let ino = client.volume.lookup(Ino::ROOT, NAME)?.ino;
        between();
        client.volume.opened(ino);
        match client.volume.inode(ino) {
            Ok(_) => return Ok(ino),
            Err(error) => {
                client.volume.closed(ino);
                if !again || !matches!(error, VfsError::Stale(_)) {
                    return Err(error);
                }
                client.volume.was_gone();
                again = false;
            }
        }
    }
}

#[test]
fn what_is_replaced_between_a_lookup_and_an_open_is_opened() {
    for ahead in [false, true] {
        let world = World::new();
        let settings = |name| Settings { ahead, ..Settings::of("v", name) };
        let (reader, writer) = (world.client_with(settings("reader")), world.client_with(settings("writer")));
        let (mut all, mut opened) = (vec![replace(&writer, 0)], Vec::new());
        for _ in 0..5 {
            let ino = open_by_name(&reader, || all.push(replace(&writer, all.len() as u64))).unwrap();
            // What the name stood for when it was looked up.
            let before = all.len() as u64 - 2;
            assert_eq!((ino, reader.read(ino)), (all[all.len() - 2], contents(before)));
            opened.push(ino);
        }
        assert_eq!(reader.find("target"), all.last().copied());
        for ino in opened {
            assert_eq!(reader.read(ino).len(), 3000, "while it is open");
            reader.volume.closed(ino);
        }
        // Nor does what was looked up, and not opened, stay.
        all[..all.len() - 1].iter().for_each(|ino| world.is_purged(*ino));
    }
}

/// Says that it is over, also where something has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_name_that_is_always_there_is_always_opened() {
    for ahead in [false, true] {
        let world = World::new();
        let settings = |name| Settings { ahead, ..Settings::of("v", name) };
        let writer = world.client_with(settings("writer"));
        replace(&writer, 0);
        let (over, looks) = (AtomicBool::new(false), [0; 3].map(AtomicU64::new));
        std::thread::scope(|scope| {
            let (over, world, looks) = (&over, &world, &looks);
            let read = move |name: &'static str, looks: &AtomicU64| {
                let reader = world.client_with(settings(name));
                while !over.load(SeqCst) {
                    let ino = open_by_name(&reader, || {}).unwrap();
                    let bytes = reader.read(ino);
                    assert_eq!(bytes, contents(u64::from(bytes[0])));
                    reader.volume.closed(ino);
                    looks.fetch_add(1, SeqCst);
                }
            };
            let make = move |looks: &AtomicU64| {
                let client = world.client_with(settings("maker"));
                let vfs = Vfs::new(Arc::new(client.volume), VfsOptions::default());
                while !over.load(SeqCst) {
                    let open = (Open { read_only: true, ..Open::default() }, false);
                    let made = vfs.create(Ino::ROOT, NAME, (0o644, 0), open, &Caller::ROOT);
                    let (attr, opened) = made.unwrap();
                    assert_eq!(attr.size, 3000);
                    vfs.release(attr.ino, opened.fh, None);
                    looks.fetch_add(1, SeqCst);
                }
            };
            let threads = [
                scope.spawn(move || read("one", &looks[0])),
                scope.spawn(move || read("two", &looks[1])),
                scope.spawn(move || make(&looks[2])),
            ];
            let end = Ends(over);
            // Until each has looked: on a busy machine they begin late. One that has failed does not look any more.
            let (all_look, began) = (|| looks.iter().all(|looks| looks.load(SeqCst) > 0), Instant::now());
            let fails = || threads.iter().any(|thread| thread.is_finished());
            let mut number = 0;
            while number < 100 || !all_look() && !fails() {
                assert!(number < 100 || began.elapsed() < NEVER, "somebody never looks: {looks:?}");
                number += 1;
                replace(&writer, number);
            }
            drop(end);
            for thread in threads {
                thread.join().unwrap();
            }
        });
        assert!(looks.iter().all(|looks| looks.load(SeqCst) > 0), "{looks:?}");
    }
}
