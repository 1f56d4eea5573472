//! The mount of a volume that servers keep: no volume is opened here, and nobody takes it over.
//!
//! Order that must hold: the session with the servers has begun before anything is mounted, and ends after the mount; the volume has the kernel's
//! copies before the first request.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use forebay_fuse::MountOptions;
use forebay_mount::{Lifetimes, VolumeFs};
use forebay_protocol::Rights;
use forebay_vfs::{AtimeMode, Files, LockKeeper, Vfs, VfsOptions};
use forebay_volume::{ASSEMBLED_MIN, SealedFiles};
use rustix::process::geteuid;

use crate::{
    args::MountArgs,
    control::shared_socket_name,
    daemon::{
        Reporter, control,
        end::finish,
        kept::Kept,
        life::Life,
        lives::Lives,
        preflight::{CACHE_SIZE_DEFAULT, absolute, enough_cache, may_mount, mount_point, usable_cache},
        serve::{self, Line},
        settings::Settings,
        signals,
    },
    error::CliError,
    mount_options::MountFlags,
    passthrough::{Passthrough, Wish},
    shared::{Opened, SharedOptions, SharedUrl, access, open_shared},
    size::ByteSize,
};

/// A mount of a shared volume that nothing speaks against so far. All paths are absolute.
#[derive(Debug)]
pub(crate) struct SharedSetup {
    pub(crate) url: SharedUrl,
    pub(crate) options: SharedOptions,
    /// Free of symlinks.
    pub(crate) mountpoint: PathBuf,
    pub(crate) flags: MountFlags,
    /// The same as it was asked for.
    pub(crate) lists: Vec<String>,
    pub(crate) metrics: Option<SocketAddr>,
    /// The log that was asked for.
    pub(crate) log: Option<PathBuf>,
    /// Whether the kernel is to read sealed files by itself, and where their plain files are.
    pub(crate) passthrough: Passthrough,
    pub(crate) passthrough_dir: Option<PathBuf>,
}

impl SharedSetup {
    /// What the mount table calls it.
    pub(crate) fn source(&self) -> PathBuf {
        self.url.to_string().into()
    }

    /// The kernel keeps to what the token leaves out, so that nothing of it need be asked of the servers.
    fn mount_options(&self, rights: &Rights) -> MountOptions {
        let root = geteuid().is_root();
        MountOptions {
            fsname: self.url.to_string(),
            subtype: "forebay".to_owned(),
            default_permissions: true,
            allow_other: self.flags.allow_other,
            read_only: self.flags.read_only || rights.read_only,
            noatime: self.flags.atime == AtimeMode::Off,
            nosuid: self.flags.nosuid || !root,
            nodev: self.flags.nodev || !root,
            noexec: self.flags.noexec || rights.no_exec,
        }
    }

    fn vfs_options(&self, rights: &Rights) -> VfsOptions {
        let locks = if self.flags.local_locks { LockKeeper::Kernel } else { LockKeeper::Vfs };
        VfsOptions {
            atime: self.flags.atime,
            acls: !self.flags.noacl,
            locks,
            root_squash: rights.root_squash,
            ..VfsOptions::default()
        }
    }

    /// What assembles its sealed files, if it is to.
    fn sealed(&self, files: &Arc<dyn Files>) -> Result<Option<Arc<SealedFiles>>, CliError> {
        let Some((size, dir)) =
            Some(self.passthrough.size()).filter(|size| *size > 0).zip(self.passthrough_dir.as_ref())
        else {
            return Ok(None);
        };
        let min = self.flags.passthrough_min.map_or(ASSEMBLED_MIN, |size| size.0);
        let sealed = SealedFiles::start(Arc::clone(files), dir, (size, min));
        sealed.map(Some).map_err(CliError::io("assemble files in", dir))
    }

    /// Where the root user is nobody, each name is asked for: one that the kernel remembers it would find for anybody.
    fn lifetimes(&self, rights: &Rights) -> Lifetimes {
        let entry = if rights.root_squash { Duration::ZERO } else { self.flags.lifetimes.entry };
        Lifetimes { entry, ..self.flags.lifetimes }
    }
}

/// Looks at everything that the mount needs. Changes nothing, but for making a cache directory that was asked for.
pub(crate) fn check_shared(args: &MountArgs, url: SharedUrl) -> Result<SharedSetup, CliError> {
    let mut flags = MountFlags::parse(&args.options).map_err(CliError::Usage)?;
    if args.passthrough_plaintext || flags.passthrough_plaintext {
        let message =
            format!("'{url}' is a shared volume, which is not encrypted: without passthrough_plaintext");
        return Err(CliError::Usage(message));
    }
    if flags.atime == AtimeMode::Relative {
        // An access would be a change, for which all machines that read the file had to be asked.
        flags.atime = AtimeMode::Off;
    }
    let cache_size = args.cache_size.or(flags.cache_size).unwrap_or(CACHE_SIZE_DEFAULT);
    enough_cache(cache_size)?;
    let access = access(args, &flags, &url)?;
    let mountpoint = mount_point(args.named().1)?;
    may_mount(&mountpoint)?;
    let cache_dir = args.cache_dir.clone().or_else(|| flags.cache_dir.clone());
    let cache_dir = cache_dir.map(|dir| absolute(&dir)).transpose()?;
    if let Some(dir) = &cache_dir {
        usable_cache(dir)?;
    }
    let passthrough_dir = flags.passthrough_dir.clone().or_else(|| cache_dir.clone());
    if let Some(dir) = &flags.passthrough_dir {
        usable_cache(dir)?;
    }
    let wish = Wish {
        size: args.passthrough_size.or(flags.passthrough_size),
        min: flags.passthrough_min.unwrap_or(ByteSize(ASSEMBLED_MIN)),
        plaintext: false,
        read_only: flags.read_only,
        cache_size,
    };
    let may = forebay_fuse::may_pass_through();
    let passthrough = Passthrough::of_shared(&wish, passthrough_dir.is_some(), may)?;
    let log = args.log.clone().or_else(|| flags.log.clone()).map(|file| absolute(&file)).transpose()?;
    Ok(SharedSetup {
        options: SharedOptions {
            access,
            patience: flags.patience(),
            read_only: flags.read_only,
            ahead: !flags.no_ahead,
            cache_dir,
            cache_size: cache_size.0,
        },
        url,
        mountpoint,
        lists: args.options.clone(),
        metrics: args.metrics.or(flags.metrics),
        flags,
        log,
        passthrough,
        passthrough_dir,
    })
}

/// Begins the session, mounts, serves until unmounted, settles and ends the session.
pub(crate) fn serve_shared(
    setup: SharedSetup,
    log: Option<PathBuf>,
    reporter: Reporter,
) -> Result<ExitCode, CliError> {
    let begun = open_shared(&setup.url, &setup.options).and_then(|opened| begin(&setup, opened, log));
    let begun = begun.and_then(|begun| {
        signals::listen(&begun.lives, reporter.is_log())?;
        Ok(begun)
    });
    match begun {
        Ok(begun) => begun.run(&setup, Some(reporter)),
        Err(error) => serve::not_begun(error, reporter),
    }
}

struct Begun {
    line: Line,
    fs: Arc<VolumeFs>,
    lives: Arc<Lives>,
    socket: control::Socket,
}

fn begin(setup: &SharedSetup, opened: Opened, log: Option<PathBuf>) -> Result<Begun, CliError> {
    let Opened { files, keeper, rights } = opened;
    let metrics = setup.metrics.map(serve::bind).transpose()?;
    let sealed = setup.sealed(&files)?;
    let vfs = Arc::new(Vfs::new(files, setup.vfs_options(&rights)));
    let fs = VolumeFs::new(vfs, None).with_lifetimes(setup.lifetimes(&rights));
    let fs = Arc::new(match sealed {
        Some(sealed) => fs.with_sealed(sealed),
        None => fs,
    });
    let (url, read_only) = (setup.url.clone(), setup.options.read_only || rights.read_only);
    let kept = Kept::ByServers { url, keeper: Arc::clone(&keeper), read_only };
    let mut life = Life::new(&fs, kept, setup.mountpoint.clone(), serve::terms(&fs));
    life.log = log.clone();
    life.passthrough = setup.passthrough.clone();
    life.metrics = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
    let lives = Lives::new(Arc::new(life), Settings::of_shared(setup, log));
    let name = shared_socket_name(&setup.source(), &setup.mountpoint);
    let socket = control::listen(&lives, &name)?;
    let mounted = serve::listen_to_metrics(&lives, metrics.as_ref())
        .and_then(|()| Ok(forebay_fuse::mount(&setup.mountpoint, &setup.mount_options(&rights))?));
    let session = match mounted {
        Ok(session) => session,
        Err(error) => {
            socket.remove();
            keeper.close().map_err(CliError::Told)?;
            return Err(error);
        }
    };
    let kernel = fs.tell_recalls_by(session.notifier());
    keeper.serve(kernel.map_err(CliError::io("start a thread for", &setup.mountpoint))?);
    Ok(Begun { line: Line::New(session), fs, lives, socket })
}

impl Begun {
    /// Serves until unmounted.
    fn run(self, setup: &SharedSetup, reporter: Option<Reporter>) -> Result<ExitCode, CliError> {
        let Begun { line, fs, lives, socket } = self;
        let ended = serve::run(line, fs, &lives, setup.flags.transport.into(), None, reporter);
        let code = lives.current().map_or(ExitCode::FAILURE, |life| finish(&life));
        socket.remove();
        ended.map(|_| code)
    }
}

#[cfg(test)]
mod tests;
