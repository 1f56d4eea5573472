//! The steps that a case is made of, and the names they use.
//!
//! Paths are relative to the case's directory; `%XX` in a path is the byte XX, so that a path may hold any bytes and
//! a step can still be printed and sent as JSON.

use serde::{Deserialize, Serialize};

/// What a system call gave: a printed value that is the same on every correct file system, or the errno's name.
pub type Outcome = Result<String, String>;

/// Where a file descriptor is kept between steps. Each user's worker has its own.
pub type Slot = u8;

/// A time argument of `utimensat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// `UTIME_NOW`.
    Now,
    /// `UTIME_OMIT`.
    Omit,
    /// Seconds since the epoch and nanoseconds.
    At(i64, i64),
}

/// What `lseek` measures from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whence {
    /// From the start.
    Set,
    /// From the current position.
    Current,
    /// From the end.
    End,
    /// To the next data.
    Data,
    /// To the next hole.
    Hole,
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// A regular file.
    File,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with major and minor number.
    Char(u32, u32),
    /// A block device with major and minor number.
    Block(u32, u32),
}

/// One system call, or a short fixed sequence of them with one printable result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Op {
    Umask(u32),
    /// Waits until the coarse clock that stamps inodes has moved.
    Tick,
    Open {
        slot: Slot,
        path: String,
        flags: i32,
        mode: u32,
    },
    Close {
        slot: Slot,
    },
    /// Reads from the file position.
    Read {
        slot: Slot,
        len: usize,
    },
    /// Writes at the file position: `len` bytes of the pattern `seed`.
    Write {
        slot: Slot,
        len: usize,
        seed: u64,
    },
    Pread {
        slot: Slot,
        at: u64,
        len: usize,
    },
    Pwrite {
        slot: Slot,
        at: u64,
        len: usize,
        seed: u64,
    },
    Seek {
        slot: Slot,
        whence: Whence,
        to: i64,
    },
    Ftruncate {
        slot: Slot,
        size: u64,
    },
    Fallocate {
        slot: Slot,
        mode: i32,
        at: u64,
        len: u64,
    },
    CopyRange {
        from: Slot,
        at: u64,
        to: Slot,
        to_at: u64,
        len: usize,
    },
    Fsync {
        slot: Slot,
        data_only: bool,
    },
    Fstat {
        slot: Slot,
    },
    Fchmod {
        slot: Slot,
        mode: u32,
    },
    /// Gives the unnamed file of `slot` a name, by way of `/proc/self/fd`.
    LinkSlot {
        slot: Slot,
        path: String,
    },
    /// Opens `path` relative to the directory of `slot`.
    OpenAt {
        dir: Slot,
        slot: Slot,
        path: String,
        flags: i32,
    },
    /// Walks SEEK_DATA and SEEK_HOLE and checks them against what is read.
    Holes {
        slot: Slot,
    },
    /// Whole content, as length and digest.
    Content {
        path: String,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    Link {
        from: String,
        to: String,
        follow: bool,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Mknod {
        path: String,
        node: Node,
        mode: u32,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    Utimens {
        path: String,
        access: When,
        modify: When,
        follow: bool,
    },
    Access {
        path: String,
        mode: i32,
    },
    Stat {
        path: String,
        follow: bool,
    },
    /// The exact access and modification times.
    Times {
        path: String,
    },
    /// Which of atime, mtime and ctime moved since the last `Changed` on this path.
    Changed {
        path: String,
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        seed: u64,
        flags: u32,
    },
    GetXattr {
        path: String,
        name: String,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    ListXattr {
        path: String,
    },
    /// Sets a POSIX ACL from (tag, permissions, id) entries.
    SetAcl {
        path: String,
        default: bool,
        entries: Vec<(u16, u16, u32)>,
    },
    GetAcl {
        path: String,
        default: bool,
    },
    List {
        path: String,
    },
    /// Makes (or unlinks) `count` empty files whose names start with `prefix`.
    Fill {
        path: String,
        prefix: String,
        count: usize,
        remove: bool,
    },
    /// Reads a directory in small pieces while names come and go, and checks that each lasting name came once.
    Churn {
        path: String,
        lasting: usize,
    },
    /// Reads a directory, then again from each cookie, and checks that the rest is the same.
    Cookies {
        path: String,
    },
    Statfs {
        path: String,
    },
    /// Copies `/bin/true` to `path` with `mode` and runs it.
    Execute {
        path: String,
        mode: u32,
    },
}

/// One step of a case: who does what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Index into [`USERS`].
    pub user: usize,
    /// What is done.
    pub op: Op,
}

/// The users that cases act as: (uid, gid). The first is root; the second and fourth share a group.
pub const USERS: [(u32, u32); 4] = [(0, 0), (10_001, 10_001), (10_002, 10_002), (10_003, 10_001)];

/// A case: a name and its steps.
#[derive(Clone, Debug)]
pub struct Script {
    /// Names the case's directory and stands in reports.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
    user: usize,
}

impl Script {
    /// An empty case that starts as root.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), steps: Vec::new(), user: 0 }
    }

    /// Who does the steps added from here on.
    pub fn by(&mut self, user: usize) -> &mut Self {
        self.user = user;
        self
    }

    /// Adds a step.
    pub fn op(&mut self, op: Op) -> &mut Self {
        self.steps.push(Step { user: self.user, op });
        self
    }
}

/// The bytes that a printed path stands for.
pub fn raw(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%' && tail.len() >= 2)
            .then(|| std::str::from_utf8(&tail[..2]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// The printed form of a name: [`raw`] gives the bytes back.
pub fn printed(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if (byte.is_ascii_graphic() || byte == b' ') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The byte at position `at` of pattern `seed`: never zero, so that a hole read by mistake shows.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| {
            let mixed = (seed.wrapping_add(at / 8)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            ((mixed >> (8 * (at % 8))) as u8) | 1
        })
        .collect()
}

/// FNV-1a over 64 bits: tells contents apart; no defence against anybody.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_printing() {
        let bytes: Vec<u8> = (1..=255).collect();
        assert_eq!(raw(&printed(&bytes)), bytes);
        assert_eq!(raw("100%"), b"100%");
    }

    #[test]
    fn patterns_differ_by_seed_and_hold_no_zero() {
        assert_ne!(pattern(1, 64), pattern(2, 64));
        assert!(!pattern(3, 4096).contains(&0));
        assert_eq!(pattern(5, 100)[..50], pattern(5, 50));
    }
}
