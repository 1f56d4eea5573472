//! Several clients at once: everybody gets on, and nothing is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use forebay_types::Ino;
use forebay_vfs::Files;

use super::world::{Client, NEVER, World};

/// What was done, counted by those who do it: so it is seen that they get on, however slow the machine is.
#[derive(Default)]
struct Steps {
    taken: AtomicU64,
    over: AtomicBool,
}

impl Steps {
    fn step(&self) {
        self.taken.fetch_add(1, SeqCst);
    }
}

type Work<'a> = Box<dyn FnOnce(&Steps) + Send + 'a>;

/// Runs all of these at once. What waits for itself shows in that no step is taken any more.
fn at_once(work: Vec<Work<'_>>) {
    let steps = Arc::new(Steps::default());
    let watched = Arc::clone(&steps);
    let watch = std::thread::spawn(move || {
        let (mut seen, mut since) = (0, Instant::now());
        while !watched.over.load(SeqCst) {
            let taken = watched.taken.load(SeqCst);
            if taken != seen {
                (seen, since) = (taken, Instant::now());
            }
            if since.elapsed() > NEVER {
                #[allow(clippy::print_stderr, reason = "the test ends here")]
                {
                    eprintln!("they wait for each other");
                }
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    std::thread::scope(|scope| {
        let steps: &Steps = &steps;
        for work in work {
            scope.spawn(move || work(steps));
        }
    });
    steps.over.store(true, SeqCst);
    watch.join().unwrap();
}

#[test]
fn two_clients_make_and_move_names_in_one_directory() {
    const EACH: usize = 400;
    let world = World::new();
    let clients = [world.client("one"), world.client("two")];
    let work = |client: &Client, thread: String, steps: &Steps| {
        for at in 0..EACH {
            let (name, moved) = (format!("{thread}-{at}"), format!("{thread}-{at}-moved"));
            let ino = client.make(&name);
            assert_eq!(client.find(&name), Some(ino));
            client.rename(&name, &moved);
            assert_eq!(client.find(&name), None);
            assert_eq!(client.find(&moved), Some(ino));
            client.volume.inode(Ino::ROOT).unwrap();
            steps.step();
        }
    };
    let mut all: Vec<Work<'_>> = Vec::new();
    for (at, client) in clients.iter().enumerate() {
        for thread in 0..3 {
            all.push(Box::new(move |steps: &Steps| work(client, format!("{at}-{thread}"), steps)));
        }
    }
    at_once(all);
    let names = clients[0].names();
    assert_eq!(names.len(), 6 * EACH);
    assert_eq!(clients[1].names(), names);
    let root = clients[1].volume.inode(Ino::ROOT).unwrap();
    assert_eq!(root.directory.unwrap().entries, 6 * EACH as u64);
}

#[test]
fn what_several_clients_append_is_all_there() {
    const EACH: usize = 60;
    let world = World::new();
    let clients = [world.client("one"), world.client("two"), world.client("three")];
    let ino = clients[0].make("log");
    let work = |client: &Client, line: &str, steps: &Steps| {
        for at in 0..EACH {
            client.append(ino, format!("{line}{at:04}\n").as_bytes());
            steps.step();
        }
    };
    let mut all: Vec<Work<'_>> = Vec::new();
    for (at, client) in clients.iter().enumerate() {
        for thread in 0..2 {
            all.push(Box::new(move |steps: &Steps| work(client, &format!("{at}{thread}-"), steps)));
        }
    }
    at_once(all);
    for client in &clients {
        let text = String::from_utf8(client.read(ino)).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6 * EACH);
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 6 * EACH, "each once");
    }
}

#[test]
fn reading_writing_copying_and_setting_each_others_files_ends() {
    const EACH: usize = 60;
    let world = World::new();
    let clients = [world.client("one"), world.client("two")];
    let inos = [clients[0].make("a"), clients[1].make("b")];
    let work = |at: usize, thread: usize, steps: &Steps| {
        let client = &clients[at];
        let (mine, other) = (inos[at], inos[1 - at]);
        for round in 0..EACH {
            match (round + thread) % 5 {
                0 => client.write(mine, 0, &vec![round as u8; 3000]),
                1 => drop(client.read(other)),
                2 => {
                    let by = forebay_vfs::By::default();
                    client.volume.copy_range((mine, 0), (other, 0), 2000, by).unwrap();
                }
                3 => {
                    let set = forebay_meta::SetAttr { size: Some(1500), ..forebay_meta::SetAttr::default() };
                    client.volume.set_attr(other, &set).unwrap();
                }
                _ => client.volume.sync_file(mine).unwrap(),
            }
            steps.step();
        }
    };
    let work = &work;
    let mut all: Vec<Work<'_>> = Vec::new();
    for at in 0..2 {
        for thread in 0..3 {
            all.push(Box::new(move |steps: &Steps| work(at, thread, steps)));
        }
    }
    at_once(all);
    for ino in inos {
        assert_eq!(clients[0].read(ino), clients[1].read(ino));
    }
}

#[test]
fn a_file_is_replaced_without_anybody_seeing_it_empty() {
    const ROUNDS: u32 = 40;
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let first = one.make("config");
    one.write(first, 0, &[b'0'; 2000]);
    let over = AtomicBool::new(false);
    at_once(vec![
        Box::new(|steps: &Steps| {
            for round in 1..=ROUNDS {
                let ino = one.make("config.new");
                one.write(ino, 0, &[b'0' + (round % 10) as u8; 2000]);
                one.rename("config.new", "config");
                steps.step();
            }
            over.store(true, SeqCst);
        }),
        // Who looks as long as the other one works is no sign that that one gets on.
        Box::new(|_: &Steps| {
            while !over.load(SeqCst) {
                let ino = two.find("config").expect("it is never gone");
                two.volume.opened(ino);
                // Replaced before it was open: then it is looked up again.
                let Ok(inode) = two.volume.inode(ino) else {
                    two.volume.closed(ino);
                    continue;
                };
                assert_eq!(inode.row.size, 2000);
                let bytes = two.read(ino);
                assert_eq!(bytes.len(), 2000);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                two.volume.closed(ino);
            }
        }),
    ]);
}
