//! The runs of the comparison: what each measures, on which terms, beside what.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Sizes, Workload};

/// A run of the comparison. Each has a volume of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// Names and small files, as mounted by default, beside the do-nothing file system on the same terms.
    Names,
    /// The same with lifetimes of 0: the daemon answers everything.
    NamesAsked,
    /// As [`Run::Names`], by one job.
    NamesOfOne,
    /// As [`Run::NamesAsked`], by one job.
    NamesOfOneAsked,
    /// Names and small files beside the local file system.
    NamesLocal,
    /// 100,000 files in one directory, listed by programs, beside the do-nothing file system.
    Listing,
    /// How long a `stat` takes while garbage is collected, the volume alone.
    Collecting,
    /// Large files and trees beside the local file system, one job.
    Data,
    /// Large files beside the local file system, four jobs.
    DataOfFour,
    /// Large files that the kernel reads by itself, beside the local file system, one job.
    Through,
    /// The same by four jobs.
    ThroughOfFour,
    /// Small files synced one by one by 16 jobs.
    Synced,
    /// A store with 20 ms a request, read by 16 jobs, beside curl with as many connections.
    Bucket,
    /// A training loop beside the local file system, with little memory for the page cache.
    Training,
    /// A directory of 1,000,000 entries and a tree of 100,000 files, beside the local file system.
    Large,
    /// Very many small files, the volume alone.
    Many,
}

/// What a run measures the volume beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The do-nothing file system over the same transport, with the same capabilities and lifetimes.
    DoNothing,
    /// A directory of the local file system that the volume lies on.
    Local,
    /// The program curl, which fetches the objects of the volume's store.
    Curl,
    /// Nothing.
    Nothing,
}

const GIB: u64 = 1 << 30;

impl Run {
    /// All runs, in the order to make them: the short ones first.
    pub const ALL: [Self; 16] = [
        Self::Names,
        Self::NamesAsked,
        Self::NamesOfOne,
        Self::NamesOfOneAsked,
        Self::NamesLocal,
        Self::Listing,
        Self::Collecting,
        Self::Data,
        Self::DataOfFour,
        Self::Through,
        Self::ThroughOfFour,
        Self::Synced,
        Self::Bucket,
        Self::Training,
        Self::Large,
        Self::Many,
    ];

    /// For options: lower case, with hyphens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::NamesAsked => "names-asked",
            Self::NamesOfOne => "names-of-one",
            Self::NamesOfOneAsked => "names-of-one-asked",
            Self::NamesLocal => "names-local",
            Self::Listing => "listing",
            Self::Collecting => "collecting",
            Self::Data => "data",
            Self::DataOfFour => "data-of-four",
            Self::Through => "through",
            Self::ThroughOfFour => "through-of-four",
            Self::Synced => "synced",
            Self::Bucket => "bucket",
            Self::Training => "training",
            Self::Large => "large",
            Self::Many => "many",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Names => "names by four jobs, beside the do-nothing file system",
            Self::NamesAsked => "names by four jobs with lifetimes of 0, beside the do-nothing file system",
            Self::NamesOfOne => "names by one job, beside the do-nothing file system",
            Self::NamesOfOneAsked => {
                "names by one job with lifetimes of 0, beside the do-nothing file system"
            }
            Self::NamesLocal => "names by four jobs, beside the local file system",
            Self::Listing => "a directory listed by programs, beside the do-nothing file system",
            Self::Collecting => "stat with lifetimes of 0 during collection",
            Self::Data => "data by one job without passthrough, beside the local file system",
            Self::DataOfFour => "data by four jobs without passthrough, beside the local file system",
            Self::Through => "data passed through, one job, beside the local file system",
            Self::ThroughOfFour => "data passed through, four jobs, beside the local file system",
            Self::Synced => "files synced one by one by 16 jobs, beside the local file system",
            Self::Bucket => "a store with 20 ms a request, 16 jobs, beside curl with 16 connections",
            Self::Training => "a training loop of four loaders, beside the local file system",
            Self::Large => "large directories, beside the local file system",
            Self::Many => "very many small files",
        }
    }

    /// What it measures beside.
    pub fn beside(self) -> Beside {
        match self {
            Self::Names | Self::NamesAsked | Self::NamesOfOne | Self::NamesOfOneAsked | Self::Listing => {
                Beside::DoNothing
            }
            Self::NamesLocal
            | Self::Data
            | Self::DataOfFour
            | Self::Through
            | Self::ThroughOfFour
            | Self::Synced
            | Self::Training
            | Self::Large => Beside::Local,
            Self::Bucket => Beside::Curl,
            Self::Collecting | Self::Many => Beside::Nothing,
        }
    }

    /// Whether the volume is to be mounted so that the kernel asks for every name and attribute.
    pub fn asks_always(self) -> bool {
        matches!(self, Self::NamesAsked | Self::NamesOfOneAsked | Self::Collecting)
    }

    /// Bytes that files which the kernel reads by itself may take on disk; 0: there are to be none. For files of `sizes`.
    pub fn passthrough_size(self, sizes: &Sizes) -> u64 {
        match self {
            Self::Through | Self::ThroughOfFour => sizes.stream_bytes.saturating_mul(2).max(GIB),
            Self::Training => sizes.shards.saturating_mul(sizes.shard_bytes).saturating_mul(2).max(GIB),
            _ => 0,
        }
    }

    /// Opens of one pass over the files that the kernel is to read by itself.
    pub fn opens(self, sizes: &Sizes) -> u64 {
        match self {
            Self::Training => sizes.shards.saturating_mul(sizes.shard_bytes / sizes.sample_bytes.max(1)),
            _ => self.jobs() as u64,
        }
    }

    /// Whether requests are counted on both sides. Elsewhere the do-nothing file system is left to do nothing.
    pub fn counts_both(self) -> bool {
        self == Self::Listing
    }

    /// Memory that the daemon and the jobs may use together, their page cache included.
    pub fn memory_limit(self) -> Option<u64> {
        (self == Self::Training).then_some(2 * GIB)
    }

    /// How long the store that the run needs takes before it answers, in milliseconds; absent where a directory does.
    pub fn store_delay_ms(self) -> Option<u64> {
        (self == Self::Bucket).then_some(20)
    }

    /// Concurrent jobs.
    pub fn jobs(self) -> usize {
        match self {
            Self::NamesOfOne
            | Self::NamesOfOneAsked
            | Self::Listing
            | Self::Collecting
            | Self::Data
            | Self::Through
            | Self::Large => 1,
            Self::Synced | Self::Bucket => 16,
            _ => 4,
        }
    }

    /// Rounds of a full comparison.
    pub fn rounds(self) -> usize {
        if self == Self::Many { 1 } else { 5 }
    }

    /// What it measures.
    pub fn workloads(self) -> &'static [Workload] {
        use Workload as W;
        match self {
            Self::Names | Self::NamesAsked | Self::NamesOfOne | Self::NamesOfOneAsked | Self::NamesLocal => {
                &[W::Create, W::StatWarm, W::Rename, W::Unlink, W::SmallWrite, W::SmallReadWarm]
            }
            Self::Listing => &[W::FindCold, W::LsCold],
            Self::Collecting => &[W::StatQuiet, W::StatCollecting],
            Self::Data => &[
                W::SequentialWrite,
                W::SequentialReadCold,
                W::SequentialReadWarm,
                W::RandomReadWarm,
                W::TreeWrite,
                W::TreeRemove,
            ],
            Self::DataOfFour => &[
                W::SequentialReadCold,
                W::SequentialReadWarm,
                W::RandomReadWarm,
                W::RandomWrite,
                W::RewrittenReadCold,
            ],
            Self::Through | Self::ThroughOfFour => &[W::SequentialReadWarm, W::RandomReadWarm],
            Self::Synced => &[W::SmallSync],
            Self::Bucket => &[W::SequentialReadCold],
            Self::Training => &[W::Epoch],
            Self::Large => &[W::LargeCreate, W::LargeList, W::LargeRename, W::TreeRemove],
            Self::Many => &[W::Many],
        }
    }

    /// How much it does in a round.
    pub fn sizes(self, quick: bool) -> Sizes {
        match (self, quick) {
            (_, true) => Sizes::quick(),
            (Self::Many, false) => Sizes { many_files: 1_000_000, many_directories: 1_000, ..Sizes::full() },
            (Self::Large, false) => Sizes { tree_files: 100_000, tree_directories: 1_000, ..Sizes::full() },
            (_, false) => Sizes::full(),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
