//! Directories with more names than a client knows whole.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use forebay_meta::RenameMode;
use forebay_protocol::{Answer, Failure, Operation, Response};
use forebay_types::{FileKind, Ino};

use super::{
    super::{
        passing::Passing,
        table::{Entry, Names},
    },
    cluster::{Client, Cluster, make, rename},
    model::Dice,
};

/// What names stand for, as one client has told it.
type Model = BTreeMap<String, Ino>;

/// Files that were to be made at the owner.
fn there(client: &Client) -> u64 {
    client.link.there.load(Ordering::SeqCst)
}

fn expect(answer: &Answer, right: Result<Option<Ino>, Failure>, what: &str) {
    match right {
        Ok(None) => assert!(!matches!(answer, Answer::Failed(_)), "{what}: {answer:?}"),
        Ok(Some(ino)) => assert_eq!(answer.inode().map(|inode| inode.ino), Some(ino), "{what}: {answer:?}"),
        Err(failure) => assert_eq!(*answer, Answer::Failed(failure), "{what}"),
    }
}

/// One operation on names of a directory, with what is right.
fn step(client: &Client, top: Ino, names: &mut Model, dice: &mut Dice, range: u64, what: &str) {
    let name = format!("f{}", dice.below(range));
    let bytes = name.clone().into_bytes();
    let known = names.get(&name).copied();
    let there = known.ok_or(Failure::NotFound);
    match dice.below(12) {
        0..=6 => {
            let made = client.ask(make(top, &name, FileKind::Regular));
            match known {
                Some(_) => expect(&made, Err(Failure::Exists), what),
                None => {
                    let made = made.inode().unwrap_or_else(|| panic!("{what}: {made:?}"));
                    names.insert(name, made.ino);
                }
            }
        }
        7 | 8 => {
            let gone = client.ask(Operation::Unlink(top, bytes, Vec::new()));
            expect(&gone, there.map(Some), what);
            names.remove(&name);
        }
        9 => expect(&client.ask(Operation::Lookup(top, bytes)), there.map(Some), what),
        10 => {
            let new_name = format!("f{}", dice.below(range));
            let mode = dice.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
            let taken = names.get(&new_name).copied();
            let right = match (known, mode, taken) {
                (None, ..) => Err(Failure::NotFound),
                (_, RenameMode::NoReplace, Some(_)) => Err(Failure::Exists),
                (_, RenameMode::Exchange, None) => Err(Failure::NotFound),
                _ => Ok(None),
            };
            let to = new_name.clone().into_bytes();
            let moved =
                Operation::Rename { from: top, name: bytes, to: top, new_name: to, mode, open: vec![] };
            expect(&client.ask(moved), right, what);
            // Of two names of one file neither goes.
            if let (Ok(_), Some(ino)) = (right, known.filter(|ino| Some(*ino) != taken)) {
                match taken {
                    Some(taken) if mode == RenameMode::Exchange => drop(names.insert(name, taken)),
                    _ => drop(names.remove(&name)),
                }
                names.insert(new_name, ino);
            }
        }
        _ => {
            let new_name = format!("f{}", dice.below(range));
            let Some(ino) = known else { return };
            let linked = client.ask(Operation::Link(ino, top, new_name.clone().into()));
            match names.get(&new_name) {
                Some(_) => expect(&linked, Err(Failure::Exists), what),
                None => {
                    expect(&linked, Ok(Some(ino)), what);
                    names.insert(new_name, ino);
                }
            }
        }
    }
}

fn check(client: &Arc<Client>, other: &Arc<Client>, top: Ino, names: &Model, what: &str) {
    let right: Vec<&String> = names.keys().collect();
    assert_eq!(client.names(top).iter().collect::<Vec<_>>(), right, "{what}");
    client.ahead.settle_all().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(*client.link.wrong.lock(), [], "{what}");
    assert_eq!(other.names(top).iter().collect::<Vec<_>>(), right, "{what}");
    for (name, ino) in names {
        let told = other.ask(Operation::Lookup(top, name.clone().into()));
        assert_eq!(told.inode().map(|inode| inode.ino), Some(*ino), "{what}: {name}");
    }
}

/// `FOREBAY_SEEDS=1000` runs as many.
#[test]
fn names_that_are_known_by_hash_are_what_they_are() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    for seed in 1..=seeds {
        let (cluster, mut dice) = (Cluster::new(), Dice(seed * 15_485_863));
        let (client, other) = (cluster.forgetful_client(1, 40, 1000), cluster.client(2));
        let (top, mut names) = (client.directory(Ino::ROOT, "top"), Model::new());
        let range = dice.pick(&[60, 400]);
        for at in 0..600 {
            step(&client, top, &mut names, &mut dice, range, &format!("seed {seed}, {at}"));
            match dice.below(100) {
                0 => client.ahead.settle_all().unwrap(),
                1 => drop(other.ask(Operation::Lookup(top, b"f1".to_vec()))),
                _ => {}
            }
        }
        check(&client, &other, top, &names, &format!("seed {seed}"));
    }
}

#[test]
fn who_makes_more_than_is_known_goes_on_by_itself() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.forgetful_client(1, 100, 100_000), cluster.client(2));
    // Directories that are not worked in any more do not stand in the way.
    for number in 0..50 {
        let inner = client.directory(Ino::ROOT, &format!("d{number}"));
        client.file(inner, "file");
    }
    let top = client.directory(Ino::ROOT, "top");
    client.ahead.settle_all().unwrap();
    let asked = client.asked();
    for number in 0..3000 {
        let name = format!("f{number:05}");
        let absent = client.ask(Operation::Lookup(top, name.clone().into_bytes()));
        assert_eq!(absent, Answer::Failed(Failure::NotFound));
        client.file(top, &name);
        if number % 500 == 0 {
            // What is told is forgotten.
            client.ahead.settle_all().unwrap();
        }
    }
    client.ahead.settle_all().unwrap();
    // Steps are told in requests of as many as wait, which is no more than 50; none was asked for by itself.
    assert!(client.asked() - asked < 3000 / 2, "{}", client.asked() - asked);
    assert_eq!(there(&client), 0, "made at the owner");
    assert_eq!(client.ask(make(top, "f00007", FileKind::Regular)), Answer::Failed(Failure::Exists));
    assert_eq!(client.names(top).len(), 3000);
    assert_eq!(other.names(top).len(), 3000);
}

#[test]
fn a_directory_that_had_many_names_is_delegated_when_enough_is_made_in_it() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.forgetful_client(1, 100, 6000), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    for number in 0..5000 {
        other.file(place, &format!("old{number}"));
    }
    other.ahead.settle_all().unwrap();
    for number in 0..100 {
        client.file(place, &format!("new{number}"));
    }
    // 5,000 names are read when four files were to be made: three are made at the owner.
    assert_eq!(there(&client), 3);
    assert_eq!(client.ask(make(place, "old4999", FileKind::Regular)), Answer::Failed(Failure::Exists));
    assert_eq!(client.ask(make(place, "new0", FileKind::Regular)), Answer::Failed(Failure::Exists));
    client.ask(Operation::Unlink(place, b"old17".to_vec(), Vec::new())).inode().unwrap();
    client.file(place, "old17");
    assert_eq!(client.names(place).len(), 5100);
    client.ahead.settle_all().unwrap();
    assert_eq!(other.names(place), client.names(place));
}

/// A client that works in a directory of many names, another one, the directory, and one that is the other's.
fn spool(cluster: &Cluster) -> (Arc<Client>, Arc<Client>, Ino, Ino) {
    let (client, other) = (cluster.forgetful_client(1, 100, 6000), cluster.client(2));
    let (place, done) = (other.directory(Ino::ROOT, "place"), other.directory(Ino::ROOT, "done"));
    for number in 0..5000 {
        other.file(place, &format!("old{number}"));
    }
    other.ahead.settle_all().unwrap();
    for number in 0..10 {
        client.file(place, &format!("new{number}"));
    }
    assert_eq!(there(&client), 3);
    (client, other, place, done)
}

/// A spool, each file of which moves to where it is done.
#[test]
fn what_leaves_a_directory_of_many_names_takes_its_own_name_along() {
    let cluster = Cluster::new();
    let (client, other, place, done) = spool(&cluster);
    let asked = client.asked();
    for number in 0..40 {
        let name = format!("old{number}");
        let moved = client.ask(rename((place, &name), (done, &name)));
        assert!(matches!(moved, Answer::Renamed(..)), "{moved:?}");
        client.file(place, &format!("more{number}"));
        // Its name is free.
        client.file(place, &name);
    }
    client.ahead.settle_all().unwrap();
    // One for each move, and one for what was made before it. To read the directory again would be four.
    assert!(client.asked() - asked < 100, "{}", client.asked() - asked);
    assert_eq!(there(&client), 3, "made at the owner");
    assert_eq!(client.ask(make(place, "old4999", FileKind::Regular)), Answer::Failed(Failure::Exists));
    assert_eq!((other.names(place).len(), other.names(done).len()), (5050, 40));
}

#[test]
fn a_directory_that_was_forgotten_is_read_again_when_enough_is_made_in_it() {
    let cluster = Cluster::new();
    let (client, other, place, done) = spool(&cluster);
    // Both names may be of one file: it is not known whether the first is gone.
    let linked = client.ask(Operation::Lookup(place, b"old7".to_vec())).inode().unwrap().ino;
    client.ask(Operation::Link(linked, done, b"linked".to_vec()));
    let moved = client.ask(rename((place, "old7"), (done, "moved")));
    assert!(matches!(moved, Answer::Renamed(..)), "{moved:?}");
    for number in 0..10 {
        client.file(place, &format!("later{number}"));
    }
    assert_eq!(there(&client), 6, "three more before it was read again");
    client.ahead.settle_all().unwrap();
    assert_eq!((other.names(place).len(), other.names(done).len()), (5019, 2));
}

#[test]
fn an_exchange_with_a_name_that_is_not_known_takes_nothing_else_along() {
    let cluster = Cluster::new();
    let (client, other, place, done) = spool(&cluster);
    let (theirs, inner) = (other.file(done, "theirs"), other.directory(done, "inner"));
    other.ahead.settle_all().unwrap();
    let (mine, outer) = (client.directory(Ino::ROOT, "mine"), client.directory(place, "outer"));
    // What is done in it is done by the client alone, which does not know its name.
    for number in 0..10 {
        client.file(inner, &format!("f{number}"));
    }
    client.file(mine, "file");
    let (before, new0) = (there(&client), client.ask(Operation::Lookup(place, b"new0".to_vec())));
    let exchange = |from: (Ino, &str), to: (Ino, &str)| {
        let answer = client.ask(Operation::Rename {
            from: from.0,
            name: from.1.into(),
            to: to.0,
            new_name: to.1.into(),
            mode: RenameMode::Exchange,
            open: vec![],
        });
        assert!(matches!(answer, Answer::Renamed(..)), "{answer:?}");
    };
    exchange((place, "new0"), (done, "theirs"));
    exchange((place, "outer"), (done, "inner"));
    exchange((place, "new1"), (place, "old5"));
    for top in [mine, place, inner] {
        client.file(top, "later");
        assert_eq!(client.ask(make(top, "later", FileKind::Regular)), Answer::Failed(Failure::Exists));
    }
    assert_eq!(there(&client), before, "made at the owner");
    for client in [&client, &other] {
        client.ahead.settle_all().unwrap();
        let ino = |parent, name: &str| {
            let told = client.ask(Operation::Lookup(parent, name.into()));
            told.inode().map(|inode| (inode.ino, inode.row.parent))
        };
        assert_eq!(ino(place, "new0"), Some((theirs, place)));
        assert_eq!(ino(done, "theirs"), new0.inode().map(|inode| (inode.ino, done)));
        assert_eq!((ino(place, "outer"), ino(done, "inner")), (Some((inner, place)), Some((outer, done))));
        let inside = client.ask(Operation::Inode(inner));
        assert_eq!(inside.inode().map(|inode| inode.row.parent), Some(place));
        assert!(ino(place, "new1").is_some() && ino(place, "old5").is_some());
        let made = client.ask(make(place, "new1", FileKind::Regular));
        assert_eq!(made, Answer::Failed(Failure::Exists));
    }
}

#[test]
fn names_of_files_that_have_many_are_bounded() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.forgetful_client(1, 100, 100_000), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    let files: Vec<Ino> = (0..10).map(|number| client.file(top, &format!("f{number}"))).collect();
    let known = || client.ahead.shared.state.lock().table.len();
    let mut most = 0;
    for number in 0..2000 {
        let link = Operation::Link(files[number % 10], top, format!("l{number}").into_bytes());
        assert_eq!(client.ask(link).inode().unwrap().row.nlink as usize, 2 + number / 10);
        most = most.max(known());
    }
    // And what waits: 50 operations, of two each.
    assert!(most < 300, "{most}");
    assert_eq!(other.names(top).len(), 2010);
}

#[test]
fn names_that_the_owner_tells_of_are_bounded() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.forgetful_client(1, 100, 100_000), cluster.client(2));
    let (mut most, known) = (0, || client.ahead.shared.state.lock().table.len());
    let (place, done) = (other.directory(Ino::ROOT, "place"), client.directory(Ino::ROOT, "done"));
    for number in 0..500 {
        other.file(place, &format!("{number}"));
    }
    for number in 0..500 {
        let name = format!("{number}");
        assert!(matches!(client.ask(rename((place, &name), (done, &name))), Answer::Renamed(..)));
        most = most.max(known());
    }
    assert!(most < 300, "{most}");
    assert_eq!(other.names(done).len(), 500);
}

/// After how many of so many answers, with always so many operations on their way, it was looked whether too much is known.
fn looked(client: &Client, in_flight: usize, answers: usize) -> usize {
    let top = client.ask(Operation::Inode(Ino::ROOT)).inode().unwrap().clone();
    let shared = &client.ahead.shared;
    let operation = Operation::RemoveXattr(Ino(77), b"user.any".to_vec());
    let begin = || {
        let mut state = shared.state.lock();
        state.make_busy(&[Ino(77)]);
        Passing::begin(Arc::clone(shared), &mut state, (&operation, vec![Ino(77)]))
    };
    let mut passing: VecDeque<Passing> = (0..in_flight).map(|_| begin()).collect();
    let mut looked = 0;
    for _ in 0..answers {
        let mut names = Names::default();
        for number in 0..200_u64 {
            names.insert(number.to_string().into(), Entry { ino: Ino(1000), kind: FileKind::Regular });
        }
        shared.state.lock().table.delegate(&top, names);
        let response = Response { answer: Answer::Failed(Failure::Stale), grants: Vec::new() };
        passing.pop_front().unwrap().done(&operation, &response);
        looked += usize::from(shared.state.lock().table.len() < 200);
        passing.push_back(begin());
    }
    looked
}

#[test]
fn it_is_looked_at_every_32nd_change_whether_too_much_is_known_however_many_are_on_their_way() {
    let cluster = Cluster::new();
    let client = cluster.forgetful_client(1, 100, 100_000);
    for in_flight in [1, 2, 3, 200] {
        let looked = looked(&client, in_flight, 640);
        assert!((19..=22).contains(&looked), "{in_flight}: {looked}");
    }
}

#[test]
fn a_directory_with_more_names_than_may_be_hashed_is_the_owners() {
    let cluster = Cluster::new();
    let client = cluster.forgetful_client(1, 100, 500);
    let (one, two) = (client.directory(Ino::ROOT, "one"), client.directory(Ino::ROOT, "two"));
    let (mut made, mut dice) = ([Model::new(), Model::new()], Dice(7));
    for number in 0..1500 {
        // By turns, each with fewer than are too many: one is forgotten for the other, and not at each turn.
        let which = (number / 50) % 2;
        let top = [one, two][which];
        step(&client, top, &mut made[which], &mut dice, 1200, &format!("{number}"));
    }
    let other = cluster.client(2);
    check(&client, &other, one, &made[0], "one");
    check(&client, &other, two, &made[1], "two");
}
