//! The flags of `forebay dev`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// `forebay dev`
#[derive(Debug, clap::Args)]
pub struct DevArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DevCommand,
}

/// What to play with.
#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Play a whole cluster on this machine: metadata servers, a volume, proxies, and several mounts
    Cluster(DevClusterArgs),
}

/// `forebay dev cluster`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay dev cluster                       # until Ctrl-C; nothing is left
  forebay dev cluster --proxies 3           # read and write over a group of three proxies
  forebay dev cluster /srv/play --mounts 5  # kept in /srv/play, and there again the next time

It listens on loopback only and asks for no certificates and tokens, which real clusters need: see `forebay meta --help`.")]
pub struct DevClusterArgs {
    /// Where all of it is kept: missing, empty, or of an earlier cluster [default: a new directory that is removed at the end]
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// How many metadata servers: one serves, the others stand by
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub servers: u8,
    /// How many proxies, through which the volume is read then; with two or more it is written over their disks (class replica)
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub proxies: u8,
    /// How many mounts, each like one machine's
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub mounts: u8,
}
