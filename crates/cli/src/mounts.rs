//! The mount table: where volumes are mounted, and what is mounted somewhere.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::error::CliError;

const TYPE: &str = "fuse.forebay";

/// One mount of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The volume's directory.
    pub volume: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Who mounted it.
    pub uid: u32,
}

/// An entry of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    path: PathBuf,
    fstype: String,
    source: PathBuf,
    uid: u32,
}

/// All mounts of volumes, in the order in which they were made.
///
/// # Errors
/// `/proc` is not there.
pub fn all() -> io::Result<Vec<Mounted>> {
    let ours = table()?.into_iter().filter(|entry| entry.fstype == TYPE);
    Ok(ours.map(|entry| Mounted { volume: entry.source, mountpoint: entry.path, uid: entry.uid }).collect())
}

/// The volume that is mounted exactly on `path`; `None` where nothing or something else is. The server need not be alive.
///
/// # Errors
/// The path cannot be looked at.
pub fn on(path: &Path) -> io::Result<Option<Mounted>> {
    let path = resolve(path)?;
    let top = table()?.into_iter().rfind(|entry| entry.path == path);
    Ok(top.filter(|entry| entry.fstype == TYPE).map(|entry| Mounted {
        volume: entry.source,
        mountpoint: entry.path,
        uid: entry.uid,
    }))
}

/// Where the volume is mounted.
///
/// # Errors
/// As for [`all`].
pub fn of_volume(volume: &Path) -> io::Result<Option<Mounted>> {
    let volume = fs::canonicalize(volume)?;
    Ok(all()?.into_iter().rfind(|mounted| mounted.volume == volume))
}

/// The type and source of whatever is mounted exactly on `path`, which must be as [`resolve`] gives it.
pub(crate) fn anything_on(path: &Path) -> io::Result<Option<(String, PathBuf)>> {
    Ok(table()?.into_iter().rfind(|entry| entry.path == path).map(|entry| (entry.fstype, entry.source)))
}

/// The path as the mount table has it. Works also where the server of a mount is gone.
///
/// # Errors
/// The path, or its parent, cannot be looked at.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let Err(error) = fs::canonicalize(path) else { return fs::canonicalize(path) };
    let dead = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let absolute = std::path::absolute(path)?;
    match (dead, absolute.parent(), absolute.file_name()) {
        (Some(rustix::io::Errno::NOTCONN), Some(parent), Some(name)) => {
            Ok(fs::canonicalize(parent)?.join(name))
        }
        _ => Err(error),
    }
}

/// The mount of a volume that a person means by `place`: where it is mounted, or the volume itself.
pub(crate) fn meant(place: &Path) -> Result<Option<Mounted>, CliError> {
    let failed = |error| CliError::io("look at", place)(error);
    match on(place).map_err(failed)? {
        Some(mounted) => Ok(Some(mounted)),
        None => of_volume(place).map_err(failed),
    }
}

fn table() -> io::Result<Vec<Entry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// One line: `id parent major:minor root path options [tags..] - type source superoptions`.
fn parse(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = path(fields.nth(4)?);
    fields.find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = self::path(fields.next()?);
    let options = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let uid =
        options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok()).unwrap_or(0);
    Some(Entry { path, fstype, source, uid })
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .first_chunk::<3>()
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| matches!(digit, b'0'..=b'7')));
        match octal {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                plain.push(value as u8);
                rest = tail.get(3..).unwrap_or_default();
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
        let line = br"36 35 0:98 / /mnt/a\040b rw,noatime master:1 - fuse.forebay /srv/my\040volume rw,user_id=1000,group_id=7";
        let entry = parse(line).unwrap();
        assert_eq!((entry.path, entry.fstype.as_str()), (PathBuf::from("/mnt/a b"), "fuse.forebay"));
        assert_eq!((entry.source, entry.uid), (PathBuf::from("/srv/my volume"), 1000));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:98 / /mnt rw"), None);
    }

    #[test]
    fn other_mounts_are_not_ours() {
        assert_eq!(on(Path::new("/proc")).unwrap(), None);
        assert_eq!(anything_on(Path::new("/proc")).unwrap().unwrap().0, "proc");
        assert!(on(Path::new("/no/such/place")).is_err());
    }
}
