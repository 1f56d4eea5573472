//! `forebay bench DIR --compare`: every target of the file system, each beside what it is measured against.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use forebay_bench::{
    Plan, Progress, Report,
    targets::{self, Beside, Run},
};
use serde_json::json;

use super::{NullMount, probe, sign, stopped_by_signals};
use crate::{args::BenchArgs, error::CliError, output};

/// Makes all runs on a volume of its own in the directory, and prints the table.
pub(super) fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let bed = Bed::new(&args.target)?;
    let stop = stopped_by_signals()?;
    let mut reports = Vec::new();
    for run in Run::ALL {
        output::note(&format_args!("{}", run.title()));
        match bed.measure(run, args, &stop) {
            Ok(report) => reports.push((run, report)),
            // What was measured before is told.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        }
    }
    drop(bed);
    let lines = targets::judge(&reports);
    output::out(&targets::to_text(&lines));
    if let Some(path) = &args.json {
        let json = json!({ "lines": lines, "runs": reports });
        fs::write(path, format!("{json:#}")).map_err(CliError::io("write", path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory for volumes, with a mount point and a directory to compare with, all on one file system.
struct Bed {
    root: PathBuf,
    program: PathBuf,
}

impl Bed {
    fn new(dir: &Path) -> Result<Bed, CliError> {
        let dir = fs::canonicalize(dir).map_err(CliError::io("find", dir))?;
        let root = dir.join(format!("forebay-compare-{}", std::process::id()));
        let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
        for part in ["mount", "local"] {
            fs::create_dir_all(root.join(part)).map_err(CliError::io("make", &root))?;
        }
        Ok(Bed { root, program })
    }

    fn volume(&self) -> PathBuf {
        self.root.join("volume")
    }

    fn mountpoint(&self) -> PathBuf {
        self.root.join("mount")
    }

    /// Makes a volume, mounts it on the run's terms, measures, and takes it away: what one run leaves behind is not in the figures of the next.
    fn measure(&self, run: Run, args: &BenchArgs, stop: &Arc<AtomicBool>) -> Result<Report, CliError> {
        let terms = if run.asks_always() { "attr_timeout=0,entry_timeout=0" } else { "defaults" };
        self.forebay(&["create"], &[&self.volume()])?;
        self.forebay(&["mount", "-o", terms], &[&self.volume(), &self.mountpoint()])?;
        let mounted = Unmounting(self);
        let null = match run.beside() {
            Beside::DoNothing => Some(NullMount::start(&self.mountpoint())?),
            Beside::Local | Beside::Nothing => None,
        };
        let mut plan = Plan::new(self.mountpoint(), args.quick);
        plan.target_probe = probe(&self.mountpoint())?;
        (plan.reference, plan.reference_probe) = match &null {
            Some(null) => (Some(null.dir().to_owned()), null.probe()),
            None if run.beside() == Beside::Local => (Some(self.root.join("local")), Default::default()),
            None => (None, Default::default()),
        };
        plan.jobs = run.jobs();
        plan.rounds = args.rounds.unwrap_or(if args.quick { 1 } else { run.rounds() });
        plan.workloads = run.workloads().to_vec();
        plan.sizes = run.sizes(args.quick);
        for (name, value) in &args.sizes {
            plan.sizes.set(name, *value);
        }
        plan.drop_caches = !args.keep_caches;
        plan.stop = Some(Arc::clone(stop));
        sign(&mut plan);
        let report = forebay_bench::run(&plan, &Progress::stderr());
        drop(null);
        drop(mounted);
        fs::remove_dir_all(self.volume()).map_err(CliError::io("remove", &self.volume()))?;
        Ok(report?)
    }

    fn forebay(&self, words: &[&str], paths: &[&Path]) -> Result<(), CliError> {
        let mut command = Command::new(&self.program);
        command.args(words).args(paths).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().map_err(CliError::io("start", &self.program))?;
        let what = words.first().copied().unwrap_or_default();
        if status.success() { Ok(()) } else { Err(CliError::Told(format!("`forebay {what}` failed"))) }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            output::complain(&format_args!("cannot remove '{}': {error}", self.root.display()));
        }
    }
}

/// Unmounts when dropped, also after an error.
struct Unmounting<'b>(&'b Bed);

impl Drop for Unmounting<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.forebay(&["umount"], &[&self.0.mountpoint()]) {
            output::complain(&format_args!("{error}"));
        }
    }
}
