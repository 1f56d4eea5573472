//! `forebay volume migrate`: the owner moves the volume, the command asks and watches.

use std::time::{Duration, Instant};

use forebay_protocol::{Kind, Message, MigratePhase, MigrateRequest, MigrateStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::servers::{Servers, UNHEARD};
use crate::{args::VolumeMigrateArgs, error::CliError, output, progress::is_drawn_on, size::human};

/// How often the owner is asked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a line is written where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &VolumeMigrateArgs) -> Result<(), CliError> {
    let servers = Servers::of(&args.servers)?;
    let ask = |to: Option<String>| -> Result<MigrateStatus, CliError> {
        servers.ask(Kind::Migrate, MigrateRequest { volume: args.name.clone(), to }.encode())
    };
    let mut shown = Shown::new();
    let (mut status, mut heard) = (ask(Some(args.to.clone()))?, Instant::now());
    loop {
        shown.at(&status);
        if let Some(why) = &status.failed {
            drop(shown);
            return Err(CliError::Told(format!(
                "the volume '{}' was not moved to {}: {why}; it is in {} as before",
                args.name, status.to, status.place
            )));
        }
        // Where the server that moved it is gone, its successor begins anew, or finds it moved.
        let begins = (status.phase == MigratePhase::Idle).then(|| args.to.clone());
        if status.phase == MigratePhase::Done {
            break;
        }
        if begins.is_none() {
            std::thread::sleep(LOOK_EVERY);
        }
        match ask(begins) {
            Ok(now) => (status, heard) = (now, Instant::now()),
            Err(error) if heard.elapsed() >= UNHEARD => return Err(error),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
    drop(shown);
    tell(&args.name, &status, args.json);
    Ok(())
}

fn tell(name: &str, status: &MigrateStatus, as_json: bool) {
    if as_json {
        let of = json!({
            "name": name,
            "engine": status.place,
            "rows": status.rows,
            "bytes": status.bytes,
            "compared": status.compared,
            "pause_us": status.pause_us,
        });
        return output::line(&format_args!("{of:#}"));
    }
    output::line(&format_args!("the metadata of the volume '{name}' is in {}", status.place));
    if status.pause_us > 0 {
        output::line(&format_args!(
            "  {} rows ({}) were copied and {} compared; clients waited for {} ms",
            status.rows,
            human(status.bytes),
            status.compared,
            status.pause_us.div_ceil(1000)
        ));
    }
}

/// How it goes, on standard error.
struct Shown {
    bar: Option<ProgressBar>,
    phase: MigratePhase,
    last_line: Instant,
}

impl Shown {
    fn new() -> Shown {
        let bar = is_drawn_on().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Shown { bar, phase: MigratePhase::Idle, last_line: Instant::now() }
    }

    fn at(&mut self, status: &MigrateStatus) {
        let text = match status.phase {
            MigratePhase::Idle => "looking for the volume's server".to_owned(),
            MigratePhase::Copying => format!("copying: {} rows, {}", status.rows, human(status.bytes)),
            MigratePhase::CatchingUp => "copying what has changed meanwhile".to_owned(),
            MigratePhase::Comparing => format!("comparing: {} of {} rows", status.compared, status.rows),
            MigratePhase::Switching => "changing over".to_owned(),
            MigratePhase::CleaningUp => format!("it is in {}; removing what it left", status.place),
            MigratePhase::Done => return,
        };
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None if self.phase != status.phase || self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                output::note(&format_args!("{text}"));
            }
            None => {}
        }
        self.phase = status.phase;
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
