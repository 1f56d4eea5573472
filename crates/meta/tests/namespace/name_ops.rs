//! Random operations on names and attributes, on the namespace and the model.

use forebay_format::row::Layout;
use forebay_meta::{NewInode, RenameMode, SetAttr, SetTime, SetXattr};
use forebay_types::{FileKind, Ino, SubvolumeId};

use crate::{
    model::{Refusal, Tree},
    world::{World, time},
};

pub fn new_inode(kind: FileKind, mode: u16) -> NewInode {
    NewInode { kind, mode, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() }
}

impl World {
    pub fn make(&mut self) {
        let at = self.subvolume();
        let (parent, name, now) = (self.directory(at), self.name(), self.tick());
        let kinds =
            [FileKind::Directory, FileKind::Regular, FileKind::Regular, FileKind::Symlink, FileKind::Fifo];
        let kind = self.random.pick(&kinds).unwrap();
        let mut new = new_inode(kind, 0o640);
        if kind == FileKind::Symlink {
            new.target = b"somewhere/else"[..1 + self.random.below(14) as usize].to_vec();
        } else if self.random.one_in(4) {
            new.xattrs.push((b"system.acl".to_vec(), b"inherited".to_vec()));
        }
        let got = self.ns.make(at, parent, &name, &new).map_err(Refusal::from);
        let tree = self.trees.get_mut(&at).unwrap();
        let expected = tree.target(parent).and_then(|node| match node.entries.contains_key(&name) {
            true => Err(Refusal::Exists),
            false => Ok(()),
        });
        assert_eq!(
            got.as_ref().map(|_| ()).map_err(|refusal| *refusal),
            expected,
            "make {name:?} in {parent}"
        );
        let Ok(inode) = got else { return };
        tree.put(parent, &name, inode.ino, now);
        let made = self.add(at, parent, inode.ino, &new, now);
        assert_eq!(made, 1);
    }

    /// Adds an inode to the model.
    fn add(
        &mut self,
        at: forebay_types::SubvolumeId,
        parent: Ino,
        ino: Ino,
        new: &NewInode,
        now: i64,
    ) -> u32 {
        let tree = self.trees.get_mut(&at).unwrap();
        let mut node = Tree::node(new.kind, new.mode, parent, now);
        node.data = new.target.iter().map(|byte| u32::from(*byte)).collect();
        node.xattrs = new.xattrs.iter().cloned().collect();
        assert!(tree.0.insert(ino, node).is_none(), "{ino} was in use");
        1
    }

    pub fn make_nameless(&mut self) {
        let at = self.subvolume();
        let (parent, now) = (self.directory(at), self.tick());
        let new = new_inode(FileKind::Regular, 0o600);
        let got = self.ns.make_nameless(at, parent, &new).map_err(Refusal::from);
        let expected = self.trees.get_mut(&at).unwrap().target(parent).map(|_| ());
        assert_eq!(got.as_ref().map(|_| ()).map_err(|refusal| *refusal), expected);
        let Ok(inode) = got else { return };
        self.add(at, parent, inode.ino, &new, now);
        self.trees.get_mut(&at).unwrap().0.get_mut(&inode.ino).unwrap().names = 0;
        self.orphans.insert((at, inode.ino));
    }

    pub fn link(&mut self) {
        let at = self.subvolume();
        let (parent, name) = (self.directory(at), self.name());
        let (ino, now) = (self.inode(at, |node| !node.is_directory()), self.tick());
        let got = self.ns.link(at, ino, parent, &name).map_err(Refusal::from);
        let tree = self.trees.get_mut(&at).unwrap();
        let mut expected = || {
            if tree.target(parent)?.entries.contains_key(&name) {
                return Err(Refusal::Exists);
            }
            let node = tree.get(ino)?;
            if node.is_directory() {
                return Err(Refusal::IsDirectory);
            }
            node.names += 1;
            node.ctime = now;
            if node.names == 1 {
                node.parent = parent;
                self.orphans.remove(&(at, ino));
            }
            tree.put(parent, &name, ino, now);
            Ok(())
        };
        assert_eq!(got.map(|_| ()), expected(), "link {name:?} in {parent} to {ino}");
    }

    pub fn unlink(&mut self) {
        let at = self.subvolume();
        let (parent, in_use) = (self.directory(at), self.random.one_in(4));
        let (name, now, directory) = (self.taken_name(at, parent), self.tick(), self.random.one_in(4));
        let got = match directory {
            true => self.ns.rmdir(at, parent, &name, &|_| in_use),
            false => self.ns.unlink(at, parent, &name, &|_| in_use),
        };
        let got = got.map(|removed| (removed.inode.ino, removed.last, removed.orphan)).map_err(Refusal::from);
        let kept = got.is_ok_and(|(ino, last, orphan)| last && self.is_kept(at, ino, orphan, in_use));
        let tree = self.trees.get_mut(&at).unwrap();
        let mut expected = || {
            let ino = tree.find(parent, &name)?;
            match (directory, tree.0[&ino].is_directory()) {
                (true, false) => return Err(Refusal::NotDirectory),
                (false, true) => return Err(Refusal::IsDirectory),
                (true, true) if !tree.0[&ino].entries.is_empty() => return Err(Refusal::NotEmpty),
                _ => {}
            }
            tree.take(parent, &name, now);
            let last = tree.drop_name(ino, kept, now)?;
            if last && kept {
                self.orphans.insert((at, ino));
            }
            Ok((ino, last, last && kept))
        };
        assert_eq!(got, expected(), "unlink {name:?} in {parent}");
    }

    pub fn rename(&mut self) {
        let at = self.subvolume();
        let (from, to, in_use) = (self.directory(at), self.directory(at), self.random.one_in(4));
        let (name, new_name) = (self.taken_name(at, from), self.taken_name(at, to));
        let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let (mode, now) = (self.random.pick(&modes).unwrap(), self.tick());
        let got = self.ns.rename(at, (from, &name), (to, &new_name), mode, &|_| in_use);
        let got = got.map(|removed| removed.map(|removed| (removed.inode.ino, removed.orphan)));
        let kept = match &got {
            Ok(Some((ino, orphan))) => self.is_kept(at, *ino, *orphan, in_use),
            _ => in_use,
        };
        let tree = self.trees.get_mut(&at).unwrap();
        let expected = rename(tree, (from, &name), (to, &new_name), mode, kept, now);
        if let Ok(Some((ino, true))) = expected {
            self.orphans.insert((at, ino));
        }
        let what = format!("rename {name:?} of {from} to {new_name:?} of {to} by {mode:?}");
        assert_eq!(got.map_err(Refusal::from), expected, "{what}");
    }

    pub fn set_attr(&mut self) {
        let at = self.subvolume();
        let ino = match self.random.one_in(2) {
            true => self.inode(at, |_| true),
            false => self.any_file(at),
        };
        let now = self.tick();
        let mut set = SetAttr::default();
        let sized = self.random.one_in(2);
        set.size = sized.then(|| self.random.below(1500));
        set.mode = self.random.one_in(3).then(|| self.random.below(0o1000) as u16);
        set.uid = self.random.one_in(3).then(|| self.random.below(5) as u32);
        set.mtime = self.random.one_in(3).then_some(SetTime::To(time(77)));
        set.atime = self.random.one_in(3).then_some(SetTime::Now);
        for name in [b"x", b"y"] {
            if self.random.one_in(4) {
                let value = self.random.one_in(2).then(|| b"by set_attr".to_vec());
                set.xattrs.push((name.to_vec(), value));
            }
        }
        let got = self.ns.set_attr(at, ino, &set).map(|_| ()).map_err(Refusal::from);
        let expected = set_attr(self.trees.get_mut(&at).unwrap(), ino, &set, now);
        assert_eq!(got, expected, "set attributes of {ino}");
    }

    pub fn set_xattr(&mut self) {
        let at = self.subvolume();
        let (ino, now) = (self.inode(at, |_| true), self.tick());
        let name = [self.random.pick(b"xyz").unwrap()];
        let modes = [Some(SetXattr::Any), Some(SetXattr::Create), Some(SetXattr::Replace), None];
        let mode = self.random.pick(&modes).unwrap();
        let got = match mode {
            Some(mode) => self.ns.set_xattr(at, ino, &name, b"value", mode),
            None => self.ns.remove_xattr(at, ino, &name),
        };
        let mut expected = || {
            let node = self.trees.get_mut(&at).unwrap().0.get_mut(&ino);
            let has = node.as_ref().is_some_and(|node| node.xattrs.contains_key(name.as_slice()));
            match (mode, has) {
                (Some(SetXattr::Create), true) => return Err(Refusal::AttributeExists),
                (Some(SetXattr::Replace) | None, false) => return Err(Refusal::NoAttribute),
                _ => {}
            }
            let node = node.ok_or(Refusal::Stale)?;
            node.ctime = now;
            match mode {
                Some(_) => node.xattrs.insert(name.to_vec(), b"value".to_vec()),
                None => node.xattrs.remove(name.as_slice()),
            };
            Ok(())
        };
        assert_eq!(got.map_err(Refusal::from), expected());
    }

    pub fn set_atime(&mut self) {
        let at = self.subvolume();
        let ino = self.inode(at, |_| true);
        let got = self.ns.set_atime(at, ino, time(99)).map_err(Refusal::from);
        let expected = self.trees.get_mut(&at).unwrap().get(ino).map(|node| node.atime = 99);
        assert_eq!(got, expected);
    }

    pub fn purge(&mut self) {
        let all: Vec<_> = self.orphans.iter().copied().collect();
        let Some((at, ino)) = self.random.pick(&all) else { return };
        self.tick();
        if self.ns.purge(at, ino).unwrap() {
            self.orphans.remove(&(at, ino));
            self.trees.get_mut(&at).unwrap().0.remove(&ino);
        } else {
            self.lose_data(at, ino);
        }
    }

    /// Whether an inode that lost its last name is still there: somebody has it, or it has more extents than one record removes.
    fn is_kept(&mut self, at: SubvolumeId, ino: Ino, orphan: bool, in_use: bool) -> bool {
        if orphan && !in_use {
            self.lose_data(at, ino);
        }
        orphan
    }

    /// A removal that takes several records has begun: what is in extents is not shown any more.
    fn lose_data(&mut self, at: SubvolumeId, ino: Ino) {
        let inode = self.ns.inode(at, ino).unwrap();
        assert!(inode.row.has_cuts && inode.row.nlink == 0);
        if inode.row.layout == Layout::Empty {
            self.trees.get_mut(&at).unwrap().0.get_mut(&ino).unwrap().data.fill(0);
        }
    }
}

type Place<'a> = (Ino, &'a [u8]);

fn rename(
    tree: &mut Tree,
    from: Place<'_>,
    to: Place<'_>,
    mode: RenameMode,
    in_use: bool,
    now: i64,
) -> Result<Option<(Ino, bool)>, Refusal> {
    let moved = tree.find(from.0, from.1)?;
    let taken = tree.target(to.0)?.entries.get(to.1).copied();
    match (mode, taken) {
        (RenameMode::NoReplace, Some(_)) => return Err(Refusal::Exists),
        (RenameMode::Exchange, None) => return Err(Refusal::NotFound),
        (_, Some(taken)) if taken == moved => return Ok(None),
        _ => {}
    }
    let directory = tree.0[&moved].is_directory();
    if directory && tree.is_above(moved, to.0) {
        return Err(Refusal::IntoItself);
    }
    if let (RenameMode::Exchange, Some(taken)) = (mode, taken) {
        if tree.0[&taken].is_directory() && tree.is_above(taken, from.0) {
            return Err(Refusal::IntoItself);
        }
        tree.put(from.0, from.1, taken, now);
        tree.put(to.0, to.1, moved, now);
        tree.settle(taken, from.0, now);
        tree.settle(moved, to.0, now);
        return Ok(None);
    }
    if let Some(taken) = taken {
        match (directory, tree.0[&taken].is_directory()) {
            (true, false) => return Err(Refusal::NotDirectory),
            (false, true) => return Err(Refusal::IsDirectory),
            (true, true) if !tree.0[&taken].entries.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
    }
    tree.take(from.0, from.1, now);
    tree.put(to.0, to.1, moved, now);
    tree.settle(moved, to.0, now);
    let Some(taken) = taken else { return Ok(None) };
    let last = tree.drop_name(taken, in_use, now)?;
    Ok(Some((taken, last && in_use)))
}

fn set_attr(tree: &mut Tree, ino: Ino, set: &SetAttr, now: i64) -> Result<(), Refusal> {
    if let Some(size) = set.size {
        let node = tree.file(ino)?;
        node.resize(size as usize);
        node.mtime = now;
    }
    let node = tree.get(ino)?;
    for (name, value) in &set.xattrs {
        match value {
            Some(value) => node.xattrs.insert(name.clone(), value.clone()),
            None => node.xattrs.remove(name),
        };
    }
    node.mode = set.mode.unwrap_or(node.mode);
    node.uid = set.uid.unwrap_or(node.uid);
    if set.mtime.is_some() {
        node.mtime = 77;
    }
    if set.atime.is_some() {
        node.atime = now;
    }
    node.ctime = now;
    Ok(())
}
