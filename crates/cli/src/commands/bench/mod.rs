//! `forebay bench`

mod compare;
mod null;
mod talk;

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use forebay_bench::{Plan, Probe, Progress, Report};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    args::{BenchArgs, BenchLoaderArgs},
    commands::bench::null::NullMount,
    control::{Client, Left},
    error::CliError,
    logging,
    mounts::{self, Mounted},
    output,
};

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    if args.compare {
        return compare::run(args);
    }
    let mut plan = Plan::new(&args.target, args.quick);
    plan.jobs = args.jobs;
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    plan.drop_caches = !args.keep_caches;
    for (name, value) in &args.sizes {
        plan.sizes.set(name, *value);
    }
    if !args.workloads.is_empty() {
        plan.workloads.clone_from(&args.workloads);
    }
    plan.target_probe = probe(&args.target)?;
    let null = if args.null { Some(NullMount::start(&args.target, false)?) } else { None };
    plan.reference = null.as_ref().map(|null| null.dir().to_owned()).or_else(|| args.reference.clone());
    plan.reference_probe = match (&null, &args.reference) {
        (Some(null), _) => null.probe(),
        (None, Some(reference)) => probe(reference)?,
        (None, None) => Probe::default(),
    };
    sign(&mut plan);
    plan.stop = Some(stopped_by_signals()?);
    let report = forebay_bench::run(&plan, &Progress::stderr());
    drop(null);
    write(args, &report?)
}

/// A loader of a training loop, started by the benchmark.
pub(crate) fn load(args: &BenchLoaderArgs) -> Result<ExitCode, CliError> {
    output::line(&forebay_bench::load(&args.words)?);
    Ok(ExitCode::SUCCESS)
}

/// What program this is, for the report.
fn sign(plan: &mut Plan) {
    plan.command = std::env::args().collect::<Vec<_>>().join(" ");
    plan.version = env!("CARGO_PKG_VERSION").to_owned();
    plan.commit = option_env!("FOREBAY_COMMIT").map(str::to_owned);
}

/// Raised by the first signal, which ends the benchmark after the step that runs; the second one ends it at once.
fn stopped_by_signals() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let listening = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        listening.map_err(|error| CliError::Told(format!("cannot listen to signals: {error}")))?;
    }
    Ok(stop)
}

fn write(args: &BenchArgs, report: &Report) -> Result<ExitCode, CliError> {
    output::out(&report.to_text());
    if let Some(path) = &args.json {
        let json = report.to_json().map_err(|error| CliError::io("write", path)(error.into()))?;
        fs::write(path, json).map_err(CliError::io("write", path))?;
    }
    if let Some(path) = &args.html {
        fs::write(path, report.to_html()).map_err(CliError::io("write", path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The mount of a volume that a directory is in, if it is in one.
fn volume_of(dir: &Path) -> Result<Option<Mounted>, CliError> {
    let dir = fs::canonicalize(dir).map_err(CliError::io("find", dir))?;
    for above in dir.ancestors() {
        if let Some(mounted) = mounts::on(above).map_err(CliError::io("look at", above))? {
            return Ok(Some(mounted));
        }
    }
    Ok(None)
}

/// How to look at what serves a directory, where that is a Forebay mount.
fn probe(dir: &Path) -> Result<Probe, CliError> {
    let Some(mounted) = volume_of(dir)? else { return Ok(Probe::default()) };
    let pid = Client::of_mount(&mounted)?.process()?.pid();
    // What it holds and collects is its servers' business.
    let shared = mounted.volume.to_str().is_some_and(|volume| volume.starts_with("forebay://"));
    let (draining, chilled, counted, collecting) =
        (mounted.clone(), mounted.clone(), mounted.clone(), mounted.clone());
    let observed = mounted;
    let drain = move || -> io::Result<()> {
        let left: Left = ask(&draining, "drain")?;
        match left.dirty_bytes {
            0 => Ok(()),
            bytes => Err(io::Error::other(format!("{bytes} bytes are still dirty after a drain"))),
        }
    };
    let observe = move || -> io::Result<BTreeMap<String, f64>> {
        // Files that the metadata engine would merge later are not what the volume holds.
        if !shared {
            let _: bool = ask(&observed, "settle")?;
        }
        let status: Value = ask(&observed, "status")?;
        let figure = |key: &str| Some((key.to_owned(), status[key].as_f64()?));
        Ok([
            "objects",
            "stored_bytes",
            "garbage_bytes",
            "metadata_bytes",
            "live_bytes",
            "segments",
            "journal_syncs",
        ]
        .into_iter()
        .filter_map(figure)
        .collect())
    };
    let collect = move || ask::<Value>(&collecting, "gc").map(drop);
    Ok(Probe {
        pid: Some(pid),
        drain: Some(Box::new(drain)),
        chill: Some(Box::new(move || ask(&chilled, "chill"))),
        requests: Some(Box::new(move || ask(&counted, "stats").map(|stats| requests(&stats)))),
        observe: Some(Box::new(observe)),
        collect: (!shared).then(|| Box::new(collect) as _),
        ..Probe::default()
    })
}

/// Requests since the mount, by operation.
fn requests(stats: &Value) -> BTreeMap<String, u64> {
    let operations = stats["operations"].as_array().into_iter().flatten();
    operations
        .filter_map(|operation| {
            Some((operation["name"].as_str()?.to_owned(), operation["requests"].as_u64()?))
        })
        .collect()
}

fn ask<T: serde::de::DeserializeOwned>(mounted: &Mounted, request: &str) -> io::Result<T> {
    Client::of_mount(mounted).and_then(|client| client.ask(request)).map_err(io::Error::other)
}
