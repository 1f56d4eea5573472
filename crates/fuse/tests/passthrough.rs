//! Files that the kernel reads by itself: what it does, and the rules that it holds the answers to opens to.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_fuse::flags::{Capabilities, OpenFlags};
use forebay_fuse::types::{Attr, Entry, FileAttr, Open, Opened, ROOT_INO, Read};
use forebay_fuse::{
    Backing, Errno, Filesystem, InitConfig, KernelOffer, ReadBuffer, Request, is_held_elsewhere,
};
use parking_lot::Mutex;
use rustix::io::Errno as Os;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use support::Mounted;

/// What `cached` and `passed` are to the kernel; both are the file `FILE` to whoever looks.
const CACHED: u64 = 2;
const PASSED: u64 = 1 << 62 | 2;
const FILE: u64 = 2;
const LONG: Duration = Duration::from_secs(3600);
const LEN: usize = 1 << 20;

/// How opens of `PASSED` are answered.
#[derive(Clone, Copy)]
enum How {
    Cached,
    Direct,
    Through,
    ThroughOther,
}

struct Backed {
    how: Mutex<How>,
    backings: Mutex<Vec<Backing>>,
    reads: AtomicUsize,
}

impl Backed {
    fn new() -> Backed {
        Backed { how: Mutex::new(How::Through), backings: Mutex::default(), reads: AtomicUsize::new(0) }
    }
}

fn attr(node: u64) -> FileAttr {
    let empty = Entry::negative(LONG).attr;
    match node {
        ROOT_INO => FileAttr { ino: node, mode: libc::S_IFDIR | 0o755, nlink: 2, ..empty },
        _ => FileAttr { ino: FILE, size: LEN as u64, mode: libc::S_IFREG | 0o644, nlink: 1, ..empty },
    }
}

impl Filesystem for Backed {
    fn init(&self, _: &KernelOffer) -> Result<InitConfig, Errno> {
        let plain = InitConfig::default();
        let capabilities =
            plain.capabilities | Capabilities::PASSTHROUGH | Capabilities::DIRECT_IO_ALLOW_MMAP;
        Ok(InitConfig { capabilities, max_stack_depth: 1, ..plain })
    }

    fn lookup(&self, _: &Request, _: u64, name: &[u8]) -> Result<Entry, Errno> {
        let node = match name {
            b"cached" => CACHED,
            b"passed" => PASSED,
            _ => return Err(Errno::ENOENT),
        };
        Ok(Entry { attr: attr(node), node, generation: 0, entry_ttl: LONG, attr_ttl: LONG })
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<Attr, Errno> {
        Ok(Attr { attr: attr(node), ttl: LONG })
    }

    fn open(&self, _: &Request, node: u64, _: &Open) -> Result<Opened, Errno> {
        let backing = |index: usize| Some(self.backings.lock()[index].id());
        let how = if node == CACHED { How::Cached } else { *self.how.lock() };
        let (flags, passthrough) = match how {
            How::Cached => (OpenFlags::KEEP_CACHE, None),
            How::Direct => (OpenFlags::DIRECT_IO, None),
            How::Through => (OpenFlags::NONE, backing(0)),
            How::ThroughOther => (OpenFlags::NONE, backing(1)),
        };
        Ok(Opened { fh: 1, flags, passthrough })
    }

    fn read(&self, _: &Request, _: u64, args: &Read, out: &mut ReadBuffer) -> Result<(), Errno> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        out.push_copy(&vec![b'd'; args.size as usize]);
        Ok(())
    }
}

/// A mount whose `passed` is read from a file of 'k's, registered twice. What the file is, and the mount.
fn mounted(dir: &Path) -> (File, Mounted<Backed>) {
    let path = dir.join("backing");
    fs::write(&path, vec![b'k'; LEN]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mounted = Mounted::new(Backed::new());
    let backings = (0..2).map(|_| mounted.backing.register(&file).unwrap()).collect();
    *mounted.fs.backings.lock() = backings;
    (file, mounted)
}

/// A page of a file, mapped.
struct Page(*mut u8);

impl Page {
    #[allow(unsafe_code)]
    fn of(file: &File) -> Result<Page, Os> {
        // SAFETY: a new mapping of a page that the file has.
        let at = unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Page(at.cast()))
    }

    #[allow(unsafe_code)]
    fn first(&self) -> u8 {
        // SAFETY: the mapping lives as long as `self`, and its file is not shortened.
        unsafe { self.0.read_volatile() }
    }
}

impl Drop for Page {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is this page, and nothing points into it any more.
        unsafe { munmap(self.0.cast(), 4096) }.unwrap();
    }
}

fn first(file: &File) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

#[test]
fn the_kernel_reads_and_maps_the_file_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let (backing, mounted) = mounted(dir.path());
    let file = File::open(mounted.at("passed")).unwrap();
    assert_eq!(first(&file), b'k');
    let page = Page::of(&file).unwrap();
    backing.write_all_at(b"new", 0).unwrap();
    assert_eq!((first(&file), page.first()), (b'n', b'n'));
    assert_eq!(mounted.fs.reads.load(Ordering::SeqCst), 0);
    // Given back, it serves those who have it open.
    mounted.fs.backings.lock().clear();
    assert_eq!(first(&file), b'n');
    drop((file, page));
    mounted.finish();
}

#[test]
fn one_inode_is_read_in_one_way_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (_backing, mounted) = mounted(dir.path());
    let open = |how| {
        *mounted.fs.how.lock() = how;
        File::open(mounted.at("passed")).map_err(|error| error.raw_os_error().unwrap())
    };
    let through = open(How::Through).unwrap();
    for other in [How::Cached, How::Direct, How::ThroughOther] {
        assert_eq!(open(other).unwrap_err(), libc::EIO);
    }
    open(How::Through).unwrap();
    drop(through);
    // A mapping of an open that bypasses the cache counts as one that uses it.
    let direct = open(How::Direct).unwrap();
    open(How::ThroughOther).unwrap();
    let page = Page::of(&direct).unwrap();
    assert_eq!((page.first(), open(How::Through).unwrap_err()), (b'd', libc::EIO));
    drop((page, direct));
    drop(open(How::Cached).unwrap());
    open(How::Through).unwrap();
    mounted.finish();
}

#[test]
fn another_number_of_the_same_file_is_read_in_another_way() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let (_backing, mounted) = mounted(dir.path());
    let (cached, passed) = (mounted.at("cached"), mounted.at("passed"));
    assert_eq!(fs::metadata(&cached).unwrap().ino(), fs::metadata(&passed).unwrap().ino());
    let (cached, passed) = (File::open(cached).unwrap(), File::open(passed).unwrap());
    assert_eq!((first(&cached), first(&passed)), (b'd', b'k'));
    drop((cached, passed));
    mounted.finish();
}

#[test]
fn a_mapping_that_outlives_its_open_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (backing, mounted) = mounted(dir.path());
    mounted.fs.backings.lock().truncate(1);
    assert_eq!(is_held_elsewhere(&backing), Ok(false));
    let file = File::open(mounted.at("passed")).unwrap();
    assert_eq!(is_held_elsewhere(&backing), Ok(true));
    let page = Page::of(&file).unwrap();
    drop(file);
    assert_eq!((is_held_elsewhere(&backing), page.first()), (Ok(true), b'k'));
    drop(page);
    assert_eq!(is_held_elsewhere(&backing), Ok(false));
    mounted.finish();
}

#[test]
fn what_cannot_be_registered_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (backing, mounted) = mounted(dir.path());
    let (read, _write) = rustix::pipe::pipe().unwrap();
    assert_eq!(mounted.backing.register(&read).unwrap_err(), Errno::EINVAL);
    // A mount that can pass through is stacked on others itself.
    let (_file, other) = self::mounted(tempfile::tempdir().unwrap().path());
    let stacked = File::open(other.at("cached")).unwrap();
    assert_eq!(mounted.backing.register(&stacked).unwrap_err(), Errno::ELOOP);
    drop(stacked);
    other.finish();
    let files = mounted.backing.clone();
    mounted.finish();
    assert!(files.register(&backing).is_err());
}
