//! Much that is made by one client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use forebay_client::Settings;
use forebay_meta::{SetAttr, SetTime};
use forebay_types::{Ino, Timespec};
use forebay_vfs::{Files, VfsError};

use super::world::{Client, World, directory, file};

const FILES: usize = 1500;
/// For so long at most what is done is held back, so that more is told in the same request.
const HELD_BACK: Duration = Duration::from_millis(5);

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
        let (durable, asked) = (begun.elapsed(), one.asked() - asked);
        println!(
            "{FILES} files, {delay_us} us of round trip: {made:.2?}, {durable:.2?} until all is durable, {asked} requests"
        );
        // The longer it takes on a busy machine, the more often what was held back is told.
        let told = durable.div_duration_f64(HELD_BACK) as u64;
        assert!(asked < FILES as u64 / 2 + told, "{asked} requests in {durable:?}");
        one.wire.delay_us.store(0, SeqCst);
        check(&one, &dirs);
        check(&two, &dirs);
        assert_eq!(two.volume.inode(top).unwrap().directory.unwrap().entries, dirs.len() as u64);
    }
}

/// Somebody else has taken the directory, and not the file that was made in it: names lead to it by the owner, which does not know yet what was done to it here.
#[test]
fn what_was_done_here_is_seen_by_names_that_the_owner_tells() {
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    let dir = one.volume.make(Ino::ROOT, b"d", &directory()).unwrap().ino;
    for round in 0..5_u16 {
        let (file_name, other) = (format!("f{round}").into_bytes(), format!("other{round}").into_bytes());
        let ino = one.volume.make(dir, &file_name, &file()).unwrap().ino;
        assert_eq!(one.size(ino), 0, "known here");
        two.volume.make(dir, &other, &file()).unwrap();
        one.wire.delay_us.store(30_000, SeqCst);
        let mode = 0o600 + round;
        let asked = one.asked();
        one.volume.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        let listed = one.volume.entries(dir, None, 100, true).unwrap();
        assert!(listed.iter().any(|entry| entry.ino == ino));
        assert_eq!(one.volume.inode(ino).unwrap().row.mode, mode, "after a listing");
        assert_eq!(one.volume.lookup(dir, &file_name).unwrap().row.mode, mode, "by its name");
        one.volume.set_attr(ino, &SetAttr { mode: Some(0o666), ..SetAttr::default() }).unwrap();
        if round % 2 == 0 {
            one.volume.unlink(dir, &file_name, &|_| false).unwrap();
        }
        one.volume.sync_all().unwrap();
        assert!(one.asked() > asked);
        one.wire.delay_us.store(0, SeqCst);
        let found = two.volume.lookup(dir, &file_name);
        match round % 2 {
            0 => assert!(matches!(found, Err(VfsError::NotFound)), "{found:?}"),
            _ => assert_eq!(found.unwrap().row.mode, 0o666),
        }
    }
}

/// What is set on a file, and what is written to it, in whatever moment a recall sends its bytes.
#[test]
fn what_is_set_while_others_look_stays() {
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    let dir = one.volume.make(Ino::ROOT, b"d", &directory()).unwrap().ino;
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                for entry in two.volume.entries(dir, None, 1000, false).unwrap().iter().rev().take(2) {
                    two.size(entry.ino);
                }
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..300).for_each(|at| set_and_write(&one, dir, at));
        }));
        over.store(true, SeqCst);
        checked.unwrap();
    });
    for at in 0..300 {
        let ino = two.volume.lookup(dir, &name(at)).unwrap().ino;
        assert_eq!(two.read(ino).len(), 700, "{at}");
        assert_eq!(two.volume.inode(ino).unwrap().row.mtime.secs, at as i64, "{at}");
    }
}

/// Grown, cut, opened anew, and its time set at last.
fn set_and_write(client: &Client, dir: Ino, at: usize) {
    let set = |set: SetAttr, size: u64, ino: Ino| {
        assert_eq!(client.volume.set_attr(ino, &set).unwrap().row.size, size, "{at}");
        assert_eq!(client.size(ino), size, "{at}");
    };
    let ino = client.volume.make(dir, &name(at), &file()).unwrap().ino;
    client.write(ino, 0, &[1; 2000]);
    set(SetAttr { mode: Some(0o600), ..SetAttr::default() }, 2000, ino);
    set(SetAttr { size: Some(500), ..SetAttr::default() }, 500, ino);
    assert_eq!(client.append(ino, &[2; 100]), 500);
    set(SetAttr { size: Some(0), ..SetAttr::default() }, 0, ino);
    client.write(ino, 0, &[3; 700]);
    let time = Timespec { secs: at as i64, nanos: 0 };
    set(SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() }, 700, ino);
    assert_eq!(client.read(ino), [3; 700], "{at}");
}

/// Made, written, synced: how many requests that takes is what a small file costs where the owner is far away.
#[test]
fn a_small_file_is_made_written_and_synced_in_one_request() {
    let world = World::new();
    let (one, two) = (ahead(&world, "one"), ahead(&world, "two"));
    let dir = one.volume.make(Ino::ROOT, b"d", &directory()).unwrap().ino;
    // It asks for numbers once.
    one.volume.make(dir, b"first", &file()).unwrap();
    one.volume.sync_all().unwrap();
    let (asked, commits) = (one.asked(), one.wire.commits.load(SeqCst));
    let late = AtomicU64::new(0);
    let write = |at: usize| {
        assert!(matches!(one.volume.lookup(dir, &name(at)), Err(VfsError::NotFound)));
        let began = Instant::now();
        let ino = one.volume.make(dir, &name(at), &file()).unwrap().ino;
        one.volume.opened(ino);
        one.write(ino, 0, format!("contents of {at}").as_bytes());
        one.volume.set_attr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
        one.volume.sync_file(ino).unwrap();
        late.fetch_add(u64::from(began.elapsed() >= HELD_BACK), SeqCst);
        one.volume.closed(ino);
        ino
    };
    let files: Vec<Ino> = (0..100).map(write).collect();
    let (asked, commits) = (one.asked() - asked, one.wire.commits.load(SeqCst) - commits);
    let late = late.into_inner();
    println!("100 files, each synced: {asked} requests, {commits} of them commits, {late} files late");
    // On a busy machine a file may not be written within the time that what makes it is held back: it is made, changed and committed each by a request then.
    assert!(asked < 150 + 2 * late, "{asked} requests, {late} files late");
    assert!(commits < 50 + late, "{commits} commits, {late} files late");
    for (at, ino) in files.iter().enumerate() {
        let found = two.volume.lookup(dir, &name(at)).unwrap();
        assert_eq!((found.ino, found.row.mode), (*ino, 0o600));
        assert_eq!(two.read(*ino), format!("contents of {at}").as_bytes());
    }
    assert_eq!(one.read(files[7]), b"contents of 7");
}
