//! `forebay meta`, `forebay volume`, `forebay token`

use std::{net::SocketAddr, path::PathBuf};

use clap::{Subcommand, ValueHint};
use forebay_object::StoreUrl;
use forebay_protocol::group::{GROUPS_MAX, WriteClass};
use forebay_rpc::Address;
use forebay_types::Compression;

use super::words;
use crate::{duration::Lifetime, size::ByteSize};

/// Certificates of one side.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TlsArgs {
    /// The authorities whose certificates are believed, in PEM
    #[arg(long, value_name = "FILE", env = "FOREBAY_TLS_CA", value_hint = ValueHint::FilePath, requires_all = ["tls_cert", "tls_key"])]
    pub tls_ca: Option<PathBuf>,
    /// This side's certificate, in PEM
    #[arg(long, value_name = "FILE", env = "FOREBAY_TLS_CERT", value_hint = ValueHint::FilePath, requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", env = "FOREBAY_TLS_KEY", value_hint = ValueHint::FilePath, requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
}

/// Which servers are asked, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct ServersArgs {
    /// A metadata server: HOST, HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn
    #[arg(long, value_name = "ADDR", env = "FOREBAY_META", value_delimiter = ',', required = true)]
    pub meta: Vec<Address>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// `forebay meta`
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "forebay meta --engine <URL> --listen <ADDR> [OPTIONS]\n       forebay meta status --meta <ADDR> [OPTIONS]",
    after_help = "The server stays in front and logs to standard error. SIGTERM and Ctrl-C make it give its volumes up, so that other servers have them at once; a \
second signal ends it as it is.

Any number of servers may run over one PostgreSQL: each volume is with one of them, and another takes it over within seconds when that one dies. A directory \
or an object store (slate:) has one server at a time; a second one waits for it.

Without TLS a server listens on Unix sockets, and with --insecure on addresses of this machine alone.

Examples:
  forebay meta --engine dir:/srv/forebay --listen 127.0.0.1:7300 --insecure
  forebay meta --engine postgres://forebay@db.example.org/forebay --listen 0.0.0.0:7300 \\
      --advertise meta1.example.org --listen unix:/run/forebay/meta.sock \\
      --tls-ca ca.pem --tls-cert meta1.pem --tls-key meta1.key
  forebay meta --engine slate:s3://my-bucket/metadata --listen unix:/run/forebay/meta.sock
  forebay meta status --meta unix:/run/forebay/meta.sock"
)]
pub struct MetaArgs {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<MetaCommand>,
    /// The server.
    #[command(flatten)]
    pub server: MetaServerArgs,
}

/// The commands of `forebay meta`.
#[derive(Debug, Subcommand)]
pub enum MetaCommand {
    /// Show the servers, and which of them has which volume
    #[command(after_help = "Example:\n  forebay meta status --meta 127.0.0.1:7300")]
    Status(MetaStatusArgs),
}

/// The flags of a server.
#[derive(Debug, clap::Args)]
pub struct MetaServerArgs {
    /// Where the metadata is: dir:/PATH, postgres://USER:PASSWORD@HOST:PORT/DATABASE, or slate:s3://BUCKET/PREFIX
    #[arg(long, value_name = "URL", env = "FOREBAY_ENGINE", hide_env_values = true, required = true)]
    pub engine: Option<String>,
    /// Where to listen: HOST:PORT or unix:/PATH; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    pub listen: Vec<Address>,
    /// Where clients and other servers reach this one [default: the first address to listen at]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<Address>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Let everybody on this machine in, without certificate and token
    #[arg(long)]
    pub insecure: bool,
    /// Whose certificates may administer, by their common names; may be given several times [default: all]
    #[arg(long = "admin", value_name = "NAME")]
    pub admins: Vec<String>,
    /// Serve Prometheus metrics on this address, such as 127.0.0.1:9188, under /metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
}

/// `forebay meta status`
#[derive(Debug, clap::Args)]
pub struct MetaStatusArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume`
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "A shared volume has its names and sizes at the metadata servers and its data in a store that every machine reaches. `forebay create` makes \
the other kind, which one machine has for itself.

Examples:
  forebay volume create scratch --store s3://bucket/scratch --meta meta1.example.org
  forebay volume list --meta meta1.example.org
  forebay token create scratch --meta meta1.example.org"
)]
pub struct VolumeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// The commands of `forebay volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    #[command(
        after_help = "The server tries the store out first, and every machine that mounts the volume must reach it under the same URL, with \
credentials of its own.

Examples:
  forebay volume create scratch --store s3://bucket/scratch --meta meta1.example.org
  forebay volume create near --store s3://bucket/near --group near --meta meta1.example.org
  forebay volume create both --store s3://bucket/both --group hall1,hall2 --meta meta1.example.org
  forebay volume create here --store file:///srv/objects --meta unix:/run/forebay/meta.sock"
    )]
    Create(VolumeCreateArgs),
    /// List all volumes
    List(VolumeListArgs),
    /// Show one volume
    Show(VolumeShowArgs),
    /// Change a volume; mounts hear of it when they next connect, of its group and durability within seconds
    #[command(
        after_help = "A group is taken away from what is written to the store alone (--durability object), and once its members have put all that the store does not have: \
the command waits for that.

Examples:
  forebay volume set scratch --group near --meta meta1.example.org
  forebay volume set scratch --group hall1,hall2 --meta meta1.example.org
  forebay volume set scratch --durability object --group hall1 --meta meta1.example.org"
    )]
    Set(VolumeSetArgs),
    /// Move a volume's metadata to another engine while it is in use
    #[command(
        after_help = "The servers copy the volume's rows to the other place while clients go on, and change over in a pause of less than a second. The files' \
contents stay where they are, and so do the names of volumes, tokens and servers. The address is kept in the registry with its password, so that every \
server reaches the place; given again with another password, it is replaced. Ending this command does not end the move: asked again, it goes on watching.

Examples:
  forebay volume migrate scratch --to postgres://forebay:SECRET@db.example.org/forebay --meta meta1.example.org
  forebay volume migrate scratch --to slate:s3://bucket/meta --meta meta1.example.org"
    )]
    Migrate(VolumeMigrateArgs),
    /// Delete a volume that nobody has mounted, with its tokens
    #[command(
        after_help = "Example:\n  forebay volume delete scratch --objects --yes --meta meta1.example.org"
    )]
    Delete(VolumeDeleteArgs),
}

/// `forebay volume create`
#[derive(Debug, clap::Args)]
pub struct VolumeCreateArgs {
    /// The volume's name: a-z, 0-9, '-', '_' and '.'
    pub name: String,
    /// Where the data rests: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIR
    #[arg(long, value_name = "URL")]
    pub store: StoreUrl,
    /// The store's service where it is not the provider's own, such as https://minio.example.org:9000
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The store's region
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Size of a block, a power of two from 256KiB to 8MiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    pub block_size: ByteSize,
    /// How data is compressed
    #[arg(long, value_name = "HOW", default_value_t = Compression::Lz4, value_parser = words(Compression::ALL, Compression::as_str))]
    pub compression: Compression,
    /// How many bytes its files may have [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<ByteSize>,
    /// The group of proxies through which it is read; of several (A,B) each mount goes by the nearest
    #[arg(long, value_name = "GROUP[,GROUP…]")]
    pub group: Option<GroupNames>,
    /// What has the data when a sync returns: object (the store), replica[:K] (the disks of K members of its group), or local (that of the proxy on the machine that writes, alone; where there is none, the store)
    #[arg(long, value_name = "CLASS", default_value_t = WriteClass::Object)]
    pub durability: WriteClass,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume list`
#[derive(Debug, clap::Args)]
pub struct VolumeListArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume show`
#[derive(Debug, clap::Args)]
pub struct VolumeShowArgs {
    /// The volume
    pub name: String,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume set`
#[derive(Debug, clap::Args)]
pub struct VolumeSetArgs {
    /// The volume
    pub name: String,
    /// How new data is compressed
    #[arg(long, value_name = "HOW", value_parser = words(Compression::ALL, Compression::as_str))]
    pub compression: Option<Compression>,
    /// How many bytes its files may have, or 'none'
    #[arg(long, value_name = "SIZE", value_parser = or_none::<ByteSize>)]
    pub limit: Option<OrNone<ByteSize>>,
    /// The store's service, or 'none' for the provider's own
    #[arg(long, value_name = "URL", value_parser = or_none::<String>)]
    pub endpoint: Option<OrNone<String>>,
    /// The group of proxies through which it is read, or 'none'; of several (A,B) each mount goes by the nearest
    #[arg(long, value_name = "GROUP[,GROUP…]", value_parser = or_none::<GroupNames>)]
    pub group: Option<OrNone<GroupNames>>,
    /// What has the data when a sync returns: object (the store), replica[:K] (the disks of K members of its group), or local (that of the proxy on the machine that writes, alone; where there is none, the store)
    #[arg(long, value_name = "CLASS")]
    pub durability: Option<WriteClass>,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume migrate`
#[derive(Debug, clap::Args)]
pub struct VolumeMigrateArgs {
    /// The volume
    pub name: String,
    /// Where to: dir:/PATH, postgres://USER:PASSWORD@HOST/DATABASE or slate:s3://BUCKET/PREFIX
    #[arg(long, value_name = "ENGINE", env = "FOREBAY_MIGRATE_TO", hide_env_values = true)]
    pub to: String,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay volume delete`
#[derive(Debug, clap::Args)]
pub struct VolumeDeleteArgs {
    /// The volume
    pub name: String,
    /// Delete its objects from the store as well, instead of leaving them there
    #[arg(long)]
    pub objects: bool,
    /// Really: its files cannot be had back
    #[arg(long)]
    pub yes: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
}

/// Names of groups, with commas between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupNames(pub Vec<String>);

impl std::str::FromStr for GroupNames {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupNames, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err("a name is missing: give the names of groups with a comma between them".to_owned());
        }
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(format!("'{name}' is named twice"));
        }
        if names.len() > GROUPS_MAX {
            return Err(format!("{} groups: a volume has {GROUPS_MAX} at most", names.len()));
        }
        Ok(GroupNames(names))
    }
}

/// A value, or the word `none`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrNone<T>(pub Option<T>);

fn or_none<T: std::str::FromStr>(text: &str) -> Result<OrNone<T>, T::Err> {
    if text == "none" { Ok(OrNone(None)) } else { text.parse().map(|value| OrNone(Some(value))) }
}

/// `forebay token`
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Whoever has a token's secret may mount its volume, as far as the token goes. The servers keep only a digest of it: a secret that is lost is \
replaced by a new token.

Examples:
  forebay token create scratch --meta meta1.example.org > /etc/forebay/scratch.token
  forebay token create scratch --root /public --read-only --expires 30d --meta meta1.example.org
  forebay token revoke 7fb1c2ab70b28b8e --meta meta1.example.org"
)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands of `forebay token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print its secret: nobody can read it again
    #[command(after_help = "Examples:
  forebay token create scratch --meta meta1.example.org > /etc/forebay/scratch.token
  forebay token create scratch --root /public --read-only --expires 30d --meta meta1.example.org")]
    Create(TokenCreateArgs),
    /// List the tokens of a volume, or all
    List(TokenListArgs),
    /// End a token, and the mounts that were made with it
    Revoke(TokenRevokeArgs),
}

/// `forebay token create`
#[derive(Debug, clap::Args)]
pub struct TokenCreateArgs {
    /// The volume
    pub volume: String,
    /// The directory that is the root of what is mounted with it, from the volume's root on
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: String,
    /// Nothing may be changed
    #[arg(long)]
    pub read_only: bool,
    /// Nothing may be executed
    #[arg(long)]
    pub no_exec: bool,
    /// Root of the machine that mounts it is nobody there
    #[arg(long)]
    pub root_squash: bool,
    /// How long it counts, such as 12h, 30d or 52w [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Lifetime>,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON, with the secret
    #[arg(long)]
    pub json: bool,
}

/// `forebay token list`
#[derive(Debug, clap::Args)]
pub struct TokenListArgs {
    /// The volume [default: all]
    pub volume: Option<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay token revoke`
#[derive(Debug, clap::Args)]
pub struct TokenRevokeArgs {
    /// The token's number, as `forebay token list` shows it
    pub id: String,
    /// Whom to ask.
    #[command(flatten)]
    pub servers: ServersArgs,
}
