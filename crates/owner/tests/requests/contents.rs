//! Contents of files: numbers, commits, maps, what becomes of what nobody refers to.

use std::time::Duration;

use forebay_cluster::{Lease, SessionId};
use forebay_format::row::{Extent, Layout, ObjectRef};
use forebay_meta::{PieceSource, SetAttr, WriteAttr};
use forebay_protocol::{
    Answer, Commit, Contents, Failure, FileCommit, Mapped, Numbers, ObjectCommit, Operation, Refusal,
    SegmentCommit, SpaceAnswer,
};
use forebay_types::{Epoch, Ino, ObjectId, SegmentId, Timespec};

use super::world::{Client, Server, World, lookup, make, make_directory};

const BLOCK: u64 = 4 << 20;

pub fn numbers(client: &Client<'_>, many: u32) -> Numbers {
    match client.ask(Operation::Numbers(many, many)).answer() {
        Answer::Numbers(numbers) => numbers,
        other => panic!("{other:?}"),
    }
}

/// The object with one segment, of `len` bytes, whose numbers are so many after the first.
pub fn object(numbers: &Numbers, at: u64, len: u64) -> ObjectCommit {
    let first = numbers.first_object;
    let id = SegmentId(numbers.first_segment.0 + at);
    ObjectCommit {
        object: ObjectRef { id: ObjectId(first.id.0 + at), ..first },
        segments: vec![SegmentCommit { id, offset: 64, len, raw: len }],
    }
}

pub fn extent(segment: SegmentId, run_offset: u64, len: u32) -> Extent {
    Extent { len, segment, run_offset, stored_len: len + 8, run_len: len, skip: 0, form: 0, check: 1 }
}

pub fn file(ino: Ino, extents: Vec<(u64, Extent)>) -> FileCommit {
    let mtime = Timespec { secs: 77, nanos: 0 };
    FileCommit { ino, inline: None, extents, size: 0, attr: WriteAttr::default(), mtime }
}

pub fn commit(objects: Vec<ObjectCommit>, files: Vec<FileCommit>) -> Operation {
    Operation::Commit(Box::new(Commit { objects, files }))
}

fn mapped(client: &Client<'_>, ino: Ino, from: u64, len: u64) -> Mapped {
    match client.ask(Operation::Map(ino, from, len)).answer() {
        Answer::Mapped(mapped) => mapped,
        other => panic!("{other:?}"),
    }
}

fn used(client: &Client<'_>) -> u64 {
    match client.ask(Operation::Space).answer() {
        Answer::Space(SpaceAnswer { used, .. }) => used,
        other => panic!("{other:?}"),
    }
}

/// Tidies, and waits until what that has changed is committed: no later request is answered before.
fn tidied(server: &Server, client: &Client<'_>) {
    server.owner.tidy().unwrap();
    assert_eq!(client.ask(Operation::Release(Vec::new())).answer(), Answer::Done);
}

/// Garbage, once it has been such for long enough.
fn garbage(world: &World, server: &Server, clients: &[&Client<'_>]) -> Vec<ObjectRef> {
    tidied(server, clients[0]);
    server.owner.garbage().unwrap();
    world.pass(server, clients, Duration::from_secs(61));
    server.owner.garbage().unwrap()
}

#[test]
fn what_was_put_into_the_store_is_read_by_others() {
    for world in World::both() {
        let server = world.owner();
        let (writer, reader) = (server.begin(1), server.begin(2));
        let (one, two) = (writer.inode(make("one")).ino, writer.inode(make("two")).ino);
        let given = numbers(&writer, 4);
        let put = object(&given, 1, 5000);
        let (segment, name) = (put.segments[0].id, put.object);
        let tiny = FileCommit { inline: Some(b"tiny".to_vec()), ..file(two, Vec::new()) };
        let files = vec![file(one, vec![(10, extent(segment, 100, 3000))]), tiny];
        assert_eq!(writer.ask(commit(vec![put], files)).answer(), Answer::Committed(Vec::new()));
        let seen = reader.inode(lookup("one"));
        assert_eq!((seen.row.size, seen.row.mtime.secs, seen.row.allocated), (3010, 77, 3000));
        let Some(Contents::Place(of, place)) = seen.contents else { panic!("{seen:?}") };
        assert_eq!((of, place.object, place.offset, place.len), (segment, name, 64, 5000));
        let seen = reader.inode(Operation::Inode(two));
        assert_eq!((seen.row.size, seen.contents), (4, Some(Contents::Inline(b"tiny".to_vec()))));
        let found = mapped(&reader, one, 0, u64::MAX);
        assert_eq!((found.pieces.len(), found.to, found.places), (2, 3010, vec![(segment, place)]));
        assert_eq!(found.pieces[0].source, PieceSource::Hole);
        assert_eq!(used(&reader), 3000);
        server.stop().unwrap();
    }
}

#[test]
fn a_commit_recalls_what_others_keep_of_the_files() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    let ino = writer.inode(make("a")).ino;
    let kept = reader.ask_for(Operation::Inode(ino), Lease::Read).get().unwrap().grants[0];
    let given = numbers(&writer, 1);
    let put = object(&given, 0, 500);
    let files = vec![file(ino, vec![(0, extent(put.segments[0].id, 0, 100))])];
    let committed = writer.ask(commit(vec![put], files));
    super::world::until("the recall", || !server.pushes.lock().is_empty());
    assert!(!committed.is_there());
    server.owner.returned(reader.session, ino, kept.stamp, None, true);
    assert_eq!(committed.answer(), Answer::Committed(Vec::new()));
    server.stop().unwrap();
}

#[test]
fn only_numbers_of_the_session_are_taken_and_once() {
    let world = World::new();
    let server = world.owner();
    let (client, other) = (server.begin(1), server.begin(2));
    let ino = client.inode(make("a")).ino;
    let (given, others) = (numbers(&client, 2), numbers(&other, 2));
    let refused = Answer::Failed(Failure::Invalid);
    let foreign = object(&others, 0, 50);
    assert_eq!(client.ask(commit(vec![foreign], Vec::new())).answer(), refused, "another session's");
    let mut mixed = object(&given, 0, 50);
    mixed.segments[0].id = others.first_segment;
    assert_eq!(client.ask(commit(vec![mixed], Vec::new())).answer(), refused, "another session's segment");
    let mut later = object(&given, 0, 50);
    later.object.epoch = Epoch(9);
    assert_eq!(client.ask(commit(vec![later], Vec::new())).answer(), refused, "of another term");
    let put = object(&given, 0, 50);
    let files = vec![file(ino, vec![(0, extent(put.segments[0].id, 0, 10))]), file(Ino(1 << 30), Vec::new())];
    let committed = client.ask(commit(vec![put.clone()], files)).answer();
    assert_eq!(committed, Answer::Committed(vec![Ino(1 << 30)]), "what is gone is said");
    assert_eq!(client.ask(commit(vec![put], Vec::new())).answer(), refused, "used already");
    assert_eq!(client.ask(Operation::Numbers(1 << 20, 0)).answer(), refused, "so many at once");
    server.stop().unwrap();
}

#[test]
fn a_session_that_gives_numbers_back_gets_others() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let given = numbers(&client, 4096);
    for _ in 1..16 {
        numbers(&client, 4096);
    }
    let refused = Answer::Failed(Failure::Invalid);
    assert_eq!(client.ask(Operation::Numbers(1, 1)).answer(), refused, "it has as many as it may have");
    // Nothing came of these two.
    let back = || commit(vec![object(&given, 0, 0), object(&given, 7, 0)], vec![]);
    assert_eq!(client.ask(back()).answer(), Answer::Committed(vec![]));
    assert_eq!(client.ask(back()).answer(), refused, "they are the session's no more");
    let mixed = commit(vec![object(&given, 1, 0), object(&given, 2, 9)], vec![]);
    assert_eq!(client.ask(mixed).answer(), refused);
    let named = commit(vec![object(&given, 7, 500)], vec![]);
    assert_eq!(client.ask(named).answer(), refused, "nor will anything come of them");
    numbers(&client, 2);
    let expected = [0, 7].map(|at| object(&given, at, 0).object);
    assert_eq!(garbage(&world, &server, &[&client]), expected, "what may be there is deleted");
    server.stop().unwrap();
}

#[test]
fn numbers_outlive_the_owner_and_are_not_given_twice() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let ino = client.inode(make("a")).ino;
        let given = numbers(&client, 3);
        let later = world.owner();
        later.owner.reclaim(client.session, &[]).unwrap();
        let client = later.client(client.session, client.next());
        let put = object(&given, 2, 50);
        let files = vec![file(ino, vec![(0, extent(put.segments[0].id, 0, 10))])];
        assert_eq!(client.ask(commit(vec![put], files)).answer(), Answer::Committed(Vec::new()));
        let more = numbers(&client, 1);
        assert!(more.first_segment.0 >= given.first_segment.0 + 3, "{more:?} after {given:?}");
        assert!(more.first_object.id.0 >= given.first_object.id.0 + 3, "{more:?} after {given:?}");
        later.stop().unwrap();
    }
}

#[test]
fn what_a_session_put_and_did_not_commit_is_garbage_when_it_ends() {
    for world in World::both() {
        let server = world.owner();
        let (client, other) = (server.begin(1), server.begin(2));
        let ino = client.inode(make("a")).ino;
        let given = numbers(&client, 3);
        let put = object(&given, 1, 50);
        let files = vec![file(ino, vec![(0, extent(put.segments[0].id, 0, 10))])];
        assert_eq!(client.ask(commit(vec![put], files)).answer(), Answer::Committed(Vec::new()));
        assert_eq!(garbage(&world, &server, &[&client, &other]), [], "it may still commit the others");
        server.owner.end_session(client.session);
        drop(other.ask(make("b")).answer());
        tidied(&server, &other);
        assert_eq!(server.owner.garbage().unwrap(), [], "it may be on its way to the store");
        let found = garbage(&world, &server, &[&other]);
        let expected: Vec<ObjectRef> = [0, 2].map(|at| object(&given, at, 0).object).to_vec();
        assert_eq!(found, expected);
        server.owner.garbage_deleted(&found).unwrap();
        assert_eq!(garbage(&world, &server, &[&other]), []);
        server.stop().unwrap();
    }
}

#[test]
fn numbers_of_a_session_that_ended_with_its_owner_are_found() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let given = numbers(&client, 1);
    server.owner.end_session(client.session);
    drop(server.begin(2).ask(make("a")).answer());
    let later = world.owner();
    later.owner.reclaim(SessionId(2), &[]).unwrap();
    let other = later.client(SessionId(2), 2);
    assert_eq!(garbage(&world, &later, &[&other]), [given.first_object]);
    later.stop().unwrap();
}

#[test]
fn an_object_without_live_bytes_is_garbage() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let ino = client.inode(make("a")).ino;
        let given = numbers(&client, 3);
        for at in 0..2 {
            let put = object(&given, at, 500);
            let whole = file(ino, vec![(0, extent(put.segments[0].id, 0, 100))]);
            assert_eq!(client.ask(commit(vec![put], vec![whole])).answer(), Answer::Committed(Vec::new()));
        }
        // Nothing becomes live of the third.
        let gone = file(Ino(1 << 30), vec![(0, extent(object(&given, 2, 0).segments[0].id, 0, 9))]);
        let committed = client.ask(commit(vec![object(&given, 2, 50)], vec![gone])).answer();
        assert_eq!(committed, Answer::Committed(vec![Ino(1 << 30)]));
        let expected: Vec<ObjectRef> = [0, 2].map(|at| object(&given, at, 0).object).to_vec();
        assert_eq!(garbage(&world, &server, &[&client]), expected);
        assert_eq!(used(&client), 100);
        server.stop().unwrap();
    }
}

#[test]
fn a_long_map_comes_in_parts() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let ino = client.inode(make("a")).ino;
    let given = numbers(&client, 1);
    let put = object(&given, 0, 1 << 20);
    let segment = put.segments[0].id;
    let extents = (0..1500).map(|at| (at * 20, extent(segment, at * 20, 10))).collect();
    assert_eq!(
        client.ask(commit(vec![put], vec![file(ino, extents)])).answer(),
        Answer::Committed(Vec::new())
    );
    assert_eq!(client.inode(Operation::Inode(ino)).row.layout, Layout::Extents);
    let (mut from, mut pieces, mut answers) = (0, Vec::new(), 0);
    loop {
        let part = mapped(&client, ino, from, BLOCK);
        if part.pieces.is_empty() {
            break;
        }
        assert!(part.pieces.len() <= 1024 && part.to > from);
        assert_eq!(part.places.len(), 1);
        (from, answers) = (part.to, answers + 1);
        pieces.extend(part.pieces);
    }
    assert_eq!((from, pieces.len(), answers), (1499 * 20 + 10, 2999, 3));
    server.stop().unwrap();
}

#[test]
fn a_full_volume_takes_nothing_more() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let ino = client.inode(make("a")).ino;
    let given = numbers(&client, 2);
    server.owner.set_limit(Some(1000));
    let Answer::Space(space) = client.ask(Operation::Space).answer() else { panic!("no space") };
    assert_eq!((space.used, space.limit), (0, Some(1000)));
    let put = |at| {
        let put = object(&given, at, 600);
        let files = vec![file(ino, vec![(at * 1000, extent(put.segments[0].id, 0, 500))])];
        client.ask(commit(vec![put], files)).answer()
    };
    assert_eq!(put(0), Answer::Committed(Vec::new()));
    assert_eq!(put(1), Answer::Failed(Failure::NoSpace));
    server.owner.set_limit(None);
    assert_eq!(put(1), Answer::Committed(Vec::new()));
    server.stop().unwrap();
}

#[test]
fn inodes_of_a_listing_come_with_leases_on_them() {
    let world = World::new();
    let server = world.owner();
    let (lister, writer) = (server.begin(1), server.begin(2));
    let (free, kept) = (writer.inode(make("free")).ino, writer.inode(make("kept")).ino);
    let granted = writer.ask_for(Operation::Inode(kept), Lease::Write).get().unwrap();
    assert_eq!(granted.grants[0].lease, Lease::Write);
    let list = Operation::Entries { directory: Ino::ROOT, after: None, limit: 10, inodes: true };
    let listing = lister.ask_for(list.clone(), Lease::Read);
    assert!(!listing.is_there(), "what is being written is stored first: `listing.rs`");
    server.owner.returned(writer.session, kept, granted.grants[0].stamp, Some(Lease::Read), false);
    let listed = listing.get().unwrap();
    let Answer::Entries(entries) = listed.answer else { panic!("no listing") };
    let told: Vec<_> = entries.iter().map(|entry| (entry.ino, entry.inode.is_some())).collect();
    assert_eq!(told, [(free, true), (kept, true)]);
    let leased: Vec<_> = listed.grants.iter().map(|grant| grant.ino).collect();
    assert_eq!(leased, [Ino::ROOT, free, kept]);
    let Answer::Entries(entries) = lister.ask(list).answer() else { panic!("no listing") };
    assert!(entries.iter().all(|entry| entry.inode.is_none()), "nothing would say when it is old");
    server.stop().unwrap();
}

#[test]
fn what_waited_for_a_session_that_ended_is_refused() {
    let world = World::new();
    let server = world.owner();
    let (holder, waiter) = (server.begin(1), server.begin(2));
    let kept = holder.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap().grants[0];
    let made = waiter.ask(make("a"));
    server.owner.end_session(waiter.session);
    assert_eq!(made.get(), Err(Refusal::SessionEnded));
    server.owner.returned(holder.session, Ino::ROOT, kept.stamp, None, false);
    assert_eq!(holder.ask(lookup("a")).answer(), Answer::Failed(Failure::NotFound));
    server.stop().unwrap();
}

#[test]
fn bytes_that_are_shared_count_twice_against_the_limit() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (source, target) = (client.inode(make("a")).ino, client.inode(make("b")).ino);
    let put = object(&numbers(&client, 1), 0, 500);
    let segment = put.segments[0].id;
    let files = vec![file(source, vec![(0, extent(segment, 0, 300))])];
    assert_eq!(client.ask(commit(vec![put], files)).answer(), Answer::Committed(vec![]));
    let before = used(&client);
    assert!(before > 0);
    let share =
        |from, len| Operation::Share { source, from, target, to: from, len, attr: WriteAttr::default() };
    server.owner.set_limit(Some(before + 100));
    assert_eq!(client.ask(share(0, 300)).answer(), Answer::Failed(Failure::NoSpace));
    assert_eq!((used(&client), client.inode(Operation::Inode(target)).row.size), (before, 0));
    assert!(client.ask(share(0, 50)).answer().inode().is_some());
    // What takes nothing is not refused: holes, and sizes.
    server.owner.set_limit(Some(1));
    let set = SetAttr { size: Some(1 << 30), ..SetAttr::default() };
    client.inode(Operation::SetAttr(target, set));
    client.inode(Operation::Punch {
        ino: source,
        from: 0,
        to: 300,
        size: Some(900),
        attr: WriteAttr::default(),
    });
    client.inode(share(300, 600));
    assert!(server.owner.status().used < before);
    server.stop().unwrap();
}

fn inodes(client: &Client<'_>) -> u64 {
    match client.ask(Operation::Space).answer() {
        Answer::Space(SpaceAnswer { inodes, .. }) => inodes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn inodes_are_counted_also_by_the_next_owner() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        assert_eq!(inodes(&client), 1, "the root");
        let made: Vec<Ino> = ["a", "b", "c"].map(|name| client.inode(make(name)).ino).to_vec();
        let directory = client.inode(make_directory("d")).ino;
        assert_eq!(client.ask(make("a")).answer(), Answer::Failed(Failure::Exists));
        let link = Operation::Link(made[1], directory, b"another".to_vec());
        assert!(client.ask(link).answer().inode().is_some());
        assert_eq!(inodes(&client), 5, "a name more is no inode more");
        let gone = |client: &Client<'_>, name: &str| {
            client.ask(Operation::Unlink(Ino::ROOT, name.as_bytes().to_vec(), Vec::new())).answer()
        };
        assert!(!matches!(gone(&client, "a"), Answer::Failed(_)));
        assert!(!matches!(gone(&client, "b"), Answer::Failed(_)));
        tidied(&server, &client);
        assert_eq!(inodes(&client), 4, "one of them has another name");
        let later = world.owner();
        later.owner.reclaim(client.session, &[]).unwrap();
        let client = later.client(client.session, client.next());
        assert_eq!(inodes(&client), 4);
        assert!(!matches!(gone(&client, "c"), Answer::Failed(_)));
        tidied(&later, &client);
        assert_eq!(inodes(&client), 3);
        later.stop().unwrap();
    }
}
