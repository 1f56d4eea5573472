//! `forebay gc`

use std::process::ExitCode;

use forebay_volume::{OpenOptions, Status, Volume};
use serde_json::Value;

use crate::{
    args::GcArgs,
    control::Client,
    daemon::settle,
    error::CliError,
    holder::patiently,
    logging,
    mounts::{self, Mounted},
    output,
    progress::DrainBar,
    size::human,
};

/// What a volume held before and after.
struct Outcome {
    before: Held,
    after: Option<Held>,
}

struct Held {
    objects: u64,
    stored: u64,
    garbage: u64,
}

impl From<&Status> for Held {
    fn from(status: &Status) -> Held {
        Held { objects: status.objects, stored: status.stored_bytes, garbage: status.garbage_bytes }
    }
}

impl From<&Value> for Held {
    fn from(status: &Value) -> Held {
        let number = |key: &str| status[key].as_u64().unwrap_or(0);
        Held { objects: number("objects"), stored: number("stored_bytes"), garbage: number("garbage_bytes") }
    }
}

pub(crate) fn run(args: &GcArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let outcome = match mounts::meant(&args.volume)? {
        Some(mounted) => mounted_volume(&mounted, args.dry_run)?,
        None => closed_volume(args)?,
    };
    let Outcome { before, after } = outcome;
    match after {
        None => output::line(&format_args!(
            "{} objects of {} hold {} that nothing refers to",
            before.objects,
            human(before.stored),
            human(before.garbage)
        )),
        Some(after) => output::line(&format_args!(
            "{} objects of {} before, {} of {} now; {} in them are not referred to",
            before.objects,
            human(before.stored),
            after.objects,
            human(after.stored),
            human(after.garbage)
        )),
    }
    Ok(ExitCode::SUCCESS)
}

fn mounted_volume(mounted: &Mounted, dry_run: bool) -> Result<Outcome, CliError> {
    let client = Client::of_mount(mounted)?;
    if dry_run {
        let status: Value = client.ask("status")?;
        return Ok(Outcome { before: Held::from(&status), after: None });
    }
    let mut bar = DrainBar::new("collecting");
    let done: Value = client.follow("gc", &mut |progress| bar.at(progress))?;
    Ok(Outcome { before: Held::from(&done["before"]), after: Some(Held::from(&done["after"])) })
}

fn closed_volume(args: &GcArgs) -> Result<Outcome, CliError> {
    let options = OpenOptions { read_only: args.dry_run, background: false, ..OpenOptions::default() };
    let volume = patiently(&args.volume, || Volume::open(&args.volume, &options))?;
    let before = Held::from(&volume.status());
    if args.dry_run {
        return Ok(Outcome { before, after: None });
    }
    let mut bar = DrainBar::new("collecting");
    let settled = settle(&volume, &mut |progress| bar.at(progress));
    drop(bar);
    let after = Held::from(&volume.status());
    volume.close()?;
    settled?;
    Ok(Outcome { before, after: Some(after) })
}
