//! What is to be seen after a crash: the whole tree, every byte read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;

/// The name under which permission bits are among the attributes.
pub const MODE: &str = "mode";

/// One name that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Its inode number.
        inode: u64,
        /// How many names it says it has.
        links: u64,
        /// All its bytes.
        bytes: Vec<u8>,
        /// Its extended attributes and its permission bits.
        attributes: BTreeMap<String, Vec<u8>>,
    },
    /// A symbolic link and its target.
    Symlink(String),
    /// Something that no workload makes.
    Other,
}

/// A tree, by path relative to its root.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Everything that was found.
    pub entries: BTreeMap<String, Entry>,
    /// What could not be listed or read.
    pub unreadable: Vec<String>,
}

impl Observed {
    /// Reads the whole tree below `root`; what fails is noted, not skipped silently.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mut seen = Self::default();
        let mut todo = vec![String::new()];
        while let Some(dir) = todo.pop() {
            let listed = fs::read_dir(root.join(&dir)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let entries = match listed {
                Ok(entries) => entries,
                Err(error) => {
                    seen.unreadable.push(format!("directory /{dir} cannot be listed: {error}"));
                    continue;
                }
            };
            for entry in entries {
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                match read_entry(&root.join(&path)) {
                    Ok(found) => {
                        if found == Entry::Directory {
                            todo.push(path.clone());
                        }
                        if seen.entries.insert(path.clone(), found).is_some() {
                            seen.unreadable.push(format!("/{path} is listed twice"));
                        }
                    }
                    Err(error) => seen.unreadable.push(format!("/{path} cannot be read: {error}")),
                }
            }
        }
        seen
    }
}

fn read_entry(place: &Path) -> std::io::Result<Entry> {
    let meta = fs::symlink_metadata(place)?;
    let kind = meta.file_type();
    Ok(if kind.is_dir() {
        Entry::Directory
    } else if kind.is_symlink() {
        Entry::Symlink(fs::read_link(place)?.to_string_lossy().into_owned())
    } else if kind.is_file() {
        let bytes = fs::read(place)?;
        if bytes.len() as u64 != meta.len() {
            let told = format!("stat says {} bytes, reading gives {}", meta.len(), bytes.len());
            return Err(std::io::Error::other(told));
        }
        let mut attributes = extended(place)?;
        attributes.insert(MODE.to_owned(), (meta.mode() & 0o7777).to_le_bytes().to_vec());
        Entry::File { inode: meta.ino(), links: meta.nlink(), bytes, attributes }
    } else {
        Entry::Other
    })
}

/// The extended attributes of a file; none where there can be none.
fn extended(place: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut names = vec![0; 64 << 10];
    let len = match llistxattr(place, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(found),
        len => len?,
    };
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let len = lgetxattr(place, name, value.as_mut_slice())?;
        value.truncate(len);
        found.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(found)
}
