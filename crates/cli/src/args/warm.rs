//! `forebay warm`

use std::path::PathBuf;

use clap::{ValueEnum, ValueHint};

/// `forebay warm`
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forebay warm [OPTIONS] <PATH>...\n       forebay warm [OPTIONS] --list <FILE>",
    after_help = "Directories are brought with all that is in them, other mounts left out. What is cached already is not fetched again: a command that was \
interrupted goes on where it was when it is given again. What was written and is not in the store yet is on this machine or on members of the group, and counts as near.

Into the group: into the cache of the member that others ask for it. Into here: into the cache on this machine's disk, of what the mount has there (--cache-dir). A \
cache that has no room for all of it keeps what came last; the command says so.

It is asked for by the user who mounted the volume, or root. The exit status is 1 where some files could not be brought; they are named at the end.

Examples:
  forebay warm /mnt/data/imagenet
  forebay warm --list epoch1.txt --into group
  find /mnt/data -name '*.parquet' | forebay warm --list -"
)]
pub struct WarmArgs {
    /// Files, or directories with all that is in them, of mounted volumes
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present = "list")]
    pub paths: Vec<PathBuf>,
    /// A file with one path a line; -: standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub list: Option<PathBuf>,
    /// Where to [default: both, as far as the volume has a group and the mount a cache on its disk]
    #[arg(long, value_name = "WHERE")]
    pub into: Option<WarmPlace>,
}

/// Where files are brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WarmPlace {
    /// The caches of the group's members
    Group,
    /// The cache on this machine's disk
    Here,
    /// Both
    Both,
}

impl WarmPlace {
    pub(crate) fn words(self) -> &'static str {
        match self {
            WarmPlace::Group => " group",
            WarmPlace::Here => " here",
            WarmPlace::Both => " group here",
        }
    }
}
