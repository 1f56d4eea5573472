//! Leases that a client gives up because it knows too much, many at a time.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use forebay_client::Settings;
use forebay_types::Ino;
use forebay_vfs::{Files, KernelCaches, Told};
use parking_lot::{Condvar, Mutex};

use super::world::{Client, World, directory, file, until};

/// A kernel that keeps who waits for pages waiting.
#[derive(Debug, Default)]
struct Stuck {
    dropped: Mutex<Vec<Ino>>,
    waiting: Mutex<usize>,
    let_go: Mutex<bool>,
    changed: Condvar,
}

impl KernelCaches for Stuck {
    fn drop_inode(&self, ino: Ino, _: bool) -> Told {
        self.dropped.lock().push(ino);
        Told(0)
    }

    fn drop_inodes(&self, inodes: &[Ino], _: bool) -> Told {
        self.dropped.lock().extend_from_slice(inodes);
        Told(1)
    }

    fn drop_entries(&self, _: Ino) -> Told {
        Told(0)
    }

    fn wait(&self, told: Told) {
        *self.waiting.lock() += 1;
        let mut let_go = self.let_go.lock();
        while told == Told(1) && !*let_go {
            self.changed.wait(&mut let_go);
        }
    }
}

impl Stuck {
    fn let_go(&self) {
        *self.let_go.lock() = true;
        self.changed.notify_all();
    }
}

/// Lets the kernel go, also where the test fails.
struct LetGo<'a>(&'a Stuck);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

fn name(at: usize) -> Vec<u8> {
    format!("file-{at}").into_bytes()
}

/// A client that keeps little, a directory, and files in it that the owner has been told of.
fn filled(world: &Arc<World>) -> (Client, Ino, Vec<Ino>) {
    let one = world.client_with(Settings { names: 1000, ..Settings::of("v", "one") });
    let directory = one.volume.make(Ino::ROOT, b"directory", &directory()).unwrap().ino;
    let made = |at: usize| one.volume.make(directory, &name(at), &file()).unwrap().ino;
    let made = (0..4000).map(made).collect();
    one.volume.sync_all().unwrap();
    (one, directory, made)
}

/// Makes files until `holds`: what is known is looked at as more comes.
fn make_until(client: &Client, directory: Ino, what: &str, holds: impl Fn() -> bool) -> usize {
    let more = Cell::new(4000);
    until(what, || {
        more.set(more.get() + 1);
        client.volume.make(directory, &name(more.get()), &file()).unwrap();
        holds()
    });
    more.get()
}

#[test]
fn leases_of_which_too_much_is_known_are_given_up_once_and_many_by_a_message() {
    let world = World::new();
    let (one, directory, made) = filled(&world);
    let other = world.client("other");
    // What is still to be told keeps its lease.
    let files = make_until(&one, directory, "fewer leases", || world.owner().unwrap().status().leases < 2500);
    let messages = one.wire.returns.load(SeqCst);
    assert!(messages < files as u64 / 8, "{messages} messages for {files} files");
    // None is left for which somebody would wait, and who has given it up sees what others do. They name files by their numbers: the owner has to know them.
    one.volume.sync_all().unwrap();
    for (at, ino) in made.iter().enumerate().step_by(97) {
        other.write(*ino, 0, &[7; 10]);
        assert_eq!(one.size(*ino), 10, "{at}");
    }
}

#[test]
fn what_is_open_or_kept_back_is_not_given_up() {
    let world = World::new();
    let other = world.client("other");
    let made: Vec<Ino> = (0..2000).map(|at| other.make(&format!("{at}"))).collect();
    let one = world.client_with(Settings { names: 1000, ..Settings::of("v", "one") });
    let kernel = Arc::new(Stuck::default());
    kernel.let_go();
    one.volume.set_kernel(Arc::clone(&kernel) as _);
    let (mut open, mut written) = (Vec::new(), Vec::new());
    for (at, ino) in made.iter().copied().enumerate() {
        assert_eq!(one.find(&format!("{at}")), Some(ino));
        match at % 20 {
            0 => {
                one.volume.opened(ino);
                open.push(ino);
            }
            1 => {
                one.write(ino, 0, b"kept back");
                written.push(ino);
            }
            _ => {}
        }
    }
    until("what is not used is dropped", || kernel.dropped.lock().len() > 1000);
    let dropped = kernel.dropped.lock().clone();
    assert!(open.iter().chain(&written).all(|ino| !dropped.contains(ino)));
    one.volume.sync_all().unwrap();
    written.iter().for_each(|ino| assert_eq!(other.size(*ino), 9));
    open.iter().for_each(|ino| one.volume.closed(*ino));
}

/// The kernel waits for a page of one file, which a request has locked that waits at the owner behind the other client, which wants another file that is given up with it.
#[test]
fn who_wants_what_is_given_up_waits_for_no_page_that_waits_for_it() {
    let world = World::new();
    let (one, directory, _) = filled(&world);
    let other = world.client("other");
    let kernel = Arc::new(Stuck::default());
    one.volume.set_kernel(Arc::clone(&kernel) as _);
    make_until(&one, directory, "a kernel that is waited for", || *kernel.waiting.lock() > 0);
    one.volume.sync_all().unwrap();
    let (wanted, asked) = {
        let dropped = kernel.dropped.lock();
        (dropped[0], dropped[1])
    };
    thread::scope(|scope| {
        let kernel = LetGo(&kernel);
        let writing = scope.spawn(|| other.write(wanted, 0, b"other"));
        thread::sleep(Duration::from_millis(50));
        assert!(!writing.is_finished(), "the kernel has pages still");
        // Answered or not: it is under way.
        one.size(asked);
        until("the other's lease", || writing.is_finished());
        assert_eq!(one.size(wanted), 5);
        drop(kernel);
    });
}
