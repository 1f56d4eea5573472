//! Policies: what is made in a directory goes by its, and nothing is committed below what they say.

use forebay_cluster::Lease;
use forebay_format::{
    key::Key,
    policy_row::{PolicyKeep, PolicyRow},
    row::Row,
};
use forebay_meta::{NewInode, WriteAttr};
use forebay_protocol::{Answer, Failure, Operation, PolicyChange, PolicyEdit, Push};
use forebay_types::{FileKind, Ino, PolicyId, SyncClass};

use super::{
    super::{
        contents::{commit, extent, file, numbers, object},
        world::{Client, Server, World, lookup, make, make_directory, new_file, until},
    },
    A, B, C, committed, open, open_of, opened, store, stored,
};
use forebay_protocol::Placing;

const BELOW: Answer = Answer::Failed(Failure::BelowClass);
const TAKEN: Answer = Answer::Committed(Vec::new());

fn set(server: &Server, ino: Ino, class: Option<SyncClass>) -> Answer {
    let edit = PolicyEdit { durability: Some(class), ..PolicyEdit::default() };
    server.owner.change_policy(PolicyChange::Set(ino, edit)).unwrap()
}

fn made_in(client: &Client<'_>, directory: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, ..new_file() };
    client.inode(Operation::Make(directory, name.as_bytes().to_vec(), new)).ino
}

fn policy(client: &Client<'_>, ino: Ino) -> PolicyId {
    client.inode(Operation::Inode(ino)).row.policy
}

fn class(client: &Client<'_>, ino: Ino) -> Option<SyncClass> {
    match client.ask(Operation::Classes(vec![policy(client, ino)])).answer() {
        Answer::Classes(told) => told.first().map(|(_, class)| *class),
        other => panic!("{other:?}"),
    }
}

fn row(world: &World, policy: PolicyId) -> PolicyRow {
    use forebay_engine::Engine;
    PolicyRow::decode(&world.engine.get(&Key::Policy(policy).encode()).unwrap().unwrap()).unwrap()
}

#[test]
fn what_is_made_in_a_directory_goes_by_its_policy_for_life() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let (before, dir) = (client.inode(make("before")).ino, client.inode(make_directory("d")).ino);
        assert_eq!(set(&server, dir, Some(SyncClass::Replica(3))), Answer::Done);
        let sub = made_in(&client, dir, "sub", FileKind::Directory);
        let deep = made_in(&client, sub, "deep", FileKind::Regular);
        let nameless = client.inode(Operation::MakeNameless(dir, new_file())).ino;
        for ino in [dir, sub, deep, nameless] {
            assert_eq!(class(&client, ino), Some(SyncClass::Replica(3)), "{ino}");
        }
        assert_eq!((policy(&client, before), class(&client, before)), (PolicyId::NONE, None));
        // A move and a link change nothing, in either direction.
        let to = |name: &str, from, at| Operation::Rename {
            from,
            name: name.as_bytes().to_vec(),
            to: at,
            new_name: name.as_bytes().to_vec(),
            mode: forebay_meta::RenameMode::Replace,
            open: Vec::new(),
        };
        client.ask(to("deep", sub, Ino::ROOT)).get().unwrap();
        client.ask(to("before", Ino::ROOT, dir)).get().unwrap();
        assert_eq!(class(&client, deep), Some(SyncClass::Replica(3)));
        assert_eq!(class(&client, before), None);
        // Another class is one row, and counts for all that goes by it; a later owner knows.
        let number = policy(&client, dir);
        assert_eq!(set(&server, dir, Some(SyncClass::Object)), Answer::Done);
        assert_eq!((policy(&client, dir), policy(&client, deep)), (number, number));
        assert_eq!(class(&client, deep), Some(SyncClass::Object));
        // The end of the session in which that was changed is committed, so the next owner does not wait for it.
        assert_eq!(client.ask(Operation::Release(Vec::new())).answer(), Answer::Done);
        let later = world.owner();
        later.owner.reclaim(client.session, &[]).unwrap();
        let again = later.client(client.session, client.next());
        assert_eq!(class(&again, deep), Some(SyncClass::Object));
        let expected = PolicyRow {
            made_for: dir,
            before: PolicyId::NONE,
            durability: Some(SyncClass::Object),
            keep: PolicyKeep::default(),
            spread: false,
        };
        assert_eq!(row(&world, number), expected);
        // A number that was given is not given again.
        let other = again.inode(make("other")).ino;
        set(&later, other, Some(SyncClass::Object));
        assert_eq!(policy(&again, other), PolicyId(number.0 + 1));
        later.stop().unwrap();
    }
}

#[test]
fn what_was_said_nearer_counts_and_what_came_before_it_counts_again() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    set(&server, dir, Some(SyncClass::Replica(3)));
    let sub = made_in(&client, dir, "sub", FileKind::Directory);
    assert_eq!(set(&server, sub, None), Answer::Failed(Failure::Invalid), "nothing was said for it");
    set(&server, sub, Some(SyncClass::Object));
    let ino = made_in(&client, sub, "file", FileKind::Regular);
    assert_eq!(class(&client, ino), Some(SyncClass::Object));
    set(&server, dir, Some(SyncClass::Replica(4)));
    assert_eq!(class(&client, ino), Some(SyncClass::Object));
    set(&server, sub, None);
    assert_eq!(class(&client, ino), Some(SyncClass::Replica(4)));
    set(&server, dir, None);
    assert_eq!((class(&client, ino), class(&client, dir)), (None, None));
    set(&server, dir, Some(SyncClass::Replica(2)));
    assert_eq!(class(&client, ino), Some(SyncClass::Replica(2)));
    server.stop().unwrap();
}

#[test]
fn what_was_there_is_given_the_policy_unless_it_goes_by_another_one() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let dir = client.inode(make_directory("d")).ino;
    set(&server, dir, Some(SyncClass::Replica(2)));
    let sub = made_in(&client, dir, "sub", FileKind::Directory);
    let inherited = made_in(&client, sub, "inherited", FileKind::Regular);
    let own = made_in(&client, sub, "own", FileKind::Regular);
    set(&server, own, Some(SyncClass::Object));
    let plain = client.inode(make("plain")).ino;
    set(&server, sub, Some(SyncClass::Replica(5)));
    let given = policy(&client, sub);
    let give = |inos: Vec<Ino>| server.owner.change_policy(PolicyChange::Give(given, inos)).unwrap();
    let gone = Ino(1 << 40);
    assert_eq!(give(vec![inherited, own, plain, gone]), Answer::Committed(vec![own]));
    // It is gone on with by doing it again.
    assert_eq!(give(vec![inherited, own, plain]), Answer::Committed(vec![own]));
    assert_eq!((policy(&client, inherited), policy(&client, plain)), (given, given));
    assert_eq!(class(&client, own), Some(SyncClass::Object));
    assert!(!row(&world, given).spread);
    assert_eq!(server.owner.change_policy(PolicyChange::Spread(given)).unwrap(), Answer::Done);
    assert!(row(&world, given).spread);
    let unknown = server.owner.change_policy(PolicyChange::Give(PolicyId(77), vec![plain])).unwrap();
    assert_eq!(unknown, Answer::Failed(Failure::Invalid));
    // Pages may have more or fewer names than asked for; only one without any is the end.
    for name in 0..50 {
        made_in(&client, sub, &format!("name {name:02}"), FileKind::Directory);
    }
    for limit in [1, 7, 100] {
        let (mut seen, mut directories, mut after) = (Vec::new(), 0, None);
        loop {
            let page = server.owner.policy_page(sub, after.as_deref(), limit).unwrap();
            seen.extend(page.inos);
            directories += page.directories.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen.len(), directories), (52, 50));
        assert_eq!((seen[0], seen[51]), (inherited, own));
    }
    server.stop().unwrap();
}

#[test]
fn no_commit_is_taken_below_the_class_of_a_file() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let (high, low) = (client.inode(make("high")).ino, client.inode(make("low")).ino);
        let two = open(&client);
        let three = open_of(Ino::ROOT, 1, Placing::Set(vec![A, B, C]));
        let three = opened(&client, three)[0].segment;
        assert_eq!(committed(&client, high, two, 0, 100), TAKEN, "nothing was said");
        set(&server, high, Some(SyncClass::Replica(3)));
        assert_eq!(committed(&client, high, two, 100, 100), BELOW);
        assert_eq!(committed(&client, high, three, 100, 100), TAKEN);
        set(&server, high, Some(SyncClass::Object));
        assert_eq!(committed(&client, high, three, 200, 100), BELOW);
        // Neither is one that has other files besides, and nothing of it is carried out.
        let part = |segment| vec![(0, extent(segment, 0, 50))];
        let both = vec![file(low, part(two)), file(high, part(two))];
        assert_eq!(client.ask(commit(vec![], both)).answer(), BELOW);
        assert_eq!(client.inode(Operation::Inode(low)).row.size, 0);
        // The store is enough for everything, and so is the row of the inode.
        let given = numbers(&client, 2);
        let object = object(&given, 0, 1000);
        let put = vec![(300, extent(object.segments[0].id, 0, 100))];
        assert_eq!(client.ask(commit(vec![object], vec![file(high, put)])).answer(), TAKEN);
        // So is a segment that a member has put.
        let proxy = server.begin(2);
        let object = numbers(&proxy, 1);
        let whole = vec![stored(two, 1, &[7; 400])];
        assert_eq!(proxy.ask(store(&object, 0, whole)).answer(), Answer::Stored(vec![]));
        assert_eq!(committed(&client, high, two, 200, 100), TAKEN);
        server.stop().unwrap();
    }
}

#[test]
fn bytes_are_not_shared_below_the_class_of_who_gets_them() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (source, target) = (client.inode(make("source")).ino, client.inode(make("target")).ino);
    assert_eq!(committed(&client, source, open(&client), 0, 100), TAKEN);
    let share = || {
        let attr = WriteAttr::default();
        client.ask(Operation::Share { source, from: 0, target, to: 0, len: 100, attr }).answer()
    };
    set(&server, target, Some(SyncClass::Object));
    assert_eq!(share(), BELOW);
    set(&server, target, Some(SyncClass::Replica(2)));
    assert!(share().inode().is_some());
    server.stop().unwrap();
}

#[test]
fn leases_are_recalled_before_a_policy_counts_and_only_who_administers_changes_it() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let ino = client.inode(make("a")).ino;
    let leased = client.ask_for(lookup("a"), Lease::Write).get().unwrap();
    let grant = *leased.grants.iter().find(|grant| grant.ino == ino).unwrap();
    assert_eq!(grant.lease, Lease::Write);
    server.told(client.session);
    std::thread::scope(|scope| {
        let setting = scope.spawn(|| set(&server, ino, Some(SyncClass::Object)));
        let recalled = |push: &Push| matches!(push, Push::Recall { ino: of, .. } if *of == ino);
        until("the recall", || server.pushes.lock().iter().any(|(_, push)| recalled(push)));
        assert!(!setting.is_finished());
        server.owner.returned(client.session, ino, grant.stamp, None, false);
        assert_eq!(setting.join().unwrap(), Answer::Done);
    });
    assert_eq!(class(&client, ino), Some(SyncClass::Object));
    for change in [PolicyChange::Set(ino, PolicyEdit::default()), PolicyChange::Give(PolicyId(1), vec![ino])]
    {
        let asked = client.ask(Operation::ChangePolicy(change)).answer();
        assert_eq!(asked, Answer::Failed(Failure::NotPermitted));
    }
    assert_eq!(class(&client, ino), Some(SyncClass::Object));
    server.stop().unwrap();
}
