//! Where the comparison works: a directory with a volume, a mount point and a directory to compare with, all on one file system.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use forebay_bench::Warmed;
use serde_json::Value;

use super::{Bucket, Trouble};
use crate::{
    commands::bench::{ask, volume_of},
    error::CliError,
    mounts::Mounted,
    output,
};

/// The directory, and the program that makes and mounts the volumes. Removed with all that is in it when dropped.
pub(super) struct Bed {
    root: PathBuf,
    program: PathBuf,
}

impl Bed {
    pub(super) fn new(dir: &Path) -> Result<Bed, CliError> {
        let dir = fs::canonicalize(dir).map_err(CliError::io("find", dir))?;
        let root = dir.join(format!("forebay-compare-{}", std::process::id()));
        let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
        for part in ["mount", "local"] {
            fs::create_dir_all(root.join(part)).map_err(CliError::io("make", &root))?;
        }
        Ok(Bed { root, program })
    }

    /// The directory to compare with.
    pub(super) fn local(&self) -> PathBuf {
        self.root.join("local")
    }

    /// What a loader of a training loop is started with.
    pub(super) fn loader(&self) -> Vec<OsString> {
        vec![self.program.clone().into(), "bench-loader".into()]
    }

    /// Makes a volume whose store is a directory in it, or a bucket.
    pub(super) fn volume<'b>(&'b self, bucket: Option<&'b Bucket>) -> Result<BedVolume<'b>, CliError> {
        let volume = BedVolume { bed: self, bucket, path: self.root.join("volume") };
        let store = bucket.map(Bucket::create_options).unwrap_or_default();
        let store: Vec<&str> = store.iter().map(String::as_str).collect();
        volume.forebay(&[&["create"], &store[..]].concat(), &[&volume.path])?;
        Ok(volume)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            output::complain(&format_args!("cannot remove '{}': {error}", self.root.display()));
        }
    }
}

/// A volume of one run, removed when dropped.
pub(super) struct BedVolume<'b> {
    bed: &'b Bed,
    bucket: Option<&'b Bucket>,
    path: PathBuf,
}

impl BedVolume<'_> {
    /// Mounts it with these options of `-o`.
    pub(super) fn mount(&self, terms: &str) -> Result<BedMount<'_>, CliError> {
        let dir = self.bed.root.join("mount");
        let terms = if terms.is_empty() { "defaults" } else { terms };
        let cache = self.cache();
        fs::create_dir_all(&cache).map_err(CliError::io("make", &cache))?;
        let terms = format!("{terms},cache_dir={}", cache.display());
        self.forebay(&["mount", "-o", &terms], &[&self.path, &dir])?;
        Ok(BedMount { volume: self, ended: false })
    }

    /// Its cache on disk.
    fn cache(&self) -> PathBuf {
        self.bed.root.join("cache")
    }

    fn forebay(&self, words: &[&str], paths: &[&Path]) -> Result<(), CliError> {
        let mut command = Command::new(&self.bed.program);
        command.args(words).args(paths).stdin(Stdio::null()).stdout(Stdio::null());
        // The bucket does not look at them, but requests must be signed with something.
        if self.bucket.is_some() {
            command.env("AWS_ACCESS_KEY_ID", "bench").env("AWS_SECRET_ACCESS_KEY", "bench");
        }
        let status = command.status().map_err(CliError::io("start", &self.bed.program))?;
        let what = words.first().copied().unwrap_or_default();
        if status.success() { Ok(()) } else { Err(CliError::Told(format!("`forebay {what}` failed"))) }
    }
}

impl Drop for BedVolume<'_> {
    fn drop(&mut self) {
        for dir in [&self.path, &self.cache()] {
            match fs::remove_dir_all(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    output::complain(&format_args!("cannot remove '{}': {error}", dir.display()));
                }
                _ => {}
            }
        }
    }
}

/// A mounted volume; unmounted when dropped, also after an error.
pub(super) struct BedMount<'v> {
    volume: &'v BedVolume<'v>,
    ended: bool,
}

impl BedMount<'_> {
    pub(super) fn dir(&self) -> PathBuf {
        self.volume.bed.root.join("mount")
    }

    fn mounted(&self) -> Result<Mounted, CliError> {
        let dir = self.dir();
        volume_of(&dir)?.ok_or_else(|| CliError::Told(format!("nothing is mounted on '{}'", dir.display())))
    }

    /// Finds out whether the kernel reads files of this mount by itself.
    pub(super) fn must_pass_through(&self) -> Result<(), Trouble> {
        let status: Value =
            ask(&self.mounted()?, "status").map_err(CliError::io("ask about", &self.dir()))?;
        let passthrough = &status["passthrough"];
        if passthrough["on"] == true {
            return Ok(());
        }
        let why = passthrough["why_not"].as_str().unwrap_or("the mount does not say why");
        Err(Trouble::LeftOut(format!("no passthrough: {why}")))
    }

    /// Whether since it was last asked so many opens were for the kernel to read by itself.
    pub(super) fn passes_through(&self, opens: u64) -> Result<Warmed, CliError> {
        let mounted = self.mounted()?;
        let before = std::sync::Mutex::new(0);
        Ok(Box::new(move || {
            let status: Value = ask(&mounted, "status")?;
            let now = status["passthrough"]["opens"].as_u64().ok_or(io::ErrorKind::InvalidData)?;
            let mut before = before.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let since = now.saturating_sub(std::mem::replace(&mut *before, now));
            Ok(since >= opens)
        }))
    }

    pub(super) fn end(mut self) -> Result<(), CliError> {
        self.ended = true;
        self.volume.forebay(&["umount"], &[&self.dir()])
    }
}

impl Drop for BedMount<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Err(error) = self.volume.forebay(&["umount"], &[&self.dir()]) {
            output::complain(&format_args!("{error}"));
        }
    }
}
