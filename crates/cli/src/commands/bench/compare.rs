//! `forebay bench DIR --compare`: the targets of the file system, each beside what it is measured against.

mod bed;
mod bucket;
mod memory;

use std::{
    fs,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use forebay_bench::{
    Error, Plan, Progress, Report,
    targets::{self, Beside, Line, Outcome, Run},
};
use serde_json::json;

use self::{bed::Bed, bucket::Bucket, memory::Held};
use super::{NullMount, probe, sign, stopped_by_signals};
use crate::{args::BenchArgs, error::CliError, output};

/// Makes the runs, each on a volume of its own in the directory, and prints the table.
pub(super) fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let bed = Bed::new(&args.target)?;
    let stop = stopped_by_signals()?;
    let (mut outcomes, mut failed) = (Vec::new(), false);
    for run in Run::ALL.into_iter().filter(|run| args.runs.is_empty() || args.runs.contains(run)) {
        output::note(&format_args!("{run}: {}", run.title()));
        match measure(&bed, run, args, &stop) {
            Ok(report) => outcomes.push((run, Outcome::Measured(Box::new(report)))),
            // What was measured before is told.
            Err(Trouble::Failed(_)) if stop.load(Ordering::Relaxed) => break,
            Err(Trouble::LeftOut(why)) => {
                output::note(&format_args!("{run} is left out: {why}"));
                outcomes.push((run, Outcome::LeftOut(why)));
            }
            // So are the others.
            Err(Trouble::Failed(error)) => {
                output::complain(&format_args!("{run}: {error}"));
                outcomes.push((run, Outcome::LeftOut(format!("it failed: {error}"))));
                failed = true;
            }
        }
    }
    drop(bed);
    write(args, &outcomes)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(args: &BenchArgs, outcomes: &[(Run, Outcome)]) -> Result<(), CliError> {
    let lines: Vec<Line> = targets::judge(outcomes);
    output::out(&targets::to_text(&lines));
    if let Some(path) = &args.json {
        let runs: serde_json::Map<_, _> =
            outcomes.iter().map(|(run, outcome)| (run.name().to_owned(), json!(outcome))).collect();
        let json = json!({ "lines": lines, "runs": runs });
        fs::write(path, format!("{json:#}\n")).map_err(CliError::io("write", path))?;
    }
    if let Some(path) = &args.html {
        fs::write(path, targets::to_html(&lines, outcomes)).map_err(CliError::io("write", path))?;
    }
    Ok(())
}

/// Why there are no figures of a run.
#[derive(Debug)]
enum Trouble {
    /// This machine, or this user, does not have what it needs.
    LeftOut(String),
    /// Something that should work did not.
    Failed(CliError),
}

impl<E: Into<CliError>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Failed(error.into())
    }
}

/// Makes a volume, mounts it on the run's terms, measures, and takes it away: what one run leaves behind is not in the figures of the next.
fn measure(bed: &Bed, run: Run, args: &BenchArgs, stop: &Arc<AtomicBool>) -> Result<Report, Trouble> {
    let mut sizes = run.sizes(args.quick);
    for (name, value) in &args.sizes {
        sizes.set(name, *value);
    }
    let bucket = run.store_delay_ms().map(Bucket::start).transpose()?;
    let volume = bed.volume(bucket.as_ref())?;
    let mut terms = Vec::new();
    if run.asks_always() {
        terms.push("attr_timeout=0,entry_timeout=0".to_owned());
    }
    let passthrough_size = run.passthrough_size(&sizes);
    if passthrough_size > 0 {
        terms.push(format!("passthrough_size={passthrough_size}"));
    }
    let mounted = volume.mount(&terms.join(","))?;
    let mount = mounted.dir();
    if passthrough_size > 0 {
        mounted.must_pass_through()?;
    }
    let null = match run.beside() {
        Beside::DoNothing => Some(NullMount::start(&mount, run.counts_both())?),
        Beside::Local | Beside::Curl | Beside::Nothing => None,
    };
    let mut plan = Plan::new(&mount, args.quick);
    plan.target_probe = probe(&mount)?;
    if passthrough_size > 0 {
        plan.target_probe.warmed = Some(mounted.passes_through(run.opens(&sizes))?);
    }
    match &null {
        Some(null) => (plan.reference, plan.reference_probe) = (Some(null.dir().to_owned()), null.probe()),
        None if run.beside() == Beside::Local => plan.reference = Some(bed.local()),
        None => plan.rival = bucket.as_ref().map(Bucket::rival),
    }
    plan.jobs = run.jobs();
    plan.rounds = args.rounds.unwrap_or(if args.quick { 1 } else { run.rounds() });
    plan.workloads = run.workloads().to_vec();
    plan.sizes = sizes;
    plan.loader = bed.loader();
    plan.drop_caches = !args.keep_caches;
    plan.stop = Some(Arc::clone(stop));
    sign(&mut plan);
    let held = match run.memory_limit() {
        Some(limit) => Some(Held::to(limit, plan.target_probe.pid)?),
        None => None,
    };
    let report = forebay_bench::run(&plan, &Progress::stderr());
    drop((held, plan, null));
    mounted.end()?;
    drop(volume);
    match report {
        Ok(report) => Ok(report),
        Err(error @ Error::Space { .. }) => Err(Trouble::LeftOut(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
