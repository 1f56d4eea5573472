//! `forebay fsck`

use std::process::ExitCode;

use forebay_volume::fsck::{self, FsckOptions, Report};

use crate::{
    args::FsckArgs,
    control::{Client, ControlError, Step},
    error::CliError,
    holder::patiently,
    logging,
    mounts::{self, Mounted},
    output,
    progress::StepBar,
};

pub(crate) fn run(args: &FsckArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let report = match mounts::meant(&args.volume)? {
        Some(mounted) => of_mount(args, &mounted)?,
        None => offline(args, &args.volume)?,
    };
    show(args, &report);
    if !args.repair || report.repaired == 0 {
        return verdict(args, &report);
    }
    let after = of_volume(args, &args.volume, false)?;
    if !args.json {
        output::line(&format_args!("repaired {} rows, files and objects; now:", report.repaired));
    }
    show(args, &after);
    verdict(args, &after)
}

fn verdict(args: &FsckArgs, report: &Report) -> Result<ExitCode, CliError> {
    if report.is_sound() {
        return Ok(ExitCode::SUCCESS);
    }
    let place = args.volume.display();
    Err(CliError::Told(match report.findings.last() {
        Some(finding) if !report.complete => {
            format!("'{place}' cannot be checked to its end: {}", finding.message)
        }
        _ => format!("'{place}' has faults: {}", report.codes().join(", ")),
    }))
}

fn show(args: &FsckArgs, report: &Report) {
    match serde_json::to_string_pretty(report) {
        Ok(json) if args.json => output::line(&json),
        _ => output::line(report),
    }
}

fn of_mount(args: &FsckArgs, mounted: &Mounted) -> Result<Report, CliError> {
    let client = match Client::of_mount(mounted) {
        // Its process died: nothing stands in the way.
        Err(ControlError::Gone(_)) => return offline(args, &mounted.volume),
        client => client?,
    };
    if args.repair {
        let place = mounted.mountpoint.display();
        return Err(CliError::Told(format!(
            "the volume is mounted on '{place}': unmount it before a repair"
        )));
    }
    let mut bar = StepBar::new("checking");
    let request = if args.quick { "fsck quick" } else { "fsck" };
    Ok(client.follow(request, &mut |step: Step| bar.at(&step))?)
}

fn offline(args: &FsckArgs, volume: &std::path::Path) -> Result<Report, CliError> {
    of_volume(args, volume, args.repair)
}

fn of_volume(args: &FsckArgs, volume: &std::path::Path, repair: bool) -> Result<Report, CliError> {
    let options = FsckOptions {
        data: !args.quick,
        drop_lost: args.drop_lost && repair,
        cut_journal: args.cut_journal && repair,
        scratch: args.scratch.clone(),
    };
    let mut bar = StepBar::new(if repair { "checking and repairing" } else { "checking" });
    let mut tell = |progress: fsck::Progress| bar.at(&progress.into());
    patiently(volume, || match repair {
        true => fsck::repair(volume, &options, &mut tell),
        false => fsck::check(volume, &options, &mut tell),
    })
}
