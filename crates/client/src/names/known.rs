//! Answers from memory.

use std::sync::Arc;

use forebay_cluster::Lease;
use forebay_meta::{DirEntry, Inode};
use forebay_types::Ino;

use super::{Names, PAGE_MAX};

/// Directories that a path has at most.
const PATH_LEVELS: usize = 64;

impl Names {
    /// An inode.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if state.changes.is_busy(ino) {
            return None;
        }
        let leased = state.has(ino, Lease::Read, now);
        let known = state.cache.get(ino).filter(|_| leased).and_then(|node| node.inode.clone());
        known.or_else(|| state.sealed.get(ino))
    }

    /// The same for who has a tenure: it counts although the lease is being recalled.
    pub(crate) fn inode_under(&self, ino: Ino) -> Option<Arc<Inode>> {
        let mut state = self.state.lock();
        if state.changes.is_busy(ino) || !state.tenures.contains_key(&ino) {
            return None;
        }
        state.cache.get(ino)?.inode.clone()
    }

    /// What a name stands for: `Some(None)` if nothing.
    pub(crate) fn name(&self, parent: Ino, name: &[u8]) -> Option<Option<Ino>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(parent, Lease::Read, now) {
            return None;
        }
        state.cache.get(parent)?.names.get(name).copied()
    }

    /// A path of an inode that was in directory `parent` last, for messages: from `root` on, or from the first directory whose own name is not known (`.../`). `None` where not even its
    /// name is. Of what is known by leases now: nobody is asked.
    pub(crate) fn path_of(&self, ino: Ino, parent: Ino, root: Ino) -> Option<Vec<u8>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        let (mut at, mut path) = ((ino, parent), Vec::new());
        for _ in 0..PATH_LEVELS {
            let (ino, parent) = at;
            let leased = state.has(parent, Lease::Read, now);
            let node = state.cache.get(parent).filter(|_| leased);
            let name = node.and_then(|node| {
                let mut names = node.names.iter().filter(|(_, found)| **found == Some(ino));
                names.next().map(|(name, _)| name.to_vec())
            });
            let above = node.and_then(|node| node.inode.as_ref()).map(|inode| inode.row.parent);
            let Some(name) = name else { break };
            path = [b"/", name.as_slice(), path.as_slice()].concat();
            match above {
                _ if parent == root => return Some(path),
                Some(above) => at = (parent, above),
                None => break,
            }
        }
        (!path.is_empty()).then(|| [b"...", path.as_slice()].concat())
    }

    /// A page of a directory's listing. `inodes`: only one whose inodes were asked for, too.
    pub(crate) fn page(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Option<Vec<DirEntry>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(dir, Lease::Read, now) {
            return None;
        }
        let page = state.cache.get(dir)?.pages.get(after.unwrap_or_default())?;
        let enough = page.limit >= limit.min(PAGE_MAX) || page.entries.is_empty();
        let serves = enough && (page.inodes || !inodes);
        serves.then(|| page.entries.iter().take(limit).cloned().collect())
    }

    /// The value of an extended attribute: `Some(None)` if there is none.
    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Option<Option<Arc<[u8]>>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(ino, Lease::Read, now) {
            return state.sealed.get(ino).filter(|inode| !inode.row.has_xattrs).map(|_| None);
        }
        let node = state.cache.get(ino)?;
        match node.xattrs.get(name) {
            Some(found) => Some(found.clone()),
            // An inode that says that it has none has none of this name.
            None => node.inode.as_ref().filter(|inode| !inode.row.has_xattrs).map(|_| None),
        }
    }

    /// The names of all extended attributes.
    pub(crate) fn xattrs(&self, ino: Ino) -> Option<Arc<Vec<Vec<u8>>>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(ino, Lease::Read, now) {
            return state.sealed.get(ino).filter(|inode| !inode.row.has_xattrs).map(|_| Arc::default());
        }
        let node = state.cache.get(ino)?;
        match (&node.xattr_names, &node.inode) {
            (Some(names), _) => Some(Arc::clone(names)),
            (None, Some(inode)) if !inode.row.has_xattrs => Some(Arc::default()),
            _ => None,
        }
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, ino: Ino) -> Option<Arc<[u8]>> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(ino, Lease::Read, now) {
            return None;
        }
        state.cache.get(ino)?.target.clone()
    }
}
