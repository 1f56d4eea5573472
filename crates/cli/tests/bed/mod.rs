//! A directory with volumes and mount points, and the binary to try on them. Dropped, everything that is mounted in it is taken away.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The directory of one test.
pub struct Bed {
    dir: TempDir,
}

impl Bed {
    pub fn new() -> Bed {
        Bed { dir: TempDir::new().unwrap() }
    }

    /// A path in it, free of symlinks.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// A directory in it.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The binary, with directories of its own for sockets and logs of users other than root.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.stdin(Stdio::null()).current_dir(self.dir.path());
        for name in ["FOREBAY_LOG", "RUST_LOG", "FOREBAY_SKIP_SYNC", "FOREBAY_META", "FOREBAY_ENGINE"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs it, which must go well, and gives its standard output.
    pub fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "forebay {args:?}: {}\n{out}{err}", output.status);
        out
    }

    /// Runs it, which must be refused with this exit status and one line, and gives the line.
    pub fn refused(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "forebay {args:?}\n{out}{err}");
        assert_eq!((out.as_str(), err.lines().count()), ("", 1), "forebay {args:?}: {err}");
        assert!(err.starts_with("forebay: ") && !err.contains("panicked"), "{err}");
        err
    }

    /// Makes a volume.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.good(&["create", name]);
        self.path(name)
    }

    /// Mounts a volume on a directory, with its log in the bed.
    pub fn mount(&self, volume: &str, on: &str, more: &[&str]) -> PathBuf {
        let mountpoint = self.dir(on);
        let log = format!("{volume}.log");
        self.good(&[&["mount", volume, on, "--log", &log], more].concat());
        assert!(is_mounted(&mountpoint), "mount returned, but nothing is mounted");
        mountpoint
    }

    pub fn umount(&self, on: &str) -> Output {
        let output = self.run(&["umount", on]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!is_mounted(&self.path(on)));
        output
    }

    /// What `status --json` says of a place.
    pub fn status(&self, place: &str) -> Value {
        serde_json::from_str(&self.good(&["status", place, "--json"])).unwrap()
    }

    /// The process behind a mount.
    pub fn pid(&self, on: &str) -> u32 {
        u32::try_from(self.status(on)["pid"].as_u64().unwrap()).unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let root = self.dir.path().canonicalize().unwrap();
        // Topmost first. A mount that hangs would hang its removal, too: detached, it ends with its process.
        for mountpoint in mounts_below(&root).into_iter().rev() {
            drop(self.command().args(["umount", "--lazy", "--no-drain"]).arg(&mountpoint).output());
            if is_mounted(&mountpoint) {
                let _ = rustix::mount::unmount(&mountpoint, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

/// Ends a process that a test started, also when the test fails.
pub struct Running(pub Child);

impl Running {
    /// Waits for its end.
    pub fn end(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.0.id());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    paths.filter(|path| path.starts_with(root)).collect()
}

pub fn is_mounted(path: &Path) -> bool {
    mounts_below(path).iter().any(|mounted| mounted == path)
}

/// Names and contents of everything below a directory.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                dirs.push(path.clone());
                found.push((path, Vec::new()));
            } else {
                let bytes = fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
