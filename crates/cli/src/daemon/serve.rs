//! From a volume that is closed to one that is closed again, with a mount in between.

use std::{
    net::TcpListener,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::{
    Ended, Filesystem, KernelOffer, MountOptions, Paused, Request, Session, SessionError, SessionOptions,
    Transport,
    flags::{Capabilities, OpenFlags},
    types::Open,
};
use forebay_mount::{PassthroughHandover, VolumeFs};
use forebay_types::Ino;
use forebay_vfs::{Files, Handover, LockKeeper, Vfs, VfsOptions};
use forebay_volume::{ASSEMBLED_MIN, OpenOptions, Volume, VolumeError};
use rustix::process::geteuid;

use crate::{
    control::socket_name,
    daemon::{
        Reporter, Setup, control,
        end::finish,
        handover::{self, Back, Given},
        kept::Kept,
        life::{Life, Terms, Way},
        lives::Lives,
        metrics, service,
        settings::Settings,
        signals,
        takeover::{self, Go, PauseClock},
    },
    error::CliError,
    holder::patiently,
    mounts::Mounted,
};

/// The mount's read-ahead: a cold sequential read asks for whole requests, four at a time, so that the store and all processors have work.
const READ_AHEAD_KB: u32 = 4096;
/// How long a process that did not take over may keep the volume.
const REOPEN_PATIENCE: Duration = Duration::from_secs(30);

/// Mounts, serves until unmounted, drains and closes.
pub(crate) fn serve(
    setup: Setup,
    log: Option<std::path::PathBuf>,
    reporter: Reporter,
) -> Result<ExitCode, CliError> {
    begun(begin(setup, log, &reporter), reporter)
}

/// The same with a mount that another process serves: takes it over.
pub(crate) fn take_over(
    setup: Setup,
    mounted: &Mounted,
    log: Option<std::path::PathBuf>,
    reporter: Reporter,
) -> Result<ExitCode, CliError> {
    begun(begin_taken(setup, mounted, log, &reporter), reporter)
}

fn begun(begun: Result<Begun, CliError>, reporter: Reporter) -> Result<ExitCode, CliError> {
    match begun {
        Ok(begun) => begun.run(reporter),
        Err(error) => not_begun(error, reporter),
    }
}

/// Tells who waits why there is no mount.
pub(super) fn not_begun(error: CliError, reporter: Reporter) -> Result<ExitCode, CliError> {
    match error {
        error if reporter.is_log() => Err(error),
        error => {
            tracing::error!("{error}");
            let code = error.exit_code();
            reporter.failed(&error);
            Ok(ExitCode::from(code))
        }
    }
}

/// What serves.
pub(super) enum Line {
    New(Session),
    Paused(Paused),
}

impl Line {
    fn session(&self) -> &Session {
        match self {
            Line::New(session) => session,
            Line::Paused(paused) => paused.session(),
        }
    }

    fn run(self, fs: Arc<VolumeFs>, options: &SessionOptions) -> Result<Ended, SessionError> {
        match self {
            Line::New(session) => session.run(fs, options),
            Line::Paused(paused) => paused.run(fs, options),
        }
    }
}

/// Everything that a process serves with.
struct Begun {
    setup: Setup,
    line: Line,
    fs: Arc<VolumeFs>,
    lives: Arc<Lives>,
    socket: control::Socket,
    metrics: Option<TcpListener>,
    /// Of a mount that was taken over: since when nobody serves.
    pause: Option<PauseClock>,
}

fn begin(setup: Setup, log: Option<std::path::PathBuf>, reporter: &Reporter) -> Result<Begun, CliError> {
    let metrics = setup.metrics.map(bind).transpose()?;
    let volume = open(&setup, Vec::new(), true)?;
    let options = vfs_options(&setup, &volume);
    let vfs = Arc::new(Vfs::new(Arc::clone(&volume) as Arc<dyn Files>, options));
    let (fs, life) = live(&setup, vfs, volume, log.clone(), metrics.as_ref());
    let lives = Lives::new(Arc::clone(&life), Settings::of(&setup, log));
    let socket = control::listen(&lives, &socket_name(&setup.volume, &setup.config))?;
    listen_to_metrics(&lives, metrics.as_ref())?;
    let session = match forebay_fuse::mount(&setup.mountpoint, &mount_options(&setup)) {
        Ok(session) => session,
        Err(error) => {
            life.kept.close()?;
            socket.remove();
            return Err(error.into());
        }
    };
    drop(life);
    signals::listen(&lives, reporter.is_log())?;
    Ok(Begun { setup, line: Line::New(session), fs, lives, socket, metrics, pause: None })
}

fn begin_taken(
    setup: Setup,
    mounted: &Mounted,
    log: Option<std::path::PathBuf>,
    reporter: &Reporter,
) -> Result<Begun, CliError> {
    let Go { paused, vfs, volume, through, metrics, pause } =
        takeover::take(&setup, mounted)?.wait_for_go()?;
    // From here on nobody else serves.
    let (fs, life) = live(&setup, vfs, volume, log.clone(), metrics.as_ref());
    take_files_over(&fs, &paused, through);
    let lives = Lives::new(Arc::clone(&life), Settings::of(&setup, log));
    let socket = control::listen(&lives, &socket_name(&setup.volume, &setup.config))?;
    listen_to_metrics(&lives, metrics.as_ref())?;
    life.kept.here()?.resume()?;
    drop(life);
    signals::listen(&lives, reporter.is_log())?;
    Ok(Begun { setup, line: Line::Paused(paused), fs, lives, socket, metrics, pause: Some(pause) })
}

/// Goes on with the files that the kernel reads by itself.
fn take_files_over(fs: &VolumeFs, paused: &Paused, through: Option<PassthroughHandover>) {
    fs.connect(paused.session().backing_files(), paused.notifier());
    if let Some(through) = through {
        fs.take_over_passthrough(through);
    }
}

/// The file system over `vfs`, and what the threads of the process share.
fn live(
    setup: &Setup,
    vfs: Arc<Vfs>,
    volume: Arc<Volume>,
    log: Option<std::path::PathBuf>,
    metrics: Option<&TcpListener>,
) -> (Arc<VolumeFs>, Arc<Life>) {
    let served = VolumeFs::new(vfs, Some(Arc::clone(&volume)));
    let fs = Arc::new(served.with_lifetimes(setup.flags.lifetimes));
    let mut life = Life::new(&fs, Kept::Here(volume), setup.mountpoint.clone(), terms(&fs));
    life.log = log;
    life.passthrough = setup.passthrough.clone();
    life.metrics = metrics.and_then(|listener| listener.local_addr().ok());
    (fs, Arc::new(life))
}

pub(super) fn listen_to_metrics(lives: &Arc<Lives>, listener: Option<&TcpListener>) -> Result<(), CliError> {
    let Some(listener) = listener else { return Ok(()) };
    let own = listener
        .try_clone()
        .map_err(CliError::io("copy the socket of metrics of", &lives.settings.mountpoint))?;
    metrics::serve(lives, own)
}

pub(super) fn bind(addr: std::net::SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(addr).map_err(|error| {
        CliError::Told(format!("cannot serve metrics on {addr}: {error}; choose another address"))
    })
}

pub(super) fn mount_options(setup: &Setup) -> MountOptions {
    let root = geteuid().is_root();
    MountOptions {
        fsname: setup.volume.display().to_string(),
        subtype: "forebay".to_owned(),
        default_permissions: true,
        allow_other: setup.flags.allow_other,
        read_only: setup.flags.read_only,
        noatime: setup.flags.atime == forebay_vfs::AtimeMode::Off,
        nosuid: setup.flags.nosuid || !root,
        nodev: setup.flags.nodev || !root,
        noexec: setup.flags.noexec,
    }
}

pub(super) fn vfs_options(setup: &Setup, volume: &Volume) -> VfsOptions {
    // A file that the kernel reads by itself has two numbers there, and the kernel keeps locks by number.
    let locks = if volume.assembles() { LockKeeper::Vfs } else { LockKeeper::Kernel };
    let (atime, acls) = (setup.flags.atime, !setup.flags.noacl);
    VfsOptions { atime, acls, locks, ..VfsOptions::default() }
}

/// Opens the volume. `in_use`: inodes that are open although they may have no name. `background`: with its background work.
pub(super) fn open(setup: &Setup, in_use: Vec<Ino>, background: bool) -> Result<Arc<Volume>, CliError> {
    let options = OpenOptions {
        read_only: setup.flags.read_only,
        cache_dir: setup.cache_dir.clone(),
        cache_size: setup.cache_size.0,
        in_use,
        background,
        assembled_size: setup.passthrough.size(),
        assembled_min: setup.flags.passthrough_min.map_or(ASSEMBLED_MIN, |size| size.0),
        assemble_decrypted: setup.passthrough.size() > 0,
        ..OpenOptions::default()
    };
    patiently(&setup.volume, || Volume::open(&setup.volume, &options))
}

/// How the kernel is told to cache, asked of the file system itself.
pub(super) fn terms(fs: &VolumeFs) -> Terms {
    let offer =
        KernelOffer { minor: 45, max_readahead: u32::MAX, capabilities: Capabilities::from_bits(u64::MAX) };
    let asker = Request { unique: 0, uid: 0, gid: 0, pid: 0, supplementary_group: None };
    let lifetime = fs.getattr(&asker, 1, None).map_or(Duration::ZERO, |attr| attr.ttl);
    let dir = fs.opendir(&asker, 1, &Open { flags: 0, kill_suidgid: false }).map(|opened| {
        let release =
            forebay_fuse::types::Release { fh: opened.fh, flags: 0, lock_owner: 0, flock_release: false };
        let _ = fs.releasedir(&asker, 1, &release);
        opened.flags.bits()
    });
    Terms {
        capabilities: fs.init(&offer).map_or(0, |config| config.capabilities.bits()),
        lifetime_ms: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
        open_flags: (OpenFlags::KEEP_CACHE | OpenFlags::PARALLEL_DIRECT_WRITES).bits(),
        dir_flags: dir.unwrap_or(0),
        read_ahead_kb: READ_AHEAD_KB,
    }
}

impl Begun {
    /// Serves until unmounted or taken over.
    fn run(mut self, reporter: Reporter) -> Result<ExitCode, CliError> {
        let mut reporter = Some(reporter);
        loop {
            let Begun { setup, line, fs, lives, socket, metrics, pause } = self;
            let transport = setup.flags.transport.into();
            let ended = run(line, fs, &lives, transport, pause, reporter.take());
            let paused = match ended {
                Ok(Ended::Paused(paused)) => *paused,
                ended => {
                    let code = lives.current().map_or(ExitCode::FAILURE, |life| finish(&life));
                    socket.remove();
                    return ended.map(|_| code);
                }
            };
            match handover::give(paused, &lives, metrics.as_ref())? {
                Given::Taken => return Ok(ExitCode::SUCCESS),
                Given::Back(back) => {
                    let (line, fs) = go_on(&setup, &lives, *back, metrics.as_ref())?;
                    self = Begun { setup, line, fs, lives, socket, metrics, pause: None };
                }
            }
        }
    }
}

/// Another life with what is left of one that nobody took over.
fn go_on(
    setup: &Setup,
    lives: &Arc<Lives>,
    back: Back,
    metrics: Option<&TcpListener>,
) -> Result<(Line, Arc<VolumeFs>), CliError> {
    let Back { paused, state, through, stats, began } = back;
    let volume = reopen(setup, &state)?;
    let options = vfs_options(setup, &volume);
    let vfs = Arc::new(Vfs::take_over(Arc::clone(&volume) as Arc<dyn Files>, options, state));
    let served = VolumeFs::new(vfs, Some(Arc::clone(&volume)));
    let fs = Arc::new(served.with_lifetimes(setup.flags.lifetimes));
    take_files_over(&fs, &paused, through);
    let mut life = Life::new(&fs, Kept::Here(volume), setup.mountpoint.clone(), terms(&fs));
    life.log = lives.settings.log.clone();
    life.passthrough = setup.passthrough.clone();
    life.metrics = metrics.and_then(|listener| listener.local_addr().ok());
    (life.stats, life.began) = (stats, began);
    lives.begin(Arc::new(life));
    service::become_main_process();
    tracing::info!("this process goes on");
    Ok((Line::Paused(paused), fs))
}

/// Opens the volume again once the other process has let go of it.
fn reopen(setup: &Setup, state: &Handover) -> Result<Arc<Volume>, CliError> {
    let begun = Instant::now();
    loop {
        match open(setup, state.in_use(), true) {
            Err(CliError::Volume(VolumeError::InUse { .. })) if begun.elapsed() < REOPEN_PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Serves until unmounted or paused. Reports when it is served, or why it is not.
pub(super) fn run(
    line: Line,
    fs: Arc<VolumeFs>,
    lives: &Arc<Lives>,
    transport: Transport,
    pause: Option<PauseClock>,
    reporter: Option<Reporter>,
) -> Result<Ended, CliError> {
    let life = lives.current().ok_or_else(|| CliError::Told("there is nothing to serve".to_owned()))?;
    let notifier = line.session().notifier();
    fs.connect(line.session().backing_files(), notifier.clone());
    fs.tell_accesses_by(notifier).map_err(CliError::io("start a thread for", &life.mountpoint))?;
    lives.set_pauser(line.session().pauser());
    let reporter = Arc::new(Mutex::new(reporter));
    let take =
        |reporter: &Mutex<Option<Reporter>>| reporter.lock().unwrap_or_else(PoisonError::into_inner).take();
    let options = SessionOptions {
        read_ahead_kb: Some(READ_AHEAD_KB),
        observer: Some(Arc::clone(&life.stats) as _),
        transport,
        ..SessionOptions::default()
    };
    let waiting = Arc::clone(&reporter);
    fs.when_started(move |agreed| {
        let over_uring = agreed.capabilities.contains(Capabilities::OVER_IO_URING);
        let way = life.transport.get_or_init(|| Way::new(over_uring, transport));
        let (volume, place) = (life.kept.name(), life.mountpoint.display());
        let Some(reporter) = take(&waiting) else { return };
        match pause {
            None => {
                tracing::info!("'{volume}' is mounted on '{place}'");
                reporter.ready(way);
            }
            Some(pause) => {
                let (ms, process) = (pause.elapsed_ms(), std::process::id());
                tracing::info!("'{volume}' on '{place}' taken over; nobody served for {ms:.1} ms");
                reporter.ready(&format_args!(
                    "process {process}, {ms:.1} ms without service; requests travel by {way}"
                ));
            }
        }
    });
    let result = line.run(fs, &options);
    if let Err(error) = &result {
        tracing::error!("{error}");
        if let Some(reporter) = take(&reporter) {
            reporter.failed(&CliError::Told(error.to_string()));
        }
    }
    match result {
        Err(SessionError::EndedEarly(_)) => Ok(Ended::Unmounted),
        result => Ok(result?),
    }
}
