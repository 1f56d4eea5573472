//! The command line, from which help, shell completions and man pages are made.

mod bench;
mod dev;
mod group;
mod meta;
mod pki;
mod policy;
mod proxy;
mod warm;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{
    Parser, Subcommand, ValueHint,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;
use forebay_object::StoreUrl;
use forebay_rpc::Address;
use forebay_types::{Compression, Durability, Encryption};

use crate::{shared::SharedUrl, size::ByteSize};

pub use bench::{BenchArgs, BenchLoaderArgs, LateStoreArgs, NullMountArgs};
pub use dev::{DevArgs, DevClusterArgs, DevCommand};
pub use group::{
    GroupArgs, GroupCommand, GroupCreateArgs, GroupDrainArgs, GroupListArgs, GroupLostArgs, GroupMemberArgs,
    GroupRemoveArgs, GroupSetArgs, GroupShowArgs,
};
pub use meta::{
    MetaArgs, MetaCommand, MetaServerArgs, MetaStatusArgs, ServersArgs, TlsArgs, TokenArgs, TokenCommand,
    TokenCreateArgs, TokenListArgs, TokenRevokeArgs, VolumeArgs, VolumeCommand, VolumeCreateArgs,
    VolumeDeleteArgs, VolumeListArgs, VolumeMigrateArgs, VolumeSetArgs, VolumeShowArgs,
};
pub use pki::{PkiArgs, PkiCommand, PkiInitArgs, PkiIssueArgs};
pub use policy::{
    PolicyArgs, PolicyCommand, PolicyServersArgs, PolicySetArgs, PolicyShowArgs, PolicyUnsetArgs,
};
pub use proxy::ProxyArgs;
pub use warm::{WarmArgs, WarmPlace};

/// A POSIX file system on a directory or a bucket.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    about = "A POSIX file system whose data rests in a directory or in object storage",
    after_help = "Example:\n  forebay create ~/volume\n  mkdir ~/data && forebay mount ~/volume ~/data\n  forebay umount ~/data",
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume
    Create(CreateArgs),
    /// Mount a volume on a directory
    Mount(MountArgs),
    /// Unmount: bring everything into the store, then end the process behind the mount
    Umount(UmountArgs),
    /// Say what a volume is, what it holds and what is still to be done
    Status(StatusArgs),
    /// Show what a mount does right now: operations, latency, throughput
    Stats(StatsArgs),
    /// Check a volume, mounted or not, and repair one that is not mounted
    Fsck(FsckArgs),
    /// Give space back: move live data out of mostly empty objects and delete what nothing refers to
    Gc(GcArgs),
    /// Bring files of a mounted volume near: into its group's proxies, and into this machine's cache
    Warm(WarmArgs),
    /// Say what fsync waits for in a directory of a mounted shared volume, or of a file
    Policy(PolicyArgs),
    /// Measure a mounted directory, of whatever file system
    Bench(BenchArgs),
    /// Run a metadata server, for volumes that many machines share
    Meta(MetaArgs),
    /// Make, show, change and delete shared volumes
    Volume(VolumeArgs),
    /// Let machines use shared volumes, or no longer
    Token(TokenArgs),
    /// Run a proxy: a member of a group that caches on its disk what machines read
    Proxy(ProxyArgs),
    /// Make, show and change groups of proxies, and let members of them go
    Group(GroupArgs),
    /// Make certificates for the machines of a cluster, where there is no authority that does
    Pki(PkiArgs),
    /// Try things out on one machine
    Dev(DevArgs),
    /// Print the completions of a shell
    #[command(after_help = "Example:\n  forebay completions bash > /etc/bash_completion.d/forebay")]
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    #[command(after_help = "Example:\n  forebay man /usr/local/share/man/man1")]
    Man(ManArgs),
    /// Mount the do-nothing file system that benchmarks compare with
    #[command(hide = true)]
    NullMount(NullMountArgs),
    /// Be the far-away bucket of a benchmark
    #[command(hide = true)]
    LateStore(LateStoreArgs),
    /// Be a loader of a benchmark's training loop
    #[command(hide = true)]
    BenchLoader(BenchLoaderArgs),
    /// Make requests of a mount on one processor, for a process that takes it over
    #[command(hide = true)]
    DebugKnock(KnockArgs),
    /// Print the names of the places that wait for stable storage, for tests
    #[command(hide = true)]
    DebugSyncPoints,
}

/// `forebay create`
#[derive(Debug, clap::Args)]
#[command(after_help = "Sizes are in bytes or with a unit, in powers of 1024: 512k, 4MiB, 1G.

Examples:
  forebay create /srv/volume
  forebay create /srv/volume --store s3://bucket/prefix --region eu-central-1
  forebay create /srv/volume --store file:///mnt/disk/objects --compression zstd
  forebay create /srv/volume --recover-from s3://bucket/prefix

Credentials come from the usual variables of the provider (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, ...).
The store is tried out first: put, conditional put, read of a range, list, delete.")]
pub struct CreateArgs {
    /// The volume: a directory that is missing or empty. It keeps the metadata, the journal and what is not in the store yet
    #[arg(value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// Where the data rests: file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX [default: a directory
    /// inside VOLUME]
    #[arg(long, value_name = "URL")]
    pub store: Option<StoreUrl>,
    /// The store's service where it is not the provider's own, such as http://localhost:9000 [default: AWS_ENDPOINT_URL]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The store's region [default: AWS_REGION]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Size of a block, a power of two from 256KiB to 8MiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    pub block_size: ByteSize,
    /// How data is compressed
    #[arg(long, value_name = "HOW", default_value_t = Compression::Lz4, value_parser = words(Compression::ALL, Compression::as_str))]
    pub compression: Compression,
    /// Whether data is encrypted before it leaves this machine. The key is in VOLUME/key: keep a copy
    #[arg(long, value_name = "HOW", default_value_t = Encryption::None, value_parser = words(Encryption::ALL, Encryption::as_str))]
    pub encryption: Encryption,
    /// What fsync waits for: local (this machine's disk; the store gets it in the background) or object (the store)
    #[arg(long, value_name = "CLASS", default_value_t = Durability::Local, value_parser = words(Durability::ALL, Durability::as_str))]
    pub durability: Durability,
    /// Bring back the volume that is in this store, after the machine that had it is lost. That machine can then no longer write there
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "block_size", "compression", "encryption", "durability"])]
    pub recover_from: Option<StoreUrl>,
    /// With --recover-from, for an encrypted volume: the copy of its key
    #[arg(long, value_name = "FILE", requires = "recover_from", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
}

/// `forebay mount`
#[derive(Debug, Clone, Default, clap::Args)]
#[command(
    override_usage = "forebay mount [OPTIONS] <VOLUME> <MOUNTPOINT>\n       forebay mount [OPTIONS] forebay://<HOST>/<NAME> <MOUNTPOINT>\n       forebay mount --takeover [-f] [VOLUME] <MOUNTPOINT>",
    after_help = "Options of -o: ro, rw, relatime (default), noatime, strictatime, nosuid, nodev, noexec, noacl, allow_other, \
default_permissions (always on), transport=auto|io_uring|dev_fuse (auto: io_uring where root has turned it on; io_uring: the same, with a warning in the log \
where it is not; dev_fuse: never), attr_timeout=SECONDS and entry_timeout=SECONDS (how long the kernel keeps attributes and names; for good by default), cache_dir=DIR, cache_size=SIZE, passthrough_size=SIZE, passthrough_min=SIZE (the smallest file that the kernel reads by itself; 1MiB), passthrough_dir=DIR (of a shared volume: where such files are assembled; by default in cache_dir), passthrough_plaintext, metrics=ADDR, log=FILE. Those of mount(8) and systemd \
that a file system does not see (_netdev, noauto, nofail, user, x-...) are passed over.

Of a shared volume also: hard (default: what needs the servers waits until they answer), soft and timeout=SECONDS (it fails then; 60), local_locks (locks are seen \
on this machine alone), noahead (each change waits for the servers, also in a directory that nobody else works in; ahead: default), tls_ca=FILE, tls_cert=FILE, tls_key=FILE, token=FILE, insecure. It has no access times unless strictatime is given, and is not \
taken over: unmount it and mount it again.

Examples:
  forebay mount /srv/volume /mnt/data
  forebay mount /srv/volume /mnt/data -o noatime,allow_other
  forebay mount --takeover /mnt/data
  forebay mount forebay://meta1.example.org,meta2.example.org/home /home --token /etc/forebay/home.token \\
      --tls-ca ca.pem --tls-cert node7.pem --tls-key node7.key

A line of /etc/fstab, with this program in /usr/local/bin or /usr/bin:
  /srv/volume  /mnt/data  fuse.forebay  allow_other,_netdev  0  0"
)]
pub struct MountArgs {
    /// The volume, as given to `forebay create`, or a shared one as forebay://HOST[:PORT][,HOST...]/NAME, and an existing directory
    #[arg(value_names = ["VOLUME", "MOUNTPOINT"], value_hint = ValueHint::DirPath, num_args = 1..=2, required = true)]
    pub places: Vec<PathBuf>,
    /// Replace the process behind a mount by this binary, with the settings that it has, while files are open and in use
    #[arg(long, conflicts_with_all = ["options", "cache_dir", "cache_size", "passthrough_size", "passthrough_plaintext", "metrics"])]
    pub takeover: bool,
    /// Stay in front, log to standard error, end on Ctrl-C
    #[arg(short = 'f', long = "foreground")]
    pub foreground: bool,
    /// Mount options, separated by commas; may be given several times
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Where data of a store elsewhere is cached [default: in VOLUME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// What the cache may take on disk, at least 16MiB [default: 10GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<ByteSize>,
    /// What large files that are read again may take on disk, so that the kernel reads them by itself; 0: none [default: with -o ro, or of a
    /// shared volume with a cache, a quarter of --cache-size, otherwise 0]. Of a shared volume those of immutable trees
    #[arg(long, value_name = "SIZE")]
    pub passthrough_size: Option<ByteSize>,
    /// Allow that for an encrypted volume: plain text of such files is on the cache's disk while the mount lasts
    #[arg(long)]
    pub passthrough_plaintext: bool,
    /// Serve Prometheus metrics on this address, such as 127.0.0.1:9187, under /metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// The log [default: /var/log/forebay/VOLUME-ID.log, for users other than root in ~/.local/state/forebay]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Certificates, of a shared volume.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Of a shared volume: a file with a token [default: what FOREBAY_TOKEN has]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token: Option<PathBuf>,
    /// Ask servers without TLS, on this machine alone
    #[arg(long)]
    pub insecure: bool,
    /// Become a daemon that reports on standard output, for the process that started it
    #[arg(long, hide = true)]
    pub detached: bool,
}

impl MountArgs {
    /// The shared volume that is meant, if it is one.
    pub(crate) fn shared(&self) -> Option<Result<SharedUrl, String>> {
        self.places.first().and_then(|place| SharedUrl::of(place))
    }

    /// The volume and the mount point; the volume may be left out.
    #[must_use]
    pub fn named(&self) -> (Option<&Path>, &Path) {
        match self.places.as_slice() {
            [volume, mountpoint] => (Some(volume), mountpoint),
            [mountpoint] => (None, mountpoint),
            _ => (None, Path::new("")),
        }
    }
}

/// `forebay debug-knock`
#[derive(Debug, clap::Args)]
pub struct KnockArgs {
    /// The processor's number
    pub processor: u16,
    /// How many requests
    pub count: usize,
    /// The mount
    pub mountpoint: PathBuf,
}

/// `forebay umount`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Interrupting this command does not interrupt the unmount: it goes on in the background.

Example:
  forebay umount /mnt/data"
)]
pub struct UmountArgs {
    /// Where a volume is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Free the name at once, and end when the last user has closed
    #[arg(long, short = 'l')]
    pub lazy: bool,
    /// Do not wait until the store has everything: what it lacks stays on this machine's disk and is stored after the next mount
    #[arg(long)]
    pub no_drain: bool,
}

/// `forebay status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay status /mnt/data --json | jq .dirty_bytes
  forebay status --meta unix:/run/forebay/meta.sock")]
pub struct StatusArgs {
    /// A volume or where one is mounted [default: all that are mounted]
    #[arg(value_name = "VOLUME|MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub place: Option<PathBuf>,
    /// Of a cluster instead: its servers, shared volumes and clients, by a metadata server: HOST, HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn
    #[arg(long, value_name = "ADDR", value_delimiter = ',', conflicts_with = "place")]
    pub meta: Vec<Address>,
    /// Certificates, to ask servers.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// As JSON; sizes in bytes
    #[arg(long)]
    pub json: bool,
}

/// `forebay stats`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  forebay stats /mnt/data
  forebay stats /mnt/data --once --json")]
pub struct StatsArgs {
    /// Where a volume is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Seconds between two looks, from 0.1 to 3600
    #[arg(long, short = 'i', value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,
    /// Print the totals since the mount once and end
    #[arg(long)]
    pub once: bool,
    /// As JSON, a line for each look; times in nanoseconds
    #[arg(long)]
    pub json: bool,
}

/// `forebay fsck`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Findings go to standard output, a line each. The exit status is 0 where nothing is wrong with what the volume shows \
(files and objects that only take space are named, but are no fault), else 1. After a repair it is what the volume is then.

Examples:
  forebay fsck /srv/volume
  forebay fsck /srv/volume --repair"
)]
pub struct FsckArgs {
    /// A volume, mounted or not, or where one is mounted
    #[arg(value_name = "VOLUME|MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// Put right what can be, without removing anything that can be read; the volume must not be mounted
    #[arg(long)]
    pub repair: bool,
    /// Do not read the data itself: check the metadata, and that all files and objects are there
    #[arg(long, conflicts_with = "drop_lost")]
    pub quick: bool,
    /// With --repair: make holes of data that is lost, instead of leaving reads of it to fail
    #[arg(long, requires = "repair")]
    pub drop_lost: bool,
    /// With --repair: give up what the journal has behind records that were durable and cannot be read any more
    #[arg(long, requires = "repair")]
    pub cut_journal: bool,
    /// Where the copy of the metadata is made that is looked at [default: TMPDIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
    /// The report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay gc`
#[derive(Debug, clap::Args)]
#[command(after_help = "A mounted volume does this by itself in the background; this does it now.

Example:
  forebay gc /srv/volume --dry-run")]
pub struct GcArgs {
    /// A volume, mounted or not, or where one is mounted
    #[arg(value_name = "VOLUME|MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// Only say what could be given back
    #[arg(long)]
    pub dry_run: bool,
}

/// Reads one of `all` by its name, and lets help, completions and refusals list the names.
pub(crate) fn words<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|value| name(*value))).try_map(move |word: String| {
        all.iter().copied().find(|value| name(*value) == word).ok_or("no such word")
    })
}

/// `forebay completions`
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// `forebay man`
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The directory; made if it is missing
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}
