//! What a report carries about the machine and the directories it measured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model as the kernel names it.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel name, release and architecture.
    pub kernel: String,
}

impl Machine {
    /// Looks at the machine this runs on. What cannot be found out is `unknown` or 0.
    pub(crate) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let uname = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_string(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: [part(uname.sysname()), part(uname.release()), part(uname.machine())].join(" "),
        }
    }
}

/// The value of the first `key : value` line.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// A directory and the file system it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The directory, resolved.
    pub path: PathBuf,
    /// File system type, as in `/proc/self/mountinfo`.
    pub file_system: String,
    /// What is mounted: a device, or the name a file system gave itself.
    pub source: String,
    /// Mount options, then those of the file system.
    pub options: String,
}

impl Place {
    /// Resolves `path` and finds the mount it is on.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        if !path.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Ok(find_mount(&mounts, &path))
    }

    /// Whether the data is in memory anyway, so that no read is ever cold.
    pub(crate) fn in_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs")
    }
}

/// The mount with the longest mount point above `path`; of those on one mount point the last, which covers the others.
fn find_mount(mounts: &str, path: &Path) -> Place {
    let unknown = || "unknown".to_string();
    let mut best =
        (0, Place { path: path.into(), file_system: unknown(), source: unknown(), options: String::new() });
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let before: Vec<_> = before.split(' ').collect();
        let after: Vec<_> = after.split(' ').collect();
        let ([.., _, _], [kind, source, options]) = (before.as_slice(), after.as_slice()) else { continue };
        let (Some(point), Some(flags)) = (before.get(4), before.get(5)) else { continue };
        let point = PathBuf::from(unescape(point));
        let depth = point.components().count();
        if path.starts_with(&point) && depth >= best.0 {
            let options = format!("{flags} {options}");
            let place =
                Place { path: path.into(), file_system: kind.to_string(), source: unescape(source), options };
            best = (depth, place);
        }
    }
    best.1
}

/// Undoes the `\040` escapes of the mount table.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 22 0:5 / /mnt/a\\040b rw,nosuid - fuse.forebay vol\\134ume rw,user_id=0
31 22 0:6 / /mnt/a\\040b rw - tmpfs over rw,size=1k
broken line
32 22 0:7 / /mntx rw - xfs /dev/b rw
";

    #[test]
    fn the_longest_and_last_mount_point_wins() {
        let place = find_mount(MOUNTS, Path::new("/mnt/a b/c"));
        assert_eq!((place.file_system.as_str(), place.source.as_str()), ("tmpfs", "over"));
        assert!(place.in_memory());
        let place = find_mount(MOUNTS, Path::new("/mnt/other"));
        assert_eq!((place.file_system.as_str(), place.options.as_str()), ("ext4", "rw,relatime rw,discard"));
        assert_eq!(find_mount("", Path::new("/")).file_system, "unknown");
        assert_eq!(unescape("vol\\134ume"), "vol\\ume");
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let machine = Machine::here();
        assert!(machine.kernel.starts_with("Linux ") && machine.memory_bytes > 0 && machine.cores > 0);
    }
}
