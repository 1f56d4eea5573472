//! The workloads by name: what one operation is, how its rate is counted, which others it needs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is measured. The order of [`Workload::ALL`] is the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each job writes one new file from begin to end in blocks of 1 MiB and closes it.
    SequentialWrite,
    /// Each job reads its file from begin to end in blocks of 1 MiB, nothing of it cached.
    SequentialReadCold,
    /// The same, read once just before.
    SequentialReadWarm,
    /// Each job reads 4 KiB pages of its file at random, nothing of it cached.
    RandomReadCold,
    /// The same, the file read once just before.
    RandomReadWarm,
    /// Each job overwrites 4 KiB pages of its file at random.
    RandomWrite,
    /// The file as random writes left it, read from begin to end, nothing of it cached.
    RewrittenReadCold,
    /// Each job creates empty files in one directory: open with `O_CREAT|O_EXCL`, close.
    Create,
    /// `stat` of each file in random order, names and attributes not cached.
    StatCold,
    /// The same, each file looked at just before.
    StatWarm,
    /// Each job lists its directory and takes each entry's attributes, as `find -printf %s` does; nothing cached.
    ListCold,
    /// The same, listed just before.
    ListWarm,
    /// Each file is renamed within its directory.
    Rename,
    /// Each file is unlinked.
    Unlink,
    /// Files of 4 KiB written: open with `O_CREAT|O_EXCL`, write, close.
    SmallWrite,
    /// Files of 4 KiB read: open, read, close; nothing cached.
    SmallReadCold,
    /// The same, read once just before.
    SmallReadWarm,
    /// Files of 4 KiB made durable one by one: open with `O_CREAT|O_EXCL`, write, fsync, close.
    SmallSync,
    /// A source tree unpacked: directories and files of a few KiB with mode and times, as `tar -x` makes them.
    TreeWrite,
    /// The tree removed as `rm -r` does: each directory listed, its files unlinked, then itself.
    TreeRemove,
    /// Very many files of 8 KiB in many directories, written by several jobs.
    Many,
}

/// Workloads that work on the same files, run one after another in every round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// One large file for each job.
    Streams,
    /// Empty files.
    Names,
    /// Files of 4 KiB.
    Small,
    /// A source tree.
    Tree,
    /// Very many files of 8 KiB.
    Many,
}

impl Family {
    /// All families in the order they run.
    pub const ALL: [Self; 5] = [Self::Streams, Self::Names, Self::Small, Self::Tree, Self::Many];

    /// Name of the directory that holds its files.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Names => "names",
            Self::Small => "small",
            Self::Tree => "tree",
            Self::Many => "many",
        }
    }
}

/// What a workload's rate counts in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes in a second.
    BytesPerSecond,
    /// Operations (files, entries, requests) in a second.
    OperationsPerSecond,
}

/// Name and title of each workload, and what one latency sample spans.
const FACTS: [(Workload, &str, &str, &str); 21] = {
    use Workload as W;
    [
        (W::SequentialWrite, "sequential-write", "sequential write", "write of 1 MiB"),
        (W::SequentialReadCold, "sequential-read-cold", "sequential read, cold", "read of 1 MiB"),
        (W::SequentialReadWarm, "sequential-read-warm", "sequential read, warm", "read of 1 MiB"),
        (W::RandomReadCold, "random-read-cold", "random 4 KiB read, cold", "read of 4 KiB"),
        (W::RandomReadWarm, "random-read-warm", "random 4 KiB read, warm", "read of 4 KiB"),
        (W::RandomWrite, "random-write", "random 4 KiB write", "write of 4 KiB"),
        (
            W::RewrittenReadCold,
            "rewritten-read-cold",
            "sequential read after random writes, cold",
            "read of 1 MiB",
        ),
        (W::Create, "create", "create", "create and close"),
        (W::StatCold, "stat-cold", "stat, cold", "stat"),
        (W::StatWarm, "stat-warm", "stat, warm", "stat"),
        (W::ListCold, "list-cold", "readdir + stat, cold", "one whole directory"),
        (W::ListWarm, "list-warm", "readdir + stat, warm", "one whole directory"),
        (W::Rename, "rename", "rename", "rename"),
        (W::Unlink, "unlink", "unlink", "unlink"),
        (W::SmallWrite, "small-write", "4 KiB files, write", "create, write, close"),
        (W::SmallReadCold, "small-read-cold", "4 KiB files, read cold", "open, read, close"),
        (W::SmallReadWarm, "small-read-warm", "4 KiB files, read warm", "open, read, close"),
        (W::SmallSync, "small-sync", "4 KiB files, synced", "create, write, fsync, close"),
        (W::TreeWrite, "tree-write", "source tree, unpack", "one entry"),
        (W::TreeRemove, "tree-remove", "source tree, remove", "one entry"),
        (W::Many, "many", "many 8 KiB files, write", "create, write, close"),
    ]
};

impl Workload {
    /// All workloads in the order they run and are reported.
    pub const ALL: [Self; 21] = {
        let mut all = [Self::SequentialWrite; 21];
        let mut index = 0;
        while index < 21 {
            all[index] = FACTS[index].0;
            index += 1;
        }
        all
    };

    fn facts(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        &FACTS[self as usize]
    }

    /// The name for options and JSON: lower case, with hyphens.
    pub fn name(self) -> &'static str {
        self.facts().1
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        self.facts().2
    }

    /// What one latency sample spans.
    pub fn latency_of(self) -> &'static str {
        self.facts().3
    }

    /// What its rate counts.
    pub fn unit(self) -> Unit {
        match self {
            Self::SequentialWrite
            | Self::SequentialReadCold
            | Self::SequentialReadWarm
            | Self::RewrittenReadCold => Unit::BytesPerSecond,
            _ => Unit::OperationsPerSecond,
        }
    }

    /// Whose files it works on.
    pub fn family(self) -> Family {
        match self {
            Self::SequentialWrite
            | Self::SequentialReadCold
            | Self::SequentialReadWarm
            | Self::RandomReadCold
            | Self::RandomReadWarm
            | Self::RandomWrite
            | Self::RewrittenReadCold => Family::Streams,
            Self::Create
            | Self::StatCold
            | Self::StatWarm
            | Self::ListCold
            | Self::ListWarm
            | Self::Rename
            | Self::Unlink => Family::Names,
            Self::SmallWrite | Self::SmallReadCold | Self::SmallReadWarm | Self::SmallSync => Family::Small,
            Self::TreeWrite | Self::TreeRemove => Family::Tree,
            Self::Many => Family::Many,
        }
    }

    /// Whether it leaves something to drain.
    pub fn writes(self) -> bool {
        match self {
            Self::SequentialWrite
            | Self::RandomWrite
            | Self::Create
            | Self::Rename
            | Self::Unlink
            | Self::SmallWrite
            | Self::SmallSync
            | Self::TreeWrite
            | Self::TreeRemove
            | Self::Many => true,
            Self::SequentialReadCold
            | Self::SequentialReadWarm
            | Self::RandomReadCold
            | Self::RandomReadWarm
            | Self::RewrittenReadCold
            | Self::StatCold
            | Self::StatWarm
            | Self::ListCold
            | Self::ListWarm
            | Self::SmallReadCold
            | Self::SmallReadWarm => false,
        }
    }

    /// Whether nothing it touches may be cached.
    pub fn cold(self) -> bool {
        self.cold_data() || self.cold_names()
    }

    /// Whether file contents must not be cached.
    pub(crate) fn cold_data(self) -> bool {
        matches!(
            self,
            Self::SequentialReadCold | Self::RandomReadCold | Self::RewrittenReadCold | Self::SmallReadCold
        )
    }

    /// Whether names and attributes must not be cached, or the figure would be a warm one.
    pub(crate) fn cold_names(self) -> bool {
        matches!(self, Self::StatCold | Self::ListCold)
    }

    /// Whether it needs this other workload of its family before it, which then runs even if it is not asked for.
    pub(crate) fn needs(self, other: Self) -> bool {
        other.founds_family() || (self == Self::RewrittenReadCold && other == Self::RandomWrite)
    }

    /// Whether it runs in every round of its family because the others work on what it made.
    pub(crate) fn founds_family(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::Create | Self::SmallWrite | Self::TreeWrite | Self::Many)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    /// Takes [`Workload::name`]; the error lists all of them.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|workload| workload.name()).collect();
            format!("no workload is called {text:?}; choose from {}", names.join(", "))
        })
    }
}
