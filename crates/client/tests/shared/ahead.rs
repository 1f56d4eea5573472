//! Much that is made by one client.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Instant,
};

use forebay_client::Settings;
use forebay_meta::{SetAttr, SetTime};
use forebay_types::{Ino, Timespec};
use forebay_vfs::{Files, VfsError};

use super::world::{Client, World, directory, file};

const FILES: usize = 1500;

fn ahead(world: &Arc<World>, name: &str) -> Client {
    world.client_with(Settings { ahead: true, ..Settings::of("v", name) })
}

fn name(at: usize) -> Vec<u8> {
    format!("f{at:05}").into_bytes()
}

/// What an archive does as it is unpacked: 25 files in each directory.
fn unpack(client: &Client, top: &str) -> (Ino, Vec<Ino>) {
    let volume = &client.volume;
    let top = volume.make(Ino::ROOT, top.as_bytes(), &directory()).unwrap().ino;
    let (mut dirs, mut dir) = (Vec::new(), top);
    for at in 0..FILES {
        if at % 25 == 0 {
            dir = volume.make(top, &name(at), &directory()).unwrap().ino;
            dirs.push(dir);
        }
        assert!(matches!(volume.lookup(dir, &name(at)), Err(VfsError::NotFound)));
        let ino = volume.make(dir, &name(at), &file()).unwrap().ino;
        volume.opened(ino);
        client.write(ino, 0, format!("contents of {at}").as_bytes());
        let mtime = Some(SetTime::To(Timespec { secs: at as i64, nanos: 0 }));
        volume.set_attr(ino, &SetAttr { mtime, ..SetAttr::default() }).unwrap();
        volume.closed(ino);
    }
    (top, dirs)
}

fn check(client: &Client, dirs: &[Ino]) {
    for at in 0..FILES {
        let inode = client.volume.lookup(dirs[at / 25], &name(at)).unwrap();
        let attr = inode.attr();
        assert_eq!(attr.mtime, Timespec { secs: at as i64, nanos: 0 }, "{at}");
        let contents = format!("contents of {at}");
        assert_eq!(attr.size, contents.len() as u64);
        if at % 50 == 7 {
            assert_eq!(client.read(inode.ino), contents.as_bytes());
        }
    }
}

/// `cargo test -p forebay-client --test shared unpacking -- --nocapture` prints how long it takes.
#[test]
fn unpacking_does_not_wait_for_the_owner() {
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    for delay_us in [0, 1000, 5000] {
        one.wire.delay_us.store(delay_us, SeqCst);
        let (asked, begun) = (one.asked(), Instant::now());
        let (top, dirs) = unpack(&one, &format!("top{delay_us}"));
        let made = begun.elapsed();
        one.volume.sync_all().unwrap();
        let asked = one.asked() - asked;
        println!(
            "{FILES} files, {delay_us} us of round trip: {made:.2?}, {:.2?} until all is durable, {asked} requests",
            begun.elapsed()
        );
        assert!(asked < FILES as u64 / 2, "{asked} requests");
        one.wire.delay_us.store(0, SeqCst);
        check(&one, &dirs);
        check(&two, &dirs);
        assert_eq!(two.volume.inode(top).unwrap().directory.unwrap().entries, dirs.len() as u64);
    }
}
