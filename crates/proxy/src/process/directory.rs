//! A proxy's directory: its marker, its lock, and the refusal of directories that are not its own.
//!
//! Nothing is made in a directory before it is known to be empty or to have our marker. The marker is synced before it gets its name, and its name before
//! there is anything else: one that does not check was damaged.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use forebay_env::FileLock;
use forebay_group::{GroupId, MemberId};

const MARKER: &str = "forebay-proxy";
const MARKER_NEW: &str = "forebay-proxy.new";
const LOCK: &str = "lock";
const LOG: &str = "log";
const MAGIC: [u8; 8] = *b"FBPROXY\0";
const VERSION: u32 = 1;
const MARKER_BYTES: usize = 56;
/// Files by which other parts mark their directories, and what these are.
const OTHERS: [(&str, &str); 2] =
    [("forebay-cache", "the cache of a mount"), ("forebay.volume", "a volume of one machine")];

/// Why a directory cannot be a proxy's. Its text is a line for a person.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It holds files, and the mark of a proxy is not among them.
    #[error("'{}' is {what}; give a proxy an empty or a new directory of its own", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What it seems to be.
        what: String,
    },
    /// It is a member of another group.
    #[error(
        "'{}' belongs to a member of another group ({found}, not {wanted}): a proxy changes groups with an empty directory",
        dir.display()
    )]
    OtherGroup {
        /// The directory.
        dir: PathBuf,
        /// Its group.
        found: GroupId,
        /// The group that was named.
        wanted: GroupId,
    },
    /// It was copied from elsewhere.
    #[error(
        "'{}' is a copy of the directory of member {member}: two members with one identity would lose data; empty it, and it begins as a new member",
        dir.display()
    )]
    Copied {
        /// The directory.
        dir: PathBuf,
        /// Whose directory was copied.
        member: MemberId,
    },
    /// Another process has it open.
    #[error("'{}' is in use by another proxy on this machine", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A later release wrote it.
    #[error("'{}' was written by a later release (format {found}, this one knows {VERSION}): use that one", dir.display())]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its marker does not check.
    #[error("'{}', which marks a proxy's directory, is damaged: look at the disk; an emptied directory begins as a new member", file.display())]
    Damaged {
        /// The marker.
        file: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} '{}': {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; a proxy writes to its directory: is the disk failing?",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; a proxy's disk needs room for --cache-size"
        }
        _ => "",
    }
}

/// A directory that is this process's, while this lives.
#[derive(Debug)]
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub member: MemberId,
    _lock: FileLock,
}

impl Directory {
    /// Makes `path` the directory of a new member of `group`, or finds that it is one's, and locks it.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing was changed then but, at most, a lock file made.
    pub fn claim(path: &Path, group: GroupId) -> Result<Directory, DirectoryError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(io_error("make the directory", path))?;
        let marker = path.join(MARKER);
        if !marker.try_exists().map_err(io_error("look at", &marker))? {
            refuse_foreign(path)?;
        }
        let lock = lock(path)?;
        let identity = path.metadata().map_err(io_error("look at", path))?.ino();
        let member = match fs::read(&marker) {
            Ok(bytes) => check_marker(path, &bytes, group, identity)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => write_marker(path, group, identity)?,
            Err(source) => return Err(DirectoryError::Io { action: "read", path: marker, source }),
        };
        Ok(Directory { path: path.to_owned(), member, _lock: lock })
    }
}

impl Directory {
    /// Where the log is; the directory is made where there is none, and its name is on stable storage.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn log(&self) -> Result<PathBuf, DirectoryError> {
        let path = self.path.join(LOG);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DirectoryError::Io { action: "make the directory", path, source: error });
            }
            _ => {}
        }
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(io_error("sync", &self.path))?;
        Ok(path)
    }
}

/// A directory without a marker may hold nothing but what an interrupted first start leaves behind.
fn refuse_foreign(dir: &Path) -> Result<(), DirectoryError> {
    let foreign = |what: String| Err(DirectoryError::Foreign { dir: dir.to_owned(), what });
    for (name, what) in OTHERS {
        if dir.join(name).exists() {
            return foreign(what.to_owned());
        }
    }
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        if name != LOCK && name != MARKER_NEW && name != MARKER && name != "lost+found" {
            return foreign(format!("no proxy's directory and not empty (it holds '{}')", name.display()));
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<FileLock, DirectoryError> {
    let path = dir.join(LOCK);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(io_error("open", &path))?;
    let lock = FileLock::take(file).map_err(io_error("lock", &path))?;
    lock.ok_or_else(|| DirectoryError::InUse { dir: dir.to_owned() })
}

fn check_marker(dir: &Path, bytes: &[u8], group: GroupId, identity: u64) -> Result<MemberId, DirectoryError> {
    let damaged = || DirectoryError::Damaged { file: dir.join(MARKER) };
    let bytes: &[u8; MARKER_BYTES] = bytes.try_into().map_err(|_| damaged())?;
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes[..8] != MAGIC || u32_at(52) != crc32c::crc32c(&bytes[..52]) {
        return Err(damaged());
    }
    if u32_at(8) != VERSION {
        return Err(DirectoryError::Newer { dir: dir.to_owned(), found: u32_at(8) });
    }
    let (mut member, mut found) = (MemberId([0; 16]), GroupId([0; 16]));
    member.0.copy_from_slice(&bytes[12..28]);
    found.0.copy_from_slice(&bytes[28..44]);
    if found != group {
        return Err(DirectoryError::OtherGroup { dir: dir.to_owned(), found, wanted: group });
    }
    if u64::from(u32_at(44)) | u64::from(u32_at(48)) << 32 != identity {
        return Err(DirectoryError::Copied { dir: dir.to_owned(), member });
    }
    Ok(member)
}

fn write_marker(dir: &Path, group: GroupId, identity: u64) -> Result<MemberId, DirectoryError> {
    let path = dir.join(MARKER_NEW);
    let write = || {
        let member = MemberId(forebay_env::random()?);
        let mut bytes = [0; MARKER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&member.0);
        bytes[28..44].copy_from_slice(&group.0);
        bytes[44..52].copy_from_slice(&identity.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&path, dir.join(MARKER))?;
        File::open(dir)?.sync_all()?;
        Ok(member)
    };
    write().map_err(io_error("write", &path))
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use super::*;

    const GROUP: GroupId = GroupId([7; 16]);

    fn refused(dir: &Path, group: GroupId) -> String {
        let before: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let error = Directory::claim(dir, group).unwrap_err().to_string();
        let after = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(after.filter(|name| name != LOCK).all(|name| before.contains(&name)), "it was touched");
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn a_directory_keeps_its_member() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = Directory::claim(&path, GROUP).unwrap();
        assert!(refused(&path, GROUP).contains("in use by another proxy"));
        let member = first.member;
        drop(first);
        assert_eq!(Directory::claim(&path, GROUP).unwrap().member, member);
        assert!(refused(&path, GroupId([8; 16])).contains("another group"));
    }

    #[test]
    fn what_is_another_s_is_refused_and_left_alone() {
        for (file, part) in [
            ("forebay-cache", "the cache of a mount"),
            ("forebay.volume", "a volume of one machine"),
            ("photo.jpg", "it holds 'photo.jpg'"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(file), "x").unwrap();
            let error = refused(dir.path(), GROUP);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_copy_is_refused_and_so_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        drop(Directory::claim(&one, GROUP).unwrap());
        fs::create_dir(&two).unwrap();
        fs::copy(one.join(MARKER), two.join(MARKER)).unwrap();
        assert!(refused(&two, GROUP).contains("is a copy of the directory of member"));
        let good = fs::read(one.join(MARKER)).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            fs::write(one.join(MARKER), &bytes).unwrap();
            assert!(refused(&one, GROUP).contains("is damaged"), "byte {at}");
        }
        fs::write(one.join(MARKER), &good[..30]).unwrap();
        assert!(refused(&one, GROUP).contains("is damaged"));
        let mut later = good;
        later[8] = 2;
        let crc = crc32c::crc32c(&later[..52]);
        later[52..].copy_from_slice(&crc.to_le_bytes());
        fs::write(one.join(MARKER), &later).unwrap();
        assert!(refused(&one, GROUP).contains("a later release"));
    }

    #[test]
    fn a_file_in_place_of_a_directory_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let error = Directory::claim(&path, GROUP).unwrap_err().to_string();
        assert!(error.contains("cannot") && error.contains("file"), "{error}");
    }
}
