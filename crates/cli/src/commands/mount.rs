//! `forebay mount`

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use crate::{
    args::{KnockArgs, MountArgs},
    commands::create::promise,
    daemon::{self, Reported, Reporter, Setup, SharedSetup},
    error::CliError,
    logging,
    mounts::{self, Mounted},
    output,
    progress::Waiting,
    shared::SharedUrl,
};

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode, CliError> {
    forebay_fuse::close_inherited();
    let url = args.shared().transpose().map_err(CliError::Usage)?;
    if args.takeover {
        return takeover(args);
    }
    if let Some(url) = url {
        return shared(args, url);
    }
    if args.detached {
        return detached(args);
    }
    let setup = daemon::check(args)?;
    if args.foreground {
        let log = setup.log.clone();
        if let Some(path) = &log {
            let file = open_log(path)?;
            logging::start_daemon_in(file);
        } else {
            logging::start_daemon();
        }
        return daemon::serve(setup, log, Reporter::Log);
    }
    start(args, &setup)
}

/// The same of a shared volume.
fn shared(args: &MountArgs, url: SharedUrl) -> Result<ExitCode, CliError> {
    if args.detached {
        detach()?;
        return match daemon::check_shared(args, url) {
            Ok(setup) => daemon::serve_shared(setup, args.log.clone(), Reporter::Stdout),
            Err(error) => refused(&error),
        };
    }
    let setup = daemon::check_shared(args, url)?;
    if !args.foreground {
        return start_shared(args, &setup);
    }
    let log = setup.log.clone();
    match &log {
        Some(path) => logging::start_daemon_in(open_log(path)?),
        None => logging::start_daemon(),
    }
    daemon::serve_shared(setup, log, Reporter::Log)
}

fn refused(error: &CliError) -> Result<ExitCode, CliError> {
    let code = error.exit_code();
    Reporter::Stdout.failed(error);
    Ok(ExitCode::from(code))
}

/// The daemon: in a session of its own, standard error in the log.
fn detached(args: &MountArgs) -> Result<ExitCode, CliError> {
    detach()?;
    match daemon::check(args) {
        Ok(setup) => daemon::serve(setup, args.log.clone(), Reporter::Stdout),
        Err(error) => refused(&error),
    }
}

fn detach() -> Result<(), CliError> {
    logging::start_daemon();
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!("this process leads a session already: {error}");
    }
    std::env::set_current_dir("/").map_err(CliError::io("go to", "/"))
}

/// Starts the process that takes a mount over, or is it.
fn takeover(args: &MountArgs) -> Result<ExitCode, CliError> {
    let mounted = to_take_over(args)?;
    let settings = daemon::settings(&mounted)?;
    let taken = settings.args(args.foreground);
    let setup = daemon::check_takeover(&taken)?;
    if args.detached {
        detach()?;
        return daemon::take_over(setup, &mounted, settings.log.clone(), Reporter::Stdout);
    }
    if args.foreground {
        logging::start_daemon();
        return daemon::take_over(setup, &mounted, None, Reporter::Log);
    }
    let log = match &settings.log {
        Some(path) => path.clone(),
        None => logging::default_file(&setup.volume, &setup.config)?,
    };
    let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
    let mut command = Command::new(&program);
    command.args(["mount", "--takeover", "--detached", "--"]).arg(&setup.volume).arg(&setup.mountpoint);
    let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FOREBAY_"));
    command.env_clear().envs(settings.environment).envs(own);
    let way = started(
        &mut command,
        &log,
        &setup.mountpoint,
        &format!("taking '{}' over", setup.mountpoint.display()),
    )?;
    output::line(&format_args!("'{}' is taken over by {way}", setup.mountpoint.display()));
    Ok(ExitCode::SUCCESS)
}

/// The mount that is meant, which must be the volume's if one is named.
fn to_take_over(args: &MountArgs) -> Result<Mounted, CliError> {
    let (volume, place) = args.named();
    let mounted = mounts::on(place).map_err(CliError::io("look at", place))?;
    if let Some(shared) = mounted.as_ref().filter(|mounted| SharedUrl::is_one(&mounted.volume)) {
        let url = shared.volume.display();
        return Err(CliError::Told(format!(
            "'{url}' is a shared volume, whose mount cannot be taken over: unmount it and mount it again"
        )));
    }
    let Some(mounted) = mounted else {
        return Err(CliError::Told(format!(
            "'{}' is not where a Forebay volume is mounted",
            place.display()
        )));
    };
    let named = volume.map(|named| std::fs::canonicalize(named).map_err(CliError::io("find", named)));
    match named.transpose()? {
        Some(named) if named != mounted.volume => Err(CliError::Told(format!(
            "'{}' is mounted on '{}', not '{}'",
            mounted.volume.display(),
            place.display(),
            named.display()
        ))),
        _ => Ok(mounted),
    }
}

/// `forebay debug-knock`: requests that may have to wait, each in a thread of its own.
pub(crate) fn knock(args: &KnockArgs) -> Result<ExitCode, CliError> {
    let knock = || {
        let mut only = rustix::thread::CpuSet::new();
        only.set(usize::from(args.processor));
        if rustix::thread::sched_setaffinity(None, &only).is_ok() {
            let _ = rustix::fs::statfs(&args.mountpoint);
        }
    };
    std::thread::scope(|scope| (0..args.count).for_each(|_| drop(scope.spawn(knock))));
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon and returns when its mount works, or with its error.
fn start(args: &MountArgs, setup: &Setup) -> Result<ExitCode, CliError> {
    let log = match &setup.log {
        Some(path) => path.clone(),
        None => logging::default_file(&setup.volume, &setup.config)?,
    };
    let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
    let mut command = Command::new(&program);
    command.arg("mount").arg("--detached").arg("--log").arg(&log);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(dir) = &setup.cache_dir {
        command.arg("--cache-dir").arg(dir);
    }
    if let Some(size) = args.cache_size {
        command.arg("--cache-size").arg(size.0.to_string());
    }
    if let Some(size) = args.passthrough_size {
        command.arg("--passthrough-size").arg(size.0.to_string());
    }
    if args.passthrough_plaintext {
        command.arg("--passthrough-plaintext");
    }
    if let Some(addr) = args.metrics {
        command.arg("--metrics").arg(addr.to_string());
    }
    command.arg("--").arg(&setup.volume).arg(&setup.mountpoint);
    let way =
        started(&mut command, &log, &setup.mountpoint, &format!("opening '{}'", setup.volume.display()))?;
    let place = setup.mountpoint.display();
    output::line(&format_args!("mounted on '{place}'; requests travel by {way}"));
    output::line(&setup.passthrough.sentence());
    if setup.config.store.is_some() {
        output::line(&format_args!("{}", promise(&setup.config)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The same of a shared volume.
fn start_shared(args: &MountArgs, setup: &SharedSetup) -> Result<ExitCode, CliError> {
    let log = match &setup.log {
        Some(path) => path.clone(),
        None => logging::default_shared_file(&setup.url.volume, &setup.mountpoint)?,
    };
    let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
    let mut command = Command::new(&program);
    command.arg("mount").arg("--detached").arg("--log").arg(&log);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(CliError::io("find", path));
    for (flag, path) in [
        ("--cache-dir", &setup.options.cache_dir),
        ("--tls-ca", &args.tls.tls_ca),
        ("--tls-cert", &args.tls.tls_cert),
        ("--tls-key", &args.tls.tls_key),
        ("--token", &args.token),
    ] {
        if let Some(path) = path {
            command.arg(flag).arg(absolute(path)?);
        }
    }
    command.arg("--cache-size").arg(setup.options.cache_size.to_string());
    if let Some(size) = args.passthrough_size {
        command.arg("--passthrough-size").arg(size.0.to_string());
    }
    if args.insecure {
        command.arg("--insecure");
    }
    if let Some(addr) = args.metrics {
        command.arg("--metrics").arg(addr.to_string());
    }
    command.arg("--").arg(setup.source()).arg(&setup.mountpoint);
    let way = started(&mut command, &log, &setup.mountpoint, &format!("asking for '{}'", setup.url))?;
    output::line(&format_args!("mounted on '{}'; requests travel by {way}", setup.mountpoint.display()));
    if setup.passthrough.size() > 0 {
        output::line(&setup.passthrough.sentence());
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a daemon and waits for its report; gives what it says when it serves.
fn started(command: &mut Command, log: &Path, mountpoint: &Path, what: &str) -> Result<String, CliError> {
    let log_file = open_log(log)?;
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file).spawn();
    let mut child = spawned.map_err(CliError::io("start", command.get_program()))?;
    let waiting = Waiting::begin(what.to_owned());
    let reported = child.stdout.take().map_or(Reported::Nothing, Reported::read);
    drop(waiting);
    let told = |text: String| format!("{text} (log: {})", log.display());
    match reported {
        Reported::Ready(way) => Ok(way),
        Reported::Failed(code, text) => {
            drop(child.wait());
            Err(if code == 2 { CliError::Usage(text) } else { CliError::Told(told(text)) })
        }
        Reported::Nothing => {
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let place = mountpoint.display();
            Err(CliError::Told(told(format!(
                "the process behind '{place}' ended before the mount worked: {ended}"
            ))))
        }
    }
}

fn open_log(path: &Path) -> Result<std::fs::File, CliError> {
    let opened = std::fs::File::options().create(true).append(true).open(path);
    opened.map_err(CliError::io("write the log (choose a file by --log)", PathBuf::from(path)))
}
