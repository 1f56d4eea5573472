//! Requests on their way, and what of their answers is kept.

use std::sync::{Arc, atomic::Ordering};

use forebay_cluster::Lease;
use forebay_meta::{DirEntry, Inode};
use forebay_protocol::{Answer, DirectoryEntry, Failure, InodeAnswer, Operation, Response};
use forebay_types::{FileKind, Ino, Timespec};
use rustc_hash::FxHashSet;

use super::{
    Learn, Names, State, Tenure,
    cache::Page,
    changes::{Beside, Touch},
    less,
    sealed::is_sealed,
    touches,
};

/// A request under way. Dropped without [`Names::finish`], nobody knows what it has changed.
pub(crate) struct Under {
    names: Arc<Names>,
    id: u64,
    touches: Vec<Touch>,
    committed: Vec<Ino>,
    counted: Option<Ino>,
    asked: Vec<Ino>,
    wishes: bool,
    over: bool,
}

/// An inode as it was told.
pub(crate) fn inode_of(answer: &InodeAnswer) -> Inode {
    Inode::removed(answer.ino, answer.row, answer.directory)
}

impl Names {
    /// A request is about to be sent: what it touches is dropped. Called as often as it is sent anew in a later session, with the answer once.
    pub(crate) fn begin(self: &Arc<Self>, operation: &Operation, wish: Option<Lease>) -> Under {
        let mut state = self.state.lock();
        let named = |parent, name: &[u8]| *state.cache.peek(parent)?.names.get(name)?;
        let touched = touches::touches(operation, &named);
        let counted = touches::counted(operation);
        let id = state.changes.begin(&touched);
        for touch in &touched {
            state.drop_touched(touch, counted);
        }
        let asked = touches::wants(operation);
        let wishes = wish.is_some();
        for ino in &asked {
            *state.asked.entry(*ino).or_default() += 1;
            if wishes {
                *state.wanted.entry(*ino).or_default() += 1;
            }
        }
        let committed = touches::committed(operation);
        drop(state);
        self.changed.notify_all();
        Under {
            names: Arc::clone(self),
            id,
            touches: touched,
            committed,
            counted,
            asked,
            wishes,
            over: false,
        }
    }

    /// It was answered, in the session with this number. `hold`: the lease to write on this inode is kept if it came, or was there. Returns whether the inode that
    /// the answer is about came with a lease that is still held.
    pub(crate) fn finish(
        self: &Arc<Self>,
        mut under: Under,
        operation: &Operation,
        response: &Response,
        number: u64,
        hold: Option<Ino>,
    ) -> (bool, Option<Tenure>) {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        let beside = under.end(&mut state);
        if state.number != number || state.held.is_none() {
            state.spoil(&under);
            drop(state);
            self.changed.notify_all();
            return (false, None);
        }
        let mut kept = FxHashSet::default();
        for grant in &response.grants {
            if state.held.as_mut().is_some_and(|held| held.granted(*grant)) {
                kept.insert(grant.ino);
            }
        }
        state.count(&under, operation, &response.answer);
        let mut taking = Taking { state: &mut state, beside: &beside, kept: &kept, learn: self.learn.get() };
        taking.take_in(operation, &response.answer);
        let subject = response.answer.inode().map(|inode| inode.ino);
        let leased = subject.is_some_and(|ino| kept.contains(&ino));
        let tenure = hold.filter(|ino| state.has(*ino, Lease::Write, now)).map(|ino| {
            *state.tenures.entry(ino).or_default() += 1;
            Tenure { names: Arc::clone(self), ino }
        });
        if state.changes.is_idle()
            && let Some(held) = &mut state.held
        {
            held.nothing_under_way();
        }
        drop(state);
        self.changed.notify_all();
        (leased, tenure)
    }
}

impl Under {
    /// Takes it out of those under way.
    fn end(&mut self, state: &mut State) -> Beside {
        self.over = true;
        for ino in &self.asked {
            less(&mut state.asked, *ino);
            if self.wishes {
                less(&mut state.wanted, *ino);
            }
        }
        let beside = state.changes.end(self.id, &self.touches);
        if !self.committed.is_empty() {
            let inodes: Vec<Touch> = self.committed.iter().map(|ino| Touch::Inode(*ino)).collect();
            state.changes.tell_others(&inodes);
            for ino in &self.committed {
                state.drop_inode(*ino);
            }
            self.names.commits.fetch_add(1, Ordering::SeqCst);
        }
        beside
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if !self.over {
            let names = Arc::clone(&self.names);
            let mut state = names.state.lock();
            self.end(&mut state);
            state.spoil(self);
            drop(state);
            names.changed.notify_all();
        }
    }
}

impl State {
    fn drop_inode(&mut self, ino: Ino) {
        self.sealed.forget(ino);
        if let Some(node) = self.cache.known(ino) {
            node.inode = None;
        }
    }

    /// A change is on its way. A directory of which one name changes is not told of meanwhile, and counted afterwards.
    fn drop_touched(&mut self, touch: &Touch, counted: Option<Ino>) {
        match touch {
            Touch::Inode(ino) if counted == Some(*ino) => {}
            Touch::Inode(ino) => self.drop_inode(*ino),
            Touch::Name(parent, name) => {
                if let Some(node) = self.cache.known(*parent) {
                    node.names.remove(&name[..]);
                }
            }
            Touch::List(dir) => {
                if let Some(node) = self.cache.known(*dir) {
                    node.pages.clear();
                }
            }
            Touch::Xattrs(ino) => {
                if let Some(node) = self.cache.known(*ino) {
                    node.xattrs.clear();
                    node.xattr_names = None;
                }
            }
        }
    }

    /// Nobody knows what a change did.
    fn spoil(&mut self, under: &Under) {
        under.touches.iter().for_each(|touch| self.drop_touched(touch, None));
    }

    /// Counts a name that was made or removed. All changes of the directory since it was told are of this session, and each is counted, in whatever order.
    fn count(&mut self, under: &Under, operation: &Operation, answer: &Answer) {
        let Some(directory) = under.counted else { return };
        if matches!(answer, Answer::Failed(_)) {
            return;
        }
        let counted = answer.inode().and_then(|inode| {
            let is_directory = u32::from(inode.row.kind == FileKind::Directory);
            match operation {
                Operation::Make(..) => Some((1, is_directory, inode.row.btime)),
                Operation::Link(..) => Some((1, 0, inode.row.ctime)),
                Operation::Unlink(..) => Some((-1, 0, inode.row.ctime)),
                Operation::Rmdir(..) => Some((-1, 1, inode.row.ctime)),
                _ => None,
            }
        });
        let Some(node) = self.cache.known(directory) else { return };
        let Some(known) = &mut node.inode else { return };
        match (counted, known.directory) {
            (Some(by), Some(_)) => count_name(Arc::make_mut(known), by),
            _ => node.inode = None,
        }
    }
}

/// `(1 or -1, directories, when)`.
fn count_name(inode: &mut Inode, (by, directories, at): (i64, u32, Timespec)) {
    let Some(row) = &mut inode.directory else { return };
    row.entries = row.entries.saturating_add_signed(by);
    row.directories = if by > 0 {
        row.directories.saturating_add(directories)
    } else {
        row.directories.saturating_sub(directories)
    };
    row.mtime = row.mtime.max(at);
    row.ctime = row.ctime.max(at);
}

/// An answer that is taken in.
struct Taking<'a> {
    state: &'a mut State,
    beside: &'a Beside,
    kept: &'a FxHashSet<Ino>,
    learn: Option<&'a Learn>,
}

impl Taking<'_> {
    fn clean(&self, touch: &Touch) -> bool {
        self.state.changes.is_clean(self.beside, touch)
    }

    fn inode(&mut self, answer: &InodeAnswer) {
        if self.kept.contains(&answer.ino) && self.clean(&Touch::Inode(answer.ino)) {
            let node = self.state.cache.node(answer.ino);
            node.inode = Some(Arc::new(inode_of(answer)));
            node.is_directory = Some(answer.row.kind == FileKind::Directory);
            if let Some(learn) = self.learn {
                learn(answer);
            }
        } else if is_sealed(&answer.row) && self.clean(&Touch::Inode(answer.ino)) {
            // Its contents are what they are, whatever becomes of a lease.
            self.state.sealed.put(Arc::new(inode_of(answer)));
            if let Some(learn) = self.learn {
                learn(answer);
            }
        }
    }

    fn name(&mut self, parent: Ino, name: &[u8], ino: Option<Ino>) {
        if self.kept.contains(&parent) && self.clean(&Touch::Name(parent, name.to_vec())) {
            let node = self.state.cache.node(parent);
            node.is_directory = Some(true);
            node.names.insert(name.into(), ino);
        }
    }

    /// What a removal or move did to an inode that was not known to be touched.
    fn changed(&mut self, ino: Ino) {
        self.state.drop_inode(ino);
        self.state.changes.tell_others(&[Touch::Inode(ino)]);
    }

    fn take_in(&mut self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Lookup(parent, name), Answer::Inode(inode)) => {
                if name != b".." {
                    self.name(*parent, name, Some(inode.ino));
                }
                self.inode(inode);
            }
            (Operation::Lookup(parent, name), Answer::Failed(Failure::NotFound)) => {
                self.name(*parent, name, None);
            }
            (Operation::Make(parent, name, _), Answer::Inode(inode))
            | (Operation::Link(_, parent, name), Answer::Inode(inode)) => {
                self.name(*parent, name, Some(inode.ino));
                self.inode(inode);
            }
            (
                Operation::Unlink(parent, name, _) | Operation::Rmdir(parent, name, _),
                Answer::Inode(inode) | Answer::Orphaned(inode),
            ) => {
                self.name(*parent, name, None);
                self.changed(inode.ino);
            }
            (Operation::Rename { to, new_name, .. }, answer) => {
                let Some((moved, replaced)) = answer.renamed() else { return };
                self.name(*to, new_name, Some(moved.ino));
                self.changed(moved.ino);
                if let Some(replaced) = replaced {
                    self.changed(replaced.ino);
                }
            }
            (
                Operation::Inode(_) | Operation::SetAttr(..) | Operation::MakeNameless(..),
                Answer::Inode(inode),
            ) => self.inode(inode),
            (Operation::Entries { directory, after, limit, inodes }, Answer::Entries(entries)) => {
                self.entries(*directory, after.as_deref(), (*limit as usize, *inodes), entries);
            }
            (Operation::ReadLink(ino), Answer::Bytes(target)) if self.kept.contains(ino) => {
                self.state.cache.node(*ino).target = Some(target.as_slice().into());
            }
            (Operation::Xattr(..) | Operation::Xattrs(_), _) => self.xattrs(operation, answer),
            _ => {}
        }
    }

    fn entries(
        &mut self,
        dir: Ino,
        after: Option<&[u8]>,
        (limit, inodes): (usize, bool),
        entries: &[DirectoryEntry],
    ) {
        let listed = self.kept.contains(&dir) && self.clean(&Touch::List(dir));
        if listed {
            let plain = |entry: &DirectoryEntry| DirEntry {
                name: entry.name.clone(),
                ino: entry.ino,
                kind: entry.kind,
            };
            let page = Page { limit, inodes, entries: entries.iter().map(plain).collect() };
            let node = self.state.cache.node(dir);
            node.is_directory = Some(true);
            node.pages.insert(after.unwrap_or_default().to_vec(), page);
        }
        for entry in entries {
            if let Some(inode) = &entry.inode {
                self.inode(inode);
            }
            if listed {
                self.state.cache.node(dir).names.insert(entry.name.as_slice().into(), Some(entry.ino));
            }
        }
    }

    fn xattrs(&mut self, operation: &Operation, answer: &Answer) {
        let ino = match operation {
            Operation::Xattr(ino, _) | Operation::Xattrs(ino) => *ino,
            _ => return,
        };
        if !self.kept.contains(&ino) || !self.clean(&Touch::Xattrs(ino)) {
            return;
        }
        let node = self.state.cache.node(ino);
        match (operation, answer) {
            (Operation::Xattr(_, name), Answer::Bytes(value)) => {
                node.xattrs.insert(name.clone(), Some(value.as_slice().into()));
            }
            (Operation::Xattr(_, name), Answer::Failed(Failure::NoAttribute)) => {
                node.xattrs.insert(name.clone(), None);
            }
            (Operation::Xattrs(_), Answer::Names(names)) => node.xattr_names = Some(Arc::new(names.clone())),
            _ => {}
        }
    }
}
