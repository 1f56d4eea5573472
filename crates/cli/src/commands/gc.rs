//! `forebay gc`

use std::process::ExitCode;

use forebay_volume::{
    Leaked, OpenOptions, Status, Volume,
    fsck::{Totals, survey},
};
use serde::Deserialize;

use crate::{
    args::GcArgs,
    control::Client,
    daemon::settle,
    error::CliError,
    holder::patiently,
    logging,
    mounts::{self, Mounted},
    output,
    progress::{DrainBar, Waiting},
    size::human,
};

/// What a volume held before and after.
#[derive(Deserialize)]
struct Outcome {
    before: Held,
    after: Option<Held>,
    leaked: Leaked,
}

#[derive(Deserialize)]
struct Held {
    objects: u64,
    stored_bytes: u64,
    garbage_bytes: u64,
}

impl From<Totals> for Held {
    fn from(totals: Totals) -> Held {
        let Totals { objects, stored_bytes, garbage_bytes, .. } = totals;
        Held { objects, stored_bytes, garbage_bytes }
    }
}

impl From<Status> for Held {
    fn from(status: Status) -> Held {
        let Status { objects, stored_bytes, garbage_bytes, .. } = status;
        Held { objects, stored_bytes, garbage_bytes }
    }
}

pub(crate) fn run(args: &GcArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let outcome = match mounts::meant(&args.volume)? {
        Some(mounted) => mounted_volume(&mounted, args.dry_run)?,
        None if args.dry_run => look(args)?,
        None => closed_volume(args)?,
    };
    tell(&outcome);
    Ok(ExitCode::SUCCESS)
}

fn tell(outcome: &Outcome) {
    let Outcome { before, after, leaked } = outcome;
    let (objects, stored) = (before.objects, human(before.stored_bytes));
    match after {
        None => output::line(&format_args!(
            "{objects} objects of {stored} hold {} that nothing refers to",
            human(before.garbage_bytes)
        )),
        Some(after) => output::line(&format_args!(
            "{objects} objects of {stored} before, {} of {} now; {} in them are not referred to",
            after.objects,
            human(after.stored_bytes),
            human(after.garbage_bytes)
        )),
    }
    let (objects, bytes, kept) = (leaked.objects, human(leaked.bytes), leaked.kept);
    match after {
        None => output::line(&format_args!("{objects} further objects of {bytes} are named by no row")),
        Some(_) if objects == 0 => {}
        Some(_) => output::line(&format_args!(
            "{objects} further objects of {bytes} were named by no row; {} are deleted",
            objects - kept
        )),
    }
    if kept > 0 {
        output::line(&format_args!(
            "{kept} of them stay: damaged, strange, or perhaps needed; the log tells of each"
        ));
    }
    if leaked.files > 0 {
        let (files, bytes) = (leaked.files, human(leaked.file_bytes));
        let fate = if after.is_some() { "are removed" } else { "can be removed" };
        output::line(&format_args!("{files} files of {bytes} that interrupted puts left {fate}"));
    }
}

fn mounted_volume(mounted: &Mounted, dry_run: bool) -> Result<Outcome, CliError> {
    let client = Client::of_mount(mounted)?;
    if dry_run {
        return Ok(client.follow("gc dry-run", &mut |_: crate::control::Progress| {})?);
    }
    let mut bar = DrainBar::new("collecting");
    Ok(client.follow("gc", &mut |progress| bar.at(progress))?)
}

/// What can be said of a closed volume without opening it, so that nothing of it is changed.
fn look(args: &GcArgs) -> Result<Outcome, CliError> {
    let _waiting = Waiting::begin("looking".to_owned());
    let found = patiently(&args.volume, || survey(&args.volume, true))?;
    if let Some(epoch) = found.taken_over_by {
        return Err(CliError::Told(format!(
            "another machine has taken this volume over (epoch {epoch}): ask there; this copy is no longer the volume"
        )));
    }
    Ok(Outcome { before: found.totals.into(), after: None, leaked: found.leaked.unwrap_or_default() })
}

fn closed_volume(args: &GcArgs) -> Result<Outcome, CliError> {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let volume = patiently(&args.volume, || Volume::open(&args.volume, &options))?;
    let before = volume.status().into();
    let mut bar = DrainBar::new("collecting");
    let settled = settle(&volume, &mut |progress| bar.at(progress))
        .and_then(|()| volume.collect_leaked().map_err(CliError::from));
    drop(bar);
    let after = Some(volume.status().into());
    volume.close()?;
    Ok(Outcome { before, after, leaked: settled? })
}
