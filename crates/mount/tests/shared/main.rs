//! A volume that others change too, through the kernel: what it keeps, and what it asks again after a recall.

#![allow(clippy::unwrap_used)]

mod elsewhere;
mod handed_over;
mod keeping;
#[path = "../kernel/mapping.rs"]
#[allow(dead_code)]
mod mapping;
mod recalls;
mod writing;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_fuse::{MountOptions, SessionError, SessionOptions, mount, unmount};
use forebay_mount::{Stats, VolumeFs};
use forebay_types::Ino;
use forebay_vfs::{AtimeMode, Files, KernelCaches, LockKeeper, Told, Vfs, VfsOptions};
use forebay_volume::SealedFiles;

use elsewhere::Elsewhere;

const ROOT: Ino = Ino::ROOT;
/// Far longer than anything takes: a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The volume, mounted. Unmounted when it is dropped.
struct Mounted {
    files: Arc<Elsewhere>,
    caches: Arc<dyn KernelCaches>,
    stats: Arc<Stats>,
    fs: Arc<VolumeFs>,
    dir: tempfile::TempDir,
    /// Where plain files are of those that the kernel reads by itself.
    _plain: tempfile::TempDir,
    server: Option<JoinHandle<Result<(), SessionError>>>,
}

impl Mounted {
    fn new() -> Mounted {
        Mounted::handing_over(0)
    }

    /// One that has the kernel read sealed files by itself, which take up to `size` bytes; 0: none.
    fn handing_over(size: u64) -> Mounted {
        let files = Elsewhere::new();
        let dir = tempfile::tempdir().unwrap();
        let options = VfsOptions { atime: AtimeMode::Off, locks: LockKeeper::Vfs, ..VfsOptions::default() };
        let vfs = Arc::new(Vfs::new(Arc::clone(&files) as Arc<dyn Files>, options));
        let session = mount(dir.path(), &MountOptions::default()).unwrap();
        let stats = Arc::new(Stats::default());
        let serve = SessionOptions { observer: Some(stats.clone()), ..SessionOptions::default() };
        let (fs, plain) = (VolumeFs::new(vfs, None), tempfile::tempdir().unwrap());
        let sealed = (size > 0).then(|| {
            let files = Arc::clone(&files) as Arc<dyn Files>;
            SealedFiles::start(files, plain.path(), (size, 4096)).unwrap()
        });
        let fs = Arc::new(match sealed {
            Some(sealed) => fs.with_sealed(sealed),
            None => fs,
        });
        let caches = fs.tell_recalls_by(session.notifier()).unwrap().unwrap();
        fs.connect(session.backing_files(), session.notifier());
        let served = Arc::clone(&fs);
        let server = std::thread::spawn(move || session.run(served, &serve).map(drop));
        // Answered once the mount has begun, or failed if it does not.
        rustix::fs::statfs(dir.path()).unwrap();
        Mounted { files, caches, stats, fs, dir, _plain: plain, server: Some(server) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens that the kernel was given a plain file for.
    fn through(&self) -> u64 {
        self.fs.passthrough().unwrap().opens
    }

    fn requests(&self, op: &str) -> u64 {
        self.stats.snapshot().iter().find(|stats| stats.name == op).map_or(0, |stats| stats.requests)
    }

    /// Waits until `work` is done without a request of these operations: one that is answered just before is counted late.
    fn costs_nothing(&self, ops: &[&str], work: impl Fn()) {
        let counted = || ops.iter().map(|op| self.requests(op)).sum::<u64>();
        wait_until("it costs no requests", || {
            let before = counted();
            (0..10).for_each(|_| work());
            counted() == before
        });
    }

    /// Has the kernel drop everything of an inode, and waits for it.
    fn recall(&self, ino: Ino) {
        self.wait(self.caches.drop_inode(ino, false));
    }

    fn recall_names(&self, dir: Ino) {
        self.wait(self.caches.drop_entries(dir));
    }

    fn wait(&self, told: Told) {
        let (done, returned) = mpsc::channel();
        let caches = Arc::clone(&self.caches);
        std::thread::spawn(move || {
            caches.wait(told);
            let _ = done.send(());
        });
        assert!(returned.recv_timeout(DEADLINE).is_ok(), "the kernel does not drop it");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Elsewhere { making, reading, finding, writing, .. } = &*self.files;
        [making, reading, finding, writing].iter().for_each(|gate| gate.open());
        let _ = unmount(self.dir.path(), true);
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            let _ = server.join();
        }
    }
}
