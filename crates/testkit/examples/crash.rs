//! Crash tests by hand, as many as there is time for.
//!
//! ```text
//! crash power   BIN SEED LIVES THREADS POINTS [strict|ordered] [-- CREATE OPTIONS]
//! crash kill    BIN SEED KILLS THREADS                         [-- CREATE OPTIONS]
//! crash removal BIN SEED LIVES THREADS POINTS [strict|ordered] [-- CREATE OPTIONS]
//! ```
//!
//! `power`: LIVES lives from SEED on, the power cut at POINTS points of each. `kill`: KILLS lives that end by `kill -9`.
//! `removal`: for each place where BIN syncs, up to LIVES lives with that sync left out; each must break a promise. Exits with 1
//! when a promise was broken (or, for `removal`, was not). Everything lies below `$FOREBAY_CRASH_DIR`, else in `/dev/shm` or
//! the directory for temporary files; what broke the promise stays there.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_testkit::power::campaign::{Finding, Life, Outcome, removal};
use forebay_testkit::power::cut::{Fill, Names, Rules};
use forebay_testkit::power::daemon::Program;
use forebay_testkit::power::place::Place;
use forebay_testkit::power::workload::Plan;

type Failure = Box<dyn std::error::Error>;

const USAGE: &str =
    "usage: crash power|kill|removal BIN SEED LIVES THREADS [POINTS] [strict|ordered] [-- CREATE OPTIONS]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(io::stderr(), "crash: {error}"));
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    mode: String,
    binary: PathBuf,
    seed: u64,
    lives: u64,
    threads: u16,
    points: u64,
    names: Names,
    create_options: Vec<String>,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut own: Vec<String> = std::env::args().skip(1).collect();
    let split = own.iter().position(|arg| arg == "--").unwrap_or(own.len());
    let create_options = own.split_off(split).into_iter().skip(1).collect();
    let at = |place: usize| own.get(place).ok_or(USAGE);
    let number = |place: usize| -> Result<u64, Failure> {
        at(place)?.parse().map_err(|_| format!("argument {} is no number; {USAGE}", place + 1).into())
    };
    let names = match own.last().map(String::as_str) {
        Some("ordered") => Names::Ordered,
        _ => Names::Strict,
    };
    let mode = at(0)?.clone();
    let points = if mode == "kill" { 0 } else { number(5)? };
    Ok(Arguments {
        mode,
        binary: at(1)?.into(),
        seed: number(2)?,
        lives: number(3)?,
        threads: u16::try_from(number(4)?)?.max(1),
        points,
        names,
        create_options,
    })
}

fn run() -> Result<bool, Failure> {
    let arguments = arguments()?;
    let place = Place::new("crash")?;
    let rules = Rules { names: arguments.names, fill: Fill::ZerosOrNoise };
    let life = Life {
        program: Program {
            binary: arguments.binary.clone(),
            create_options: arguments.create_options.clone(),
            environment: Vec::new(),
            output: place.path().join("output"),
        },
        place: place.path().to_owned(),
        plan: Plan { seed: arguments.seed, threads: arguments.threads, steps: 40, stream_bytes: 4 << 20 },
        rounds: 3,
        fsck_every: 10,
    };
    let good = match arguments.mode.as_str() {
        "removal" => every_sync_is_needed(&life, &arguments, rules)?,
        mode => survive(&life, &arguments, mode == "kill", rules)?,
    };
    if !good {
        writeln!(io::stdout(), "kept in {}", place.keep().display())?;
    }
    Ok(good)
}

fn survive(life: &Life, arguments: &Arguments, kill: bool, rules: Rules) -> Result<bool, Failure> {
    let mut out = io::stdout();
    let (mut crashes, mut broken) = (0, 0);
    for nth in 0..arguments.lives {
        let mut own = life.clone();
        own.plan.seed = arguments.seed + nth;
        own.place = life.place.join(format!("life-{nth}"));
        let outcome: Outcome = if kill { own.kill()? } else { own.power(arguments.points, rules)? };
        crashes += outcome.crashes;
        broken += outcome.findings.len();
        writeln!(
            out,
            "seed {}: {} operations, {} points, {} crashes, {} broke a promise",
            own.plan.seed,
            outcome.operations,
            outcome.points,
            outcome.crashes,
            outcome.findings.len()
        )?;
        for finding in &outcome.findings {
            print_finding(&mut out, finding)?;
        }
        if outcome.findings.is_empty() {
            std::fs::remove_dir_all(&own.place)?;
        }
    }
    writeln!(out, "{} passed, {broken} failed", crashes.saturating_sub(broken as u64))?;
    Ok(broken == 0)
}

fn print_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    writeln!(out, "  {}", finding.crash)?;
    finding.told.iter().try_for_each(|told| writeln!(out, "    {told}"))
}

fn every_sync_is_needed(life: &Life, arguments: &Arguments, rules: Rules) -> Result<bool, Failure> {
    let mut out = io::stdout();
    writeln!(out, "{:<28} {:<9} how it showed", "sync left out", "found")?;
    let found = removal(life, arguments.lives, arguments.points, rules, |name, finding| {
        let how = finding.map_or(String::new(), |finding| {
            format!("{}: {}", finding.crash, finding.told.first().map_or("", String::as_str))
        });
        drop(writeln!(out, "{name:<28} {:<9} {how}", if finding.is_some() { "yes" } else { "NO" }));
    })?;
    Ok(found.values().all(|found| *found))
}
