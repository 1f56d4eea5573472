//! The `forebay` command: volumes made, mounted, looked at and taken off again.
//!
//! Guarantees: a command that is refused has changed nothing, and says why in one line on standard error that begins with `forebay:`; the
//! exit status is 0 when done, 1 when it could not be done, 2 when it was asked wrongly. `mount` returns only when the mount works; `umount`
//! only when its process is gone and the volume is closed.
//!
//! One process serves one mount. Other commands reach it over a Unix socket that is found from the mount table (see [`control`]), so
//! that none of them ever needs a file inside the mounted tree.

pub mod args;
mod commands;
pub mod control;
mod daemon;
mod duration;
mod error;
pub mod helper;
mod holder;
mod http;
mod logging;
pub mod mount_options;
pub mod mounts;
mod output;
mod passthrough;
mod progress;
mod shared;
pub mod size;
mod table;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, error::ErrorKind};

use crate::{
    args::{Args, Command},
    error::CliError,
};

/// Runs the command line `argv` and gives the exit status.
#[must_use]
pub fn run(argv: Vec<OsString>) -> ExitCode {
    let argv = match helper::translate(argv) {
        helper::Called::Normally(argv) => argv,
        helper::Called::Faked => return ExitCode::SUCCESS,
    };
    let args = match Args::try_parse_from(argv) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match dispatch(args.command) {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Help and the version go to standard output as they are, and so does the help of `forebay` alone, to standard error; what was asked wrongly is
/// put into one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        output::out(&error.render());
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::note(&text.trim_end());
        return ExitCode::from(2);
    }
    output::complain(&in_one_line(&text));
    ExitCode::from(2)
}

/// What clap says in several lines: what is wrong, perhaps a tip, and which help tells more.
fn in_one_line(text: &str) -> String {
    let about = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = about.flat_map(str::split_whitespace).collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: forebay "));
    let command =
        usage.and_then(|usage| usage.split(' ').next()).filter(|word| !word.starts_with(['[', '<']));
    match command {
        Some(command) => format!("{line}; `forebay {command} --help` tells more"),
        None => format!("{line}; `forebay --help` tells more"),
    }
}

fn dispatch(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Create(args) => commands::create::run(&args),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Fsck(args) => commands::fsck::run(&args),
        Command::Gc(args) => commands::gc::run(&args),
        Command::Warm(args) => commands::warm::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Meta(args) => commands::meta::run(&args),
        Command::Volume(args) => commands::volume::run(&args),
        Command::Token(args) => commands::token::run(&args),
        Command::Proxy(args) => commands::proxy::run(&args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Group(args) => commands::group::run(&args),
        Command::Pki(args) => commands::pki::run(&args),
        Command::Dev(args) => commands::dev::run(&args),
        Command::Completions(args) => commands::pages::completions(&args),
        Command::Man(args) => commands::pages::man(&args),
        Command::NullMount(args) => commands::null_mount::run(&args),
        Command::LateStore(args) => commands::late_store::run(&args),
        Command::BenchLoader(args) => commands::bench::load(&args),
        Command::DebugKnock(args) => commands::mount::knock(&args),
        Command::DebugSyncPoints => commands::pages::sync_points(),
    }
}
