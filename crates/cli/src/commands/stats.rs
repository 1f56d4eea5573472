//! `forebay stats`: what a mount does, from the difference of two readings of its counters.

mod view;

use std::{io::IsTerminal, process::ExitCode, thread, time::Duration};

use serde_json::Value;

use crate::{
    args::StatsArgs,
    control::{Client, ControlError},
    error::CliError,
    logging,
    mounts::{self, Mounted},
    output,
};
use view::Reading;

pub(crate) fn run(args: &StatsArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    if !(0.1..=3600.0).contains(&args.interval) {
        return Err(CliError::Usage(format!("--interval {}: give 0.1 to 3600 seconds", args.interval)));
    }
    let place = &args.mountpoint;
    let Some(mounted) = mounts::meant(place)? else {
        return Err(CliError::Told(format!(
            "'{}' is not where a Forebay volume is mounted",
            place.display()
        )));
    };
    if args.once {
        let raw = ask(&mounted)?;
        if args.json {
            output::line(&raw);
        } else {
            output::out(&Reading::of(&raw).since(&Reading::default()).table());
        }
        return Ok(ExitCode::SUCCESS);
    }
    follow(args, &mounted)
}

fn ask(mounted: &Mounted) -> Result<Value, ControlError> {
    Client::of_mount(mounted)?.ask("stats")
}

fn follow(args: &StatsArgs, mounted: &Mounted) -> Result<ExitCode, CliError> {
    let terminal = std::io::stdout().is_terminal();
    let mut before = Reading::of(&ask(mounted)?);
    let mut rows = 0_u64;
    if terminal && !args.json {
        output::out(&"\x1b[2J");
    }
    loop {
        thread::sleep(Duration::from_secs_f64(args.interval));
        let now = match ask(mounted) {
            Err(ControlError::Gone(_)) => {
                output::note(&format_args!("'{}' is no longer mounted", mounted.mountpoint.display()));
                return Ok(ExitCode::SUCCESS);
            }
            raw => Reading::of(&raw?),
        };
        let change = now.since(&before);
        if args.json {
            output::line(&change.json());
        } else if terminal {
            let (rows, columns) = size();
            let text = format!("{}\n{}", mounted.mountpoint.display(), change.table());
            output::out(&view::screen(&text, rows, columns));
        } else {
            if rows.is_multiple_of(20) {
                output::line(&view::HEAD);
            }
            output::line(&change.row());
        }
        rows += 1;
        before = now;
    }
}

/// Rows and columns of the terminal; those of old where it does not say.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}
