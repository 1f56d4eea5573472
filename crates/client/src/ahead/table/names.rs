//! Names: making, linking, moving and removing them, as `forebay_meta` does it.

use forebay_format::row::{DirectoryRow, InodeRow, Layout};
use forebay_meta::{NewInode, RenameMode};
use forebay_protocol::{Answer, Failure, InodeAnswer};
use forebay_types::{
    FileKind, Ino, Timespec,
    limits::{LINK_MAX, NAME_MAX, SYMLINK_MAX},
};

use super::{Done, Entry, Inherited, Names, Node, Table};

type Place<'a> = (Ino, &'a [u8]);

fn check_name(name: &[u8]) -> Result<(), Failure> {
    match name {
        [] | b"." | b".." => Err(Failure::Invalid),
        _ if name.len() > NAME_MAX => Err(Failure::NameTooLong),
        _ if name.contains(&0) || name.contains(&b'/') => Err(Failure::Invalid),
        _ => Ok(()),
    }
}

impl Table {
    fn names_mut(&mut self, directory: Ino) -> Result<&mut Names, Failure> {
        let names = self.names.get_mut(&directory).ok_or(Failure::NotDirectory)?;
        names.used = self.used;
        Ok(names)
    }

    /// Takes a name out of a directory. It is there.
    fn take_name(&mut self, directory: Ino, name: &[u8]) -> Result<(), Failure> {
        let names = self.names.get_mut(&directory).ok_or(Failure::NotDirectory)?;
        names.used = self.used;
        names.remove(name, &self.hashing);
        Ok(())
    }

    /// Counts names that a directory has got or lost, if its row is known.
    fn count(&mut self, directory: Ino, entries: i64, directories: i32, now: Timespec) {
        if let Ok(node) = self.node_mut(directory)
            && let Some(row) = &mut node.directory
        {
            row.entries = row.entries.saturating_add_signed(entries);
            row.directories = row.directories.saturating_add_signed(directories);
            (row.mtime, row.ctime) = (now, now);
        }
    }

    /// Nothing is made in a directory that was removed.
    fn live(&self, directory: Ino) -> Result<(), Failure> {
        let removed = self.nodes.get(&directory).is_some_and(|node| node.row.nlink == 0);
        if removed { Err(Failure::NotFound) } else { Ok(()) }
    }

    pub(super) fn make(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        (ino, now): (Ino, Timespec),
    ) -> Result<Done, Failure> {
        check_name(name)?;
        self.live(parent)?;
        if self.entry(parent, name).is_some() {
            return Err(Failure::Exists);
        }
        if new.target.len() > SYMLINK_MAX {
            return Err(Failure::NameTooLong);
        }
        let inherited = self.inherited(parent);
        let Inherited { coherence, policy } = inherited;
        let row = InodeRow {
            kind: new.kind,
            mode: new.mode,
            nlink: 1,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: new.target.len() as u64,
            allocated: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent,
            has_xattrs: !new.xattrs.is_empty(),
            has_cuts: false,
            coherence,
            policy,
            layout: if new.target.is_empty() { Layout::Empty } else { Layout::Inline },
        };
        let is_directory = new.kind == FileKind::Directory;
        let empty = DirectoryRow { entries: 0, directories: 0, mtime: now, ctime: now };
        let xattrs = Some(new.xattrs.iter().cloned().collect());
        let (directory, target) = (is_directory.then_some(empty), new.target.clone());
        self.nodes.insert(ino, Node { row, directory, target, xattrs, used: self.used });
        if is_directory {
            self.inherits_from(ino, inherited);
            self.names.insert(ino, Names::used_at(self.used));
        }
        self.names_mut(parent)?.insert(name.to_vec(), Entry { ino, kind: new.kind });
        self.count(parent, 1, i32::from(is_directory), now);
        Ok(Done { answer: Answer::Inode(Box::new(self.answer(ino)?)), touched: vec![parent, ino] })
    }

    pub(super) fn link(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        now: Timespec,
    ) -> Result<Done, Failure> {
        check_name(name)?;
        self.live(parent)?;
        if self.entry(parent, name).is_some() {
            return Err(Failure::Exists);
        }
        let row = &mut self.node_mut(ino)?.row;
        match row.kind {
            FileKind::Directory => return Err(Failure::IsDirectory),
            _ if row.nlink >= LINK_MAX => return Err(Failure::TooManyLinks),
            _ => {}
        }
        (row.nlink, row.ctime) = (row.nlink + 1, now);
        if row.nlink == 1 {
            row.parent = parent;
        }
        let kind = row.kind;
        self.names_mut(parent)?.insert(name.to_vec(), Entry { ino, kind });
        self.count(parent, 1, 0, now);
        Ok(Done { answer: Answer::Inode(Box::new(self.answer(ino)?)), touched: vec![parent, ino] })
    }

    pub(super) fn unlink(
        &mut self,
        parent: Ino,
        name: &[u8],
        open: &[Ino],
        now: Timespec,
    ) -> Result<Done, Failure> {
        check_name(name)?;
        let entry = self.entry(parent, name).ok_or(Failure::NotFound)?;
        if entry.kind == FileKind::Directory {
            return Err(Failure::IsDirectory);
        }
        self.take_name(parent, name)?;
        self.count(parent, -1, 0, now);
        let left = self.drop_name(entry.ino, open, now)?;
        Ok(Done { answer: Answer::Inode(Box::new(left)), touched: vec![parent, entry.ino] })
    }

    pub(super) fn rmdir(
        &mut self,
        parent: Ino,
        name: &[u8],
        open: &[Ino],
        now: Timespec,
    ) -> Result<Done, Failure> {
        check_name(name)?;
        let entry = self.entry(parent, name).ok_or(Failure::NotFound)?;
        if entry.kind != FileKind::Directory {
            return Err(Failure::NotDirectory);
        }
        self.empty(entry.ino)?;
        self.take_name(parent, name)?;
        self.count(parent, -1, -1, now);
        let left = self.drop_name(entry.ino, open, now)?;
        Ok(Done { answer: Answer::Inode(Box::new(left)), touched: vec![parent, entry.ino] })
    }

    fn empty(&self, directory: Ino) -> Result<(), Failure> {
        match self.names.get(&directory) {
            Some(names) if !names.is_empty() => Err(Failure::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Takes one name off an inode whose entry was removed.
    fn drop_name(&mut self, ino: Ino, open: &[Ino], now: Timespec) -> Result<InodeAnswer, Failure> {
        let row = &mut self.node_mut(ino)?.row;
        row.ctime = now;
        row.nlink = if row.kind == FileKind::Directory { 0 } else { row.nlink.saturating_sub(1) };
        let last = row.nlink == 0;
        let left = self.answer(ino)?;
        if last {
            self.no_longer_delegated(ino);
            if !open.contains(&ino) {
                self.nodes.remove(&ino);
            }
        }
        Ok(left)
    }

    pub(super) fn rename(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
        (open, now): (&[Ino], Timespec),
    ) -> Result<Done, Failure> {
        check_name(from.1)?;
        check_name(to.1)?;
        let moved = self.entry(from.0, from.1).ok_or(Failure::NotFound)?;
        self.live(to.0)?;
        let taken = self.entry(to.0, to.1);
        match (mode, taken) {
            (RenameMode::NoReplace, Some(_)) => return Err(Failure::Exists),
            (RenameMode::Exchange, None) => return Err(Failure::NotFound),
            (_, Some(taken)) if taken.ino == moved.ino => {
                let answer = Answer::Renamed(Box::new(self.answer(moved.ino)?), None);
                return Ok(Done { answer, touched: Vec::new() });
            }
            _ => {}
        }
        self.no_cycle(moved, from.0, to.0)?;
        let replaced = match taken {
            Some(taken) if mode == RenameMode::Exchange => {
                self.no_cycle(taken, to.0, from.0)?;
                self.exchange((from, moved), (to, taken), now)?;
                None
            }
            _ => self.replace((from, moved), to, taken, (open, now))?,
        };
        let answer = Answer::Renamed(Box::new(self.answer(moved.ino)?), replaced.map(Box::new));
        let taken = taken.map(|taken| taken.ino);
        Ok(Done { answer, touched: [from.0, to.0, moved.ino].into_iter().chain(taken).collect() })
    }

    fn replace(
        &mut self,
        (from, moved): (Place<'_>, Entry),
        to: Place<'_>,
        taken: Option<Entry>,
        (open, now): (&[Ino], Timespec),
    ) -> Result<Option<InodeAnswer>, Failure> {
        let is_directory = moved.kind == FileKind::Directory;
        if let Some(taken) = taken {
            match (is_directory, taken.kind == FileKind::Directory) {
                (true, false) => return Err(Failure::NotDirectory),
                (false, true) => return Err(Failure::IsDirectory),
                (true, true) => self.empty(taken.ino)?,
                (false, false) => {}
            }
        }
        self.take_name(from.0, from.1)?;
        self.names_mut(to.0)?.insert(to.1.to_vec(), moved);
        let counted = i32::from(is_directory);
        self.count(from.0, -1, -counted, now);
        self.count(to.0, i64::from(taken.is_none()), if taken.is_some() { 0 } else { counted }, now);
        self.settle(moved.ino, to.0, now)?;
        taken.map(|taken| self.drop_name(taken.ino, open, now)).transpose()
    }

    fn exchange(
        &mut self,
        (from, moved): (Place<'_>, Entry),
        (to, taken): (Place<'_>, Entry),
        now: Timespec,
    ) -> Result<(), Failure> {
        self.names_mut(to.0)?.insert(to.1.to_vec(), moved);
        self.names_mut(from.0)?.insert(from.1.to_vec(), taken);
        let counted = |entry: Entry| i32::from(entry.kind == FileKind::Directory);
        self.count(from.0, 0, counted(taken) - counted(moved), now);
        self.count(to.0, 0, counted(moved) - counted(taken), now);
        self.settle(moved.ino, to.0, now)?;
        self.settle(taken.ino, from.0, now)
    }

    /// A directory must not become its own ancestor. Those above `to` that are not known are above `from`, too ([`Table::inside`]).
    fn no_cycle(&self, moved: Entry, from: Ino, to: Ino) -> Result<(), Failure> {
        let cycle = moved.kind == FileKind::Directory && from != to && self.above(to).contains(&moved.ino);
        if cycle { Err(Failure::IntoItself) } else { Ok(()) }
    }

    /// Tells an inode where its name is now.
    fn settle(&mut self, ino: Ino, parent: Ino, now: Timespec) -> Result<(), Failure> {
        let row = &mut self.node_mut(ino)?.row;
        (row.parent, row.ctime) = (parent, now);
        Ok(())
    }
}
