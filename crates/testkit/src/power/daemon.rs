//! The program under test: `forebay create`, `mount`, `umount` and `fsck` as processes that can be killed.
//!
//! Every wait has a condition and ends after [`PATIENCE`], with what the process had to say.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Why a crash test could not go on, or that the program under test did not do what it must.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A system call of the test itself failed.
    #[error("{what} {}: {error}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// The program ended with an error.
    #[error("`{command}` ended with {status}: {told}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its output.
        told: String,
    },
    /// The program did not end, or did not mount, in time.
    #[error("`{command}` was not done after {} s: {told}", PATIENCE.as_secs())]
    Hung {
        /// The command line.
        command: String,
        /// The end of its output.
        told: String,
    },
}

impl Trouble {
    /// What the program did wrong, in words.
    ///
    /// # Errors
    /// The trouble itself, if it is the test's own.
    pub fn into_finding(self) -> Result<String, Self> {
        if matches!(self, Self::Io { .. }) { Err(self) } else { Ok(self.to_string()) }
    }

    /// The closure that says what was tried on `path`.
    pub fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |error| Self::Io { what, path: path.to_owned(), error }
    }
}

/// The binary and how it is called.
#[derive(Debug, Clone)]
pub struct Program {
    /// The `forebay` binary.
    pub binary: PathBuf,
    /// Further arguments of `create`, such as `--durability object`.
    pub create_options: Vec<String>,
    /// Options of every `mount`, as after `-o`.
    pub mount_options: Vec<String>,
    /// Variables set for every call, such as `FOREBAY_SKIP_SYNC`.
    pub environment: Vec<(String, String)>,
    /// Where the output of all calls is appended.
    pub output: PathBuf,
}

impl Program {
    /// `create VOLUME`, with its data in the directory `store` where there is one.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn create(&self, volume: &Path, store: Option<&Path>) -> Result<(), Trouble> {
        let store = store.map(|dir| format!("--store={}", url(dir)));
        let options = self.create_options.iter().chain(&store).map(OsStr::new);
        self.call([OsStr::new("create"), volume.as_os_str()].into_iter().chain(options)).map(|_| ())
    }

    /// `create VOLUME --recover-from` the directory `store`, with the copy of its key where it is encrypted.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn recover(&self, volume: &Path, store: &Path, key: Option<&Path>) -> Result<(), Trouble> {
        let from = format!("--recover-from={}", url(store));
        let key = key.map(|key| format!("--key={}", key.display()));
        let options = [from].into_iter().chain(key).collect::<Vec<_>>();
        let options = options.iter().map(OsStr::new);
        self.call([OsStr::new("create"), volume.as_os_str()].into_iter().chain(options)).map(|_| ())
    }

    /// `gc` of what is mounted at `at`: everything is sealed, stored and checkpointed, and what is mostly garbage compacted.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn collect(&self, at: &Path) -> Result<(), Trouble> {
        self.call([OsStr::new("gc"), at.as_os_str()]).map(|_| ())
    }

    /// `fsck VOLUME`; the volume may be mounted.
    ///
    /// # Errors
    /// When it finds something, fails or hangs.
    pub fn fsck(&self, volume: &Path) -> Result<(), Trouble> {
        self.call([OsStr::new("fsck"), volume.as_os_str()]).map(|_| ())
    }

    /// How many opens of what is mounted at `at` the kernel serves by itself, by `status`.
    ///
    /// # Errors
    /// When it fails or hangs, or does not say.
    pub fn open_through(&self, at: &Path) -> Result<u64, Trouble> {
        let told = self.call([OsStr::new("status"), at.as_os_str(), OsStr::new("--json")])?;
        let status: Result<serde_json::Value, _> = serde_json::from_str(&told);
        let open = status.ok().and_then(|status| status["passthrough"]["open"].as_u64());
        open.ok_or_else(|| Trouble::io("understand the status of", at)(io::ErrorKind::InvalidData.into()))
    }

    /// The names of the places where the program syncs, by its hidden `debug-sync-points`.
    ///
    /// # Errors
    /// When it fails or hangs.
    pub fn sync_points(&self) -> Result<Vec<String>, Trouble> {
        let told = self.call([OsStr::new("debug-sync-points")])?;
        Ok(told.split_whitespace().map(str::to_owned).collect())
    }

    /// `mount -f VOLUME MNT`, with the mount options; returns when the file system answers.
    ///
    /// # Errors
    /// When it ends before, or hangs.
    pub fn mount(&self, volume: &Path, at: &Path) -> Result<Daemon, Trouble> {
        let options = self.mount_options.iter().flat_map(|option| ["-o", option.as_str()]).map(OsStr::new);
        let command = [OsStr::new("mount"), OsStr::new("-f")].into_iter().chain(options);
        let (child, text, from) = self.start(command.chain([volume.as_os_str(), at.as_os_str()]))?;
        let mut daemon = Daemon { program: self.clone(), child, at: at.to_owned(), from, text };
        let parent = at.parent().unwrap_or(at);
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A mount on another device than its parent's answers only once the daemon serves it.
            let mounted = forebay_fuse::is_mounted(at).unwrap_or(false);
            if mounted && fs::metadata(at).is_ok() && fs::metadata(parent).is_ok() {
                return Ok(daemon);
            }
            if let Some(status) = daemon.child.try_wait().map_err(Trouble::io("wait for", &self.binary))? {
                detach(at);
                return Err(Trouble::Failed {
                    command: daemon.text.clone(),
                    status,
                    told: self.told_since(from),
                });
            }
            if Instant::now() > deadline {
                daemon.kill();
                let told = self.told_since(from);
                return Err(Trouble::Hung { command: format!("mount of {}", at.display()), told });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs a command to its end and gives its output.
    fn call<'a>(&self, args: impl IntoIterator<Item = &'a OsStr>) -> Result<String, Trouble> {
        let (mut child, command, from) = self.start(args)?;
        let status = wait(&mut child).map_err(Trouble::io("wait for", &self.binary))?;
        let told = self.told_since(from);
        match status {
            Some(status) if status.success() => Ok(told),
            Some(status) => Err(Trouble::Failed { command, status, told }),
            None => Err(Trouble::Hung { command, told }),
        }
    }

    fn start<'a>(&self, args: impl IntoIterator<Item = &'a OsStr>) -> Result<(Child, String, u64), Trouble> {
        let output = || OpenOptions::new().create(true).append(true).open(&self.output);
        let both: io::Result<(File, File)> = output().and_then(|out| Ok((out.try_clone()?, out)));
        let (out, err) = both.map_err(Trouble::io("open", &self.output))?;
        let from = out.metadata().map_or(0, |meta| meta.len());
        let args: Vec<&OsStr> = args.into_iter().collect();
        let text =
            args.iter().fold("forebay".to_owned(), |text, arg| format!("{text} {}", arg.to_string_lossy()));
        let child = Command::new(&self.binary)
            .args(args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Trouble::io("start", &self.binary))?;
        Ok((child, text, from))
    }

    /// What was written to the output after its first `from` bytes: the last 2,000 characters.
    fn told_since(&self, from: u64) -> String {
        let all = fs::read(&self.output).unwrap_or_default();
        let told = all.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
        let told = told.get(told.len().saturating_sub(2000)..).unwrap_or_default();
        String::from_utf8_lossy(told).trim().to_owned()
    }
}

fn url(dir: &Path) -> String {
    format!("file://{}", dir.display())
}

/// A process that serves a mount. Dropped, it is killed and its mount detached.
#[derive(Debug)]
pub struct Daemon {
    program: Program,
    child: Child,
    at: PathBuf,
    from: u64,
    text: String,
}

impl Daemon {
    /// `kill -9`, at once; what it served is detached when this returns.
    pub fn kill(&mut self) {
        // Both fail only when it is already gone.
        drop(self.child.kill());
        drop(self.child.wait());
        detach(&self.at);
    }

    /// Sends `kill -9` and returns without waiting for anything.
    pub fn strike(&mut self) {
        drop(self.child.kill());
    }

    /// `umount MNT`, and waits until the daemon has ended.
    ///
    /// # Errors
    /// When `umount` fails, or the daemon ends with an error or not at all.
    pub fn unmount(mut self) -> Result<(), Trouble> {
        self.program.call([OsStr::new("umount"), self.at.as_os_str()])?;
        let status = wait(&mut self.child).map_err(Trouble::io("wait for", &self.program.binary))?;
        let (command, told) = (self.text.clone(), self.program.told_since(self.from));
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Trouble::Failed { command, status, told }),
            None => Err(Trouble::Hung { command, told }),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            || forebay_fuse::is_mounted(&self.at).unwrap_or(false)
        {
            self.kill();
        }
    }
}

/// Runs `body`, which uses what `daemon` serves, and kills the daemon when `progress` stands still for [`PATIENCE`] or when
/// `strike` says so, which then must make `body` end. Gives the result, and whether nothing moved any more.
pub fn supervise<R: Send>(
    daemon: &mut Daemon,
    progress: impl Fn() -> u64,
    mut strike: impl FnMut(u64) -> bool,
    body: impl FnOnce() -> R + Send,
) -> (std::thread::Result<R>, bool) {
    std::thread::scope(|scope| {
        let running = scope.spawn(body);
        let (mut last, mut since, mut hung) = (progress(), Instant::now(), false);
        while !running.is_finished() {
            let now = progress();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            hung = since.elapsed() > PATIENCE;
            if hung || strike(now) {
                daemon.strike();
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        (running.join(), hung)
    })
}

/// Takes away what is mounted at `at`, alive or dead; nothing when there is nothing.
fn detach(at: &Path) {
    while forebay_fuse::is_mounted(at).unwrap_or(false) {
        if forebay_fuse::unmount(at, true).is_err() {
            return;
        }
    }
}

/// Waits for the end of a process; one that takes longer than [`PATIENCE`] is killed, and none is returned.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
