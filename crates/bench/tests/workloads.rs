//! Every workload on temporary directories at tiny sizes: counts, checks, clean-up, and what the report says.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_bench::{Cache, Error, Family, Plan, Probe, Progress, Report, Sizes, Unit, Workload, run};
use tempfile::TempDir;

fn tiny() -> Sizes {
    Sizes {
        stream_bytes: 3 * 1024 * 1024 + 12_345,
        random_reads: 23,
        random_writes: 29,
        names: 31,
        small_files: 37,
        synced_files: 17,
        tree_files: 41,
        tree_directories: 11,
        many_files: 43,
        many_directories: 5,
        many_jobs: 3,
        churn_files: 12,
        large_entries: 53,
        shards: 3,
        shard_bytes: 50_000,
        sample_bytes: 10_000,
    }
}

/// A probe whose `chill` vouches for cold caches, so that no cold step is left out on any machine.
fn vouching() -> Probe {
    Probe {
        chill: Some(Box::new(|| Ok(vec!["its memory".to_string()]))),
        chill_forgets_names: true,
        collect: Some(Box::new(|| Ok(()))),
        ..Probe::default()
    }
}

fn plan(target: &Path) -> Plan {
    let mut plan = Plan::new(target, true);
    plan.sizes = tiny();
    plan.workloads = Workload::ALL.to_vec();
    plan.jobs = 2;
    plan.rounds = 2;
    plan.drop_caches = false;
    plan.target_probe = vouching();
    plan.reference_probe = vouching();
    plan.version = "0.0.0".to_string();
    plan.command = "bench <here> & there".to_string();
    plan
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

fn measure(plan: &Plan) -> Report {
    run(plan, &Progress::hidden()).unwrap()
}

/// Operations, bytes of contents (where the sizes fix them) and latency samples of one round.
fn expected(workload: Workload) -> (u64, Option<u64>, u64) {
    let pages = tiny().stream_bytes / 4096;
    let stream = pages * 4096;
    match workload {
        // Two jobs with 769 pages between them: two blocks of 1 MiB each, the last one short.
        Workload::SequentialWrite
        | Workload::SequentialReadCold
        | Workload::SequentialReadWarm
        | Workload::RewrittenReadCold => (4, Some(stream), 4),
        Workload::RandomReadCold | Workload::RandomReadWarm => (23, Some(23 * 4096), 23),
        Workload::RandomWrite => (29, Some(29 * 4096), 29),
        Workload::ListCold | Workload::ListWarm | Workload::FindCold | Workload::LsCold => (31, Some(0), 2),
        Workload::Create | Workload::StatCold | Workload::StatWarm | Workload::Rename | Workload::Unlink => {
            (31, Some(0), 31)
        }
        Workload::SmallWrite | Workload::SmallReadCold | Workload::SmallReadWarm => (37, Some(37 * 4096), 37),
        Workload::SmallSync => (17, Some(17 * 4096), 17),
        Workload::TreeWrite => (52, None, 52),
        Workload::TreeRemove => (52, Some(0), 52),
        Workload::Many => (43, Some(43 * 8192), 43),
        // Of six files a job two are left, and each is worth two looks.
        Workload::Churn => (20, Some(12 * 65_536), 20),
        Workload::StatQuiet | Workload::StatCollecting => (24, Some(0), 24),
        Workload::LargeCreate => (53, Some(0), 53),
        Workload::LargeList => (53, Some(0), 1),
        Workload::LargeRename => (200, Some(0), 200),
        Workload::ShardWrite => (3, Some(150_000), 3),
        Workload::Epoch => (15, Some(150_000), 2),
    }
}

/// Rounds of a workload in a benchmark of two.
fn rounds(workload: Workload) -> u64 {
    if matches!(workload, Workload::LargeCreate | Workload::ShardWrite) { 1 } else { 2 }
}

#[test]
fn every_workload_runs_on_both_sides_counts_and_leaves_nothing() {
    let (target, reference) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut plan = plan(target.path());
    plan.reference = Some(reference.path().to_path_buf());
    let report = measure(&plan);
    assert!(is_empty(target.path()) && is_empty(reference.path()));
    let workloads: Vec<_> = report.results.iter().map(|result| result.workload).collect();
    assert_eq!(workloads, Workload::ALL);
    for result in &report.results {
        let (operations, bytes, samples) = expected(result.workload);
        let both = [result.target.as_ref().unwrap(), result.reference.as_ref().unwrap()];
        for of in both {
            let name = result.workload.name();
            if result.workload == Workload::StatCollecting {
                // It goes on for as long as collecting does.
                assert!(of.operations >= operations && of.latency.samples >= samples * 2, "{name}");
            } else {
                assert_eq!(of.operations, operations, "{name}");
                assert_eq!(of.latency.samples, samples * rounds(result.workload), "{name}");
            }
            assert!(bytes.is_none_or(|bytes| bytes == of.bytes), "{name}: {}", of.bytes);
            let rounds = rounds(result.workload) as usize;
            assert_eq!((of.acknowledged.rounds.len(), of.p99_rounds_ns.len()), (rounds, rounds), "{name}");
            let Rates { min, median, max } = Rates::of(&of.acknowledged);
            assert!(0.0 < min && min <= median && median <= max, "{name}");
            assert!(
                of.latency.p50_ns <= of.latency.p99_ns && of.latency.p99_ns <= of.latency.max_ns,
                "{name}"
            );
            assert_eq!(of.drained.is_some(), result.workload.writes(), "{name}");
            if let Some(drained) = &of.drained {
                assert!(drained.rounds.iter().zip(&of.acknowledged.rounds).all(|(d, a)| d <= a), "{name}");
            }
            assert_eq!(of.cache != Cache::Warm, result.workload.cold(), "{name}");
        }
        assert_eq!(both[0].bytes, both[1].bytes, "both sides do the same work");
        let ratio = result.ratio.unwrap();
        let quotient = both[0].acknowledged.median / both[1].acknowledged.median;
        assert!((ratio.acknowledged - quotient).abs() <= 0.001, "{ratio:?} {quotient}");
        assert_eq!(ratio.drained.is_some(), result.workload.writes());
    }
}

struct Rates {
    min: f64,
    median: f64,
    max: f64,
}

impl Rates {
    fn of(rates: &forebay_bench::Rates) -> Self {
        Self { min: rates.min, median: rates.median, max: rates.max }
    }
}

#[test]
fn a_report_survives_json_and_shows_everything_as_text_and_page() {
    let (target, reference) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut plan = plan(target.path());
    plan.reference = Some(reference.path().to_path_buf());
    plan.commit = Some("0123abc".to_string());
    let observed = || Ok(BTreeMap::from([("objects in <store>".to_string(), 17.0)]));
    plan.target_probe.observe = Some(Box::new(observed));
    let report = measure(&plan);
    let json = report.to_json().unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["results"][0]["workload"], "sequential-write");
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    let (html, text) = (report.to_html(), report.to_text());
    for workload in Workload::ALL {
        assert!(html.contains(&format!("<article id=\"{}\">", workload.name())), "{workload}");
        assert!(html.contains(workload.title()) && text.contains(workload.title()), "{workload}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert_eq!(html.matches("<svg").count(), 2 * Workload::ALL.len());
    assert!(html.contains("Target against reference") && html.contains("class=\"scale\""));
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("name=\"viewport\""));
    assert!(
        !html.contains(" src=") && !html.contains("href=\"h") && !html.contains("url("),
        "the page loads nothing"
    );
    assert!(html.contains("bench &lt;here&gt; &amp; there") && html.contains("objects in &lt;store&gt;"));
    for plot in html.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap()) {
        assert!(!plot.contains("NaN") && !plot.contains("inf"), "plots have finite coordinates: {plot}");
    }
    for style in html.split("style=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(!style.contains("NaN") && !style.contains("inf"), "places are finite: {style}");
    }
    assert!(html.contains("daemon: its memory") && text.contains("target, cold:"), "{text}");
    assert!(text.contains("0123abc") && text.contains(&target.path().display().to_string()));
    assert!(text.lines().all(|line| line.trim_end() == line));
}

#[test]
fn one_workload_alone_runs_what_it_needs_and_reports_itself() {
    for workload in Workload::ALL {
        let target = TempDir::new().unwrap();
        let mut plan = plan(target.path());
        plan.workloads = vec![workload];
        plan.rounds = 1;
        let report = measure(&plan);
        assert_eq!(report.results.len(), 1);
        let operations = report.results[0].target.as_ref().unwrap().operations;
        match workload {
            Workload::StatCollecting => assert!(operations >= expected(workload).0),
            _ => assert_eq!(operations, expected(workload).0, "{workload}"),
        }
        assert!(report.results[0].reference.is_none() && report.results[0].ratio.is_none());
        assert!(is_empty(target.path()), "{workload}");
        assert!(report.to_html().contains(workload.title()) && report.to_text().contains(workload.title()));
    }
}

#[test]
fn more_jobs_than_work_still_adds_up() {
    let target = TempDir::new().unwrap();
    let mut plan = plan(target.path());
    plan.jobs = 5;
    plan.rounds = 1;
    plan.sizes = Sizes {
        random_reads: 3,
        random_writes: 1,
        names: 2,
        small_files: 1,
        tree_files: 7,
        tree_directories: 2,
        many_files: 1,
        many_directories: 3,
        ..tiny()
    };
    let report = measure(&plan);
    let operations = |workload: Workload| {
        let result = report.results.iter().find(|result| result.workload == workload).unwrap();
        result.target.as_ref().unwrap().operations
    };
    assert_eq!(operations(Workload::RandomReadCold), 3);
    assert_eq!(operations(Workload::ListWarm), 2);
    assert_eq!(operations(Workload::TreeWrite), 9);
    assert_eq!(operations(Workload::TreeRemove), 9);
    assert_eq!(operations(Workload::Many), 1);
}

#[test]
fn the_probe_is_asked_in_order_and_its_process_measured() {
    let target = TempDir::new().unwrap();
    let (drains, chills) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut plan = plan(target.path());
    plan.rounds = 1;
    plan.workloads = vec![Workload::Create, Workload::StatCold, Workload::StatWarm];
    let (count, seen) = (drains.clone(), drains.clone());
    let count_chills = chills.clone();
    let asked = AtomicU64::new(100);
    plan.target_probe = Probe {
        pid: Some(std::process::id()),
        drain: Some(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })),
        chill: Some(Box::new(move || {
            count_chills.fetch_add(1, Ordering::SeqCst);
            Ok(vec!["frames".to_string(), "inodes".to_string()])
        })),
        forgets_data: false,
        chill_forgets_names: true,
        observe: Some(Box::new(move || {
            let drains = seen.load(Ordering::SeqCst) as f64;
            Ok(BTreeMap::from([
                ("drains before".to_string(), drains),
                ("metadata_bytes".to_string(), drains * 31.0 * 200.0),
            ]))
        })),
        requests: Some(Box::new(move || {
            let asked = asked.fetch_add(31, Ordering::SeqCst);
            Ok(BTreeMap::from([
                ("lookup".to_string(), 2 * asked),
                ("create".to_string(), asked),
                ("forget".to_string(), 7),
            ]))
        })),
        ..Probe::default()
    };
    let report = measure(&plan);
    for (index, result) in report.results.iter().enumerate() {
        let of = result.target.as_ref().unwrap();
        // One drain comes before everything.
        assert_eq!(of.observed["drains before"], (index + 2) as f64, "drained once, then observed");
        assert_eq!(of.grown.get("metadata_bytes").copied(), result.workload.writes().then_some(200.0));
        let requests = BTreeMap::from([("create".to_string(), 1.0), ("lookup".to_string(), 2.0)]);
        assert_eq!(of.requests, Some(requests), "asked once before and once after the operations");
        let emptied = if result.workload.cold() { 2 } else { 0 };
        assert_eq!(of.emptied.len(), emptied, "{:?}", of.emptied);
        let daemon = of.daemon.unwrap();
        assert!(daemon.acknowledged_us >= 0.0 && daemon.drained_us >= daemon.acknowledged_us);
        assert!(of.peak_memory_bytes.unwrap() > 0);
    }
    assert_eq!(chills.load(Ordering::SeqCst), 1);
    assert!(report.target.peak_memory_bytes.unwrap() > 0);
    let text = report.to_text();
    assert!(
        text.contains("daemon µs") && text.contains("cold: kernel data and names, daemon: frames, inodes")
    );
    assert!(
        text.contains("held after create: ") && text.contains("metadata 12.1 KiB (+200 B an operation)"),
        "{text}"
    );
    assert!(report.to_html().contains("<tr><th>– lookup</th><td>2.00</td></tr>"));
}

#[test]
fn cold_names_are_left_out_with_the_reason_where_nothing_makes_them_cold() {
    let target = TempDir::new().unwrap();
    let mut plan = plan(target.path());
    plan.target_probe = Probe::default();
    plan.workloads = vec![Workload::StatCold, Workload::ListCold, Workload::StatWarm];
    let report = measure(&plan);
    for result in &report.results[..2] {
        assert_eq!(result.workload.unit(), Unit::OperationsPerSecond);
        if result.workload.cold() {
            assert!(result.target.is_none() && result.ratio.is_none());
            assert_eq!(result.notes.len(), 1, "once, not once a round");
            assert!(result.notes[0].contains("told to keep"), "{:?}", result.notes);
        } else {
            assert!(result.target.is_some() && result.notes.is_empty());
        }
    }
    assert!(report.results.iter().filter(|result| result.target.is_none()).count() == 2);
    assert!(report.to_text().contains("note: stat, cold on the target: names stay cached"));
    assert!(report.to_html().contains("names stay cached"));
}

#[test]
fn caches_in_different_states_are_not_compared() {
    let (target, reference) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut plan = plan(target.path());
    plan.reference = Some(reference.path().to_path_buf());
    plan.workloads = vec![Workload::SmallReadCold];
    plan.reference_probe.chill_forgets_names = false;
    let result = &measure(&plan).results[0];
    assert_eq!(result.target.as_ref().unwrap().cache, Cache::Cold { names: true, daemon: true });
    assert_eq!(result.reference.as_ref().unwrap().cache, Cache::Cold { names: false, daemon: true });
    assert!(result.ratio.is_none() && result.notes[0].starts_with("no ratio"));
}

#[test]
fn a_failing_callback_ends_the_run_names_the_directory_and_leaves_nothing() {
    let (target, reference) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut plan = plan(target.path());
    plan.reference = Some(reference.path().to_path_buf());
    plan.reference_probe.drain = Some(Box::new(|| Err(std::io::Error::other("the store is away"))));
    let error = run(&plan, &Progress::hidden()).unwrap_err();
    assert!(matches!(error, Error::Callback { what: "drain", .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(&reference.path().display().to_string()) && message.contains("the store is away")
    );
    assert!(is_empty(target.path()) && is_empty(reference.path()));
}

#[test]
fn a_stop_ends_the_run_and_leaves_nothing() {
    let target = TempDir::new().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut plan = plan(target.path());
    plan.workloads = vec![Workload::Create, Workload::Many];
    plan.stop = Some(stop.clone());
    plan.target_probe.drain = Some(Box::new(move || {
        stop.store(true, Ordering::SeqCst);
        Ok(())
    }));
    let error = run(&plan, &Progress::hidden()).unwrap_err();
    assert!(matches!(error, Error::Stopped { workload: Workload::Create }), "{error}");
    assert!(is_empty(target.path()));
}

/// Finds the one file called `name` under `directory`.
fn find(directory: &Path, name: &str) -> Option<std::path::PathBuf> {
    fs::read_dir(directory).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

/// Runs `workload` on files that `damage` changes just before it, by way of the probe's `chill`.
fn damaged(workload: Workload, damage: impl Fn(&Path) + Send + Sync + 'static) -> Error {
    let target = TempDir::new().unwrap();
    let mut plan = plan(target.path());
    plan.jobs = 1;
    plan.workloads = vec![workload];
    let path = target.path().to_path_buf();
    plan.target_probe.chill = Some(Box::new(move || {
        damage(&path);
        Ok(Vec::new())
    }));
    let error = run(&plan, &Progress::hidden()).unwrap_err();
    assert!(error.to_string().contains(&target.path().display().to_string()), "{error}");
    assert!(is_empty(target.path()));
    error
}

#[test]
fn wrong_short_and_missing_files_are_errors_that_name_the_path() {
    let flipped = damaged(Workload::SequentialReadCold, |target| {
        let path = find(target, "data").unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[8192] ^= 1;
        fs::write(&path, bytes).unwrap();
    });
    assert!(matches!(flipped, Error::Content { offset: 8192, .. }), "{flipped}");
    let short = damaged(Workload::SequentialReadCold, |target| {
        fs::File::options()
            .write(true)
            .open(find(target, "data").unwrap())
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
    });
    assert!(matches!(short, Error::Content { offset: 1_048_576, .. }), "{short}");
    let small = damaged(Workload::SmallReadCold, |target| {
        fs::write(find(target, "file-0000003").unwrap(), [0; 4096]).unwrap();
    });
    assert!(matches!(&small, Error::Content { path, .. } if path.ends_with("file-0000003")), "{small}");
    let missing = damaged(Workload::StatCold, |target| {
        fs::remove_file(find(target, "file-0000004").unwrap()).unwrap();
    });
    let names = |path: &Path| path.ends_with("file-0000004");
    assert!(matches!(&missing, Error::Operation { operation: "stat", path, .. } if names(path)), "{missing}");
    let listing = damaged(Workload::ListCold, |target| {
        fs::remove_file(find(target, "file-0000005").unwrap()).unwrap();
    });
    assert!(matches!(listing, Error::Listing { expected: 31, found: 30, .. }), "{listing}");
}

#[test]
fn bad_places_and_settings_are_refused_by_name_and_change_nothing() {
    let target = TempDir::new().unwrap();
    let refuse = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan(target.path());
        change(&mut plan);
        let error = run(&plan, &Progress::hidden()).unwrap_err();
        assert!(is_empty(target.path()));
        error.to_string()
    };
    let missing = target.path().join("missing");
    let message = refuse(&|plan| plan.target = missing.clone());
    assert!(message.contains(&missing.display().to_string()), "{message}");
    let message = refuse(&|plan| plan.reference = Some("/proc/version".into()));
    assert!(message.contains("/proc/version"), "{message}");
    let message = refuse(&|plan| plan.reference = Some(target.path().join(".")));
    assert!(message.contains("both target and reference"), "{message}");
    let message = refuse(&|plan| plan.target_probe.pid = Some(u32::MAX));
    assert!(message.contains(&u32::MAX.to_string()), "{message}");
    assert!(refuse(&|plan| plan.jobs = 0).starts_with("jobs is 0"));
    assert!(refuse(&|plan| plan.rounds = 0).starts_with("rounds is 0"));
    assert!(refuse(&|plan| plan.sizes.many_jobs = 1025).starts_with("many_jobs is 1025"));
    assert!(refuse(&|plan| plan.sizes.names = 0).starts_with("names is 0"));
    assert!(
        refuse(&|plan| plan.sizes.stream_bytes = u64::MAX)
            .starts_with("stream_bytes is 18446744073709551615")
    );
    assert!(refuse(&|plan| plan.sizes.stream_bytes = 4096).starts_with("stream_bytes is 4096"));
    assert!(refuse(&|plan| plan.workloads.clear()).starts_with("the number of workloads is 0"));
}

#[test]
fn names_of_workloads_are_read_back_and_others_refused_with_the_list() {
    for workload in Workload::ALL {
        assert_eq!(workload.name().parse(), Ok(workload));
        assert_eq!(serde_json::to_value(workload).unwrap(), workload.name());
    }
    let message = "fast".parse::<Workload>().unwrap_err();
    assert!(message.contains("\"fast\"") && message.contains("stat-cold"), "{message}");
    assert!(
        Family::ALL.iter().all(|family| Workload::ALL.iter().any(|workload| workload.family() == *family))
    );
}

#[test]
fn every_size_has_a_name_and_is_recorded() {
    let mut sizes = Sizes::full();
    for (name, value) in Sizes::NAMES.into_iter().zip(3..) {
        assert!(sizes.set(name, value), "{name}");
    }
    assert!(!sizes.set("fast", 1));
    let value = serde_json::to_value(&sizes).unwrap();
    for (name, value_set) in Sizes::NAMES.into_iter().zip(3_u64..) {
        assert_eq!(value[name.replace('-', "_")], value_set, "{name}");
    }
    assert_eq!(value.as_object().unwrap().len(), Sizes::NAMES.len());
}
