//! A file system of one file, `file`, whose operations can be watched, blocked and made to fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_fuse::flags::{Capabilities, OpenFlags};
use forebay_fuse::types::*;
use forebay_fuse::{Agreed, Errno, Filesystem, InitConfig, KernelOffer, ReadBuffer, Request};
use parking_lot::{Condvar, Mutex};

pub const FILE: u64 = 2;
const LONG: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub struct Probe {
    pub size: AtomicU64,
    /// Lookups of `file`, of `missing`.
    pub lookups: [AtomicUsize; 2],
    pub getattrs: AtomicUsize,
    /// Reads that are inside the method.
    pub reading: AtomicUsize,
    pub destroyed: AtomicBool,
    pub last_request: Mutex<Option<Request>>,
    pub flags: OpenFlags,
    /// What a read answers, piece by piece; nothing: zeros.
    pub pieces: Mutex<Vec<Bytes>>,
    /// What was agreed when it began.
    pub agreed: Mutex<Option<Agreed>>,
    /// The scheduling policies that lookups ran under.
    pub policies: Mutex<BTreeSet<u32>>,
    blocked: Mutex<bool>,
    released: Condvar,
}

/// The scheduling policy of a thread, by its `stat` file; `None` if it is gone.
pub fn policy_in(stat: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(stat).ok()?;
    // The name, in brackets, may have spaces; the policy is the 39th field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.parse().ok()
}

impl Probe {
    pub fn of_size(size: u64) -> Probe {
        Probe { size: AtomicU64::new(size), ..Probe::default() }
    }

    pub fn opened_with(flags: OpenFlags, size: u64) -> Probe {
        Probe { flags, ..Probe::of_size(size) }
    }

    /// From now on reads wait.
    pub fn block(&self) {
        *self.blocked.lock() = true;
    }

    /// Lets all reads go.
    pub fn release(&self) {
        *self.blocked.lock() = false;
        self.released.notify_all();
    }

    fn attr(&self, ino: u64) -> FileAttr {
        let mode = if ino == ROOT_INO { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
        let size = if ino == FILE { self.size.load(Ordering::SeqCst) } else { 0 };
        let empty = Entry::negative(Duration::ZERO).attr;
        FileAttr { ino, size, mode, nlink: 1, blksize: 4096, ..empty }
    }
}

impl Filesystem for Probe {
    fn init(&self, _offer: &KernelOffer) -> Result<InitConfig, Errno> {
        let plain = InitConfig::default();
        // Without this the kernel drops cached pages when it sees another size.
        Ok(InitConfig { capabilities: plain.capabilities | Capabilities::EXPLICIT_INVAL_DATA, ..plain })
    }

    fn started(&self, agreed: &Agreed) {
        *self.agreed.lock() = Some(*agreed);
    }

    fn destroy(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
    }

    fn lookup(&self, req: &Request, _parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        *self.last_request.lock() = Some(*req);
        self.policies.lock().extend(policy_in("/proc/thread-self/stat"));
        match name {
            b"file" => {
                self.lookups[0].fetch_add(1, Ordering::SeqCst);
                Ok(Entry {
                    attr: self.attr(FILE),
                    node: FILE,
                    generation: 0,
                    entry_ttl: LONG,
                    attr_ttl: LONG,
                })
            }
            b"missing" => {
                self.lookups[1].fetch_add(1, Ordering::SeqCst);
                Ok(Entry::negative(LONG))
            }
            b"panic" => panic!("as asked"),
            _ => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: u64, _fh: Option<u64>) -> Result<Attr, Errno> {
        self.getattrs.fetch_add(1, Ordering::SeqCst);
        Ok(Attr { attr: self.attr(ino), ttl: LONG })
    }

    fn statx(&self, _req: &Request, ino: u64, _args: &Statx) -> Result<StatxReply, Errno> {
        let attr = self.attr(ino);
        let btime = Some(Timestamp { secs: 1_000, nanos: 7 });
        Ok(StatxReply { attr, btime, attributes: 0, attributes_mask: 0, ttl: LONG })
    }

    fn lseek(&self, _req: &Request, _ino: u64, _fh: u64, offset: i64, whence: u32) -> Result<u64, Errno> {
        match whence as i32 {
            libc::SEEK_HOLE => Ok(self.size.load(Ordering::SeqCst)),
            _ => Ok(offset as u64 + 10),
        }
    }

    fn ioctl(&self, _req: &Request, _ino: u64, args: &Ioctl, data: &[u8]) -> Result<IoctlReply, Errno> {
        // The two that read and set the flags that chattr knows.
        match (args.out_size, data.len()) {
            (4, 0) => Ok(IoctlReply { result: 0, data: Bytes::copy_from_slice(&0x10u32.to_ne_bytes()) }),
            (0, 4) => Err(Errno::EPERM),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn open(&self, _req: &Request, _ino: u64, _args: &Open) -> Result<Opened, Errno> {
        Ok(Opened { fh: 7, flags: self.flags, ..Opened::default() })
    }

    fn read(&self, _req: &Request, _ino: u64, args: &Read, out: &mut ReadBuffer) -> Result<(), Errno> {
        assert_eq!(args.fh, 7);
        self.reading.fetch_add(1, Ordering::SeqCst);
        let mut blocked = self.blocked.lock();
        while *blocked {
            self.released.wait(&mut blocked);
        }
        drop(blocked);
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let pieces = self.pieces.lock();
        if pieces.is_empty() {
            let left = self.size.load(Ordering::SeqCst).saturating_sub(args.offset);
            out.push_zeros(left.min(u64::from(args.size)) as usize);
        }
        pieces.iter().for_each(|piece| out.push(piece.clone()));
        Ok(())
    }
}
