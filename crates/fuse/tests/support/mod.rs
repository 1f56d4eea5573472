//! Mounts for tests: served by a thread, gone when dropped.
#![allow(dead_code)]

pub mod probe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_fuse::{
    BackingFiles, Filesystem, MountOptions, Notifier, Pauser, Session, SessionError, SessionOptions,
    Transport, URING_PARAMETER, UnmountError, mount, unmount,
};
use parking_lot::Mutex;

/// Far longer than anything takes: a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether these tests are those of `uring.rs`, which runs the others' over io_uring.
pub fn over_uring() -> bool {
    module_path!().starts_with("uring")
}

/// Whether the kernel can be told to use io_uring. Where it cannot, `uring.rs` shows that mounts do without.
pub fn uring_exists() -> bool {
    Path::new(URING_PARAMETER).exists()
}

/// Lets new mounts use io_uring, for as long as it lives; then it is as before.
struct UringAllowed {
    before: String,
}

/// The parameter is the machine's.
static PARAMETER: Mutex<()> = Mutex::new(());

impl UringAllowed {
    fn new() -> UringAllowed {
        let before = std::fs::read_to_string(URING_PARAMETER).unwrap();
        std::fs::write(URING_PARAMETER, "Y").unwrap();
        UringAllowed { before }
    }
}

impl Drop for UringAllowed {
    fn drop(&mut self) {
        let _ = std::fs::write(URING_PARAMETER, self.before.trim());
    }
}

pub struct Mounted<F> {
    pub fs: Arc<F>,
    pub notifier: Notifier,
    pub pauser: Pauser,
    pub backing: BackingFiles,
    dir: tempfile::TempDir,
    server: Option<JoinHandle<Result<(), SessionError>>>,
}

impl<F: Filesystem> Mounted<F> {
    pub fn new(fs: F) -> Mounted<F> {
        Mounted::with(fs, SessionOptions::default())
    }

    pub fn with(fs: F, options: SessionOptions) -> Mounted<F> {
        Mounted::run_by(fs, options, |session, fs, options| session.run(fs, options).map(drop))
    }

    /// Served by whatever `run` does.
    pub fn run_by(
        fs: F,
        options: SessionOptions,
        run: impl FnOnce(Session, Arc<F>, &SessionOptions) -> Result<(), SessionError> + Send + 'static,
    ) -> Mounted<F> {
        let transport = if over_uring() { Transport::IoUring } else { Transport::DevFuse };
        let options = SessionOptions { transport, ..options };
        let _one_at_a_time = PARAMETER.lock();
        let _allowed = (over_uring() && uring_exists()).then(UringAllowed::new);
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(fs);
        let session = mount(dir.path(), &MountOptions::default()).unwrap();
        let notifier = session.notifier();
        let pauser = session.pauser();
        let backing = session.backing_files();
        let served = Arc::clone(&fs);
        let server = std::thread::spawn(move || run(session, served, &options));
        // Answered once the mount has begun, or failed if it does not.
        let _ = rustix::fs::statfs(dir.path());
        Mounted { fs, notifier, pauser, backing, dir, server: Some(server) }
    }
}

impl<F> Mounted<F> {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn has_ended(&self) -> bool {
        self.server.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the session has ended by itself.
    pub fn join(mut self) -> Result<(), SessionError> {
        wait_until("the session ends", || self.has_ended());
        self.server.take().unwrap().join().unwrap()
    }

    /// Unmounts, which must be possible, and waits for the session's end. A process that another test is just starting
    /// has copies of all open files until it runs its program, so the mount may be busy for a moment.
    pub fn finish(self) {
        wait_until("it is unmounted", || match unmount(self.path(), false) {
            Err(UnmountError::Busy(_)) => false,
            other => other.map(|()| true).unwrap(),
        });
        self.join().unwrap();
    }
}

impl<F> Drop for Mounted<F> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // Already unmounted is as good; the test has failed or is over.
            let _ = unmount(self.dir.path(), true);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}
