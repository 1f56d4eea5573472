//! The mount table of this process: `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What is mounted somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Major and minor device number.
    pub device: (u32, u32),
    /// The mount point, absolute and free of symlinks.
    pub path: PathBuf,
    /// The type, such as `ext4` or `fuse.forebay`.
    pub fstype: String,
    /// What is mounted: a device, or the name that the file system gave itself.
    pub source: PathBuf,
    /// The user who mounted it, of FUSE mounts; 0 of others.
    pub uid: u32,
}

impl Mounted {
    /// Whether a FUSE server answers for it.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.fstype == "fuse" || self.fstype.starts_with("fuse.")
    }
}

/// All mounts that this process sees, in the order in which they were made; of several on one path the last is on top.
///
/// # Errors
/// `/proc` is not there.
pub fn mount_table() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The topmost mount exactly on `path`, which must be as [`resolve`](super::resolve) gives it.
pub(crate) fn find(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(mount_table()?.into_iter().rfind(|mounted| mounted.path == path))
}

/// One line: `id parent major:minor root path options [tags..] - type source superoptions`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let path = fields.nth(1)?;
    fields.find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = fields.next()?;
    let options = String::from_utf8_lossy(fields.next().unwrap_or_default());
    let uid = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    let plain = |field| PathBuf::from(OsString::from_vec(unescape(field)));
    Some(Mounted {
        device: (major.parse().ok()?, minor.parse().ok()?),
        path: plain(path),
        fstype,
        source: plain(source),
        uid: uid.unwrap_or(0),
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .first_chunk::<3>()
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match octal {
            Some(digits) => {
                let value = digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                plain.push(value as u8);
                rest = &rest[4..];
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = br"36 35 0:98 /mnt1 /mnt/a\040b rw,noatime master:1 shared:2 - fuse.forebay vol\134x rw,user_id=1000,group_id=7";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.device, (0, 98));
        assert_eq!(mounted.path, Path::new("/mnt/a b"));
        assert_eq!(mounted.fstype, "fuse.forebay");
        assert_eq!((mounted.source.as_path(), mounted.uid), (Path::new(r"vol\x"), 1000));
        assert!(mounted.is_fuse());
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:98 / /mnt rw"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/proc")).unwrap().is_some_and(|mounted| mounted.fstype == "proc"));
        assert_eq!(find(Path::new("/proc/self")).unwrap(), None);
    }
}
