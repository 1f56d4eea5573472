//! Clients whose token shows one directory of the volume.

use std::sync::Arc;

use forebay_client::Settings;
use forebay_meta::{RenameMode, SetAttr, SetXattr};
use forebay_protocol::Rights;
use forebay_types::Ino;
use forebay_vfs::{By, Files, KernelCaches, LockKind, Told, VfsError, Whence, Write, WriteAt};
use parking_lot::Mutex;

use super::{
    locking::{is_ok, lock, request},
    world::{Client, World, directory, file, until},
};

fn is_gone<T: std::fmt::Debug>(result: Result<T, VfsError>) {
    assert!(matches!(result, Err(VfsError::Stale(_))), "{result:?}");
}

fn make_in(client: &Client, parent: Ino, name: &str) -> Ino {
    client.volume.make(parent, name.as_bytes(), &file()).unwrap().ino
}

fn make_directory(client: &Client, parent: Ino, name: &str) -> Ino {
    client.volume.make(parent, name.as_bytes(), &directory()).unwrap().ino
}

fn look(client: &Client, parent: Ino, name: &str) -> Result<Ino, VfsError> {
    client.volume.lookup(parent, name.as_bytes()).map(|inode| inode.ino)
}

fn rename(client: &Client, from: (Ino, &str), to: (Ino, &str)) {
    let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
    client.volume.rename(from, to, RenameMode::Replace, &|_| false).unwrap();
}

/// What the mount is told to drop.
#[derive(Debug, Default)]
struct Dropped(Mutex<Vec<Ino>>);

impl KernelCaches for Dropped {
    fn drop_inode(&self, ino: Ino, _: bool) -> Told {
        self.0.lock().push(ino);
        Told(0)
    }

    fn drop_inodes(&self, inodes: &[Ino], _: bool) -> Told {
        self.0.lock().extend_from_slice(inodes);
        Told(0)
    }

    fn drop_entries(&self, dir: Ino) -> Told {
        self.drop_inode(dir, false)
    }

    fn wait(&self, _: Told) {}
}

#[test]
fn the_directory_of_a_token_is_the_root_of_the_mount() {
    let world = World::new();
    let all = world.client("all");
    let home = make_directory(&all, Ino::ROOT, "home");
    let inside = make_directory(&all, home, "inside");
    make_in(&all, Ino::ROOT, "outside");
    let client = world.client_below("home", home);
    let root = client.volume.inode(Ino::ROOT).unwrap();
    assert_eq!((root.ino, root.row.parent), (Ino::ROOT, Ino::ROOT), "nothing is above");
    assert_eq!(client.find("inside"), Some(inside));
    assert_eq!(client.find("outside"), None);
    assert_eq!(client.volume.inode(inside).unwrap().row.parent, Ino::ROOT);
    assert_eq!(look(&client, inside, "..").unwrap(), Ino::ROOT);

    let made = client.make("made");
    client.write(made, 0, b"bytes");
    client.volume.sync_file(made).unwrap();
    let told = all.volume.lookup(home, b"made").unwrap();
    assert_eq!((told.ino, told.row.parent, all.read(made)), (made, home, b"bytes".to_vec()));
    rename(&client, (Ino::ROOT, "made"), (inside, "moved"));
    rename(&client, (inside, "moved"), (Ino::ROOT, "back"));
    client.volume.link(made, Ino::ROOT, b"link").unwrap();
    assert_eq!(client.names(), ["back", "inside", "link"]);
    client.unlink("back", &[]);
    let nameless = client.volume.make_nameless(Ino::ROOT, &file()).unwrap();
    assert_eq!(nameless.row.parent, Ino::ROOT);
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    assert_eq!(client.volume.set_attr(Ino::ROOT, &set).unwrap().ino, Ino::ROOT);
    assert_eq!(all.volume.inode(home).unwrap().row.mode, 0o700);
    assert!(is_ok(&lock(&client, Ino::ROOT, 1, LockKind::Exclusive, false).1));
    let other = request(2, LockKind::Exclusive);
    assert!(all.volume.locks().unwrap().conflict(home, &other).unwrap().is_some(), "it is the directory's");
}

#[test]
fn nobody_gets_out_by_a_number() {
    let world = World::new();
    let all = world.client("all");
    let home = make_directory(&all, Ino::ROOT, "home");
    let outside = make_directory(&all, Ino::ROOT, "outside");
    let secret = make_in(&all, outside, "secret");
    let open = make_in(&all, Ino::ROOT, "open");
    let client = world.client_below("home", home);
    let own = client.make("own");
    client.write(own, 0, b"own");
    // The number of the root itself stands for the volume's, in the mount.
    for forged in [home, outside, secret, open, Ino(1 << 40)] {
        let volume = &client.volume;
        is_gone(volume.inode(forged));
        is_gone(volume.lookup(forged, b"secret"));
        is_gone(volume.lookup(forged, b".."));
        is_gone(volume.entries(forged, None, 9, true));
        is_gone(volume.read_link(forged));
        is_gone(volume.xattr(forged, b"user.a"));
        is_gone(volume.xattrs(forged));
        is_gone(volume.make(forged, b"x", &file()));
        is_gone(volume.make_nameless(forged, &file()));
        is_gone(volume.link(forged, Ino::ROOT, b"x"));
        is_gone(volume.link(own, forged, b"x"));
        is_gone(volume.unlink(forged, b"secret", &|_| false));
        is_gone(volume.rmdir(forged, b"secret", &|_| false));
        let replace = RenameMode::Replace;
        is_gone(volume.rename((forged, b"secret"), (Ino::ROOT, b"x"), replace, &|_| false));
        is_gone(volume.rename((Ino::ROOT, b"own"), (forged, b"x"), replace, &|_| false));
        is_gone(volume.set_attr(forged, &SetAttr::default()));
        is_gone(volume.set_xattr(forged, b"user.a", b"x", SetXattr::Any));
        is_gone(volume.remove_xattr(forged, b"user.a"));
        is_gone(volume.read(forged, 0, 9));
        let by = By::default();
        for at in [WriteAt::Offset(0), WriteAt::End(0), WriteAt::Pages(0)] {
            is_gone(volume.write(forged, &Write { at, data: b"x", by }));
        }
        is_gone(volume.punch(forged, 0, 9, None, by));
        is_gone(volume.copy_range((forged, 0), (own, 0), 3, by));
        is_gone(volume.copy_range((own, 0), (forged, 0), 3, by));
        is_gone(volume.seek(forged, 0, Whence::Data));
        is_gone(volume.locks().unwrap().conflict(forged, &request(1, LockKind::Shared)));
    }
    assert_eq!((all.size(secret), all.size(open)), (0, 0));
    assert_eq!(client.names(), ["own"]);
}

#[test]
fn recalls_of_the_root_reach_the_mount_by_its_number() {
    let world = World::new();
    let all = world.client("all");
    let home = make_directory(&all, Ino::ROOT, "home");
    let client = world.client_below("home", home);
    let dropped = Arc::new(Dropped::default());
    client.volume.set_kernel(Arc::clone(&dropped) as _);
    assert_eq!(client.names(), Vec::<String>::new());
    make_in(&all, home, "new");
    assert!(dropped.0.lock().contains(&Ino::ROOT), "{:?}", dropped.0.lock());
    assert!(!dropped.0.lock().contains(&home), "the mount knows nothing by this number");
    assert_eq!(client.names(), ["new"]);
}

#[test]
fn a_root_that_is_moved_goes_on_and_one_that_is_removed_is_gone() {
    let world = World::new();
    let all = world.client("all");
    let home = make_directory(&all, Ino::ROOT, "home");
    let elsewhere = make_directory(&all, Ino::ROOT, "elsewhere");
    let client = world.client_below("home", home);
    let own = client.make("own");
    rename(&all, (Ino::ROOT, "home"), (elsewhere, "moved"));
    assert_eq!((client.find("own"), look(&client, Ino::ROOT, "..").unwrap()), (Some(own), Ino::ROOT));
    client.make("more");
    is_gone(client.volume.inode(elsewhere));
    // The connection is lost and made anew: it is the same session, and the same directory.
    client.wire.cut();
    client.wire.mend();
    until("an answer", || client.volume.inode(Ino::ROOT).is_ok());
    assert_eq!(client.find("own"), Some(own));
    client.unlink("own", &[]);
    client.unlink("more", &[]);
    all.volume.rmdir(elsewhere, b"moved", &|_| false).unwrap();
    is_gone(client.volume.inode(Ino::ROOT));
    is_gone(client.volume.entries(Ino::ROOT, None, 9, false));
    let made = client.volume.make(Ino::ROOT, b"x", &file());
    assert!(matches!(made, Err(VfsError::Stale(_) | VfsError::NotFound)), "{made:?}");
    assert!(client.volume.space().is_ok());
}

#[test]
fn a_new_session_that_shows_something_else_is_refused() {
    let world = World::new();
    let all = world.client("all");
    let home = make_directory(&all, Ino::ROOT, "home");
    let client = world.client_below("home", home);
    let own = client.make("own");
    // Another directory has come to be where the token says.
    let other = make_directory(&all, Ino::ROOT, "other");
    let rights = Rights { root: other, ..Rights::ALL };
    *client.wire.rights.lock() = rights;
    let first = client.volume.session();
    world.end_sessions_below(home);
    until("a refusal", || client.volume.trouble().is_some());
    assert!(client.volume.trouble().unwrap().contains("mount it again"), "{:?}", client.volume.trouble());
    assert!(matches!(client.volume.make(Ino::ROOT, b"x", &file()), Err(VfsError::Denied(_))));
    assert!(client.volume.session() > first && all.volume.entries(other, None, 9, false).unwrap().is_empty());
    // It has come back.
    *client.wire.rights.lock() = Rights { root: home, ..Rights::ALL };
    until("an answer", || matches!(look(&client, Ino::ROOT, "own"), Ok(ino) if ino == own));
    assert_eq!(client.volume.trouble(), None);
    let settings = Settings::of("v", "reads");
    let reader = world.client_of(settings, Rights { root: home, read_only: true, ..Rights::ALL });
    assert!(reader.volume.read_only());
}
