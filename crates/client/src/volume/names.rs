//! Operations on names and attributes.

use std::sync::Arc;

use forebay_cluster::Lease;
use forebay_meta::{DirEntry, Inode, NewInode, Removed, RenameMode, SetAttr, SetXattr};
use forebay_protocol::{Answer, Failure, Operation};
use forebay_types::{FileKind, Ino, Timespec};
use forebay_vfs::{Through, VfsError};

use super::{
    core::{Core, unexpected},
    desk::Told,
    errors::failed,
    jobs::Job,
};
use crate::{
    ClientError,
    names::{PAGE_MAX, inode_of},
};

const READ: Option<Lease> = Some(Lease::Read);

impl Core {
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        let mut gone = None;
        loop {
            match self.lookup_once(parent, name) {
                // Removed since it was told: the name may stand for another.
                Err(VfsError::Stale(ino)) if ino != parent && gone != Some(ino) => gone = Some(ino),
                found => return found,
            }
        }
    }

    fn lookup_once(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        match self.desk.names.name(parent, name) {
            Some(None) => return Err(VfsError::NotFound),
            Some(Some(ino)) => match self.inode(ino) {
                // Removed since: the name is asked for again.
                Err(VfsError::Stale(_)) => {}
                found => return found,
            },
            None => {}
        }
        let commits = self.desk.names.commits();
        let told = self.desk.told(Operation::Lookup(parent, name.to_vec()), READ)?;
        self.give_up();
        match told.answer {
            Answer::Failed(Failure::NotFound) => Err(VfsError::NotFound),
            Answer::Failed(failure) => Err(failed(failure, parent)),
            _ => self.told_inode(&told, commits),
        }
    }

    /// What a name stands for, as far as that can be had: what a change of it will touch.
    fn named(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        match self.desk.names.name(parent, name) {
            Some(known) => known,
            None => self.lookup(parent, name).ok().map(|inode| inode.ino),
        }
    }

    pub(crate) fn entries(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Result<Vec<DirEntry>, VfsError> {
        if let Some(page) = self.desk.names.page(dir, after, limit, inodes) {
            return Ok(page);
        }
        let asked = Operation::Entries {
            directory: dir,
            after: after.map(<[u8]>::to_vec),
            limit: limit.clamp(1, PAGE_MAX) as u32,
            inodes,
        };
        let told = self.desk.told(asked, READ)?;
        self.give_up();
        match told.answer {
            Answer::Entries(entries) => {
                let plain = |entry: forebay_protocol::DirectoryEntry| DirEntry {
                    name: entry.name,
                    ino: entry.ino,
                    kind: entry.kind,
                };
                Ok(entries.into_iter().map(plain).collect())
            }
            other => Err(unexpected(&other, dir)),
        }
    }

    pub(crate) fn read_link(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        if let Some(target) = self.desk.names.target(ino) {
            return Ok(target.to_vec());
        }
        match self.desk.told(Operation::ReadLink(ino), READ)?.answer {
            Answer::Bytes(target) => Ok(target),
            other => Err(unexpected(&other, ino)),
        }
    }

    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        if let Some(known) = self.desk.names.xattr(ino, name) {
            return known.map(|value| value.to_vec()).ok_or(VfsError::NoAttribute);
        }
        match self.desk.told(Operation::Xattr(ino, name.to_vec()), READ)?.answer {
            Answer::Bytes(value) => Ok(value),
            other => Err(unexpected(&other, ino)),
        }
    }

    pub(crate) fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, VfsError> {
        if let Some(names) = self.desk.names.xattrs(ino) {
            return Ok(names.as_ref().clone());
        }
        match self.desk.told(Operation::Xattrs(ino), READ)?.answer {
            Answer::Names(names) => Ok(names),
            other => Err(unexpected(&other, ino)),
        }
    }

    /// Asks for a change whose answer is an inode.
    fn changed(&self, operation: Operation, ino: Ino) -> Result<Inode, VfsError> {
        let told = self.desk.told(operation, READ)?;
        self.give_up();
        match &told.answer {
            Answer::Inode(answer) => Ok(inode_of(answer)),
            other => Err(unexpected(other, ino)),
        }
    }

    fn done(&self, operation: Operation, ino: Ino) -> Result<(), VfsError> {
        match self.desk.told(operation, READ)?.answer {
            Answer::Failed(failure) => Err(failed(failure, ino)),
            _ => Ok(()),
        }
    }

    pub(crate) fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode, VfsError> {
        self.changed(Operation::Make(parent, name.to_vec(), new.clone()), parent)
    }

    pub(crate) fn make_nameless(&self, parent: Ino, new: &NewInode) -> Result<Inode, VfsError> {
        let inode = self.changed(Operation::MakeNameless(parent, new.clone()), parent)?;
        // The owner has a row for it already.
        self.opens.opened(inode.ino);
        self.opens.tell(inode.ino);
        Ok(inode)
    }

    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, VfsError> {
        self.settle(&[ino])?;
        let commits = self.desk.names.commits();
        let told = self.desk.told(Operation::Link(ino, parent, name.to_vec()), READ)?;
        self.give_up();
        self.now(&told, commits, ino)
    }

    pub(crate) fn remove(
        &self,
        parent: Ino,
        name: &[u8],
        directory: bool,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed, VfsError> {
        let named = self.named(parent, name);
        let (open, session) = (self.open_of(named, in_use)?, self.desk.link.number());
        let name = name.to_vec();
        let operation = if directory {
            Operation::Rmdir(parent, name, open.clone())
        } else {
            Operation::Unlink(parent, name, open.clone())
        };
        let told = self.desk.told(operation, READ);
        let still_open = self.still_open(open.clone(), session, in_use);
        let answer = told?.answer;
        self.give_up();
        let Some(told) = answer.inode() else { return Err(unexpected(&answer, named.unwrap_or(parent))) };
        let mut inode = inode_of(told);
        if inode.row.kind == FileKind::Regular {
            self.bytes.overlay(&mut inode);
        }
        Ok(self.removed(inode, (&open, &still_open), answer.leaves_orphan()))
    }

    /// Of the inodes that an operation may take the last name of, those that are open here. The owner keeps rows of them.
    fn open_of(
        &self,
        inos: impl IntoIterator<Item = Ino>,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Vec<Ino>, ClientError> {
        let mut open: Vec<Ino> =
            inos.into_iter().filter(|ino| in_use(*ino) || self.opens.is_open(*ino)).collect();
        open.dedup();
        for ino in &open {
            self.opens.wait_released(*ino, &self.desk.link.patience())?;
            self.opens.tell(*ino);
        }
        Ok(open)
    }

    /// After a removal that said of inodes that they are open: those that still are. What was closed meanwhile was released before the owner heard of that, perhaps, and
    /// is so again.
    fn still_open(&self, mut open: Vec<Ino>, session: u64, in_use: &dyn Fn(Ino) -> bool) -> Vec<Ino> {
        let closed = open.extract_if(.., |ino| !self.opens.is_open(*ino) && !in_use(*ino));
        closed.for_each(|ino| self.jobs.put(Job::Release(ino, session)));
        open
    }

    /// Notes what a removal did. `said`: of which inodes it said that they are open here, and which still are. Where others have it open (`elsewhere`), what is kept back of it is
    /// theirs to read, under the lease that is held still: it is told like that of a file with a name. What was open here the owner takes for open until it has
    /// heard of the release, which says whether it is gone.
    fn removed(&self, inode: Inode, said: (&[Ino], &[Ino]), elsewhere: bool) -> Removed {
        let last = inode.row.nlink == 0;
        let orphan = last && said.1.contains(&inode.ino);
        if orphan {
            self.opens.lost_its_name(&Arc::new(inode.clone()));
        } else if last && !elsewhere && !said.0.contains(&inode.ino) {
            self.bytes.discard(inode.ino);
        }
        Removed { inode, last, orphan }
    }

    pub(crate) fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, VfsError> {
        let (moved, taken) = (self.named(from.0, from.1), self.named(to.0, to.1));
        // A name never survives without its bytes: what is moved over another file is at the owner before.
        let exchanged = taken.filter(|_| mode == RenameMode::Exchange);
        let moving: Vec<Ino> = moved.into_iter().chain(exchanged).collect();
        self.settle(&moving)?;
        let (open, session) = (self.open_of(taken, in_use)?, self.desk.link.number());
        let operation = Operation::Rename {
            from: from.0,
            name: from.1.to_vec(),
            to: to.0,
            new_name: to.1.to_vec(),
            mode,
            open: open.clone(),
        };
        let told = self.desk.told(operation, READ);
        let still_open = self.still_open(open.clone(), session, in_use);
        let answer = told?.answer;
        match answer.renamed() {
            Some((_, replaced)) => {
                let replaced = replaced.filter(|_| mode != RenameMode::Exchange);
                let said = (&open[..], &still_open[..]);
                Ok(replaced.map(|replaced| self.removed(inode_of(replaced), said, answer.leaves_orphan())))
            }
            None if answer == Answer::Done => Ok(None),
            None => Err(unexpected(&answer, moved.unwrap_or(from.0))),
        }
    }

    pub(crate) fn set_attr(
        &self,
        ino: Ino,
        set: &SetAttr,
        through: Option<Through>,
    ) -> Result<Inode, VfsError> {
        let held = self.held(ino, through)?;
        let prepared = self.bytes.before_set_attr(ino, set);
        let commits = self.desk.names.commits();
        let told = match prepared {
            Ok(()) => self.desk.told_while(held, Operation::SetAttr(ino, set.clone()), READ),
            Err(error) => Err(error),
        };
        if let Some(inode) = told.as_ref().ok().and_then(|told| told.answer.inode()) {
            self.bytes.after_set_attr(ino, set, inode.row.mtime);
        }
        // Also where it failed: writers are held off until then.
        self.bytes.forget(ino);
        let told = told?;
        self.give_up();
        let inode = self.now(&told, commits, ino)?;
        if set.size.is_some() {
            self.seals.written(ino, &inode.row);
        }
        Ok(inode)
    }

    /// The inode that a change was answered with, as it is now: what was kept back of it may have been committed after the answer, by a recall for instance, and
    /// be known no more.
    fn now(&self, told: &Told, commits: u64, ino: Ino) -> Result<Inode, VfsError> {
        match &told.answer {
            Answer::Inode(_) => self.told_inode(told, commits).map(Arc::unwrap_or_clone),
            other => Err(unexpected(other, ino)),
        }
    }

    pub(crate) fn set_atime(&self, ino: Ino, atime: Timespec) -> Result<(), VfsError> {
        self.done(Operation::SetAtime(ino, atime), ino)
    }

    pub(crate) fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> Result<(), VfsError> {
        self.done(Operation::SetXattr(ino, name.to_vec(), value.to_vec(), mode), ino)
    }

    pub(crate) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.done(Operation::RemoveXattr(ino, name.to_vec()), ino)
    }
}
