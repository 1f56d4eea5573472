//! The table and a namespace do the same.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use forebay_env::{Clock, ManualClock};
use forebay_format::{record::Changes, row::Layout};
use forebay_meta::{
    Append, Inode, Log, LogError, MemoryEngine, MetaError, Namespace, NewContents, NewInode, Place,
    RenameMode, SetAttr, SetTime, SetXattr, Urgency,
};
use forebay_protocol::{Answer, Contents, DirectoryEntry, Failure, InodeAnswer, Operation};
use forebay_types::{Coherence, Epoch, FileKind, Ino, SegmentId, Sequence, SubvolumeId, Timespec};

use super::super::table::{Entry, Hashing, Most, Names, Table};

pub const AT: SubvolumeId = SubvolumeId::FIRST;
const BLOCK: u32 = 4 << 20;

#[derive(Default)]
struct NoLog(AtomicU64);

struct Begun<'a>(&'a NoLog);

impl Log for NoLog {
    fn begin<'a>(&'a self, _: &'a [u8], _: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        Ok(Box::new(Begun(self)))
    }

    fn write_out(&self) {}
}

impl Append for Begun<'_> {
    fn place(&self) -> Place {
        Place { segment: SegmentId(0), offset: 0 }
    }

    fn commit(self: Box<Self>, _: &Changes) -> Sequence {
        Sequence(self.0.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

fn told(ns: &Namespace, inode: &Inode) -> Answer {
    let inline = inode.row.layout == Layout::Inline;
    let contents = inline.then(|| Contents::Inline(ns.inline(AT, inode.ino).unwrap()));
    Answer::Inode(Box::new(InodeAnswer { contents, ..InodeAnswer::of(inode) }))
}

/// As the owner does it.
pub fn owner(ns: &Namespace, operation: &Operation, made: Ino) -> Result<Answer, MetaError> {
    let inode = |inode: &Inode| Answer::Inode(Box::new(InodeAnswer::of(inode)));
    Ok(match operation {
        Operation::Lookup(parent, name) => told(ns, &*ns.lookup(AT, *parent, name)?),
        Operation::Inode(ino) => told(ns, &*ns.inode(AT, *ino)?),
        Operation::Entries { directory, .. } => {
            let entries = ns.entries(AT, *directory, None, 4096)?;
            Answer::Entries(entries.into_iter().map(DirectoryEntry::of).collect())
        }
        Operation::ReadLink(ino) => Answer::Bytes(ns.read_link(AT, *ino)?),
        Operation::Xattr(ino, name) => Answer::Bytes(ns.xattr(AT, *ino, name)?),
        Operation::Xattrs(ino) => Answer::Names(ns.xattrs(AT, *ino)?),
        Operation::Make(parent, name, new) => inode(&ns.make_numbered(AT, *parent, name, new, made)?),
        Operation::Link(ino, parent, name) => inode(&ns.link(AT, *ino, *parent, name)?),
        Operation::Unlink(parent, name, open) => {
            inode(&ns.unlink(AT, *parent, name, &|ino| open.contains(&ino))?.inode)
        }
        Operation::Rmdir(parent, name, open) => {
            inode(&ns.rmdir(AT, *parent, name, &|ino| open.contains(&ino))?.inode)
        }
        Operation::Rename { from, name, to, new_name, mode, open } => {
            let in_use = |ino: Ino| open.contains(&ino);
            let replaced = ns.rename(AT, (*from, name), (*to, new_name), *mode, &in_use)?;
            let moved = ns.lookup(AT, *to, new_name)?;
            let replaced = replaced.map(|removed| Box::new(InodeAnswer::of(&removed.inode)));
            Answer::Renamed(Box::new(InodeAnswer::of(&moved)), replaced)
        }
        Operation::SetAttr(ino, set) => inode(&ns.set_attr(AT, *ino, set)?),
        Operation::SetAtime(ino, time) => {
            if ns.inode(AT, *ino)?.row.atime < *time {
                ns.set_atime(AT, *ino, *time)?;
            }
            Answer::Done
        }
        Operation::SetXattr(ino, name, value, how) => {
            ns.set_xattr(AT, *ino, name, value, *how)?;
            Answer::Done
        }
        Operation::RemoveXattr(ino, name) => {
            ns.remove_xattr(AT, *ino, name)?;
            Answer::Done
        }
        Operation::Commit(commit) => {
            let files = commit.files.iter().map(|file| NewContents {
                ino: file.ino,
                inline: file.inline.as_deref(),
                extents: &file.extents,
                size: file.size,
                attr: file.attr,
                mtime: file.mtime,
            });
            Answer::Committed(ns.take_in(AT, &[], &files.collect::<Vec<_>>())?)
        }
        _ => panic!("{operation:?}"),
    })
}

fn operation(dice: &mut Dice, inos: &[Ino], directories: &[Ino], now: Timespec) -> Operation {
    let names: Vec<Vec<u8>> =
        [&b"a"[..], b"b", b"c", b"d", b"", b".", b"x/y", &[b'n'; 256]].map(<[u8]>::to_vec).into();
    let odd = dice.below(20) == 0;
    let name = |dice: &mut Dice| dice.pick(if odd { &names } else { &names[..4] });
    let (directory, ino) = (dice.pick(directories), dice.pick(inos));
    let open = if dice.below(3) == 0 { inos.to_vec() } else { Vec::new() };
    let later = Timespec { secs: now.secs + dice.below(3) as i64 - 1, nanos: 7 };
    match dice.below(20) {
        0..=5 => {
            let kind = dice.pick(&[
                FileKind::Regular,
                FileKind::Regular,
                FileKind::Directory,
                FileKind::Directory,
                FileKind::Symlink,
            ]);
            let target = if kind == FileKind::Symlink {
                vec![b't'; 1 + dice.below(4200) as usize]
            } else {
                Vec::new()
            };
            let xattrs = if dice.below(5) == 0 { vec![(b"user.a".to_vec(), vec![1])] } else { Vec::new() };
            let new = NewInode { kind, mode: 0o640, uid: 3, gid: 4, rdev: 0, target, xattrs };
            Operation::Make(directory, name(dice), new)
        }
        6 => Operation::Link(ino, directory, name(dice)),
        7 | 8 => Operation::Unlink(directory, name(dice), open),
        9 => Operation::Rmdir(directory, name(dice), open),
        10..=12 => {
            let mode = dice.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
            let (to, name, new_name) = (dice.pick(directories), name(dice), name(dice));
            Operation::Rename { from: directory, name, to, new_name, mode, open }
        }
        13 | 14 => {
            let some = |dice: &mut Dice| dice.below(2) == 0;
            let set = SetAttr {
                mode: some(dice).then_some(0o711),
                uid: some(dice).then_some(9),
                gid: some(dice).then_some(8),
                size: (dice.below(4) == 0).then(|| dice.pick(&[0, 5, 1 << 62])),
                atime: some(dice).then_some(SetTime::Now),
                mtime: some(dice).then_some(SetTime::To(later)),
                ctime: some(dice).then_some(later),
                xattrs: if dice.below(4) == 0 {
                    vec![(b"user.a".to_vec(), None), (b"user.b".to_vec(), Some(vec![2]))]
                } else {
                    Vec::new()
                },
            };
            Operation::SetAttr(ino, set)
        }
        15 => Operation::SetAtime(ino, later),
        16 => {
            let how = dice.pick(&[SetXattr::Any, SetXattr::Create, SetXattr::Replace]);
            let value = vec![5; if dice.below(9) == 0 { 70_000 } else { 3 }];
            Operation::SetXattr(
                ino,
                dice.pick(&[b"user.a".to_vec(), b"user.c".to_vec(), Vec::new()]),
                value,
                how,
            )
        }
        17 => Operation::RemoveXattr(ino, b"user.a".to_vec()),
        18 => Operation::Lookup(directory, name(dice)),
        _ => dice.pick(&[
            Operation::Inode(ino),
            Operation::ReadLink(ino),
            Operation::Xattrs(ino),
            Operation::Xattr(ino, b"user.a".to_vec()),
            Operation::Entries { directory, after: None, limit: 4096, inodes: false },
        ]),
    }
}

/// Reads a directory as the layer does.
fn delegate(ns: &Namespace, table: &mut Table, directory: Ino) {
    let Ok(inode) = ns.inode(AT, directory) else { return };
    if inode.row.nlink == 0 || !inode.is_directory() {
        return;
    }
    let entries = ns.entries(AT, directory, None, 4096).unwrap();
    let mut names = Names::default();
    for entry in entries {
        names.insert(entry.name, Entry { ino: entry.ino, kind: entry.kind });
    }
    table.delegate(&InodeAnswer::of(&inode), names);
}

/// A namespace that is alone, and its clock.
pub fn namespace() -> (Namespace, Arc<ManualClock>) {
    let (engine, clock) = (Arc::new(MemoryEngine::default()), Arc::new(ManualClock::default()));
    Namespace::format(engine.as_ref(), clock.as_ref(), 0, 0, 0o755).unwrap();
    let (log, segments) = (Arc::new(NoLog::default()), Arc::new(AtomicU64::new(1)));
    let ns = Namespace::open(engine, log, Arc::clone(&clock) as _, BLOCK, Epoch(1), segments).unwrap();
    (ns, clock)
}

/// What the table knows of what there is.
#[derive(Clone, Copy, PartialEq)]
enum Knows {
    All,
    /// Some of it is forgotten now and then, and some operations are carried out by the owner alone.
    Some,
    /// The same, and of most names no more than a hash, which many others have, too.
    Hashes,
}

/// How many operations were carried out here, at the owner alone, and here in a directory of which not all names are known.
#[derive(Default)]
struct Counts {
    here: u32,
    elsewhere: u32,
    hashed: u32,
}

/// Runs operations on both.
fn run(seed: u64, knows: Knows, counts: &mut Counts) {
    let mut dice = Dice(seed);
    let (ns, clock) = namespace();
    let mut table = match knows {
        Knows::Hashes => Table::hashing_by(BLOCK, Hashing::narrow(dice.pick(&[0, 1, 3, u64::MAX]))),
        _ => Table::new(BLOCK),
    };
    if dice.below(4) == 0 {
        // What is made inherits it.
        let mode = Coherence::ATTRIBUTE.as_bytes();
        ns.set_xattr(AT, Ino::ROOT, mode, b"close-to-open", SetXattr::Any).unwrap();
    }
    delegate(&ns, &mut table, Ino::ROOT);
    let run = ns.new_runs(1);
    let (mut inos, mut directories) = (vec![Ino::ROOT], vec![Ino::ROOT]);
    for number in 0..400_u16 {
        clock.advance_ns(1_000_003);
        let operation = operation(&mut dice, &inos, &directories, clock.now());
        let made = Ino::in_run(run, number);
        let partly = knows != Knows::All;
        let inside = table.inside(&operation).is_some() && !(partly && dice.below(5) == 0);
        let expected =
            owner(&ns, &operation, made).unwrap_or_else(|error| Answer::Failed(Failure::from(&error)));
        if inside {
            counts.here += 1;
            if let Operation::Make(parent, ..) = &operation {
                counts.hashed += u32::from(table.has_hashes(*parent));
            }
            let done = table.carry_out(&operation, clock.now(), made);
            assert_eq!(done.answer, expected, "seed {seed}, {number}: {operation:?}");
            let failed = matches!(expected, Answer::Failed(_));
            assert!(done.touched.is_empty() || operation.changes() && !failed, "{operation:?}");
        } else {
            counts.elsewhere += 1;
            table.passed(&operation, Some(&expected));
        }
        if let (Operation::Make(_, _, new), Answer::Inode(_)) = (&operation, &expected) {
            inos.push(made);
            directories.extend((new.kind == FileKind::Directory).then_some(made));
        }
        if partly && dice.below(12) == 0 {
            table.forget(dice.pick(&inos));
            delegate(&ns, &mut table, dice.pick(&directories));
        }
        if knows == Knows::Hashes && dice.below(8) == 0 {
            let most = Most { known: 4 + dice.below(30) as usize, hashed: 12 };
            let needed = dice.pick(&inos);
            table.shrink(most, 1, |ino| ino == needed);
        }
        assert_eq!(table.inherited_in_vain(), 0, "seed {seed}, {number}: {operation:?}");
        for directory in &directories {
            for name in [b"a", b"b", b"c", b"d"] {
                let there = ns.lookup(AT, *directory, name).ok().map(|inode| inode.ino);
                if let Some(told) = table.told_name(*directory, name) {
                    assert_eq!(
                        told, there,
                        "seed {seed}, {number}: {operation:?}, then {directory} {name:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_table_answers_as_the_owner_does() {
    let mut counts = Counts::default();
    (1..400).for_each(|seed| run(seed * 7919, Knows::All, &mut counts));
    let Counts { here, elsewhere, .. } = counts;
    assert!(here > 3 * elsewhere, "{here} here, {elsewhere} elsewhere");
}

#[test]
fn what_is_known_in_part_is_true() {
    let mut counts = Counts::default();
    (1..600).for_each(|seed| run(seed * 104_729, Knows::Some, &mut counts));
    let Counts { here, elsewhere, .. } = counts;
    assert!(here > elsewhere / 4, "{here} here, {elsewhere} elsewhere");
}

#[test]
fn what_is_known_by_hash_is_true() {
    let mut counts = Counts::default();
    (1..1500).for_each(|seed| run(seed * 15_485_863, Knows::Hashes, &mut counts));
    let Counts { here, elsewhere, hashed } = counts;
    assert!(here > elsewhere / 10 && hashed > 1000, "{here} here, {elsewhere} elsewhere, {hashed}");
}
