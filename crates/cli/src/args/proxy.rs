//! `forebay proxy`

use std::{net::SocketAddr, path::PathBuf};

use clap::ValueHint;
use forebay_rpc::Address;

use super::ServersArgs;
use crate::size::ByteSize;

/// `forebay proxy`
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forebay proxy --meta <ADDR> --group <NAME> --cache-dir <DIR> --cache-size <SIZE>\n                     --listen <ADDR> [OPTIONS]",
    after_help = "The proxy stays in front and logs to standard error. SIGTERM and Ctrl-C make it leave the group in order; a second signal ends it as it is, and the \
group counts it out 10 seconds later.

Its directory is the identity of a member, and of one disk: a copied or restored one is refused, and an emptied one begins as a new member. Credentials of \
stores come from the usual variables of the provider (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, ...), as for a mount; which store it is, the \
metadata servers say. A proxy asks them with the right to administer.

Without TLS it listens on Unix sockets, and with --insecure on addresses of this machine alone.

Examples:
  forebay group create fast --meta meta1.example.org
  forebay proxy --meta meta1.example.org --group fast --cache-dir /nvme/forebay --cache-size 3TiB \\
      --listen 0.0.0.0:7301 --advertise node7.example.org:7301 --zone rack2 \\
      --tls-ca ca.pem --tls-cert node7.pem --tls-key node7.key
  forebay volume set scratch --group fast --meta meta1.example.org"
)]
pub struct ProxyArgs {
    /// The group that it is a member of
    #[arg(long, value_name = "NAME")]
    pub group: String,
    /// Where its cache is: a directory of its own that is missing, empty, or this member's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: PathBuf,
    /// How much of that disk the cache may take, such as 3TiB
    #[arg(long, value_name = "SIZE")]
    pub cache_size: ByteSize,
    /// Where to listen: HOST:PORT or unix:/PATH; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    pub listen: Vec<Address>,
    /// Where clients and other members reach it [default: the first address to listen at]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<Address>,
    /// Its share of what is cached, 1 to 1048576 [default: the GiB of its cache]
    #[arg(long, value_name = "SHARE", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub weight: Option<u32>,
    /// Its failure domain, such as a rack [default: its machine]
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Let everybody on this machine ask, without certificate
    #[arg(long)]
    pub insecure: bool,
    /// Serve Prometheus metrics on this address, such as 127.0.0.1:9189, under /metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// Metadata servers, and certificates.
    #[command(flatten)]
    pub servers: ServersArgs,
}
