//! What to measure: directories, workloads, sizes, and how to look at the daemon behind a mount.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, Family, Workload};

/// Bytes of one page: the unit of random access, and of the check on data that is read back.
pub(crate) const PAGE: u64 = 4096;

/// Most bytes of the sequential workloads in a round.
const MOST_STREAM_BYTES: u64 = 1 << 44;

/// Something the caller does to a measured file system.
pub type Callback = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Empties caches, and says in words which, for the report.
pub type Chill = Box<dyn Fn() -> io::Result<Vec<String>> + Send + Sync>;

/// Kernel requests answered since some moment before the benchmark, by operation.
pub type Requests = Box<dyn Fn() -> io::Result<BTreeMap<String, u64>> + Send + Sync>;

/// Figures of the caller's own, by name, taken after a step has drained.
pub type Observe = Box<dyn Fn() -> io::Result<BTreeMap<String, f64>> + Send + Sync>;

/// Whether what is read over and over is by now as warm as it gets.
pub type Warmed = Box<dyn Fn() -> io::Result<bool> + Send + Sync>;

/// Something that does the work of a workload without a file system, such as a program that fetches the same bytes.
pub struct Rival {
    /// The one workload that it does.
    pub workload: Workload,
    /// Does it once, and says how many bytes it moved and how long that took.
    pub perform: Box<dyn Fn() -> io::Result<(u64, Duration)> + Send + Sync>,
}

impl fmt::Debug for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rival").field("workload", &self.workload).finish_non_exhaustive()
    }
}

/// How to look at, and drain, what serves a directory. All of it is optional: a local file system has no daemon.
#[derive(Default)]
pub struct Probe {
    /// The daemon's process id. Its processor time (all threads, user and system) and peak memory are reported.
    /// It must stay the same process for the whole run.
    pub pid: Option<u32>,
    /// Returns once nothing is pending: dirty data, uploads, compaction debt. Called after fsync and syncfs.
    pub drain: Option<Callback>,
    /// Empties the caches that the kernel does not hold (the daemon's memory and disk cache), or remounts. Called
    /// before each cold step, before the kernel's caches are dropped.
    pub chill: Option<Chill>,
    /// Whether what was read since it was last asked was read warm. Asked before the first pass of warming, and after each: while it says no, there is another one, up to a minute. Without it,
    /// one pass is enough.
    pub warmed: Option<Warmed>,
    /// Returns once the file system has collected the garbage that there was. Called beside the operations of [`Workload::StatCollecting`].
    pub collect: Option<Callback>,
    /// The file system keeps no contents and gives zeros, as a do-nothing one does: of what is read only the length is checked.
    pub forgets_data: bool,
    /// Whether `chill` also makes the kernel forget names and attributes, as a remount does.
    pub chill_forgets_names: bool,
    /// Further figures to record after each step has drained, and before each that writes: objects in the store, bytes of metadata. Those whose name
    /// ends in `_bytes` are sizes.
    pub observe: Option<Observe>,
    /// Counts what the kernel asks of the process, for requests an operation.
    pub requests: Option<Requests>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("pid", &self.pid)
            .field("drain", &self.drain.is_some())
            .field("chill", &self.chill.is_some())
            .field("warmed", &self.warmed.is_some())
            .field("collect", &self.collect.is_some())
            .field("forgets_data", &self.forgets_data)
            .field("chill_forgets_names", &self.chill_forgets_names)
            .field("observe", &self.observe.is_some())
            .field("requests", &self.requests.is_some())
            .finish()
    }
}

/// How much each workload does in one round, over all jobs together; each job takes an equal share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Bytes written and read sequentially; rounded down to whole 4 KiB pages. At least one page for each job.
    pub stream_bytes: u64,
    /// Random reads, cold and warm each.
    pub random_reads: u64,
    /// Random writes.
    pub random_writes: u64,
    /// Empty files created, looked at, listed, renamed and unlinked.
    pub names: u64,
    /// Files of 4 KiB.
    pub small_files: u64,
    /// Files of 4 KiB that are synced one by one.
    pub synced_files: u64,
    /// Files of the source tree.
    pub tree_files: u64,
    /// Directories of the source tree.
    pub tree_directories: u64,
    /// Files of [`Workload::Many`], 8 KiB each.
    pub many_files: u64,
    /// Directories of [`Workload::Many`].
    pub many_directories: u64,
    /// Jobs of [`Workload::Many`], 1 to 1024.
    pub many_jobs: usize,
    /// Files of 64 KiB that [`Workload::Churn`] makes, and as many again while [`Workload::StatCollecting`] runs.
    pub churn_files: u64,
    /// Entries of the large directory.
    pub large_entries: u64,
    /// Shards of samples.
    pub shards: u64,
    /// Bytes of one shard.
    pub shard_bytes: u64,
    /// Bytes of one sample, at most those of a shard.
    pub sample_bytes: u64,
}

impl Sizes {
    /// Sizes that give steady figures: about 1.2 GiB written a round.
    pub fn full() -> Self {
        Self {
            stream_bytes: 1 << 30,
            random_reads: 20_000,
            random_writes: 40_000,
            names: 100_000,
            small_files: 10_000,
            synced_files: 4_000,
            tree_files: 15_000,
            tree_directories: 1_000,
            many_files: 20_000,
            many_directories: 20,
            many_jobs: 4,
            churn_files: 16_000,
            large_entries: 1_000_000,
            shards: 100,
            shard_bytes: 100_000_000,
            sample_bytes: 100_000,
        }
    }

    /// Sizes for a first look, in seconds rather than minutes.
    pub fn quick() -> Self {
        Self {
            stream_bytes: 64 << 20,
            random_reads: 2_000,
            random_writes: 2_000,
            names: 2_000,
            small_files: 1_000,
            synced_files: 200,
            tree_files: 1_500,
            tree_directories: 100,
            many_files: 2_000,
            many_directories: 10,
            many_jobs: 4,
            churn_files: 2_000,
            large_entries: 10_000,
            shards: 8,
            shard_bytes: 10_000_000,
            sample_bytes: 100_000,
        }
    }

    /// What [`Sizes::set`] takes: the names of the fields, with hyphens.
    pub const NAMES: [&str; 16] = [
        "stream-bytes",
        "random-reads",
        "random-writes",
        "names",
        "small-files",
        "synced-files",
        "tree-files",
        "tree-directories",
        "many-files",
        "many-directories",
        "many-jobs",
        "churn-files",
        "large-entries",
        "shards",
        "shard-bytes",
        "sample-bytes",
    ];

    /// Sets the field called `name`; false if there is none. Whether the value is in its range is seen when the plan runs.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let field = match name {
            "stream-bytes" => &mut self.stream_bytes,
            "random-reads" => &mut self.random_reads,
            "random-writes" => &mut self.random_writes,
            "names" => &mut self.names,
            "small-files" => &mut self.small_files,
            "synced-files" => &mut self.synced_files,
            "tree-files" => &mut self.tree_files,
            "tree-directories" => &mut self.tree_directories,
            "many-files" => &mut self.many_files,
            "many-directories" => &mut self.many_directories,
            "churn-files" => &mut self.churn_files,
            "large-entries" => &mut self.large_entries,
            "shards" => &mut self.shards,
            "shard-bytes" => &mut self.shard_bytes,
            "sample-bytes" => &mut self.sample_bytes,
            "many-jobs" => {
                self.many_jobs = usize::try_from(value).unwrap_or(usize::MAX);
                return true;
            }
            _ => return false,
        };
        *field = value;
        true
    }

    /// Bytes that `family` holds at most, with 4 KiB for each inode of a file system that keeps no tiny files inline.
    pub(crate) fn held(&self, family: Family) -> u64 {
        match family {
            Family::Streams => self.stream_bytes,
            Family::Names => self.names.saturating_mul(512),
            Family::Small => self.small_files.saturating_add(self.synced_files).saturating_mul(2 * PAGE),
            Family::Tree => {
                self.tree_files.saturating_mul(4 * PAGE) + self.tree_directories.saturating_mul(PAGE)
            }
            Family::Many => self.many_files.saturating_mul(3 * PAGE),
            Family::Churn => self.churn_files.saturating_mul(32 * PAGE),
            Family::Large => self.large_entries.saturating_mul(512),
            // Half again, for what a file system keeps of them outside its objects.
            Family::Shards => self.shards.saturating_mul(self.shard_bytes / 2 * 3),
        }
    }
}

/// A benchmark to run. [`Plan::new`] gives sensible values; every field may be changed before [`crate::run`].
#[derive(Debug)]
pub struct Plan {
    /// The directory to measure. It must exist; the benchmark works in a directory of its own inside.
    pub target: PathBuf,
    /// A second directory, measured in alternation with the first.
    pub reference: Option<PathBuf>,
    /// How to look at what serves the target.
    pub target_probe: Probe,
    /// How to look at what serves the reference.
    pub reference_probe: Probe,
    /// Concurrent jobs, each a thread with its own directory; 1 to 1024.
    pub jobs: usize,
    /// Rounds, at least 1. Medians and spread are over rounds.
    pub rounds: usize,
    /// Whether this is a first look; recorded in the report.
    pub quick: bool,
    /// What to measure. The founding workload of a family runs even if it is not named, and is then not reported.
    pub workloads: Vec<Workload>,
    /// Seed of every random choice. Both directories get the same choices.
    pub seed: u64,
    /// How much each workload does.
    pub sizes: Sizes,
    /// Whether cold steps may drop the caches of the whole machine by `/proc/sys/vm/drop_caches`, which takes root.
    /// Without it contents are dropped file by file, and the cold steps for names are left out unless a probe's
    /// `chill` forgets names.
    pub drop_caches: bool,
    /// Raised by the caller to stop early: [`crate::run`] then removes what it made and returns [`Error::Stopped`].
    pub stop: Option<Arc<AtomicBool>>,
    /// A program with its first arguments that calls [`crate::load`] with the others, for [`Workload::Epoch`]; where it is empty, the loaders are
    /// threads of this process.
    pub loader: Vec<OsString>,
    /// What does the work of the reference, in place of a second directory.
    pub rival: Option<Rival>,
    /// The command line, for the report.
    pub command: String,
    /// The program's version, for the report.
    pub version: String,
    /// The commit the program was built from, for the report.
    pub commit: Option<String>,
}

impl Plan {
    /// The usual workloads on `target` with one job: three rounds at full size, or one round at quick size.
    pub fn new(target: impl Into<PathBuf>, quick: bool) -> Self {
        Self {
            target: target.into(),
            reference: None,
            target_probe: Probe::default(),
            reference_probe: Probe::default(),
            jobs: 1,
            rounds: if quick { 1 } else { 3 },
            quick,
            workloads: Workload::usual(),
            seed: 1,
            sizes: if quick { Sizes::quick() } else { Sizes::full() },
            drop_caches: true,
            stop: None,
            loader: Vec::new(),
            rival: None,
            command: String::new(),
            version: String::new(),
            commit: None,
        }
    }

    pub(crate) fn selected(&self, workload: Workload) -> bool {
        self.workloads.contains(&workload)
    }

    /// Refuses settings out of range, by name.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |name, value, range| Err(Error::Setting { name, value, range });
        for (name, jobs) in [("jobs", self.jobs), ("many_jobs", self.sizes.many_jobs)] {
            if !(1..=1024).contains(&jobs) {
                return refuse(name, jobs as u64, "from 1 to 1024");
            }
        }
        if !(1..=1000).contains(&self.rounds) {
            return refuse("rounds", self.rounds as u64, "from 1 to 1000");
        }
        if self.workloads.is_empty() {
            return refuse("the number of workloads", 0, "at least 1");
        }
        if self.sizes.stream_bytes / PAGE < self.jobs as u64 {
            return refuse("stream_bytes", self.sizes.stream_bytes, "at least 4096 for each job");
        }
        if self.sizes.stream_bytes > MOST_STREAM_BYTES {
            return refuse("stream_bytes", self.sizes.stream_bytes, "at most 2^44 (16 TiB)");
        }
        let sizes = &self.sizes;
        let counts = [
            ("random_reads", sizes.random_reads),
            ("random_writes", sizes.random_writes),
            ("names", sizes.names),
            ("small_files", sizes.small_files),
            ("synced_files", sizes.synced_files),
            ("tree_files", sizes.tree_files),
            ("tree_directories", sizes.tree_directories),
            ("many_files", sizes.many_files),
            ("many_directories", sizes.many_directories),
            ("churn_files", sizes.churn_files),
            ("large_entries", sizes.large_entries),
            ("shards", sizes.shards),
            ("shard_bytes", sizes.shard_bytes),
            ("sample_bytes", sizes.sample_bytes),
        ];
        match counts.into_iter().find(|(_, count)| !(1..=1_000_000_000).contains(count)) {
            Some((name, count)) => refuse(name, count, "from 1 to 1000000000"),
            None if sizes.sample_bytes > sizes.shard_bytes => {
                refuse("sample_bytes", sizes.sample_bytes, "at most shard_bytes")
            }
            None => Ok(()),
        }
    }
}

/// What job `index` of `parts` takes of `total`: the shares differ by at most one and add up to `total`.
pub(crate) fn share(total: u64, parts: u64, index: u64) -> u64 {
    total / parts + u64::from(index < total % parts)
}
