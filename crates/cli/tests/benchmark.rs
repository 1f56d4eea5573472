//! The benchmark on a mounted volume at tiny sizes, beside the do-nothing file system.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::fs;

use bed::{Bed, contents};
use forebay_bench::targets::Run;
use serde_json::Value;

const SIZES: &[&str] = &[
    "stream-bytes=4MiB",
    "random-reads=100",
    "random-writes=100",
    "names=100",
    "small-files=50",
    "tree-files=60",
    "tree-directories=10",
    "many-files=80",
    "many-directories=4",
    "many-jobs=4",
    "churn-files=200",
    "large-entries=300",
    "shards=2",
    "shard-bytes=2MiB",
    "sample-bytes=64KiB",
];

/// The table and the report.
fn measured(bed: &Bed, more: &[&str]) -> (String, Value) {
    let sizes = SIZES.iter().flat_map(|size| ["--size", *size]);
    let fixed =
        ["bench", "mnt", "--quick", "--keep-caches", "--json", "report.json", "--html", "report.html"];
    let args: Vec<&str> = fixed.into_iter().chain(sizes).chain(more.iter().copied()).collect();
    let table = bed.good(&args);
    (table, serde_json::from_str(&fs::read_to_string(bed.path("report.json")).unwrap()).unwrap())
}

fn report(bed: &Bed, more: &[&str]) -> Value {
    let (table, report) = measured(bed, more);
    assert!(table.contains("sequential write") && table.contains("held after create: "), "{table}");
    let page = fs::read_to_string(bed.path("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("requests an operation"));
    report
}

fn result<'r>(report: &'r Value, workload: &str) -> &'r Value {
    let mut results = report["results"].as_array().unwrap().iter();
    results.find(|result| result["workload"] == workload).unwrap()
}

#[test]
fn every_workload_is_compared_with_a_file_system_that_does_nothing() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    // What is read back is checked by the benchmark: wrong bytes would end it with an error.
    let report = report(&bed, &["--null", "--jobs", "2"]);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 21);
    for result in results {
        let name = result["workload"].as_str().unwrap();
        if ["stat-cold", "list-cold"].contains(&name) {
            assert!(result["target"].is_null(), "the kernel's caches were kept");
            assert!(result["notes"][0].as_str().unwrap().contains("told to keep"), "{result}");
            continue;
        }
        let ratio = result["ratio"]["acknowledged"].as_f64().unwrap();
        assert!(ratio.is_finite() && ratio > 0.0, "{result}");
        assert!(
            result["target"]["requests"].is_object() && result["reference"]["requests"].is_null(),
            "{result}"
        );
        assert!(result["target"]["peak_memory_bytes"].as_u64().unwrap() > 0, "{result}");
    }
    assert_eq!(result(&report, "create")["target"]["requests"]["create"], 1.0);
    let many = &result(&report, "many")["target"];
    assert_eq!((&many["operations"], &many["bytes"]), (&80.into(), &(80 * 8192).into()));
    assert!(many["observed"]["objects"].as_f64().unwrap() >= 1.0, "{many}");
    assert!(many["grown"]["live_bytes"].as_f64().unwrap() >= 8192.0, "{many}");
    assert!(many["grown"]["metadata_bytes"].is_f64(), "{many}");
    assert!(contents(&mnt).is_empty(), "the benchmark left something");
}

#[test]
fn cold_reads_find_the_caches_of_the_mount_empty() {
    let bed = Bed::new();
    bed.volume("v");
    bed.mount("v", "mnt", &[]);
    let chosen = ["--workload", "sequential-write", "--workload", "random-read-cold", "--workload", "create"];
    let report = report(&bed, &chosen);
    let cold = &result(&report, "random-read-cold")["target"];
    let expected = ["contents in memory", "inodes and block maps in memory"];
    assert_eq!(cold["emptied"], serde_json::json!(expected), "{cold}");
    assert_eq!(cold["cache"]["cold"]["daemon"], true);
    let stats: Value = serde_json::from_str(&bed.good(&["stats", "mnt", "--once", "--json"])).unwrap();
    assert!(stats["caches"]["memory"]["misses"].as_u64().unwrap() > 0, "nothing was fetched again: {stats}");
}

#[test]
fn sizes_that_there_are_not_are_refused() {
    let bed = Bed::new();
    bed.dir("mnt");
    for (size, named) in [("names", "NAME=VALUE"), ("speed=3", "many-files"), ("names=many", "many")] {
        let line = bed.refused(2, &["bench", "mnt", "--size", size]);
        assert!(line.contains(named), "{size}: {line}");
    }
    let help = bed.good(&["bench", "--help"]);
    for name in forebay_bench::Sizes::NAMES {
        assert!(help.contains(name), "{name} is not in\n{help}");
    }
    let line = bed.refused(1, &["bench", "mnt", "--size", "names=0"]);
    assert!(line.contains("names is 0"), "{line}");
    assert!(contents(&bed.path("mnt")).is_empty());
}

#[test]
fn with_lifetimes_of_zero_every_look_is_a_request() {
    let bed = Bed::new();
    bed.volume("v");
    let asked = |options: &[&str]| {
        bed.mount("v", "mnt", options);
        let (_, report) = measured(&bed, &["--null", "--workload", "stat-warm"]);
        bed.umount("mnt");
        let requests = &result(&report, "stat-warm")["target"]["requests"];
        requests.as_object().unwrap().values().map(|count| count.as_f64().unwrap()).sum::<f64>()
    };
    assert!(asked(&[]) < 0.1);
    assert!(asked(&["-o", "attr_timeout=0,entry_timeout=0"]) >= 1.0);
}

/// The table, the lines and the outcomes of some runs, or of all, and the page.
fn compared(bed: &Bed, runs: &[&str]) -> (String, Value, String) {
    let sizes = SIZES.iter().flat_map(|size| ["--size", *size]);
    let fixed = ["bench", "dir", "--compare", "--quick", "--json", "report.json", "--html", "report.html"];
    let runs = runs.iter().flat_map(|run| ["--run", *run]);
    let table = bed.good(&fixed.into_iter().chain(sizes).chain(runs).collect::<Vec<_>>());
    let report = serde_json::from_str(&fs::read_to_string(bed.path("report.json")).unwrap()).unwrap();
    (table, report, fs::read_to_string(bed.path("report.html")).unwrap())
}

#[test]
fn all_targets_are_measured_in_one_comparison() {
    let bed = Bed::new();
    let dir = bed.dir("dir");
    let (table, report, page) = compared(&bed, &[]);
    assert!(table.contains("warm stat") && table.contains("requests"), "{table}");
    for run in Run::ALL {
        assert!(report["runs"][run.name()].is_object() && page.contains(run.title()), "{run}: {table}");
    }
    for line in report["lines"].as_array().unwrap() {
        // What this machine lacks is said; nothing else is left out. A small volume has no compaction and no sync of a 100,000th file, but figures.
        assert!(line["value"].is_f64() || line["reason"].is_string(), "{line}");
    }
    assert!(contents(&dir).is_empty(), "the comparison left something");
}

#[test]
fn one_run_is_measured_alone() {
    let bed = Bed::new();
    bed.dir("dir");
    let (table, report, _) = compared(&bed, &["names-of-one", "synced"]);
    let runs: Vec<_> = report["runs"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(runs, ["names-of-one", "synced"]);
    for line in report["lines"].as_array().unwrap() {
        assert!(runs.contains(&line["run"].as_str().unwrap()) && line["value"].is_f64(), "{line}");
    }
    assert!(table.contains("JuiceFS") && !table.contains("ls -l"), "{table}");
    let help = bed.good(&["bench", "--help"]);
    for run in Run::ALL {
        assert!(
            help.contains(&format!("{run} ")) || help.contains(&format!("{run},")),
            "{run} is not in\n{help}"
        );
    }
    let line = bed.refused(2, &["bench", "dir", "--compare", "--run", "nothing"]);
    assert!(line.contains("names-of-one"), "{line}");
}
