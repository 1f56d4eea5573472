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
    /// The program `find -printf '%s'` over each job's directory, nothing cached.
    FindCold,
    /// The program `ls -l` of each job's directory, nothing cached.
    LsCold,
    /// Files of 64 KiB, a directory a job, most of which are removed again: garbage for a file system that collects.
    Churn,
    /// `stat` of the files that are left, in random order, while nothing else goes on.
    StatQuiet,
    /// The same, while the file system collects the garbage of as many files again.
    StatCollecting,
    /// Empty files in one very large directory.
    LargeCreate,
    /// It is listed without attributes, names not cached.
    LargeList,
    /// It is renamed, back and forth.
    LargeRename,
    /// Shards of samples for training, written one after the other.
    ShardWrite,
    /// The second epoch of a training loop: loader processes read all samples in random order, one `pread` each.
    Epoch,
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
    /// Files of which most are removed.
    Churn,
    /// One very large directory.
    Large,
    /// Shards of samples.
    Shards,
}

impl Family {
    /// All families in the order they run.
    pub const ALL: [Self; 8] = [
        Self::Streams,
        Self::Names,
        Self::Small,
        Self::Tree,
        Self::Many,
        Self::Churn,
        Self::Large,
        Self::Shards,
    ];

    /// Name of the directory that holds its files.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Names => "names",
            Self::Small => "small",
            Self::Tree => "tree",
            Self::Many => "many",
            Self::Churn => "churn",
            Self::Large => "large",
            Self::Shards => "shards",
        }
    }

    /// Whether its files are made in the first round only and used in all of them, because making them takes much longer than using them.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::Large | Self::Shards)
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

/// What a workload does to the files of its family, and what must not be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It makes the files.
    Founds,
    /// It changes them.
    Changes,
    /// It reads, and what it reads was read just before.
    Warm,
    /// It reads contents that are not cached.
    ColdData,
    /// It reads names and attributes that are not cached.
    ColdNames,
}

/// Workload, name, title, what one latency sample spans, family, kind.
type Facts = (Workload, &'static str, &'static str, &'static str, Family, Kind);

const FACTS: [Facts; 31] = {
    use Family as F;
    use Kind as K;
    use Workload as W;
    [
        (W::SequentialWrite, "sequential-write", "sequential write", "write of 1 MiB", F::Streams, K::Founds),
        (
            W::SequentialReadCold,
            "sequential-read-cold",
            "sequential read, cold",
            "read of 1 MiB",
            F::Streams,
            K::ColdData,
        ),
        (
            W::SequentialReadWarm,
            "sequential-read-warm",
            "sequential read, warm",
            "read of 1 MiB",
            F::Streams,
            K::Warm,
        ),
        (
            W::RandomReadCold,
            "random-read-cold",
            "random 4 KiB read, cold",
            "read of 4 KiB",
            F::Streams,
            K::ColdData,
        ),
        (
            W::RandomReadWarm,
            "random-read-warm",
            "random 4 KiB read, warm",
            "read of 4 KiB",
            F::Streams,
            K::Warm,
        ),
        (W::RandomWrite, "random-write", "random 4 KiB write", "write of 4 KiB", F::Streams, K::Changes),
        (
            W::RewrittenReadCold,
            "rewritten-read-cold",
            "sequential read after random writes, cold",
            "read of 1 MiB",
            F::Streams,
            K::ColdData,
        ),
        (W::Create, "create", "create", "create and close", F::Names, K::Founds),
        (W::StatCold, "stat-cold", "stat, cold", "stat", F::Names, K::ColdNames),
        (W::StatWarm, "stat-warm", "stat, warm", "stat", F::Names, K::Warm),
        (W::ListCold, "list-cold", "readdir + stat, cold", "one whole directory", F::Names, K::ColdNames),
        (W::ListWarm, "list-warm", "readdir + stat, warm", "one whole directory", F::Names, K::Warm),
        (W::Rename, "rename", "rename", "rename", F::Names, K::Changes),
        (W::Unlink, "unlink", "unlink", "unlink", F::Names, K::Changes),
        (W::SmallWrite, "small-write", "4 KiB files, write", "create, write, close", F::Small, K::Founds),
        (
            W::SmallReadCold,
            "small-read-cold",
            "4 KiB files, read cold",
            "open, read, close",
            F::Small,
            K::ColdData,
        ),
        (
            W::SmallReadWarm,
            "small-read-warm",
            "4 KiB files, read warm",
            "open, read, close",
            F::Small,
            K::Warm,
        ),
        (
            W::SmallSync,
            "small-sync",
            "4 KiB files, synced",
            "create, write, fsync, close",
            F::Small,
            K::Changes,
        ),
        (W::TreeWrite, "tree-write", "source tree, unpack", "one entry", F::Tree, K::Founds),
        (W::TreeRemove, "tree-remove", "source tree, remove", "one entry", F::Tree, K::Changes),
        (W::Many, "many", "many 8 KiB files, write", "create, write, close", F::Many, K::Founds),
        (W::FindCold, "find-cold", "find -printf '%s', cold", "one whole directory", F::Names, K::ColdNames),
        (W::LsCold, "ls-cold", "ls -l, cold", "one whole directory", F::Names, K::ColdNames),
        (W::Churn, "churn", "64 KiB files, most of them removed", "one file", F::Churn, K::Founds),
        (W::StatQuiet, "stat-quiet", "stat, nothing else going on", "stat", F::Churn, K::Warm),
        (W::StatCollecting, "stat-collecting", "stat during collection", "stat", F::Churn, K::Changes),
        (W::LargeCreate, "large-create", "large directory, create", "create and close", F::Large, K::Founds),
        (
            W::LargeList,
            "large-list",
            "large directory, list cold",
            "the whole directory",
            F::Large,
            K::ColdNames,
        ),
        (W::LargeRename, "large-rename", "large directory, rename it", "rename", F::Large, K::Changes),
        (W::ShardWrite, "shard-write", "shards, write", "write of 1 MiB", F::Shards, K::Founds),
        (
            W::Epoch,
            "epoch",
            "second epoch of shuffled samples",
            "one loader's whole epoch",
            F::Shards,
            K::Warm,
        ),
    ]
};

impl Workload {
    /// All workloads in the order of the report.
    pub const ALL: [Self; FACTS.len()] = {
        let mut all = [Self::SequentialWrite; FACTS.len()];
        let mut index = 0;
        while index < FACTS.len() {
            all[index] = FACTS[index].0;
            index += 1;
        }
        all
    };

    /// How many of [`Workload::ALL`], from the first on, say something of any directory at the usual sizes.
    const USUAL: usize = 21;

    /// What is measured where nothing is chosen.
    pub fn usual() -> Vec<Self> {
        Self::ALL[..Self::USUAL].to_vec()
    }

    fn facts(self) -> &'static Facts {
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
            | Self::RewrittenReadCold
            | Self::ShardWrite => Unit::BytesPerSecond,
            _ => Unit::OperationsPerSecond,
        }
    }

    /// Whose files it works on.
    pub fn family(self) -> Family {
        self.facts().4
    }

    fn kind(self) -> Kind {
        self.facts().5
    }

    /// Whether it leaves something to drain.
    pub fn writes(self) -> bool {
        matches!(self.kind(), Kind::Founds | Kind::Changes)
    }

    /// Whether nothing it touches may be cached.
    pub fn cold(self) -> bool {
        self.cold_data() || self.cold_names()
    }

    /// Whether file contents must not be cached.
    pub(crate) fn cold_data(self) -> bool {
        self.kind() == Kind::ColdData
    }

    /// Whether names and attributes must not be cached, or the figure would be a warm one.
    pub(crate) fn cold_names(self) -> bool {
        self.kind() == Kind::ColdNames
    }

    /// Whether it needs this other workload of its family before it, which then runs even if it is not asked for.
    pub(crate) fn needs(self, other: Self) -> bool {
        other.founds_family() || (self == Self::RewrittenReadCold && other == Self::RandomWrite)
    }

    /// Whether it runs in every round of its family because the others work on what it made.
    pub(crate) fn founds_family(self) -> bool {
        self.kind() == Kind::Founds
    }

    /// Where among the steps of its family it runs: what takes the names away runs last.
    pub(crate) fn turn(self) -> u8 {
        match self {
            Self::Rename => 1,
            Self::Unlink => 2,
            _ => 0,
        }
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
