//! From a volume that is closed to one that is closed again, with a mount in between.

use std::{
    net::TcpListener,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::{
    Filesystem, KernelOffer, MountOptions, Request, Session, SessionError, SessionOptions, Transport,
    flags::{Capabilities, OpenFlags},
    types::Open,
};
use forebay_mount::VolumeFs;
use forebay_vfs::{LockKeeper, Vfs, VfsOptions};
use forebay_volume::{OpenOptions, Volume};
use rustix::process::geteuid;

use crate::{
    control::Left,
    daemon::{
        Reporter, Setup, control,
        life::{Life, Phase, Terms, Way},
        metrics, signals,
    },
    error::CliError,
    holder::patiently,
    size::human,
};

/// The mount's read-ahead: a cold sequential read asks for whole requests, four at a time, so that the store and all processors have work.
const READ_AHEAD_KB: u32 = 4096;
/// How long those who asked for the end may take to hear of it.
const TELL_PATIENCE: Duration = Duration::from_secs(10);
/// How often the log says how far the last drain is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Mounts, serves until unmounted, drains and closes.
pub(crate) fn serve(
    setup: Setup,
    log: Option<std::path::PathBuf>,
    reporter: Reporter,
) -> Result<ExitCode, CliError> {
    let in_front = matches!(reporter, Reporter::Log);
    let transport = setup.flags.transport.into();
    match begin(setup, log, in_front) {
        Ok((session, fs, life, socket)) => {
            let result = run(session, fs, &life, transport, reporter);
            let code = finish(&life);
            socket.remove();
            result.map(|()| code)
        }
        Err(error) if in_front => Err(error),
        Err(error) => {
            tracing::error!("{error}");
            let code = error.exit_code();
            reporter.failed(&error);
            Ok(ExitCode::from(code))
        }
    }
}

type Begun = (Session, Arc<VolumeFs>, Arc<Life>, control::Socket);

fn begin(setup: Setup, log: Option<std::path::PathBuf>, in_front: bool) -> Result<Begun, CliError> {
    let metrics = setup.metrics.map(bind).transpose()?;
    let volume = open(&setup)?;
    // A file that the kernel reads by itself has two numbers there, and the kernel keeps locks by number.
    let locks = if volume.assembles() { LockKeeper::Vfs } else { LockKeeper::Kernel };
    let (atime, acls) = (setup.flags.atime, !setup.flags.noacl);
    let options = VfsOptions { atime, acls, locks, ..VfsOptions::default() };
    let vfs = Arc::new(Vfs::new(volume, options));
    let fs = Arc::new(VolumeFs::new(vfs).with_lifetimes(setup.flags.lifetimes));
    let mut life = Life::new(&fs, setup.mountpoint.clone(), terms(&fs));
    life.log = log;
    life.passthrough = setup.passthrough.clone();
    life.metrics = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
    let life = Arc::new(life);
    let socket = control::listen(&life)?;
    if let Some(listener) = metrics {
        metrics::serve(&life, listener)?;
    }
    let session = match forebay_fuse::mount(&setup.mountpoint, &mount_options(&setup)) {
        Ok(session) => session,
        Err(error) => {
            life.volume.close()?;
            socket.remove();
            return Err(error.into());
        }
    };
    fs.tell_accesses_by(session.notifier()).map_err(CliError::io("start a thread for", &setup.mountpoint))?;
    fs.connect(session.backing_files(), session.notifier());
    signals::listen(&life, in_front)?;
    Ok((session, fs, life, socket))
}

fn bind(addr: std::net::SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(addr).map_err(|error| {
        CliError::Told(format!("cannot serve metrics on {addr}: {error}; choose another address"))
    })
}

fn mount_options(setup: &Setup) -> MountOptions {
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

fn open(setup: &Setup) -> Result<Arc<Volume>, CliError> {
    let options = OpenOptions {
        read_only: setup.flags.read_only,
        cache_dir: setup.cache_dir.clone(),
        cache_size: setup.cache_size.0,
        assembled_size: setup.passthrough.size(),
        assemble_decrypted: setup.passthrough.size() > 0,
        ..OpenOptions::default()
    };
    patiently(&setup.volume, || Volume::open(&setup.volume, &options))
}

/// How the kernel is told to cache, asked of the file system itself.
fn terms(fs: &VolumeFs) -> Terms {
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

/// Serves until unmounted. Reports when the mount answers, or why it does not.
fn run(
    session: Session,
    fs: Arc<VolumeFs>,
    life: &Arc<Life>,
    transport: Transport,
    reporter: Reporter,
) -> Result<(), CliError> {
    let reporter = Arc::new(Mutex::new(Some(reporter)));
    let take =
        |reporter: &Mutex<Option<Reporter>>| reporter.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (waiting, ready_life) = (Arc::clone(&reporter), Arc::clone(life));
    fs.when_started(move |agreed| {
        let over_uring = agreed.capabilities.contains(Capabilities::OVER_IO_URING);
        let way = ready_life.transport.get_or_init(|| Way::new(over_uring, transport));
        let volume = ready_life.volume.paths().root.display();
        tracing::info!("'{volume}' is mounted on '{}'", ready_life.mountpoint.display());
        if let Some(reporter) = take(&waiting) {
            reporter.ready(way);
        }
    });
    let options = SessionOptions {
        read_ahead_kb: Some(READ_AHEAD_KB),
        observer: Some(Arc::clone(&life.stats) as _),
        transport,
        ..SessionOptions::default()
    };
    let result = session.run(fs, &options);
    if let Err(error) = &result {
        tracing::error!("{error}");
        if let Some(reporter) = take(&reporter) {
            reporter.failed(&CliError::Told(error.to_string()));
        }
    }
    match result {
        Err(SessionError::EndedEarly(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Brings the store up to date, closes the volume, and lets those who wait know.
fn finish(life: &Arc<Life>) -> ExitCode {
    tracing::info!("unmounted");
    life.enter(Phase::Closing);
    let mut left = Left::default();
    if !life.no_drain() && !life.volume.read_only() {
        left.error = drain(life);
    }
    if let Err(error) = life.volume.close() {
        tracing::error!("closing: {error}");
        left.close_error = Some(error.to_string());
    }
    left.dirty_bytes = life.volume.dirty_bytes();
    if left.dirty_bytes > 0 {
        let bytes = left.dirty_bytes;
        tracing::warn!(
            "{bytes} bytes are not in the store; they are durable here and stored after the next mount"
        );
    }
    tracing::info!("closed");
    let code = if left.close_error.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    life.enter(Phase::Closed(left));
    life.told(TELL_PATIENCE);
    code
}

/// Drains until it is done, fails, or somebody is in a hurry. Gives the failure.
fn drain(life: &Arc<Life>) -> Option<String> {
    let outcome: Arc<(AtomicBool, Mutex<Option<String>>)> = Arc::default();
    let (worker_life, worker_outcome) = (Arc::clone(life), Arc::clone(&outcome));
    let worker = thread::Builder::new().name("fb-drain".to_owned()).spawn(move || {
        if let Err(error) = worker_life.volume.drain(&mut |_| {}) {
            tracing::error!("drain: {error}");
            *worker_outcome.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        worker_outcome.0.store(true, Ordering::Release);
        worker_life.nudge();
    });
    match worker {
        Ok(worker) => {
            let mut told = Instant::now();
            let finished = || {
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    tracing::info!("storing: {} to go", human(life.volume.dirty_bytes()));
                }
                outcome.0.load(Ordering::Acquire) || worker.is_finished()
            };
            life.finished_or_hurried(finished);
        }
        Err(error) => return Some(error.to_string()),
    }
    outcome.1.lock().unwrap_or_else(PoisonError::into_inner).take()
}
