//! `forebay policy`

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use forebay_rpc::Address;
use forebay_types::SyncClass;

use super::TlsArgs;

/// `forebay policy`
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "A policy says of a directory, and of all that is made in it, or of a file, what fsync waits for, and whether its bytes are kept in the caches of the volume's \
group. What fsync waits for is a promise on top of the volume's (forebay volume set --durability), never less than that. A file keeps what it was made with: moving or linking it \
changes nothing.

PATH is on a mounted shared volume; the servers are those of the mount unless --meta names others. They are asked as for `forebay volume`: over a server's Unix \
socket, or with the certificate of an administrator.

Examples:
  forebay policy set /mnt/data/results --durability object --meta unix:/run/forebay/meta.sock
  forebay policy set /mnt/data/training --pin
  forebay policy show /mnt/data/results
  forebay policy unset /mnt/data/results"
)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The commands of `forebay policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say what counts for a directory and what is in it, or for a file
    #[command(
        after_help = "When the command returns, no fsync that begins afterwards is answered with less for what is written afterwards. What is in a directory already is given the \
policy name by name, unless a policy was said for it by itself; a command that was interrupted is given again. Changing the policy of a directory that has one changes it \
for all that goes by it, at once. What is said is added to what was said before for the same directory or file.

What is pinned comes into the caches of the group within seconds to hours, by how much it is, and stays there whatever else is read; at most half of each member's cache is pinned. \
`forebay policy show` says how much of it is there, and why the rest is not. --place-on is the same, but that it makes way for others and comes back a minute to an hour later. \
What is confined to another group than the volume is read through, or excluded from that, is read from the store and written to it alone.

Examples:
  forebay policy set /mnt/data/checkpoints --durability object
  forebay policy set /mnt/data/ledger --durability replica:3
  forebay policy set /mnt/data/training --pin
  forebay policy set /mnt/data/patients --confine-to ward"
    )]
    Set(PolicySetArgs),
    /// Say what counts there, and for what it was said
    Show(PolicyShowArgs),
    /// Take back what was said for a directory or file: what counted before counts again
    #[command(after_help = "Examples:
  forebay policy unset /mnt/data/training --pin
  forebay policy unset /mnt/data/results")]
    Unset(PolicyUnsetArgs),
}

/// Whom to ask.
#[derive(Debug, Clone, clap::Args)]
pub struct PolicyServersArgs {
    /// A metadata server: HOST, HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn [default: those of the mount]
    #[arg(long, value_name = "ADDR", env = "FOREBAY_META", value_delimiter = ',')]
    pub meta: Vec<Address>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// `forebay policy set`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct PolicySetArgs {
    /// A directory or file on a mounted shared volume
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: PathBuf,
    /// What fsync waits for at least: object (the store has it), replica:K (K members of the group have it on their disks, or the store), or local (as replica, by the proxy of the machine that writes alone)
    #[arg(long, value_name = "CLASS", group = "what")]
    pub durability: Option<SyncClass>,
    /// Its bytes are in the caches of the volume's group, and do not make way for others
    #[arg(long, group = "what")]
    pub pin: bool,
    /// No member's disk has its bytes but of this group; mounts cache them in memory alone
    #[arg(long, value_name = "GROUP", group = "what")]
    pub confine_to: Option<String>,
    /// Its bytes are in the caches of this group, through which the volume is read, as long as there is room
    #[arg(long, value_name = "GROUP", group = "what")]
    pub place_on: Option<String>,
    /// No member of this group has its bytes on its disk
    #[arg(long, value_name = "GROUP", group = "what")]
    pub exclude_from: Option<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: PolicyServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay policy unset`
#[derive(Debug, clap::Args)]
pub struct PolicyUnsetArgs {
    /// What was said of durability [default: all that was said]
    #[arg(long)]
    pub durability: bool,
    /// That it is pinned
    #[arg(long)]
    pub pin: bool,
    /// That it is confined to a group
    #[arg(long)]
    pub confine_to: bool,
    /// That it is placed on a group
    #[arg(long)]
    pub place_on: bool,
    /// That it is excluded from a group
    #[arg(long)]
    pub exclude_from: bool,
    /// The rest is as for `show`.
    #[command(flatten)]
    pub of: PolicyShowArgs,
}

/// `forebay policy show`
#[derive(Debug, clap::Args)]
pub struct PolicyShowArgs {
    /// A directory or file on a mounted shared volume
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: PolicyServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
