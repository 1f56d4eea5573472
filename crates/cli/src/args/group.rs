//! `forebay group`

use clap::Subcommand;

use super::ServersArgs;

/// `forebay group`
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "A group of proxies puts its NVMe between the machines that compute and the store: what one reads is cached for all. Proxies join by `forebay proxy \
--group NAME`; a volume is read through a group after `forebay volume set VOLUME --group NAME`.

Examples:
  forebay group create fast --meta meta1.example.org
  forebay group show fast --meta meta1.example.org
  forebay group set fast node7 --weight 4096 --zone rack2 --meta meta1.example.org
  forebay group drain fast node7 --meta meta1.example.org"
)]
pub struct GroupArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GroupCommand,
}

/// The commands of `forebay group`.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Make a group, which proxies may join then
    #[command(after_help = "Example:\n  forebay group create fast --copies 2 --meta meta1.example.org")]
    Create(GroupCreateArgs),
    /// List all groups
    List(GroupListArgs),
    /// Show one group and its members
    Show(GroupShowArgs),
    /// Change a group, or one of its members
    #[command(
        after_help = "A member is named by its node, its address, or its id (or the first four digits of it, or more).

Examples:
  forebay group set fast --copies 3 --meta meta1.example.org
  forebay group set fast node7 --weight 4096 --meta meta1.example.org
  forebay group set fast 10.0.0.7:7301 --zone rack2 --meta meta1.example.org"
    )]
    Set(GroupSetArgs),
    /// Have a member take nothing new, and put what it has
    #[command(
        after_help = "`forebay group show` tells when it is drained, and --wait waits for that; then `forebay group remove` lets it go for good. What it has cached is read until \
then.

Examples:
  forebay group drain fast node7 --meta meta1.example.org
  forebay group drain fast 7fb1 --wait --meta meta1.example.org && forebay group remove fast 7fb1 --meta meta1.example.org"
    )]
    Drain(GroupDrainArgs),
    /// Let a drained member go for good, or one whose disk is lost: its directory never joins again
    #[command(
        after_help = "A proxy that is to come back is stopped, not removed. `--lost` says that a member's disk is gone for good: nobody waits for it any more, and what no other member \
has is given up. Files with a part of that read as I/O errors from then on, and nothing brings it back, not even the disk.

Examples:
  forebay group remove fast node7 --meta meta1.example.org
  forebay group remove fast node7 --lost --meta meta1.example.org"
    )]
    Remove(GroupRemoveArgs),
    /// List what has been written and is on no disk that is there
    #[command(
        after_help = "Who needs what is listed as waiting waits until one of the members named comes back. What is lost was given up by `forebay group remove --lost`.

Example:
  forebay group lost --group fast --files --meta meta1.example.org"
    )]
    Lost(GroupLostArgs),
    /// Delete a group that has no members and through which no volume is read
    Delete(GroupShowArgs),
}

/// `forebay group create`
#[derive(Debug, clap::Args)]
pub struct GroupCreateArgs {
    /// The group's name: a-z, 0-9, '-', '_' and '.'
    pub name: String,
    /// How many members have what is written before it is acknowledged
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub copies: u8,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay group list`
#[derive(Debug, clap::Args)]
pub struct GroupListArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay group show`, `forebay group delete`
#[derive(Debug, clap::Args)]
pub struct GroupShowArgs {
    /// The group
    pub name: String,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay group set`
#[derive(Debug, clap::Args)]
pub struct GroupSetArgs {
    /// The group
    pub name: String,
    /// A member of it
    pub node: Option<String>,
    /// How many members have what is written before it is acknowledged
    #[arg(long, value_name = "COUNT", conflicts_with = "node", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub copies: Option<u8>,
    /// The member's share, 1 to 1048576: GiB of its cache, unless chosen
    #[arg(long, value_name = "SHARE", requires = "node", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub weight: Option<u32>,
    /// The member's failure domain, such as a rack
    #[arg(long, value_name = "NAME", requires = "node")]
    pub zone: Option<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay group drain`
#[derive(Debug, clap::Args)]
pub struct GroupDrainArgs {
    /// Which.
    #[command(flatten)]
    pub member: GroupMemberArgs,
    /// End only when it is drained, with success then alone; show how much is left
    #[arg(long)]
    pub wait: bool,
}

/// `forebay group remove`
#[derive(Debug, clap::Args)]
pub struct GroupRemoveArgs {
    /// Which.
    #[command(flatten)]
    pub member: GroupMemberArgs,
    /// Its disk is lost for good: what it alone had is given up
    #[arg(long)]
    pub lost: bool,
    /// Really, although files lose what was written to them
    #[arg(long, requires = "lost")]
    pub yes: bool,
}

/// `forebay group lost`
#[derive(Debug, clap::Args)]
pub struct GroupLostArgs {
    /// Only what was written over this group
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Name the files, too: all rows of the volumes are looked through
    #[arg(long)]
    pub files: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay group drain`, `forebay group remove`
#[derive(Debug, clap::Args)]
pub struct GroupMemberArgs {
    /// The group
    pub name: String,
    /// A member of it: its node, its address, or its id (four digits of it or more)
    pub node: String,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
