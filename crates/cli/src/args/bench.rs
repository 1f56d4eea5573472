//! The command line of `forebay bench` and of the processes that it starts.

use std::{ffi::OsString, path::PathBuf};

use clap::ValueHint;
use forebay_bench::{Sizes, Workload, targets::Run};

use super::words;
use crate::size::ByteSize;

/// `forebay bench`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Everything is written to a directory of the benchmark's own, which is removed at the end.

Names of --size: stream-bytes, random-reads, random-writes, names, small-files, synced-files, tree-files, tree-directories, many-files, \
many-directories, many-jobs (files of 8 KiB), churn-files, large-entries, shards, shard-bytes, sample-bytes.

Runs of --compare, all unless --run names some; each has a volume of its own, and one that lacks something here (root, room, curl) says so:
  names, names-of-one        four jobs, one job, beside a file system that does nothing
  names-asked, names-of-one-asked   the same with lifetimes of 0: the daemon answers everything
  names-local                four jobs beside the local file system
  listing                    find and ls -l of 100,000 files
  collecting                 stat while garbage is collected
  data, data-of-four         large files and a source tree beside the local file system, without passthrough
  through, through-of-four   large files that the kernel reads by itself
  synced                     small files, each with fsync
  bucket                     a store that takes 20 ms, beside curl
  training                   shuffled samples, little memory; 30 GB at full size: --size shards=20 makes it smaller
  large                      1,000,000 entries, a tree of 100,000 files
  many                       1,000,000 files of 8 KiB

Examples:
  forebay bench /mnt/data --quick
  forebay bench /mnt/data --reference /var/tmp --json report.json --html report.html
  forebay bench /mnt/data --null --workload create --workload stat-warm
  forebay bench /var/tmp --compare --json targets.json --html targets.html
  forebay bench /var/tmp --compare --run through --run collecting
  forebay bench /mnt/data --workload many --size many-files=1000000 --size many-directories=1000"
)]
pub struct BenchArgs {
    /// The directory to measure
    #[arg(value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// A second directory, measured in alternation with the first
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "null")]
    pub reference: Option<PathBuf>,
    /// Compare with a do-nothing file system over the same kernel interface, with the target's terms of caching
    #[arg(long)]
    pub null: bool,
    /// Make volumes in the directory, which is on a local disk, and measure every target of this file system beside its reference
    #[arg(long, conflicts_with_all = ["null", "reference", "workloads", "jobs"])]
    pub compare: bool,
    /// With --compare, only this run; may be given several times. They are explained below
    #[arg(long = "run", value_name = "NAME", requires = "compare", value_parser = words(&Run::ALL, Run::name))]
    pub runs: Vec<Run>,
    /// Concurrent jobs, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: usize,
    /// Rounds; medians and spread are over them [default: 3, quick: 1]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// A first look, in seconds rather than minutes
    #[arg(long)]
    pub quick: bool,
    /// Only this workload; may be given several times
    #[arg(long = "workload", value_name = "NAME", value_parser = words(&Workload::ALL, Workload::name))]
    pub workloads: Vec<Workload>,
    /// How much a workload does in a round, over all jobs; may be given several times. The names are in the text below
    #[arg(long = "size", value_name = "NAME=VALUE", value_parser = size_of_workload)]
    pub sizes: Vec<(String, u64)>,
    /// Do not drop the caches of the whole machine before cold steps; those of a Forebay mount are emptied all the same
    #[arg(long)]
    pub keep_caches: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// One of [`forebay_bench::Sizes`] and what it is to be: `names=5000`, `stream-bytes=8GiB`.
fn size_of_workload(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as many-files=1000000")?;
    let value = value.parse::<ByteSize>().map_err(|error| error.to_string())?;
    let mut sizes = Sizes::quick();
    if sizes.set(name, value.0) {
        return Ok((name.to_owned(), value.0));
    }
    Err(format!("there are {}", Sizes::NAMES.join(", ")))
}

/// `forebay null-mount`
#[derive(Debug, clap::Args)]
pub struct NullMountArgs {
    /// An existing directory
    pub mountpoint: PathBuf,
    /// Lifetime of names and attributes in milliseconds
    #[arg(long, default_value_t = 1000)]
    pub lifetime_ms: u64,
    /// Capabilities asked for at INIT, as bits [default: the do-nothing file system's own]
    #[arg(long)]
    pub capabilities: Option<u64>,
    /// Flags of every opened file, as bits
    #[arg(long, default_value_t = 0)]
    pub open_flags: u32,
    /// Flags of every opened directory, as bits
    #[arg(long, default_value_t = 0)]
    pub dir_flags: u32,
    /// The mount's read-ahead in KiB
    #[arg(long)]
    pub read_ahead_kb: Option<u32>,
    /// Count requests, and print how many there were for each line of standard input
    #[arg(long)]
    pub count: bool,
    /// Requests travel over io_uring where the kernel allows it
    #[arg(long)]
    pub io_uring: bool,
}

/// `forebay late-store`
#[derive(Debug, clap::Args)]
pub struct LateStoreArgs {
    /// How long each request waits for its answer, milliseconds
    pub delay_ms: u64,
}

/// `forebay bench-loader`
#[derive(Debug, clap::Args)]
pub struct BenchLoaderArgs {
    /// What the benchmark says
    #[arg(required = true)]
    pub words: Vec<OsString>,
}
