//! `conformance`: compares a file system with a reference, and prints manifests of trees.
//!
//! ```text
//! conformance run DIR REFERENCE [--case NAME]... [--seeds N] [--first-seed N] [--steps N]
//! conformance manifest DIR [--without-ctime]
//! conformance list
//! ```
//!
//! `run` makes its case directories in DIR (under test) and REFERENCE (a directory on ext4) and leaves them there, so
//! that a manifest can be compared after a remount. Its last line is `N passed, N failed`; it exits with 1 if any failed.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_testkit::conformance::random::{self, Profile};
use forebay_testkit::conformance::runner::{OnDifference, RunError, Runner};
use forebay_testkit::conformance::tree::{self, Times};
use forebay_testkit::conformance::{cases, worker};

const USAGE: &str =
    "usage: conformance run DIR REFERENCE [--case NAME]... [--seeds N] [--first-seed N] [--steps N]
       conformance manifest DIR [--without-ctime]
       conformance list";

/// What `run` was asked for.
struct Wanted {
    ours: PathBuf,
    reference: PathBuf,
    cases: Vec<String>,
    seeds: u64,
    first_seed: u64,
    steps: usize,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}\n{USAGE}")]
    Usage(String),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Tree(#[from] tree::TreeError),
    #[error("cannot print: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "conformance: {failure}");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: &[String]) -> Result<bool, Failure> {
    match arguments.first().map(String::as_str) {
        Some("worker") => worker::serve().map(|()| true).map_err(Failure::Output),
        Some("manifest") => {
            let dir = arguments.get(1).ok_or_else(|| Failure::Usage("manifest needs a directory".into()))?;
            let times = match arguments.get(2).map(String::as_str) {
                None => Times::Full,
                Some("--without-ctime") => Times::Modified,
                Some(other) => return Err(Failure::Usage(format!("unknown option {other}"))),
            };
            print(&tree::manifest(dir.as_ref(), times)?)
        }
        Some("list") => print(&cases::all().into_iter().map(|case| case.name).collect::<Vec<_>>()),
        Some("run") => run(&parse(&arguments[1..])?),
        _ => Err(Failure::Usage("say what to do".into())),
    }
}

fn print(lines: &[String]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(true)
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut dirs = Vec::new();
    let mut wanted = Wanted {
        ours: PathBuf::new(),
        reference: PathBuf::new(),
        cases: Vec::new(),
        seeds: 20,
        first_seed: 1,
        steps: 600,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if !argument.starts_with("--") {
            dirs.push(PathBuf::from(argument));
            continue;
        }
        let value = rest.next().ok_or_else(|| Failure::Usage(format!("{argument} needs a value")))?;
        let number = || value.parse().map_err(|_| Failure::Usage(format!("{argument} {value} is no number")));
        match argument.as_str() {
            "--case" => wanted.cases.push(value.clone()),
            "--seeds" => wanted.seeds = number()?,
            "--first-seed" => wanted.first_seed = number()?,
            "--steps" => wanted.steps = usize::try_from(number()?).unwrap_or(usize::MAX),
            _ => return Err(Failure::Usage(format!("unknown option {argument}"))),
        }
    }
    let [ours, reference] =
        <[PathBuf; 2]>::try_from(dirs).map_err(|_| Failure::Usage("run needs two directories".into()))?;
    Ok(Wanted { ours, reference, ..wanted })
}

fn run(wanted: &Wanted) -> Result<bool, Failure> {
    let mut runner = Runner::new(&wanted.ours, &wanted.reference);
    let mut out = io::stdout().lock();
    let mut reasons = BTreeSet::new();
    let (mut passed, mut failed) = (0u64, 0u64);
    for script in cases::all() {
        if !wanted.cases.is_empty() && !wanted.cases.contains(&script.name) {
            continue;
        }
        let played = runner.play(&script.name, &script.name, &script, OnDifference::GoOn)?;
        reasons.extend(played.allowed.iter().map(|entry| {
            format!(
                "{}: {} gives {} here, {} there: {}",
                entry.case, entry.step, entry.ours, entry.reference, entry.reason
            )
        }));
        if played.differences.is_empty() {
            passed += 1;
            continue;
        }
        failed += 1;
        writeln!(out, "FAILED {}: {} differences", script.name, played.differences.len())?;
        for difference in played.differences.iter().take(12) {
            writeln!(out, "    {difference}")?;
        }
    }
    for profile in [Profile::Tree, Profile::Bytes] {
        if !wanted.cases.is_empty() && !wanted.cases.iter().any(|case| case == profile.name()) {
            continue;
        }
        for seed in wanted.first_seed..wanted.first_seed + wanted.seeds {
            let (played, shrunk) = random::play(&mut runner, profile, seed, wanted.steps)?;
            reasons.extend(
                played
                    .allowed
                    .iter()
                    .map(|entry| format!("{}: {}: {}", entry.case, entry.step, entry.reason)),
            );
            let Some(shrunk) = shrunk else {
                passed += 1;
                continue;
            };
            failed += 1;
            writeln!(out, "FAILED {} seed {seed}: {}", profile.name(), shrunk.difference)?;
            for step in &shrunk.steps {
                writeln!(
                    out,
                    "    uid {} {:?}",
                    forebay_testkit::conformance::op::USERS[step.user].0,
                    step.op
                )?;
            }
        }
    }
    for reason in reasons {
        writeln!(out, "allowed  {reason}")?;
    }
    writeln!(out, "{passed} passed, {failed} failed")?;
    Ok(failed == 0 && passed > 0)
}
