//! Modes of coherence between machines (`docs/design/coherence-modes.md`).

use std::sync::{Arc, atomic::Ordering::SeqCst};

use forebay_meta::{MetaError, SetAttr, SetXattr};
use forebay_types::{Coherence, Ino};
use forebay_vfs::{By, Files, RenameMode, VfsError, Write, WriteAt};

use super::world::{Client, World, directory, file, until};

impl Client {
    fn set_mode(&self, ino: Ino, mode: &str) {
        self.volume.set_xattr(ino, Coherence::ATTRIBUTE.as_bytes(), mode.as_bytes(), SetXattr::Any).unwrap();
    }

    fn mode(&self, ino: Ino) -> Coherence {
        self.volume.inode(ino).unwrap().row.coherence
    }

    /// A directory of the root with a mode.
    fn tree(&self, name: &str, mode: &str) -> Ino {
        let ino = self.volume.make(Ino::ROOT, name.as_bytes(), &directory()).unwrap().ino;
        self.set_mode(ino, mode);
        ino
    }

    /// Makes a file and leaves it open.
    fn begin(&self, parent: Ino, name: &str, data: &[u8]) -> Ino {
        let ino = self.volume.make(parent, name.as_bytes(), &file()).unwrap().ino;
        self.volume.opened(ino);
        self.write(ino, 0, data);
        ino
    }

    fn close(&self, ino: Ino) {
        self.volume.closed(ino);
        self.volume.seal(ino);
    }

    fn look(&self, parent: Ino, name: &str) -> Ino {
        self.volume.lookup(parent, name.as_bytes()).unwrap().ino
    }

    fn try_write(&self, ino: Ino, data: &[u8]) -> Result<u64, VfsError> {
        self.volume.write(ino, &Write { at: WriteAt::Offset(0), data, by: By::default() })
    }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, VfsError>) {
    assert!(matches!(result, Err(VfsError::Meta(MetaError::Sealed(_)))), "{result:?}");
}

fn name(at: usize) -> String {
    format!("file-{at}")
}

/// Of all sizes: in the row, in one extent, and in several.
fn contents(at: usize) -> Vec<u8> {
    let len = [100, 30_000, 5_000_000][at % 3];
    (0..len).map(|byte: usize| (byte * 7 + at) as u8).collect()
}

const FILES: usize = 12;

/// An immutable tree whose files are all sealed, and who made it.
fn made(world: &Arc<World>) -> (Client, Ino) {
    let maker = world.client("maker");
    let tree = maker.tree("tree", "immutable");
    for at in 0..FILES {
        let ino = maker.begin(tree, &name(at), &contents(at));
        maker.close(ino);
    }
    for at in 0..FILES {
        let ino = maker.look(tree, &name(at));
        until("the seal", || maker.mode(ino) == Coherence::Sealed);
    }
    (maker, tree)
}

fn read_all(client: &Client, tree: Ino) -> Vec<Ino> {
    let read = |at: usize| {
        let ino = client.look(tree, &name(at));
        assert!(client.read(ino) == contents(at), "{}", name(at));
        ino
    };
    (0..FILES).map(read).collect()
}

#[test]
fn a_sealed_tree_is_read_again_without_a_request_and_without_a_lease() {
    let world = World::new();
    let (_maker, tree) = made(&world);
    let reader = world.client("reader");
    let dir = reader.look(Ino::ROOT, "tree");
    let inos = read_all(&reader, dir);
    // Others have told the maker by now that they look.
    let (before, second) = (world.owner().unwrap().status().leases, world.client("second"));
    read_all(&second, second.look(Ino::ROOT, "tree"));
    let after = world.owner().unwrap().status().leases;
    assert!(after <= before + 2, "{} leases for a directory and the root", after - before);
    let asked = reader.asked();
    read_all(&reader, tree);
    inos.iter().for_each(|ino| assert!(reader.volume.xattrs(*ino).unwrap().is_empty()));
    assert_eq!(reader.asked(), asked);
    for ino in &inos {
        assert_eq!(reader.volume.lifetime(*ino), None, "the kernel may keep it");
        assert_eq!(reader.volume.name_lifetime(dir, *ino), None);
    }
    assert!(reader.volume.lifetime(dir).is_some(), "a directory is coherent");

    // Nobody owns the volume, and the term is over.
    world.kill();
    until("the end of the term", || reader.volume.lifetime(dir).is_some_and(|time| time.is_zero()));
    let asked = reader.asked();
    for (at, ino) in inos.iter().enumerate() {
        assert!(reader.read(*ino) == contents(at));
        assert_eq!(reader.volume.lifetime(*ino), None);
    }
    assert_eq!(reader.asked(), asked);

    // Another owner knows nothing of this client but its session.
    world.start();
    assert_eq!(read_all(&reader, tree), inos);
}

#[test]
fn what_is_known_of_sealed_files_outlives_the_session() {
    let world = World::new();
    let (_maker, tree) = made(&world);
    let reader = world.client("reader");
    let inos = read_all(&reader, tree);
    let session = reader.volume.session();
    reader.wire.cut();
    until("the end of the session", || world.owner().unwrap().status().sessions <= 1);
    for (at, ino) in inos.iter().enumerate() {
        assert!(reader.read(*ino) == contents(at), "cut off");
    }
    reader.wire.mend();
    until("the next session", || reader.volume.session() > session && reader.find("tree").is_some());
    let asked = reader.asked();
    for (at, ino) in inos.iter().enumerate() {
        assert!(reader.read(*ino) == contents(at));
        assert_eq!(reader.mode(*ino), Coherence::Sealed);
    }
    assert_eq!(reader.asked(), asked, "and nothing is asked again");
}

#[test]
fn a_listing_brings_sealed_files_along() {
    let world = World::new();
    let (_maker, tree) = made(&world);
    let reader = world.client("reader");
    let listed = reader.volume.entries(tree, None, 100, true).unwrap();
    assert_eq!(listed.len(), FILES);
    let asked = reader.asked();
    for entry in listed {
        assert_eq!(reader.mode(entry.ino), Coherence::Sealed);
    }
    assert_eq!(reader.asked(), asked);
}

#[test]
fn a_file_is_anybodys_until_it_is_closed_and_nobodys_afterwards() {
    let world = World::new();
    let (a, b) = (world.client("a"), world.client("b"));
    let tree = a.tree("tree", "immutable");
    let ino = a.begin(tree, "file", b"one");
    assert_eq!(a.mode(ino), Coherence::Immutable);
    assert_eq!(b.look(tree, "file"), ino);
    b.volume.opened(ino);
    b.write(ino, 3, b" two");
    assert_eq!(a.read(ino), b"one two");
    b.close(ino);
    until("the seal", || a.mode(ino) == Coherence::Sealed);
    for client in [&a, &b] {
        is_refused(client.try_write(ino, b"x"));
        is_refused(client.volume.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }));
        is_refused(client.volume.punch(ino, 0, 2, None, By::default()));
        is_refused(client.volume.allocate(ino, 100, By::default()));
        assert_eq!(client.read(ino), b"one two");
    }
    // Its second close has nothing to say.
    a.close(ino);
    // Reading is no writing: what only a reader has closed stays open.
    let other = a.begin(tree, "other", b"bytes");
    assert_eq!(b.look(tree, "other"), other);
    b.volume.opened(other);
    assert_eq!(b.read(other), b"bytes");
    b.close(other);
    a.write(other, 0, b"BYTES");
    assert_eq!((b.mode(other), b.read(other)), (Coherence::Immutable, b"BYTES".to_vec()));
}

#[test]
fn names_of_sealed_files_are_as_true_as_any() {
    let world = World::new();
    let (maker, tree) = made(&world);
    let reader = world.client("reader");
    let inos = read_all(&reader, tree);
    let free = &|_: Ino| false;
    maker.volume.rename((tree, b"file-0"), (tree, b"moved"), RenameMode::Replace, free).unwrap();
    maker.volume.unlink(tree, b"file-1", free).unwrap();
    let found = |name: &[u8]| reader.volume.lookup(tree, name).map(|inode| inode.ino);
    assert_eq!(found(b"moved").unwrap(), inos[0]);
    for gone in [b"file-0", b"file-1"] {
        assert!(matches!(found(gone), Err(VfsError::NotFound)));
    }
    let again = maker.begin(tree, "file-1", b"another");
    maker.close(again);
    assert_eq!(reader.read(reader.look(tree, "file-1")), b"another");
    assert_ne!(again, inos[1]);
}

#[test]
fn who_changes_attributes_of_a_sealed_file_sees_it() {
    let world = World::new();
    let (maker, tree) = made(&world);
    let reader = world.client("reader");
    let ino = read_all(&reader, tree)[0];
    let set = SetAttr { mode: Some(0o400), ..SetAttr::default() };
    assert_eq!(reader.volume.set_attr(ino, &set).unwrap().row.mode, 0o400);
    assert_eq!(reader.volume.inode(ino).unwrap().row.mode, 0o400);
    reader.volume.set_xattr(ino, b"user.note", b"kept", SetXattr::Any).unwrap();
    assert_eq!(reader.volume.xattr(ino, b"user.note").unwrap(), b"kept");
    assert_eq!(reader.volume.xattrs(ino).unwrap(), [b"user.note"]);
    // Who has not looked since it was sealed sees it too.
    let late = world.client("late");
    assert_eq!(late.volume.inode(late.look(tree, "file-0")).unwrap().row.mode, 0o400);
    drop(maker);
}

#[test]
fn what_a_client_makes_by_itself_inherits_the_mode() {
    let world = World::new();
    let (a, b) = (world.client("a"), world.client("b"));
    let tree = a.tree("tree", "close-to-open");
    let mut at = tree;
    for level in 0..4 {
        at = a.volume.make(at, b"down", &directory()).unwrap().ino;
        let made = a.volume.make(at, b"file", &file()).unwrap();
        assert_eq!(made.row.coherence, Coherence::CloseToOpen, "level {level}");
    }
    // A directory that the client works in alone gets another mode.
    a.set_mode(at, "immutable");
    let ino = a.begin(at, "late", b"bytes");
    assert_eq!(a.mode(ino), Coherence::Immutable);
    let mut seen = tree;
    for _ in 0..4 {
        seen = b.look(seen, "down");
        assert_eq!(b.mode(b.look(seen, "file")), Coherence::CloseToOpen);
    }
    assert_eq!(b.mode(b.look(seen, "late")), Coherence::Immutable);
    let wrong = b"sealed";
    let set = a.volume.set_xattr(at, Coherence::ATTRIBUTE.as_bytes(), wrong, SetXattr::Any);
    assert!(matches!(set, Err(VfsError::Invalid(_))), "{set:?}");
}

#[test]
fn a_file_whose_maker_dies_stays_open_until_somebody_else_closes_it() {
    let world = World::new();
    let (a, b) = (world.client("a"), world.client("b"));
    let tree = a.tree("tree", "immutable");
    let ino = a.begin(tree, "file", b"stored");
    a.volume.sync_file(ino).unwrap();
    a.wire.cut();
    drop(a);
    until("its end", || world.owner().unwrap().status().sessions == 1);
    assert_eq!((b.read(ino), b.mode(ino)), (b"stored".to_vec(), Coherence::Immutable));
    b.volume.opened(ino);
    b.volume.set_attr(ino, &SetAttr { size: Some(6), ..SetAttr::default() }).unwrap();
    b.close(ino);
    until("the seal", || b.mode(ino) == Coherence::Sealed);
    assert_eq!(b.read(ino), b"stored");
}

#[test]
fn who_lost_his_session_seals_nothing_of_it() {
    let world = World::new();
    let (a, b) = (world.client("a"), world.client("b"));
    let tree = a.tree("tree", "immutable");
    let ino = a.begin(tree, "file", b"stored");
    a.volume.sync_file(ino).unwrap();
    a.write(ino, 6, b" and lost");
    let session = a.volume.session();
    a.wire.cut();
    until("its end", || world.owner().unwrap().status().sessions == 1);
    a.wire.mend();
    until("the next session", || a.volume.session() > session && a.find("tree").is_some());
    a.close(ino);
    assert!(a.volume.sync_file(ino).is_err(), "what was lost is said");
    b.volume.opened(ino);
    b.write(ino, 0, b"STORED");
    b.close(ino);
    until("the seal", || a.mode(ino) == Coherence::Sealed);
    assert_eq!(a.read(ino), b"STORED");
}

#[test]
fn files_are_sealed_although_answers_are_lost_and_the_owner_dies() {
    let world = World::new();
    let a = world.client("a");
    let tree = a.tree("tree", "immutable");
    let mut inos = Vec::new();
    for at in 0..30 {
        a.wire.loses.store(1, SeqCst);
        let ino = a.begin(tree, &name(at), &contents(at));
        a.close(ino);
        inos.push(ino);
        if at == 15 {
            world.kill();
            world.start();
        }
    }
    let b = world.client("b");
    for (at, ino) in inos.iter().enumerate() {
        until("the seal", || b.mode(*ino) == Coherence::Sealed);
        assert!(b.read(*ino) == contents(at));
    }
}
