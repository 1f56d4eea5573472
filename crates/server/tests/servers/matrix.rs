//! Each operation with each kind of token, through a server.
//!
//! An operation that is new is to be given a class here, or this does not compile, and a sample, or the test fails.

use std::collections::BTreeSet;

use forebay_cluster::Lease;
use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, MemberId};
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{NewInode, RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_protocol::{
    Answer, Commit, Failure, FencedCopies, FileCommit, Kind, Message, OfferCopies, OpenSegments, Operation,
    Placing, PolicyChange, PolicyEdit, Reseat, Settle, Step, StoreSegments, StoredSegment, TokenInfo,
    TokenRequest,
};
use forebay_server::MetaServer;
use forebay_types::{Epoch, FileKind, Ino, ObjectId, PolicyId, SegmentId, Timespec};

use crate::{
    bed::{Asks, Bed, Session, make_of, until, whole},
    rights::{seconds, strict},
};

/// What an operation is, as far as rights go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// It looks at inodes that it names.
    Looks,
    /// It changes inodes that it names.
    Changes,
    /// It names an inode, and changes only what the session has.
    Locks,
    /// It says what the session has open, and what is not seen is left out.
    Holds,
    /// It names none, and changes at most what the session has.
    Own,
    /// It names none, and takes numbers.
    Numbers,
    /// It says what files consist of, and what is not seen is left out.
    Commits,
    /// It is many operations, which need leases.
    Ahead,
    /// It is what a member of a group does for all who write.
    Member,
    /// It is for sessions that a server begins for those who administer.
    Administers,
}

fn class(operation: &Operation) -> Class {
    use Operation as Op;
    match operation {
        Op::Lookup(..) | Op::Inode(_) | Op::Entries { .. } | Op::ReadLink(_) => Class::Looks,
        Op::Xattr(..) | Op::Xattrs(_) | Op::Map(..) | Op::TestLock(..) => Class::Looks,
        Op::Make(..) | Op::MakeNameless(..) | Op::Link(..) | Op::Unlink(..) => Class::Changes,
        Op::Rmdir(..) | Op::Rename { .. } | Op::SetAttr(..) | Op::SetAtime(..) => Class::Changes,
        Op::SetXattr(..) | Op::RemoveXattr(..) | Op::Punch { .. } | Op::Share { .. } => Class::Changes,
        Op::Lock(..) | Op::Unlock(..) | Op::UnlockHandle(..) => Class::Locks,
        Op::Hold(_) => Class::Holds,
        Op::Space | Op::Release(_) | Op::Classes(_) | Op::GroupRules(_) => Class::Own,
        Op::ChangePolicy(_) => Class::Administers,
        // What it does not see it leaves alone.
        Op::Numbers(..) | Op::Runs(_) | Op::Seal(_) | Op::Settle(_) | Op::Reserve { .. } => Class::Numbers,
        Op::OpenSegments(_) => Class::Changes,
        Op::Offer(_) | Op::Fenced(_) | Op::Store(_) | Op::Reseat(_) => Class::Member,
        Op::Commit(_) => Class::Commits,
        Op::Ahead(_) => Class::Ahead,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    None,
    Whole,
    ReadOnly,
    Part,
    PartReadOnly,
    Squashed,
    /// What the mount is not to execute is nothing to the server: it hands all on.
    NoExec,
    Expired,
    Revoked,
    OfAnother,
}

const TOKENS: [Token; 10] = [
    Token::None,
    Token::Whole,
    Token::ReadOnly,
    Token::Part,
    Token::PartReadOnly,
    Token::Squashed,
    Token::NoExec,
    Token::Expired,
    Token::Revoked,
    Token::OfAnother,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    Stale,
    ReadOnly,
    NotPermitted,
    /// The file is said to be gone.
    Gone,
    /// The server does not hand it on.
    Refused,
}

/// What is to become of an operation on something inside or outside of the directory of those tokens that have one.
fn expected(token: Token, class: Class, outside: bool) -> Outcome {
    let reads = matches!(token, Token::ReadOnly | Token::PartReadOnly);
    let hidden = outside && matches!(token, Token::Part | Token::PartReadOnly);
    match (token, class) {
        (Token::None | Token::Expired | Token::Revoked | Token::OfAnother, _) => Outcome::Refused,
        (
            _,
            Class::Changes
            | Class::Numbers
            | Class::Commits
            | Class::Ahead
            | Class::Member
            | Class::Administers,
        ) if reads => Outcome::ReadOnly,
        (_, Class::Administers) | (Token::Part, Class::Member) => Outcome::NotPermitted,
        (_, Class::Looks | Class::Changes | Class::Locks) if hidden => Outcome::Stale,
        (_, Class::Commits | Class::Holds) if hidden => Outcome::Gone,
        (_, Class::Ahead) if hidden => Outcome::NotPermitted,
        _ => Outcome::Done,
    }
}

fn outcome(operation: &Operation, answer: &Answer) -> Outcome {
    match (operation, answer) {
        (_, Answer::Failed(Failure::Stale)) => Outcome::Stale,
        (_, Answer::Failed(Failure::ReadOnly)) => Outcome::ReadOnly,
        (_, Answer::Failed(Failure::NotPermitted)) => Outcome::NotPermitted,
        // There are no extents to be shared.
        (Operation::Share { .. }, Answer::Failed(Failure::Invalid)) => Outcome::Done,
        // No such segment was opened.
        (Operation::Store(_) | Operation::Reseat(_), Answer::Failed(Failure::Invalid)) => Outcome::Done,
        // What is written to the volume goes to the store alone.
        (Operation::OpenSegments(_), Answer::Failed(Failure::BelowClass)) => Outcome::Done,
        (_, Answer::Committed(gone)) if !gone.is_empty() => Outcome::Gone,
        (_, Answer::Ahead(failed)) => {
            assert!(failed.is_empty(), "{operation:?}: {failed:?}");
            Outcome::Done
        }
        (_, Answer::Failed(failure)) => panic!("{operation:?}: {failure:?}"),
        _ => Outcome::Done,
    }
}

/// A directory with what operations need.
struct Planted {
    dir: Ino,
    file: Ino,
    link: Ino,
}

fn inode(session: &Session<'_>, operation: Operation) -> Ino {
    session.answer(operation).inode().expect("an inode").ino
}

fn make(parent: Ino, name: &str, kind: FileKind) -> Operation {
    match make_of(name, kind) {
        Operation::Make(_, name, new) => {
            let target = if kind == FileKind::Symlink { b"target".to_vec() } else { Vec::new() };
            Operation::Make(parent, name, NewInode { target, ..new })
        }
        other => panic!("{other:?}"),
    }
}

fn plant(planter: &Session<'_>, parent: Ino, name: &str) -> Planted {
    let dir = inode(planter, make(parent, name, FileKind::Directory));
    for name in ["gone", "moved", "more", "away"] {
        inode(planter, make(dir, name, FileKind::Regular));
    }
    inode(planter, make(dir, "empty", FileKind::Directory));
    let file = inode(planter, make(dir, "file", FileKind::Regular));
    let set = Operation::SetXattr(file, b"user.a".to_vec(), b"a".to_vec(), SetXattr::Any);
    assert_eq!(planter.answer(set), Answer::Done);
    Planted { dir, file, link: inode(planter, make(dir, "link", FileKind::Symlink)) }
}

fn lock() -> LockRequest {
    let range = LockRange { start: 0, end: 9, kind: LockKind::Shared, pid: 1 };
    LockRequest { space: LockSpace::Record, owner: 1, fh: 1, range }
}

fn moves(from: Ino, name: &str, to: Ino, new_name: &str) -> Operation {
    let (name, new_name) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
    Operation::Rename { from, name, to, new_name, mode: RenameMode::Replace, open: vec![] }
}

/// Each operation on what is planted, in each of its places; `own` is planted where every token reaches. What was done ahead needs a lease to write on the file.
fn samples(at: &Planted, own: &Planted) -> Vec<Operation> {
    let Planted { dir, file, link } = *at;
    let attr = WriteAttr::default();
    let new = || match make_of("x", FileKind::Regular) {
        Operation::Make(_, _, new) => new,
        other => panic!("{other:?}"),
    };
    let chown = || Operation::SetAttr(file, SetAttr { uid: Some(0), ..SetAttr::default() });
    let contents =
        FileCommit { ino: file, inline: Some(b"bytes".to_vec()), size: 5, ..FileCommit::default() };
    let step = Step { time: Timespec { secs: 1, nanos: 0 }, made: None, operation: chown() };
    vec![
        Operation::Lookup(dir, b"file".to_vec()),
        Operation::Lookup(dir, b"..".to_vec()),
        Operation::Inode(file),
        Operation::Entries { directory: dir, after: None, limit: 9, inodes: true },
        Operation::ReadLink(link),
        Operation::Xattr(file, b"user.a".to_vec()),
        Operation::Xattrs(file),
        Operation::Map(file, 0, 9),
        Operation::Space,
        Operation::TestLock(file, lock()),
        Operation::Make(dir, b"made".to_vec(), new()),
        Operation::MakeNameless(dir, new()),
        Operation::Link(file, own.dir, b"linked".to_vec()),
        Operation::Link(own.file, dir, b"linked".to_vec()),
        Operation::Unlink(dir, b"gone".to_vec(), vec![]),
        Operation::Rmdir(dir, b"empty".to_vec(), vec![]),
        moves(dir, "moved", dir, "renamed"),
        moves(dir, "more", own.dir, "taken"),
        moves(own.dir, "away", dir, "given"),
        chown(),
        Operation::SetAtime(file, Timespec { secs: 1, nanos: 0 }),
        Operation::SetXattr(file, b"user.b".to_vec(), vec![1], SetXattr::Any),
        Operation::RemoveXattr(file, b"user.a".to_vec()),
        Operation::Numbers(1, 1),
        Operation::Runs(1),
        Operation::Reserve { needs: 1, spare: 1 },
        Operation::Commit(Box::new(Commit { objects: vec![], files: vec![contents] })),
        Operation::Punch { ino: file, from: 0, to: 9, size: None, attr },
        Operation::Share { source: file, from: 0, target: own.file, to: 0, len: 1, attr },
        Operation::Share { source: own.file, from: 0, target: file, to: 0, len: 1, attr },
        Operation::Seal(vec![file]),
        Operation::Hold(vec![file]),
        Operation::Release(vec![]),
        Operation::Lock(file, lock(), false),
        Operation::Unlock(file, LockSpace::Record, 1, (0, 9)),
        Operation::UnlockHandle(file, 1),
        Operation::Ahead(vec![step]),
        Operation::Classes(vec![PolicyId(1)]),
        Operation::GroupRules(vec![PolicyId(1)]),
        Operation::ChangePolicy(PolicyChange::Set(
            file,
            PolicyEdit { pin: Some(true), ..PolicyEdit::default() },
        )),
    ]
    .into_iter()
    .chain(of_groups(dir))
    .collect()
}

/// Those on segments over the logs of a group's members.
fn of_groups(directory: Ino) -> Vec<Operation> {
    let (member, group) = (MemberId([1; 16]), GroupId([2; 16]));
    let (segment, epoch) = (SegmentId(1 << 40), Epoch(1));
    let placing = Placing::Set(vec![member]);
    let open = OpenSegments { directory, apart: false, count: 1, group, placing };
    let object = ObjectRef { epoch, id: ObjectId(1 << 40) };
    let stored = StoredSegment { segment, epoch, len: 1, check: 0, offset: 0, raw: 1 };
    vec![
        Operation::OpenSegments(open),
        Operation::Settle(Settle::default()),
        Operation::Offer(OfferCopies { member, group, offers: vec![] }),
        Operation::Fenced(FencedCopies { member, copies: vec![] }),
        Operation::Store(StoreSegments { object, segments: vec![stored] }),
        Operation::Reseat(Reseat { segment, epoch, member }),
    ]
}

/// The tags that the protocol knows.
fn tags() -> BTreeSet<u8> {
    let knows = |tag: u8| match Operation::decode(&[tag]) {
        Ok(_) => true,
        Err(error) => !error.to_string().contains(&format!("{tag} is no Operation")),
    };
    (0..=u8::MAX).filter(|tag| knows(*tag)).collect()
}

#[test]
fn each_operation_has_a_sample() {
    let nothing = Planted { dir: Ino(2), file: Ino(3), link: Ino(4) };
    let sampled: BTreeSet<u8> =
        samples(&nothing, &nothing).iter().map(|operation| operation.encode()[0]).collect();
    assert_eq!(sampled, tags());
    assert!(sampled.len() > 25 && !tags().contains(&0));
}

/// The secret of such a token; those that are over by then are in use before.
fn secret(asks: &Asks, token: Token, expires: i64) -> Option<String> {
    let part = TokenInfo { root: "/home".to_owned(), ..whole("v") };
    let info = match token {
        Token::None => return None,
        Token::Whole | Token::Revoked => whole("v"),
        Token::ReadOnly => TokenInfo { read_only: true, ..whole("v") },
        Token::Part => part,
        Token::PartReadOnly => TokenInfo { read_only: true, ..part },
        Token::Squashed => TokenInfo { root_squash: true, ..whole("v") },
        Token::NoExec => TokenInfo { no_exec: true, ..whole("v") },
        Token::Expired => TokenInfo { expires: Some(Timespec { secs: expires, nanos: 0 }), ..whole("v") },
        Token::OfAnother => whole("w"),
    };
    let (made, secret) = asks.token(&info);
    if token == Token::Revoked {
        let revoke = TokenRequest::Revoke(made.id);
        let _gone: (Vec<TokenInfo>, String) = asks.call(Kind::Tokens, &revoke).unwrap();
    }
    Some(secret)
}

/// Asks on a connection whose token is not good for the volume, by somebody else's session.
fn is_refused(server: &MetaServer, secret: Option<&str>, of: &Session<'_>, operations: Vec<Operation>) {
    let asks = Asks::of(server);
    until("the end of the token", || asks.hello("v", 99, secret).err());
    for operation in operations {
        let asked = asks.call::<forebay_protocol::Response>(Kind::Ask, &of.request(operation.clone(), None));
        assert!(asked.is_err(), "{operation:?}: {asked:?}");
    }
}

#[test]
fn each_operation_with_each_kind_of_token() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.create(&bed, "w");
    let all = asks.token(&whole("v")).1;
    let planter = asks.join_with("v", 1, &all);
    let home = inode(&planter, make(Ino::ROOT, "home", FileKind::Directory));
    let outside = inode(&planter, make(Ino::ROOT, "outside", FileKind::Directory));
    let mut tried = 0;
    for (at, token) in TOKENS.into_iter().enumerate() {
        let secret = secret(&asks, token, seconds() + 10);
        for (place, hidden) in [(home, false), (outside, true)] {
            let name = format!("{token:?}-{hidden}");
            let planted = plant(&planter, place, &name);
            let own = plant(&planter, home, &format!("{name}-own"));
            let operations = samples(&planted, &own);
            if expected(token, Class::Looks, hidden) == Outcome::Refused {
                is_refused(&server, secret.as_deref(), &planter_of_nothing(&planter), operations);
                continue;
            }
            let mine = Asks::of(&server);
            let session =
                mine.join_with("v", 10 + 2 * at as u128 + u128::from(hidden), secret.as_ref().unwrap());
            for operation in operations {
                if class(&operation) == Class::Ahead {
                    session.ask(Operation::Inode(planted.file), Some(Lease::Write)).unwrap();
                }
                let answer = session.answer(operation.clone());
                let expected = expected(token, class(&operation), hidden);
                assert_eq!(
                    outcome(&operation, &answer),
                    expected,
                    "{token:?}, hidden {hidden}: {operation:?}"
                );
                owns_nothing_of_roots(token, &operation, &answer);
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

/// The root user owns what it makes, but where it is nobody.
fn owns_nothing_of_roots(token: Token, operation: &Operation, answer: &Answer) {
    if let (
        Operation::Make(..) | Operation::MakeNameless(..) | Operation::SetAttr(..),
        Answer::Inode(inode),
    ) = (operation, answer)
    {
        assert_eq!(inode.row.uid, if token == Token::Squashed { 65534 } else { 0 }, "{operation:?}");
    }
}

/// The same session, whose numbers are not used up by what is refused.
fn planter_of_nothing<'a>(planter: &Session<'a>) -> Session<'a> {
    planter.on(planter.asks)
}
