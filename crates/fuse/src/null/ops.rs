//! The operations.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::NullFs;
use super::tree::{Birth, Body, Dentry, Node, now};
use crate::errno::Errno;
use crate::fs::Filesystem;
use crate::init::{InitConfig, KernelOffer};
use crate::lock_reply::LockReply;
use crate::reply::{DirBuffer, DirPlusBuffer, ReadBuffer};
use crate::request::Request;
use crate::types::*;

type Result<T> = std::result::Result<T, Errno>;

const O_TRUNC: u32 = libc::O_TRUNC as u32;

impl NullFs {
    fn entry(&self, attr: FileAttr) -> Entry {
        Entry {
            attr,
            node: attr.ino,
            generation: 0,
            entry_ttl: self.config.entry_ttl,
            attr_ttl: self.config.attr_ttl,
        }
    }

    fn attr(&self, attr: FileAttr) -> Attr {
        Attr { attr, ttl: self.config.attr_ttl }
    }

    /// The entry to answer: counts a lookup.
    fn hand_out(&self, node: &Node) -> Entry {
        node.count_lookup();
        let attr = *node.attr.lock();
        self.entry(attr)
    }

    fn make(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        (mode, rdev, target): (u32, u32, Option<Bytes>),
    ) -> Result<Entry> {
        let parent_node = self.tree.get(parent)?;
        let mut dir = parent_node.dir()?.write();
        if dir.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let parent_attr = *parent_node.attr.lock();
        let inherits = parent_attr.mode & libc::S_ISGID != 0;
        let kind = FileKind::from_mode(mode).ok_or(Errno::EINVAL)?;
        let mode = if inherits && kind == FileKind::Dir { mode | libc::S_ISGID } else { mode };
        let gid = if inherits { parent_attr.gid } else { req.gid };
        let node = self.tree.add(Birth { mode, uid: req.uid, gid, rdev, parent, target });
        let entry = self.hand_out(&node);
        if let Err(error) = dir.insert(name, entry.attr.ino, kind) {
            node.relink(-2);
            self.tree.forget(entry.attr.ino, 1);
            return Err(error);
        }
        if kind == FileKind::Dir {
            parent_node.relink(1);
        }
        parent_node.touch();
        Ok(entry)
    }

    /// Takes away the link that a removed or replaced name was.
    fn unlinked(&self, gone: &Dentry) {
        if let Ok(node) = self.tree.get(gone.ino) {
            node.relink(if gone.kind == FileKind::Dir { -2 } else { -1 });
            self.tree.drop_unused(gone.ino);
        }
    }

    /// Marks a directory as removed if it is empty.
    fn close_empty(&self, ino: u64) -> Result<()> {
        let node = self.tree.get(ino)?;
        let mut dir = node.dir()?.write();
        if !dir.entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        dir.removed = true;
        Ok(())
    }

    fn moved(&self, entry: &Dentry, from: &Arc<Node>, to: &Arc<Node>, new_parent: u64) {
        let Ok(node) = self.tree.get(entry.ino) else { return };
        node.relink(0);
        if let Body::Dir(dir) = &node.body
            && !Arc::ptr_eq(from, to)
        {
            dir.write().parent = new_parent;
            from.relink(-1);
            to.relink(1);
        }
    }

    fn list(&self, ino: u64, offset: u64, mut add: impl FnMut(&Dentry, u64) -> bool) -> Result<()> {
        let node = self.tree.get(ino)?;
        let dir = node.dir()?.read();
        let dot = |name: &[u8], ino| Dentry { name: name.into(), ino, kind: FileKind::Dir };
        for (position, entry) in [(1, dot(b".", ino)), (2, dot(b"..", dir.parent))] {
            if position > offset && !add(&entry, position) {
                return Ok(());
            }
        }
        for (position, entry) in dir.entries.range((Bound::Excluded(offset), Bound::Unbounded)) {
            if !add(entry, *position) {
                break;
            }
        }
        Ok(())
    }
}

fn resize(attr: &mut FileAttr, size: u64) {
    attr.size = size;
    attr.blocks = size.div_ceil(4096) * 8;
    attr.mtime = now();
    attr.ctime = attr.mtime;
}

fn kill_suidgid(attr: &mut FileAttr) {
    attr.mode &= !libc::S_ISUID;
    if attr.mode & libc::S_IXGRP != 0 {
        attr.mode &= !libc::S_ISGID;
    }
}

fn resolve_time(time: SetTime) -> Timestamp {
    match time {
        SetTime::Now => now(),
        SetTime::Set(time) => time,
    }
}

impl Filesystem for NullFs {
    fn init(&self, _offer: &KernelOffer) -> Result<InitConfig> {
        Ok(self.config.init)
    }

    fn lookup(&self, _req: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let node = self.tree.get(parent)?;
        let dir = node.dir()?.read();
        let entry = dir.get(name).ok_or(Errno::ENOENT)?;
        Ok(self.hand_out(&*self.tree.get(entry.ino)?))
    }

    fn forget(&self, ino: u64, nlookup: u64) {
        self.tree.forget(ino, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: u64, _fh: Option<u64>) -> Result<Attr> {
        let node = self.tree.get(ino)?;
        let attr = *node.attr.lock();
        Ok(self.attr(attr))
    }

    fn setattr(&self, _req: &Request, ino: u64, set: &SetAttr) -> Result<Attr> {
        let node = self.tree.get(ino)?;
        let mut attr = node.attr.lock();
        if let Some(mode) = set.mode {
            attr.mode = (attr.mode & libc::S_IFMT) | (mode & 0o7777);
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        if let Some(size) = set.size {
            resize(&mut attr, size);
        }
        attr.atime = set.atime.map_or(attr.atime, resolve_time);
        attr.mtime = set.mtime.map_or(attr.mtime, resolve_time);
        attr.ctime = set.ctime.unwrap_or_else(now);
        if set.kill_suidgid {
            kill_suidgid(&mut attr);
        }
        Ok(self.attr(*attr))
    }

    fn readlink(&self, _req: &Request, ino: u64) -> Result<Bytes> {
        match &self.tree.get(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let target = Bytes::copy_from_slice(target);
        self.make(req, parent, name, (libc::S_IFLNK | 0o777, 0, Some(target)))
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], args: &Mknod) -> Result<Entry> {
        self.make(req, parent, name, (args.mode, args.rdev, None))
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32, _umask: u32) -> Result<Entry> {
        self.make(req, parent, name, ((mode & 0o7777) | libc::S_IFDIR, 0, None))
    }

    fn unlink(&self, _req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let node = self.tree.get(parent)?;
        let mut dir = node.dir()?.write();
        match dir.get(name) {
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.kind == FileKind::Dir => return Err(Errno::EISDIR),
            Some(_) => {}
        }
        if let Some(gone) = dir.remove(name) {
            self.unlinked(&gone);
        }
        node.touch();
        Ok(())
    }

    fn rmdir(&self, _req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let _moves = self.tree.moves.lock();
        let node = self.tree.get(parent)?;
        let mut dir = node.dir()?.write();
        let entry = dir.get(name).ok_or(Errno::ENOENT)?;
        self.close_empty(entry.ino)?;
        if let Some(gone) = dir.remove(name) {
            self.unlinked(&gone);
        }
        node.relink(-1);
        node.touch();
        Ok(())
    }

    fn rename(
        &self,
        _req: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let _moves = self.tree.moves.lock();
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.tree.get(parent)?, self.tree.get(new_parent)?);
        let source = from.dir()?.read().get(name).cloned().ok_or(Errno::ENOENT)?;
        let target = to.dir()?.read().get(new_name).cloned();
        if flags & libc::RENAME_EXCHANGE != 0 {
            let target = target.ok_or(Errno::ENOENT)?;
            from.dir()?.write().replace(name, target.ino, target.kind);
            to.dir()?.write().replace(new_name, source.ino, source.kind);
            self.moved(&source, &from, &to, new_parent);
            self.moved(&target, &to, &from, parent);
        } else {
            match &target {
                Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
                Some(target) if target.ino == source.ino => return Ok(()),
                Some(target) if target.kind == FileKind::Dir => {
                    if source.kind != FileKind::Dir {
                        return Err(Errno::EISDIR);
                    }
                    self.close_empty(target.ino)?;
                    to.relink(-1);
                }
                Some(_) if source.kind == FileKind::Dir => return Err(Errno::ENOTDIR),
                _ => {}
            }
            match &target {
                Some(_) => to.dir()?.write().replace(new_name, source.ino, source.kind),
                None => to.dir()?.write().insert(new_name, source.ino, source.kind)?,
            }
            from.dir()?.write().remove(name);
            self.moved(&source, &from, &to, new_parent);
            if let Some(target) = &target {
                self.unlinked(target);
            }
        }
        from.touch();
        to.touch();
        Ok(())
    }

    fn link(&self, _req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let (node, parent) = (self.tree.get(ino)?, self.tree.get(new_parent)?);
        let kind = FileKind::from_mode(node.attr.lock().mode).ok_or(Errno::EIO)?;
        if kind == FileKind::Dir {
            return Err(Errno::EPERM);
        }
        let mut dir = parent.dir()?.write();
        dir.insert(new_name, ino, kind)?;
        node.relink(1);
        parent.touch();
        Ok(self.hand_out(&node))
    }

    fn open(&self, _req: &Request, ino: u64, args: &Open) -> Result<Opened> {
        let node = self.tree.get(ino)?;
        if args.flags & O_TRUNC != 0 {
            let mut attr = node.attr.lock();
            resize(&mut attr, 0);
            if args.kill_suidgid {
                kill_suidgid(&mut attr);
            }
        }
        Ok(Opened { flags: self.config.open_flags, ..Opened::default() })
    }

    fn create(&self, req: &Request, parent: u64, name: &[u8], args: &Create) -> Result<(Entry, Opened)> {
        let mode = (args.mode & 0o7777) | libc::S_IFREG;
        let entry = self.make(req, parent, name, (mode, 0, None))?;
        Ok((entry, Opened { flags: self.config.open_flags, ..Opened::default() }))
    }

    fn tmpfile(&self, req: &Request, parent: u64, args: &Create) -> Result<(Entry, Opened)> {
        let mode = (args.mode & 0o7777) | libc::S_IFREG;
        let birth = Birth { mode, uid: req.uid, gid: req.gid, rdev: 0, parent, target: None };
        let node = self.tree.add(birth);
        node.relink(-1);
        Ok((self.hand_out(&node), Opened { flags: self.config.open_flags, ..Opened::default() }))
    }

    fn read(&self, _req: &Request, ino: u64, args: &Read, out: &mut ReadBuffer) -> Result<()> {
        let size = self.tree.get(ino)?.attr.lock().size;
        let left = size.saturating_sub(args.offset).min(u64::from(args.size));
        out.push_zeros(left as usize);
        Ok(())
    }

    fn write(&self, _req: &Request, ino: u64, args: &Write, data: &[u8]) -> Result<u32> {
        let node = self.tree.get(ino)?;
        let end = args.offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let mut attr = node.attr.lock();
        let size = attr.size.max(end);
        resize(&mut attr, size);
        if args.write_flags.contains(crate::flags::WriteFlags::KILL_SUIDGID) {
            kill_suidgid(&mut attr);
        }
        Ok(data.len() as u32)
    }

    fn flush(&self, _req: &Request, ino: u64, _fh: u64, lock_owner: u64) -> Result<()> {
        self.locks.release(ino, lock_owner, false);
        Ok(())
    }

    fn release(&self, _req: &Request, ino: u64, args: &Release) -> Result<()> {
        if args.flock_release {
            self.locks.release(ino, args.lock_owner, true);
        }
        Ok(())
    }

    fn fsync(&self, _req: &Request, _ino: u64, _fh: u64, _datasync: bool) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _req: &Request, _ino: u64, _args: &Open) -> Result<Opened> {
        Ok(Opened { flags: self.config.dir_flags, ..Opened::default() })
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: u64,
        _fh: u64,
        offset: u64,
        out: &mut DirBuffer<'_>,
    ) -> Result<()> {
        self.list(ino, offset, |entry, position| out.add(entry.ino, position, entry.kind, &entry.name))
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: u64,
        _fh: u64,
        offset: u64,
        out: &mut DirPlusBuffer<'_>,
    ) -> Result<()> {
        self.list(ino, offset, |entry, position| {
            let node = match self.tree.get(entry.ino) {
                Ok(node) if position > 2 => node,
                _ => return out.add_name(entry.ino, position, entry.kind, &entry.name),
            };
            let attr = *node.attr.lock();
            let taken = out.add(&self.entry(attr), position, &entry.name);
            if taken {
                node.count_lookup();
            }
            taken
        })
    }

    fn fsyncdir(&self, _req: &Request, _ino: u64, _fh: u64, _datasync: bool) -> Result<()> {
        Ok(())
    }

    fn statfs(&self, _req: &Request, _ino: u64) -> Result<StatFs> {
        let blocks = 1 << 30;
        let used = self.tree.len() as u64;
        Ok(StatFs {
            blocks,
            bfree: blocks,
            bavail: blocks,
            files: 1 << 32,
            ffree: (1 << 32) - used,
            bsize: 4096,
            frsize: 4096,
            namelen: 255,
        })
    }

    fn setxattr(&self, _req: &Request, ino: u64, name: &[u8], value: &[u8], args: &SetXattr) -> Result<()> {
        let node = self.tree.get(ino)?;
        let mut xattrs = node.xattrs.lock();
        let exists = xattrs.contains_key(name);
        if args.flags & libc::XATTR_CREATE as u32 != 0 && exists {
            return Err(Errno::EEXIST);
        }
        if args.flags & libc::XATTR_REPLACE as u32 != 0 && !exists {
            return Err(Errno::ENODATA);
        }
        xattrs.insert(name.to_vec(), Bytes::copy_from_slice(value));
        Ok(())
    }

    fn getxattr(&self, _req: &Request, ino: u64, name: &[u8]) -> Result<Bytes> {
        self.tree.get(ino)?.xattrs.lock().get(name).cloned().ok_or(Errno::ENODATA)
    }

    fn listxattr(&self, _req: &Request, ino: u64) -> Result<Bytes> {
        let node = self.tree.get(ino)?;
        let mut names = Vec::new();
        for name in node.xattrs.lock().keys() {
            names.extend_from_slice(name);
            names.push(0);
        }
        Ok(Bytes::from(names))
    }

    fn removexattr(&self, _req: &Request, ino: u64, name: &[u8]) -> Result<()> {
        self.tree.get(ino)?.xattrs.lock().remove(name).map(drop).ok_or(Errno::ENODATA)
    }

    fn getlk(&self, _req: &Request, ino: u64, lock: &Lock) -> Result<LockRange> {
        Ok(self.locks.conflict(ino, lock))
    }

    fn setlk(&self, _req: &Request, ino: u64, lock: &Lock, reply: LockReply) {
        self.locks.set(ino, lock, false, reply);
    }

    fn setlkw(&self, _req: &Request, ino: u64, lock: &Lock, reply: LockReply) {
        self.locks.set(ino, lock, true, reply);
    }

    fn interrupt(&self, unique: u64) {
        self.locks.interrupt(unique);
    }

    fn fallocate(&self, _req: &Request, ino: u64, args: &Fallocate) -> Result<()> {
        let node = self.tree.get(ino)?;
        let end = args.offset.checked_add(args.length).ok_or(Errno::EFBIG)?;
        let mut attr = node.attr.lock();
        if args.mode & libc::FALLOC_FL_KEEP_SIZE as u32 == 0 && end > attr.size {
            resize(&mut attr, end);
        }
        Ok(())
    }

    fn copy_file_range(&self, _req: &Request, args: &CopyRange) -> Result<u64> {
        let size = self.tree.get(args.ino_in)?.attr.lock().size;
        let copied = size.saturating_sub(args.offset_in).min(args.len);
        let target = self.tree.get(args.ino_out)?;
        let end = args.offset_out.checked_add(copied).ok_or(Errno::EFBIG)?;
        let mut attr = target.attr.lock();
        let size = attr.size.max(end);
        resize(&mut attr, size);
        Ok(copied)
    }
}
