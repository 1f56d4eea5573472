//! A directory tree in lines of text, one an entry, sorted: what is compared between two sides and across a remount.
//!
//! A line holds name, type, mode, owner, link count, size, content digest or link target, extended attributes (ACLs
//! among them), the first name of a hard-linked inode, and times. Directory sizes, inode numbers and the layout of
//! holes are left out: they are the file system's own business.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};

use super::exec::words;
use super::exec_data::sparse_digest;
use super::op::{digest, printed};

/// Which times a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Only modification times before 2020, which somebody set: two sides agree on those.
    SetByHand,
    /// Modification times in full: a copy agrees with its source.
    Modified,
    /// Modification and change times in full: the same file system agrees with itself.
    Full,
}

/// Before this (2020-01-01) a time was set by hand.
const LONG_AGO: i64 = 1_577_836_800;

/// Why a tree could not be put into lines.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path} for the manifest: {source}")]
pub struct TreeError {
    /// What was being read.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// The lines for everything below `root`, sorted by path. Reads all contents; needs root.
pub fn manifest(root: &Path, times: Times) -> Result<Vec<String>, TreeError> {
    let mut lines = Vec::new();
    let mut first_names = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&dir)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(|source| TreeError { path: dir.clone(), source })?;
        names.sort();
        for path in names {
            let describe =
                |source: rustix::io::Errno| TreeError { path: path.clone(), source: source.into() };
            let stat = fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).map_err(describe)?;
            let name = printed(path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes());
            let first = first_names.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| name.clone()).clone();
            lines.push((name.clone(), line(&path, &stat, &name, &first, times).map_err(describe)?));
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                pending.push(path);
            }
        }
    }
    lines.sort();
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

fn line(
    path: &Path,
    stat: &Stat,
    name: &str,
    first: &str,
    times: Times,
) -> Result<String, rustix::io::Errno> {
    let mut line = format!("{name}: {}", words(stat));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME | OFlags::NOFOLLOW;
            let fd = fs::openat(CWD, path, flags, Mode::empty())?;
            line.push_str(&format!(" content={}", sparse_digest(fd.as_fd())?));
        }
        FileType::Symlink => {
            let target = fs::readlinkat(CWD, path, Vec::new())?;
            line.push_str(&format!(" target={}", printed(target.as_bytes())));
        }
        _ => {}
    }
    if first != name {
        line.push_str(&format!(" same-as={first}"));
    }
    for (xattr, value) in xattrs(path)? {
        line.push_str(&format!(" {}={}:{:016x}", printed(&xattr), value.len(), digest(&value)));
    }
    if times != Times::SetByHand || stat.st_mtime < LONG_AGO {
        line.push_str(&format!(" mtime={}.{:09}", stat.st_mtime, stat.st_mtime_nsec));
    }
    if times == Times::Full {
        line.push_str(&format!(" ctime={}.{:09}", stat.st_ctime, stat.st_ctime_nsec));
    }
    Ok(line)
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, rustix::io::Errno> {
    let mut list = vec![0; 65_536];
    let len = fs::llistxattr(path, &mut list[..])?;
    let mut found = BTreeMap::new();
    for name in list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let len = fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// The lines that only one of two manifests has: `-` of the first, `+` of the second.
pub fn differences(first: &[String], second: &[String]) -> Vec<String> {
    let only = |these: &[String], those: &[String], sign: char| -> Vec<String> {
        let known: std::collections::BTreeSet<&String> = those.iter().collect();
        these.iter().filter(|line| !known.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let mut all = only(first, second, '-');
    all.extend(only(second, first, '+'));
    all
}
