//! A page of a directory, with the inodes of what others write.

use forebay_cluster::{Grant, Lease};
use forebay_protocol::{
    Answer, Commit, Contents, DirectoryEntry, FileCommit, Message, Operation, Push, RETURNS_MAX, Recall,
    Response, Return, Rights,
};
use forebay_types::Ino;

use super::world::{Awaited, Client, Server, World, make, until};

const FILES: usize = 40;

fn entries(inodes: bool) -> Operation {
    Operation::Entries { directory: Ino::ROOT, after: None, limit: 1024, inodes }
}

/// Makes files, and takes the lease to write on each.
fn written(writer: &Client<'_>, files: usize) -> Vec<Grant> {
    let of_file = |at| {
        let ino = writer.inode(make(&format!("{at:04}"))).ino;
        let told = writer.ask_for(Operation::Inode(ino), Lease::Write).get().unwrap();
        *told.grants.iter().find(|grant| grant.ino == ino && grant.lease == Lease::Write).unwrap()
    };
    (0..files).map(of_file).collect()
}

/// What a writer was asked for, all in one message.
fn recalled(server: &Server, writer: &Client<'_>) -> Vec<Recall> {
    until("the recall", || server.pushes.lock().iter().any(|(to, _)| *to == writer.session));
    match &server.told(writer.session)[..] {
        [Push::Recalls(leases)] => leases.clone(),
        other => panic!("{other:?}"),
    }
}

fn give_back(server: &Server, writer: &Client<'_>, leases: &[Recall]) {
    let returned = |lease: &Recall| Return {
        session: writer.session,
        ino: lease.ino,
        stamp: lease.stamp,
        kept: lease.keep,
        open: false,
    };
    server.owner.all_returned(&leases.iter().map(returned).collect::<Vec<_>>());
}

fn listed(awaited: Awaited) -> (Vec<DirectoryEntry>, Vec<Grant>) {
    match awaited.get().unwrap() {
        Response { answer: Answer::Entries(entries), grants } => (entries, grants),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listing_with_inodes_asks_a_writer_once_for_all_that_it_names() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    let grants = written(&writer, FILES);
    let page = reader.ask_for(entries(true), Lease::Read);
    let asked = recalled(&server, &writer);
    let wanted: Vec<Recall> = grants
        .iter()
        .map(|grant| Recall { ino: grant.ino, keep: Some(Lease::Read), stamp: grant.stamp })
        .collect();
    assert_eq!(asked, wanted);
    give_back(&server, &writer, &asked[..FILES - 1]);
    assert!(!page.is_there(), "one is not returned");
    give_back(&server, &writer, &asked[FILES - 1..]);
    let (entries, granted) = listed(page);
    assert_eq!(entries.len(), FILES);
    assert!(entries.iter().all(|entry| entry.inode.as_ref().is_some_and(|inode| inode.ino == entry.ino)));
    assert_eq!(granted.len(), FILES + 1, "the directory, and each file");
    assert!(server.told(writer.session).is_empty(), "nothing is recalled that it may keep");
    server.stop().unwrap();
}

#[test]
fn who_takes_a_file_again_is_asked_no_second_time_for_one_page() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    written(&writer, FILES);
    let page = reader.ask_for(entries(true), Lease::Read);
    let asked = recalled(&server, &writer);
    // It waits in front of no listing, as the lease is its own still; and has it anew, to be asked for anew by whoever waits.
    let again = writer.ask_for(Operation::Inode(asked[0].ino), Lease::Write).get().unwrap().grants;
    let anew = Push::Recall { ino: asked[0].ino, keep: Some(Lease::Read), stamp: again[0].stamp };
    until("its recall", || server.pushes.lock().iter().any(|(_, push)| *push == anew));
    give_back(&server, &writer, &asked);
    assert!(!page.is_there(), "an older grant was returned");
    let last = Recall { stamp: again[0].stamp, ..asked[0] };
    give_back(&server, &writer, &[last]);
    let (entries, _) = listed(page);
    assert!(entries.iter().all(|entry| entry.inode.is_some()));
    server.stop().unwrap();
}

#[test]
fn only_a_listing_that_may_be_answered_and_tells_inodes_asks_writers() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    written(&writer, 3);
    let below = writer.inode(super::world::make_directory("directory")).ino;
    let confined = server.begin_with(3, Rights { root: below, ..Rights::ALL });
    let plain = listed(reader.ask_for(entries(false), Lease::Read)).0;
    assert_eq!(plain.len(), 4);
    let unleased = listed(reader.ask(entries(true))).0;
    assert!(unleased.iter().all(|entry| entry.inode.is_none()));
    assert!(matches!(confined.ask_for(entries(true), Lease::Read).answer(), Answer::Failed(_)));
    assert_eq!(listed(writer.ask_for(entries(true), Lease::Read)).0.len(), 4, "its own are not in its way");
    assert!(server.told(writer.session).is_empty());
    server.stop().unwrap();
}

/// An answer has at most a mebibyte: small files come along as far as there is room.
#[test]
fn a_page_of_small_files_with_long_names_fits_an_answer() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    let long = |at: usize| format!("{at:04}{}", "n".repeat(251));
    for some in (0..RETURNS_MAX).collect::<Vec<_>>().chunks(64) {
        let files = some.iter().map(|at| FileCommit {
            inline: Some(vec![7; 1000]),
            ..super::contents::file(writer.inode(make(&long(*at))).ino, Vec::new())
        });
        let commit = Commit { files: files.collect(), ..Commit::default() };
        assert_eq!(writer.ask(Operation::Commit(Box::new(commit))).answer(), Answer::Committed(Vec::new()));
    }
    let response = reader.ask_for(entries(true), Lease::Read).get().unwrap();
    let bytes = response.encode().len();
    assert!(bytes < 1 << 20, "{bytes}");
    let Answer::Entries(entries) = response.answer else { panic!("no entries") };
    let contents = |entry: &DirectoryEntry| match &entry.inode.as_ref().unwrap().contents {
        Some(Contents::Inline(bytes)) => bytes.len(),
        None => 0,
        other => panic!("{other:?}"),
    };
    assert_eq!(entries.len(), RETURNS_MAX);
    assert_eq!(entries.iter().map(contents).sum::<usize>(), 262_000, "as many as there is room for");
    server.stop().unwrap();
}
