//! Files that are made, opened, removed, and changed while they are open, all of it in one request or in several: a client over a real owner tells what a namespace does, and the owner does it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use forebay_format::row::{DirectoryRow, InodeRow};
use forebay_meta::{MetaError, Namespace, NewInode, RenameMode, SetAttr, SetXattr};
use forebay_protocol::{Answer, Failure, InodeAnswer, Operation};
use forebay_types::{FileKind, Ino, Timespec};

use super::{
    along,
    cluster::{Client, Cluster},
    model::{self, AT, Dice},
};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// Whether anything that concerns these is not told.
fn waits(client: &Client, inos: &[Ino]) -> bool {
    let state = client.ahead.shared.state.lock();
    !state.queue.is_told(state.queue.until(inos))
}

/// An answer without what two clocks say, and without who else has the inode open.
fn told(answer: Answer) -> Answer {
    let zero = Timespec::default();
    let inode = |inode: InodeAnswer| {
        let row = InodeRow { atime: zero, mtime: zero, ctime: zero, btime: zero, ..inode.row };
        let directory = inode.directory.map(|row| DirectoryRow { mtime: zero, ctime: zero, ..row });
        Box::new(InodeAnswer { row, directory, ..inode })
    };
    match answer {
        Answer::Inode(told) | Answer::Orphaned(told) => Answer::Inode(inode(*told)),
        Answer::Renamed(moved, replaced) => {
            Answer::Renamed(inode(*moved), replaced.map(|replaced| inode(*replaced)))
        }
        Answer::RenamedOver(moved, orphaned) => Answer::Renamed(inode(*moved), Some(inode(*orphaned))),
        other => other,
    }
}

/// A client, one that looks at what it does, and the namespace that says what is right.
struct Both {
    cluster: Cluster,
    client: Arc<Client>,
    other: Arc<Client>,
    ns: Namespace,
    top: Ino,
    /// Files that have a name or are open.
    files: Vec<Ino>,
    open: BTreeSet<Ino>,
    /// Of which the owner is asked: somebody has looked at them.
    seen: BTreeSet<Ino>,
    held_up: bool,
    counts: Counts,
}

/// What has happened: that it did is what the test is for.
#[derive(Default)]
struct Counts {
    made: u32,
    /// Changes of open files without a name that were carried out ahead of the owner.
    nameless: u32,
    /// Commits of files that the owner did not know yet.
    along: u32,
}

impl Both {
    fn new() -> Both {
        let cluster = Cluster::new();
        let (client, other) = (cluster.client(1), cluster.client(2));
        let (ns, _) = model::namespace();
        // As many numbers as the owner gives.
        let _ = ns.new_runs(1 << 12);
        let top = client.directory(Ino::ROOT, "top");
        let new = NewInode {
            kind: FileKind::Directory,
            mode: 0o644,
            uid: 1,
            gid: 1,
            rdev: 0,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        ns.make_numbered(AT, Ino::ROOT, b"top", &new, top).unwrap();
        Both {
            cluster,
            client,
            other,
            ns,
            top,
            files: Vec::new(),
            open: BTreeSet::new(),
            seen: BTreeSet::new(),
            held_up: false,
            counts: Counts::default(),
        }
    }

    /// What is done from now on is told in one request, once that is let go.
    fn hold_up(&mut self) {
        self.client.link.gate.close(0);
        self.held_up = true;
    }

    fn let_go(&mut self) {
        self.client.link.gate.open();
        self.held_up = false;
    }

    fn named(&self, name: &[u8]) -> Option<Ino> {
        self.ns.lookup(AT, self.top, name).ok().map(|inode| inode.ino)
    }

    fn links(&self, ino: Ino) -> u32 {
        self.ns.inode(AT, ino).map_or(0, |inode| inode.row.nlink)
    }

    /// Has the client and the namespace do the same.
    fn both(&mut self, operation: &Operation, what: &str) -> Answer {
        let concerned: Vec<Ino> = match operation {
            Operation::Make(_, name, _) => self.named(name).into_iter().collect(),
            Operation::Unlink(_, name, _) => self.named(name).into_iter().collect(),
            Operation::Rename { name, new_name, .. } => {
                self.named(name).into_iter().chain(self.named(new_name)).collect()
            }
            Operation::Link(ino, ..)
            | Operation::SetAttr(ino, _)
            | Operation::SetAtime(ino, _)
            | Operation::SetXattr(ino, ..)
            | Operation::RemoveXattr(ino, _)
            | Operation::Inode(ino)
            | Operation::Xattrs(ino) => vec![*ino],
            Operation::Commit(commit) => commit.files.iter().map(|file| file.ino).collect(),
            other => panic!("{other:?}"),
        };
        if concerned.iter().any(|ino| self.seen.contains(ino)) && !matches!(operation, Operation::Make(..)) {
            // The owner carries it out, after all that is held up.
            self.let_go();
            self.seen.extend(&concerned);
        } else if matches!(operation, Operation::Commit(_)) {
            // It is waited for. The file's row is the owner's from then on.
            self.let_go();
            self.counts.along += u32::from(waits(&self.client, &concerned));
            self.seen.extend(&concerned);
        } else if operation.changes() {
            let nameless = |ino: &&Ino| self.open.contains(ino) && self.links(**ino) == 0;
            self.counts.nameless += concerned.iter().filter(nameless).count() as u32;
        }
        let answer = self.client.ask(operation.clone());
        let made = match (operation, &answer) {
            (Operation::Make(..), Answer::Inode(made)) => made.ino,
            _ => Ino(0),
        };
        let expected = model::owner(&self.ns, operation, made);
        let expected = expected.unwrap_or_else(|error: MetaError| Answer::Failed(Failure::from(&error)));
        assert_eq!(told(answer.clone()), told(expected), "{what}: {operation:?}");
        let (ns, open) = (&self.ns, &self.open);
        self.files.retain(|ino| open.contains(ino) || ns.inode(AT, *ino).is_ok());
        answer
    }

    fn release(&mut self, ino: Ino) {
        self.let_go();
        let released = self.client.ask(Operation::Release(vec![ino]));
        assert!(matches!(released, Answer::Done | Answer::Committed(_)), "{released:?}");
        self.open.remove(&ino);
        if self.links(ino) == 0 {
            self.ns.purge(AT, ino).unwrap();
            self.files.retain(|file| *file != ino);
        }
        // What passes to the owner is its to tell.
        self.seen.insert(ino);
    }

    fn look(&mut self, ino: Ino) {
        self.let_go();
        // By its number nobody finds it before the owner knows it.
        self.client.ahead.settle(&[ino]).unwrap();
        self.seen.insert(ino);
        let expected = model::owner(&self.ns, &Operation::Inode(ino), ino).unwrap();
        assert_eq!(told(self.other.ask(Operation::Inode(ino))), told(expected), "{ino}");
    }

    fn step(&mut self, dice: &mut Dice, what: &str) {
        let (top, name) = (self.top, dice.pick(&NAMES).to_vec());
        let open: Vec<Ino> = self.open.iter().copied().collect();
        if let (Some(operation), true) = (self.change_of_a_file(dice), dice.below(3) > 0) {
            self.both(&operation, what);
            return;
        }
        match dice.below(16) {
            0..=4 => {
                let new = NewInode {
                    kind: FileKind::Regular,
                    mode: 0o640,
                    uid: 3,
                    gid: 4,
                    rdev: 0,
                    target: vec![],
                    xattrs: vec![],
                };
                if let Answer::Inode(made) = self.both(&Operation::Make(top, name, new), what) {
                    self.counts.made += 1;
                    self.files.push(made.ino);
                    if dice.below(3) > 0 {
                        self.open.insert(made.ino);
                    }
                }
            }
            5..=8 => drop(self.both(&Operation::Unlink(top, name, open), what)),
            9 | 10 => {
                let mode = dice.pick(&[RenameMode::Replace, RenameMode::Exchange]);
                let new_name = dice.pick(&NAMES).to_vec();
                self.both(&Operation::Rename { from: top, name, to: top, new_name, mode, open }, what);
            }
            11 => {
                if let Some(ino) = open.get(dice.below(open.len().max(1) as u64) as usize) {
                    self.release(*ino);
                }
            }
            12 if dice.below(3) == 0 && !self.files.is_empty() => self.look(dice.pick(&self.files)),
            13 if self.held_up => self.let_go(),
            13 | 14 => self.hold_up(),
            15 if dice.below(8) == 0 => {
                self.let_go();
                self.cluster.take_over();
                // Each is heard of, and has its leases again, before anything is held up.
                for client in [&self.client, &self.other] {
                    assert!(matches!(client.ask(Operation::Space), Answer::Space(_)));
                }
            }
            15 => {
                self.let_go();
                self.client.ahead.settle(&self.files).unwrap();
            }
            _ => {}
        }
    }

    /// Something done to a file, with a name or without.
    fn change_of_a_file(&self, dice: &mut Dice) -> Option<Operation> {
        if self.files.is_empty() {
            return None;
        }
        let ino = dice.pick(&self.files);
        let value = vec![dice.below(200) as u8; 3];
        let set = |set| Operation::SetAttr(ino, set);
        let bytes = [dice.below(200) as u8; 9];
        Some(match dice.below(9) {
            7 => along::commit(&[(ino, &bytes[..1 + dice.below(9) as usize])]),
            0 => set(SetAttr { mode: Some(dice.below(0o1000) as u16), ..SetAttr::default() }),
            1 => set(SetAttr { size: Some(dice.below(9000)), ..SetAttr::default() }),
            2 => set(SetAttr { uid: Some(dice.below(9) as u32), gid: Some(7), ..SetAttr::default() }),
            3 => set(SetAttr { xattrs: vec![(b"user.b".to_vec(), Some(value))], ..SetAttr::default() }),
            4 => Operation::SetXattr(ino, b"user.a".to_vec(), value, SetXattr::Any),
            5 => Operation::RemoveXattr(ino, b"user.a".to_vec()),
            6 => Operation::Link(ino, self.top, dice.pick(&NAMES).to_vec()),
            _ => dice.pick(&[Operation::Inode(ino), Operation::Xattrs(ino)]),
        })
    }

    /// All of it is at the owner, and nothing was refused.
    fn check(mut self, what: &str) -> Counts {
        self.let_go();
        self.client.ahead.settle_all().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(*self.client.link.wrong.lock(), [], "{what}");
        for name in NAMES {
            let lookup = Operation::Lookup(self.top, name.to_vec());
            let expected = model::owner(&self.ns, &lookup, Ino(0));
            let expected = expected.unwrap_or_else(|error| Answer::Failed(Failure::from(&error)));
            assert_eq!(told(self.other.ask(lookup)), told(expected), "{what}: {name:?}");
        }
        for ino in self.files.clone() {
            self.look(ino);
            let expected = model::owner(&self.ns, &Operation::Xattrs(ino), ino).unwrap();
            assert_eq!(self.other.ask(Operation::Xattrs(ino)), expected, "{what}: {ino}");
        }
        assert!(!self.client.link.cut.load(Ordering::SeqCst));
        self.counts
    }
}

/// `FOREBAY_SEEDS=1000` runs as many.
#[test]
fn files_that_lose_their_names_while_they_are_open_are_what_they_were_told_to_be() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let mut counts = BTreeMap::from([("made", 0), ("nameless", 0), ("along", 0)]);
    for seed in 1..=seeds {
        let (mut both, mut dice) = (Both::new(), Dice(seed * 7919));
        for at in 0..150 {
            both.step(&mut dice, &format!("seed {seed}, {at}"));
        }
        let Counts { made, nameless, along } = both.check(&format!("seed {seed}"));
        *counts.get_mut("made").unwrap() += made;
        *counts.get_mut("nameless").unwrap() += nameless;
        *counts.get_mut("along").unwrap() += 3 * along;
    }
    assert!(counts.values().all(|count| u64::from(*count) > 3 * seeds), "{counts:?}");
}
