//! Attributes and extended attributes.

use std::collections::BTreeMap;

use forebay_meta::{SetAttr, SetTime, SetXattr};
use forebay_protocol::{Answer, Failure, Operation};
use forebay_types::{
    FileKind, Ino, Timespec,
    limits::{XATTR_LIST_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, file_size_max},
};

use super::{Done, Node, Table};

impl Table {
    pub(super) fn change(
        &mut self,
        operation: &Operation,
        now: Timespec,
        made: Ino,
    ) -> Result<Done, Failure> {
        match operation {
            Operation::Make(parent, name, new) => self.make(*parent, name, new, (made, now)),
            Operation::Link(ino, parent, name) => self.link(*ino, *parent, name, now),
            Operation::Unlink(parent, name, open) => self.unlink(*parent, name, open, now),
            Operation::Rmdir(parent, name, open) => self.rmdir(*parent, name, open, now),
            Operation::Rename { from, name, to, new_name, mode, open } => {
                self.rename((*from, name), (*to, new_name), *mode, (open, now))
            }
            Operation::SetAttr(ino, set) => {
                let block_size = self.block_size;
                let node = self.node_mut(*ino)?;
                let mut changed = node.clone();
                set_attr(&mut changed, set, now, block_size)?;
                *node = changed;
                Ok(Done { answer: Answer::Inode(Box::new(self.answer(*ino)?)), touched: vec![*ino] })
            }
            Operation::SetAtime(ino, atime) => {
                let row = &mut self.node_mut(*ino)?.row;
                let later = row.atime < *atime;
                row.atime = row.atime.max(*atime);
                let touched = if later { vec![*ino] } else { Vec::new() };
                Ok(Done { answer: Answer::Done, touched })
            }
            Operation::SetXattr(ino, name, value, how) => {
                self.set_xattr(*ino, name, value, *how, now)?;
                Ok(Done { answer: Answer::Done, touched: vec![*ino] })
            }
            Operation::RemoveXattr(ino, name) => {
                let node = self.node_mut(*ino)?;
                if !node.xattrs.as_ref().is_some_and(|xattrs| xattrs.contains_key(name)) {
                    return Err(Failure::NoAttribute);
                }
                write_xattrs(node, &[(name.clone(), None)], now)?;
                Ok(Done { answer: Answer::Done, touched: vec![*ino] })
            }
            _ => Err(Failure::Invalid),
        }
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        now: Timespec,
    ) -> Result<(), Failure> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX || value.len() > XATTR_VALUE_MAX {
            return Err(Failure::Invalid);
        }
        let node = self.node_mut(ino)?;
        let exists = node.xattrs.as_ref().is_some_and(|xattrs| xattrs.contains_key(name));
        match (how, exists) {
            (SetXattr::Create, true) => return Err(Failure::AttributeExists),
            (SetXattr::Replace, false) => return Err(Failure::NoAttribute),
            _ => {}
        }
        write_xattrs(node, &[(name.to_vec(), Some(value.to_vec()))], now)
    }
}

fn set_attr(node: &mut Node, set: &SetAttr, now: Timespec, block_size: u32) -> Result<(), Failure> {
    if let Some(size) = set.size {
        match node.row.kind {
            FileKind::Regular if size > file_size_max(block_size) => return Err(Failure::FileTooLarge),
            FileKind::Regular => (node.row.size, node.row.mtime) = (size, now),
            FileKind::Directory => return Err(Failure::IsDirectory),
            _ => return Err(Failure::Invalid),
        }
    }
    if !set.xattrs.is_empty() {
        write_xattrs(node, &set.xattrs, now)?;
    }
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    if let (Some(mtime), Some(directory)) = (set.mtime, &mut node.directory) {
        (directory.mtime, directory.ctime) = (time(mtime), now);
    }
    let row = &mut node.row;
    row.mode = set.mode.unwrap_or(row.mode);
    row.uid = set.uid.unwrap_or(row.uid);
    row.gid = set.gid.unwrap_or(row.gid);
    row.atime = set.atime.map_or(row.atime, time);
    row.mtime = set.mtime.map_or(row.mtime, time);
    row.ctime = set.ctime.unwrap_or(now);
    Ok(())
}

fn write_xattrs(node: &mut Node, set: &[(Vec<u8>, Option<Vec<u8>>)], now: Timespec) -> Result<(), Failure> {
    let mut xattrs: BTreeMap<Vec<u8>, Vec<u8>> = node.xattrs.clone().unwrap_or_default();
    let mut added = false;
    for (name, value) in set {
        match value {
            Some(value) => added |= xattrs.insert(name.clone(), value.clone()).is_none(),
            None => drop(xattrs.remove(name)),
        }
    }
    let total: usize = xattrs.keys().map(|name| name.len() + 1).sum();
    if added && total > XATTR_LIST_MAX {
        return Err(Failure::TooManyAttributes);
    }
    (node.row.has_xattrs, node.row.ctime) = (!xattrs.is_empty(), now);
    node.xattrs = Some(xattrs);
    Ok(())
}
