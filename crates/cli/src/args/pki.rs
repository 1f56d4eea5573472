//! `forebay pki`

use std::{net::IpAddr, path::PathBuf};

use clap::{Subcommand, ValueHint};

/// `forebay pki`
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Parts of a cluster know each other by certificates of one authority. This is a small one, for those who have none: a directory with \
a key, kept where nobody else can read it. Machines get ca.pem, their own certificate and their own key, never ca.key.

Examples:
  forebay pki init ~/authority
  forebay pki issue ~/authority meta1 --server --host meta1.example.org --ip 10.0.0.1
  forebay pki issue ~/authority node7 --client"
)]
pub struct PkiArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PkiCommand,
}

/// The commands of `forebay pki`.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make an authority: DIR/ca.pem and DIR/ca.key
    #[command(after_help = "Example:\n  forebay pki init ~/authority")]
    Init(PkiInitArgs),
    /// Issue a certificate: DIR/NAME.pem and DIR/NAME.key
    #[command(
        after_help = "A running process reads its certificate again when the file changes: issue a new one in another directory, or \
under another name, and move it over the old one, key first.

Examples:
  forebay pki issue ~/authority meta1 --server --host meta1.example.org --ip 10.0.0.1
  forebay pki issue ~/authority node7 --client --days 90"
    )]
    Issue(PkiIssueArgs),
}

/// `forebay pki init`
#[derive(Debug, clap::Args)]
pub struct PkiInitArgs {
    /// The authority's directory; made, for its owner alone, if it is missing
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// What the authority is called
    #[arg(long, value_name = "NAME", default_value = "Forebay authority")]
    pub name: String,
    /// How long it is valid, in days
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
}

/// `forebay pki issue`
#[derive(Debug, clap::Args)]
pub struct PkiIssueArgs {
    /// The authority's directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Whom the certificate is for: a machine or a service. Also the name of the files
    pub name: String,
    /// A host name under which clients reach it; may be given several times. Servers need this or --ip
    #[arg(long = "host", value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub hosts: Vec<String>,
    /// An address under which clients reach it; may be given several times
    #[arg(long = "ip", value_name = "IP")]
    pub ips: Vec<IpAddr>,
    /// Only for clients [default: for both sides]
    #[arg(long, conflicts_with = "server")]
    pub client: bool,
    /// Only for servers
    #[arg(long)]
    pub server: bool,
    /// How long it is valid, in days
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
}
