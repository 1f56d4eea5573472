//! `forebay mount`

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use crate::{
    args::MountArgs,
    commands::create::promise,
    daemon::{self, Reported, Reporter, Setup},
    error::CliError,
    logging, output,
    progress::Waiting,
};

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode, CliError> {
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

/// The daemon: in a session of its own, standard error in the log.
fn detached(args: &MountArgs) -> Result<ExitCode, CliError> {
    logging::start_daemon();
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!("this process leads a session already: {error}");
    }
    std::env::set_current_dir("/").map_err(CliError::io("go to", "/"))?;
    let reporter = Reporter::Stdout;
    match daemon::check(args) {
        Ok(setup) => daemon::serve(setup, args.log.clone(), reporter),
        Err(error) => {
            let code = error.exit_code();
            reporter.failed(&error);
            Ok(ExitCode::from(code))
        }
    }
}

/// Starts the daemon and returns when its mount works, or with its error.
fn start(args: &MountArgs, setup: &Setup) -> Result<ExitCode, CliError> {
    let log = match &setup.log {
        Some(path) => path.clone(),
        None => logging::default_file(&setup.volume, &setup.config)?,
    };
    let log_file = open_log(&log)?;
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
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file).spawn();
    let mut child = spawned.map_err(CliError::io("start", &program))?;
    let waiting = Waiting::begin(format!("opening '{}'", setup.volume.display()));
    let reported = child.stdout.take().map_or(Reported::Nothing, Reported::read);
    drop(waiting);
    let told = |text: String| format!("{text} (log: {})", log.display());
    match reported {
        Reported::Ready(way) => {
            let place = setup.mountpoint.display();
            output::line(&format_args!("mounted on '{place}'; requests travel by {way}"));
            output::line(&setup.passthrough.sentence());
            if setup.config.store.is_some() {
                output::line(&format_args!("{}", promise(&setup.config)));
            }
            Ok(ExitCode::SUCCESS)
        }
        Reported::Failed(code, text) => {
            drop(child.wait());
            Err(if code == 2 { CliError::Usage(text) } else { CliError::Told(told(text)) })
        }
        Reported::Nothing => {
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let place = setup.mountpoint.display();
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
