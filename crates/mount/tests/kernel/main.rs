//! A volume through the kernel: what applications see.

#![allow(clippy::unwrap_used)]

mod accounts;
mod data;
mod handles;
mod held;
mod listing;
mod locks;
mod mapping;
mod names;
mod passthrough;
mod permissions;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_fuse::{MountOptions, Notifier, SessionError, SessionOptions, UnmountError, mount, unmount};
use forebay_mount::{Stats, VolumeFs};
use forebay_vfs::{Files, Vfs, VfsOptions};
use forebay_volume::{CreateOptions, OpenOptions, Volume, create};

/// Far longer than anything takes: a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A mounted volume. `vol` and `mnt` are in a temporary directory that goes when this is dropped.
struct Mounted {
    dir: Option<tempfile::TempDir>,
    mountpoint: PathBuf,
    stats: Arc<Stats>,
    vfs: Option<Arc<Vfs>>,
    fs: Option<Arc<VolumeFs>>,
    notifier: Notifier,
    server: Option<JoinHandle<Result<(), SessionError>>>,
}

impl Mounted {
    fn new() -> Mounted {
        Mounted::with(VfsOptions::default())
    }

    fn with(options: VfsOptions) -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("vol"), &CreateOptions::default()).unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Mounted::of(dir, options)
    }

    fn of(dir: tempfile::TempDir, options: VfsOptions) -> Mounted {
        Mounted::served(dir, &OpenOptions::default(), options, || {})
    }

    /// `before` runs in the thread that serves, before it does.
    fn served(
        dir: tempfile::TempDir,
        open: &OpenOptions,
        options: VfsOptions,
        before: impl FnOnce() + Send + 'static,
    ) -> Mounted {
        let volume = Volume::open(&dir.path().join("vol"), open).unwrap();
        let vfs = Arc::new(Vfs::new(Arc::clone(&volume) as Arc<dyn Files>, options));
        let mountpoint = dir.path().join("mnt");
        let options = MountOptions {
            allow_other: true,
            nosuid: false,
            nodev: false,
            read_only: open.read_only,
            ..MountOptions::default()
        };
        let session = mount(&mountpoint, &options).unwrap();
        let stats = Arc::new(Stats::default());
        let serve = SessionOptions { observer: Some(stats.clone()), ..SessionOptions::default() };
        let fs = Arc::new(VolumeFs::new(Arc::clone(&vfs), Some(volume)));
        let notifier = session.notifier();
        fs.tell_accesses_by(notifier.clone()).unwrap();
        fs.connect(session.backing_files(), notifier.clone());
        let served = Arc::clone(&fs);
        let server = std::thread::spawn(move || {
            before();
            session.run(served, &serve).map(drop)
        });
        // Answered once the mount has begun, or failed if it does not.
        rustix::fs::statfs(&mountpoint).unwrap();
        let (vfs, fs, server) = (Some(vfs), Some(fs), Some(server));
        Mounted { dir: Some(dir), mountpoint, stats, vfs, fs, notifier, server }
    }

    fn root(&self) -> &Path {
        &self.mountpoint
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    fn volume(&self) -> &Volume {
        self.fs.as_ref().unwrap().volume().unwrap()
    }

    fn vfs(&self) -> &Vfs {
        self.vfs.as_ref().unwrap()
    }

    /// Requests of an operation so far.
    fn requests(&self, op: &str) -> u64 {
        self.stats.snapshot().iter().find(|stats| stats.name == op).map_or(0, |stats| stats.requests)
    }

    /// Waits until so many requests of these operations were counted, which is a moment after each was answered.
    fn wait_for_requests(&self, ops: &[&str], count: u64) {
        let counted = || ops.iter().map(|op| self.requests(op)).sum::<u64>();
        wait_until("the requests are counted", || counted() >= count);
        assert_eq!(counted(), count, "{ops:?}");
    }

    /// Waits until `work` is done without a request of these operations. One that is answered just before is counted late.
    fn costs_nothing(&self, ops: &[&str], work: impl Fn()) {
        let counted = || ops.iter().map(|op| self.requests(op)).sum::<u64>();
        wait_until("it costs no requests", || {
            let before = counted();
            (0..10).for_each(|_| work());
            counted() == before
        });
    }

    /// Unmounts, which must be possible, and closes the volume.
    fn stop(&mut self) -> tempfile::TempDir {
        wait_until("it is unmounted", || match unmount(&self.mountpoint, false) {
            // A process that another test is just starting has copies of all open files until it runs its program.
            Err(UnmountError::Busy(_)) => false,
            other => other.map(|()| true).unwrap(),
        });
        let server = self.server.take().unwrap();
        wait_until("the session ends", || server.is_finished());
        server.join().unwrap().unwrap();
        let vfs = self.vfs.take().unwrap();
        vfs.sync_all().unwrap();
        self.volume().close().unwrap();
        self.fs = None;
        drop(vfs);
        self.dir.take().unwrap()
    }

    /// Unmounts, closes the volume, opens and mounts it again.
    fn again(mut self) -> Mounted {
        Mounted::of(self.stop(), VfsOptions::default())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // Already unmounted is as good; the test has failed or is over.
            let _ = unmount(&self.mountpoint, true);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}
