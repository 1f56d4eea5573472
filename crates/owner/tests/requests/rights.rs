//! What sessions with few rights are refused.

use forebay_cluster::Lease;
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{NewInode, RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_protocol::{Answer, Failure, Operation, Rights};
use forebay_types::{Ino, Timespec};

use super::{
    contents::{commit, extent, file, numbers, object},
    world::{Client, World, make, make_directory, new_file},
};

fn make_in(parent: Ino, name: &str, new: NewInode) -> Operation {
    Operation::Make(parent, name.as_bytes().to_vec(), new)
}

fn lock() -> LockRequest {
    let range = LockRange { start: 0, end: 9, kind: LockKind::Shared, pid: 1 };
    LockRequest { space: LockSpace::Record, owner: 1, fh: 1, range }
}

/// What looks at an inode that is a directory, or a file.
fn looks(ino: Ino) -> Vec<Operation> {
    vec![
        Operation::Lookup(ino, b"x".to_vec()),
        Operation::Lookup(ino, b"..".to_vec()),
        Operation::Inode(ino),
        Operation::Entries { directory: ino, after: None, limit: 9, inodes: true },
        Operation::ReadLink(ino),
        Operation::Xattr(ino, b"user.a".to_vec()),
        Operation::Xattrs(ino),
        Operation::Map(ino, 0, 99),
        Operation::TestLock(ino, lock()),
    ]
}

/// What changes something, by an inode that is to be named in each place where one can be; `own` is one that the session sees.
fn changes(ino: Ino, own: Ino) -> Vec<Operation> {
    let name = || b"x".to_vec();
    let attr = WriteAttr::default();
    let rename = |from, to| Operation::Rename {
        from,
        name: name(),
        to,
        new_name: b"y".to_vec(),
        mode: RenameMode::Replace,
        open: vec![],
    };
    vec![
        make_in(ino, "x", new_file()),
        Operation::MakeNameless(ino, new_file()),
        Operation::Link(ino, own, name()),
        Operation::Link(own, ino, name()),
        Operation::Unlink(ino, name(), vec![]),
        Operation::Rmdir(ino, name(), vec![]),
        rename(ino, own),
        rename(own, ino),
        Operation::SetAttr(ino, SetAttr { mode: Some(0o600), ..SetAttr::default() }),
        Operation::SetAtime(ino, Timespec::default()),
        Operation::SetXattr(ino, b"user.a".to_vec(), vec![1], SetXattr::Any),
        Operation::RemoveXattr(ino, b"user.a".to_vec()),
        Operation::Punch { ino, from: 0, to: 9, size: None, attr },
        Operation::Share { source: ino, from: 0, target: own, to: 0, len: 1, attr },
        Operation::Share { source: own, from: 0, target: ino, to: 0, len: 1, attr },
    ]
}

fn locks(ino: Ino) -> Vec<Operation> {
    vec![
        Operation::Lock(ino, lock(), false),
        Operation::Unlock(ino, LockSpace::Record, 1, (0, 9)),
        Operation::UnlockHandle(ino, 1),
    ]
}

fn failure(client: &Client<'_>, operation: &Operation) -> Option<Failure> {
    match client.ask(operation.clone()).answer() {
        Answer::Failed(failure) => Some(failure),
        _ => None,
    }
}

/// `/own/deep/file` and `/other/file`, and the session's root is `/own`.
struct Tree {
    own: Ino,
    deep: Ino,
    inside: Ino,
    other: Ino,
    outside: Ino,
}

fn tree(client: &Client<'_>) -> Tree {
    let directory = || NewInode { kind: forebay_types::FileKind::Directory, mode: 0o755, ..new_file() };
    let own = client.inode(make_directory("own")).ino;
    let deep = client.inode(make_in(own, "deep", directory())).ino;
    let inside = client.inode(make_in(deep, "file", new_file())).ino;
    let other = client.inode(make_directory("other")).ino;
    let outside = client.inode(make_in(other, "file", new_file())).ino;
    Tree { own, deep, inside, other, outside }
}

#[test]
fn what_is_not_below_the_root_is_not_there() {
    for world in World::both() {
        let server = world.owner();
        let all = server.begin(1);
        let tree = tree(&all);
        let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
        let own = limited.inode(Operation::Lookup(tree.deep, b"file".to_vec()));
        assert_eq!(own.ino, tree.inside);
        for ino in [tree.other, tree.outside, Ino::ROOT, Ino(1 << 30)] {
            for own in [tree.own, tree.deep, tree.inside] {
                for operation in [looks(ino), changes(ino, own), locks(ino)].concat() {
                    assert_eq!(failure(&limited, &operation), Some(Failure::Stale), "{operation:?}");
                }
            }
        }
        for (operation, allowed) in looks(tree.own).iter().zip([false, true, true, true]) {
            assert_eq!(failure(&limited, operation).is_none(), allowed, "{operation:?}");
        }
        let up = |ino| limited.inode(Operation::Lookup(ino, b"..".to_vec()));
        assert_eq!((up(tree.deep).ino, up(tree.own).ino), (tree.own, tree.own));
        assert_eq!(up(tree.own).row.parent, tree.own, "nothing is above");
        assert_eq!(all.inode(Operation::Lookup(tree.own, b"..".to_vec())).ino, Ino::ROOT);
        assert_eq!(failure(&limited, &make_in(tree.deep, "new", new_file())), None);
        assert_eq!(failure(&limited, &Operation::Lock(tree.inside, lock(), false)), None);
        server.stop().unwrap();
    }
}

#[test]
fn what_is_moved_away_is_not_there_any_more() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
    assert_eq!(failure(&limited, &Operation::Inode(tree.inside)), None);
    let rename = Operation::Rename {
        from: tree.own,
        name: b"deep".to_vec(),
        to: tree.other,
        new_name: b"deep".to_vec(),
        mode: RenameMode::Replace,
        open: vec![],
    };
    assert_eq!(failure(&all, &rename), None);
    for ino in [tree.deep, tree.inside] {
        assert_eq!(failure(&limited, &Operation::Inode(ino)), Some(Failure::Stale));
    }
    server.stop().unwrap();
}

#[test]
fn a_file_with_a_name_elsewhere_is_seen_by_the_name_below_the_root() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    all.inode(Operation::Link(tree.outside, tree.own, b"link".to_vec()));
    let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
    assert_eq!(failure(&limited, &Operation::Inode(tree.outside)), Some(Failure::Stale));
    let found = limited.ask_for(Operation::Lookup(tree.own, b"link".to_vec()), Lease::Read).get().unwrap();
    assert_eq!(found.answer.inode().unwrap().ino, tree.outside);
    assert_eq!(failure(&limited, &Operation::Inode(tree.outside)), None, "it has a lease on it");
    let grant = found.grants.into_iter().find(|grant| grant.ino == tree.outside).unwrap();
    server.owner.returned(limited.session, grant.ino, grant.stamp, None, false);
    assert_eq!(failure(&limited, &Operation::Inode(tree.outside)), Some(Failure::Stale));
    server.stop().unwrap();
}

#[test]
fn no_lease_is_given_on_what_is_not_seen() {
    let world = World::new();
    let server = world.owner();
    let tree = tree(&server.begin(1));
    let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
    let asked = [
        Operation::Inode(tree.outside),
        Operation::SetAttr(tree.outside, SetAttr::default()),
        Operation::Link(tree.outside, tree.own, b"x".to_vec()),
        commit(vec![], vec![file(tree.outside, vec![])]),
        commit(vec![object(&numbers(&server.begin(3), 1), 0, 9)], vec![file(tree.outside, vec![])]),
    ];
    for operation in asked {
        for lease in [Lease::Read, Lease::Write] {
            let given = limited.ask_for(operation.clone(), lease).get().unwrap();
            assert!(given.grants.iter().all(|grant| grant.ino != tree.outside), "{operation:?}: {given:?}");
            assert_eq!(failure(&limited, &Operation::Inode(tree.outside)), Some(Failure::Stale));
        }
    }
    server.stop().unwrap();
}

#[test]
fn nobody_loses_a_lease_to_who_does_not_see_the_file() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    let held = all.ask_for(Operation::Inode(tree.outside), Lease::Write).get().unwrap().grants;
    assert_eq!(held[0].lease, Lease::Write);
    let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
    for operation in [looks(tree.outside), changes(tree.outside, tree.inside)].concat() {
        let told = limited.ask_for(operation.clone(), Lease::Write).answer();
        assert_eq!(told, Answer::Failed(Failure::Stale), "{operation:?}");
    }
    for operation in [commit(vec![], vec![file(tree.outside, vec![])]), Operation::Hold(vec![tree.outside])] {
        assert_eq!(limited.ask(operation).answer(), Answer::Committed(vec![tree.outside]));
    }
    assert!(server.told(all.session).is_empty(), "it is not even asked");
    server.stop().unwrap();
}

#[test]
fn bytes_of_others_are_not_had_by_naming_them() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    let given = numbers(&all, 1);
    let secret = object(&given, 0, 500);
    let segment = secret.segments[0].id;
    let files = vec![file(tree.outside, vec![(0, extent(segment, 0, 100))])];
    assert_eq!(all.ask(commit(vec![secret], files)).answer(), Answer::Committed(vec![]));
    let limited = server.begin_with(2, Rights { root: tree.own, ..Rights::ALL });
    let named = commit(vec![], vec![file(tree.inside, vec![(0, extent(segment, 0, 100))])]);
    assert_eq!(failure(&limited, &named), Some(Failure::NotPermitted));
    assert_eq!(failure(&all, &named), None);
    let given = numbers(&limited, 1);
    let put = object(&given, 0, 500);
    let own = put.segments[0].id;
    let files = [tree.outside, tree.inside].map(|ino| file(ino, vec![(0, extent(own, 0, 50))])).to_vec();
    assert_eq!(limited.ask(commit(vec![put], files)).answer(), Answer::Committed(vec![tree.outside]));
    assert_eq!(all.inode(Operation::Inode(tree.outside)).row.size, 100);
    server.stop().unwrap();
}

#[test]
fn who_may_only_read_changes_nothing() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    let reader = server.begin_with(2, Rights { read_only: true, ..Rights::ALL });
    let mut refused = changes(tree.inside, tree.own);
    refused.extend([Operation::Numbers(1, 1), commit(vec![], vec![])]);
    for operation in refused {
        assert_eq!(failure(&reader, &operation), Some(Failure::ReadOnly), "{operation:?}");
    }
    for operation in locks(tree.inside) {
        assert_eq!(failure(&reader, &operation), None, "{operation:?}");
    }
    assert_eq!(failure(&reader, &Operation::Release(vec![tree.inside])), None);
    assert_eq!(failure(&reader, &Operation::Map(tree.inside, 0, 9)), None);
    let granted = reader.ask_for(Operation::Inode(tree.inside), Lease::Write).get().unwrap().grants;
    assert_eq!(granted[0].lease, Lease::Read, "it keeps nothing back");
    server.stop().unwrap();
}

#[test]
fn a_root_user_who_is_nobody_owns_nothing_new() {
    let world = World::new();
    let server = world.owner();
    let nobody = server.begin_with(1, Rights { root_squash: true, ..Rights::ALL });
    let roots = NewInode { uid: 0, gid: 0, ..new_file() };
    let made = nobody.inode(make_in(Ino::ROOT, "a", roots.clone()));
    assert_eq!((made.row.uid, made.row.gid), (65534, 65534));
    let nameless = nobody.inode(Operation::MakeNameless(Ino::ROOT, roots)).row;
    assert_eq!((nameless.uid, nameless.gid), (65534, 65534));
    let set = SetAttr { uid: Some(0), gid: Some(7), ..SetAttr::default() };
    let row = nobody.inode(Operation::SetAttr(made.ino, set)).row;
    assert_eq!((row.uid, row.gid), (65534, 7));
    assert_eq!(nobody.inode(make("b")).row.uid, 1);
    server.stop().unwrap();
}

#[test]
fn rights_outlive_the_owner() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let tree = tree(&all);
    let rights = Rights { root: tree.own, read_only: true, no_exec: true, root_squash: true };
    let limited = server.begin_with(2, rights);
    let later = world.owner();
    assert_eq!(later.owner.rights(limited.session), Some(rights));
    let (_, given) =
        later.owner.reclaim(limited.session, &[(tree.own, Lease::Read), (tree.other, Lease::Read)]).unwrap();
    assert_eq!(given.iter().map(|grant| grant.ino).collect::<Vec<_>>(), [tree.own]);
    later.owner.reclaim(all.session, &[]).unwrap();
    let limited = later.client(limited.session, limited.next());
    assert_eq!(failure(&limited, &Operation::Inode(tree.other)), Some(Failure::Stale));
    assert_eq!(failure(&limited, &make_in(tree.own, "x", new_file())), Some(Failure::ReadOnly));
    later.stop().unwrap();
}
