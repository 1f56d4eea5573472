//! The report: what was measured, on what, and how the two sides compare. JSON by serde.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::crew::Tally;
use crate::stage::Sample;
use crate::{Machine, Place, Sizes, Unit, Workload};

/// The number of this form of the report; it changes when a field changes its meaning or goes away.
pub(crate) const FORM: u32 = 1;

/// Which of the two directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The directory that is measured.
    Target,
    /// The directory it is compared with.
    Reference,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "target",
            Self::Reference => "reference",
        })
    }
}

/// Everything a benchmark found, with what is needed to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The form of this report; 1.
    pub form: u32,
    /// Version of the program, as the caller gave it.
    pub version: String,
    /// Commit of the program, as the caller gave it.
    pub commit: Option<String>,
    /// Command line, as the caller gave it.
    pub command: String,
    /// When it began: UTC, RFC 3339.
    pub started: String,
    /// How long it took, set-up and clean-up included, seconds.
    pub took_s: f64,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Settings,
    /// The directory measured.
    pub target: SideReport,
    /// The directory it is compared with.
    pub reference: Option<SideReport>,
    /// One entry for each workload asked for, in the order of [`Workload::ALL`].
    pub results: Vec<Comparison>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Concurrent jobs.
    pub jobs: usize,
    /// Rounds.
    pub rounds: usize,
    /// Whether this was a first look.
    pub quick: bool,
    /// Seed of the random choices.
    pub seed: u64,
    /// What each workload did in a round.
    pub sizes: Sizes,
}

/// One of the two directories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Directory and file system.
    pub place: Place,
    /// Most memory of the process that serves it, from its start to the end of the benchmark (`VmHWM`), bytes.
    pub peak_memory_bytes: Option<u64>,
}

/// One workload on one or both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Which.
    pub workload: Workload,
    /// What its rates count.
    pub unit: Unit,
    /// On the target; absent if left out.
    pub target: Option<Measurement>,
    /// On the reference; absent if there is none, or left out.
    pub reference: Option<Measurement>,
    /// Target against reference; absent if one of them is, or if their caches were not in the same state.
    pub ratio: Option<Ratio>,
    /// Why a side was left out, or why there is no ratio.
    pub notes: Vec<String>,
}

/// Median of the target's rates divided by the median of the reference's: above 1 the target is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Of acknowledged rates.
    pub acknowledged: f64,
    /// Of synced rates, for workloads that write.
    #[serde(default)]
    pub synced: Option<f64>,
    /// Of drained rates, for workloads that write.
    pub drained: Option<f64>,
}

/// What was cached when a step began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Nothing was dropped.
    Warm,
    /// The kernel's cache of file contents was dropped.
    Cold {
        /// Whether the kernel's names and attributes were dropped, too.
        names: bool,
        /// Whether the caches of the process behind the mount were emptied, too.
        daemon: bool,
    },
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, daemon) = match self {
            Self::Warm => return f.write_str("warm"),
            Self::Cold { names, daemon } => (*names, *daemon),
        };
        f.write_str(if names { "cold: kernel data and names" } else { "cold: kernel data only" })?;
        f.write_str(if daemon { ", daemon" } else { "" })
    }
}

/// One workload on one side, over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Operations in one round.
    pub operations: u64,
    /// Bytes of file contents in one round.
    pub bytes: u64,
    /// What was cached.
    pub cache: Cache,
    /// Rates until the last operation returned.
    pub acknowledged: Rates,
    /// Rates until what was written was synced by name, for workloads that write.
    #[serde(default)]
    pub synced: Option<Rates>,
    /// Rates until nothing was pending, for workloads that write.
    pub drained: Option<Rates>,
    /// Latency of single operations ([`Workload::latency_of`]), over all rounds.
    pub latency: Latency,
    /// The 99th percentile of each round, in order, nanoseconds.
    #[serde(default)]
    pub p99_rounds_ns: Vec<u64>,
    /// Processor time of the process behind the mount, where its id was given.
    pub daemon: Option<Processor>,
    /// Processor time of the benchmark's own process and the programs it runs, in the kernel too, for each operation, microseconds.
    pub client_us: f64,
    /// Most memory so far of the process behind the mount after the last round, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// What the caller observed after the last round had drained, to three decimals; finite figures only.
    pub observed: BTreeMap<String, f64>,
    /// By how much each of these grew for each operation, until drained, over all rounds, for workloads that write.
    #[serde(default)]
    pub grown: BTreeMap<String, f64>,
    /// Requests that the kernel made of the process behind the mount for each operation, over all rounds, by kind.
    #[serde(default)]
    pub requests: Option<BTreeMap<String, f64>>,
    /// Caches of the process behind the mount that were emptied before, in its words.
    #[serde(default)]
    pub emptied: Vec<String>,
}

/// Rates in [`Comparison::unit`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// One for each round, in order.
    pub rounds: Vec<f64>,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The slowest.
    pub min: f64,
    /// The fastest.
    pub max: f64,
}

impl Rates {
    /// From the rates of the rounds; there is at least one.
    pub(crate) fn new(rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => sorted[middle],
            _ => thousandths((sorted[middle - 1] + sorted[middle]) / 2.0),
        };
        let (min, max) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0));
        Self { rounds, median, min, max }
    }
}

/// Latency in nanoseconds, to three significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half are at most this long.
    pub p50_ns: u64,
    /// 99 of 100 are at most this long.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// How many were timed.
    pub samples: u64,
}

/// Processor time, user and system and of all threads, for each operation, microseconds. Taken in ticks of 10 ms, so
/// it says something only over many operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// Until the last operation returned.
    pub acknowledged_us: f64,
    /// Until nothing was pending; the whole price of the operation.
    pub drained_us: f64,
}

impl Measurement {
    /// Puts the rounds of one side together; none if there are none.
    pub(crate) fn new(unit: Unit, cache: Cache, samples: &[Sample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let rate = |sample: &Sample, took: Duration| {
            let amount = match unit {
                Unit::BytesPerSecond => sample.tally.done.bytes,
                Unit::OperationsPerSecond => sample.tally.done.operations,
            };
            thousandths(amount as f64 / took.as_secs_f64().max(1e-9))
        };
        let until = |moment: &dyn Fn(&Sample) -> Option<Duration>| {
            let rates: Option<Vec<_>> =
                samples.iter().map(|sample| Some(rate(sample, moment(sample)?))).collect();
            rates.map(Rates::new)
        };
        let mut all = Tally::new();
        samples.iter().for_each(|sample| all.add(&sample.tally));
        let each = |time: &dyn Fn(&Sample) -> Option<Duration>| {
            let total: Option<Duration> = samples.iter().map(time).sum();
            total.map(|total| thousandths(total.as_secs_f64() * 1e6 / all.done.operations.max(1) as f64))
        };
        let acknowledged_us = each(&|sample| Some(sample.processor?.0));
        let drained_us = each(&|sample| Some(sample.processor?.1));
        Some(Self {
            operations: first.tally.done.operations,
            bytes: first.tally.done.bytes,
            cache,
            acknowledged: Rates::new(
                samples.iter().map(|sample| rate(sample, sample.tally.elapsed)).collect(),
            ),
            synced: until(&|sample| sample.synced),
            drained: until(&|sample| sample.drained),
            latency: Latency {
                p50_ns: all.latency.value_at_quantile(0.5),
                p99_ns: all.latency.value_at_quantile(0.99),
                max_ns: all.latency.max(),
                samples: all.latency.len(),
            },
            p99_rounds_ns: samples
                .iter()
                .map(|sample| sample.tally.latency.value_at_quantile(0.99))
                .collect(),
            daemon: acknowledged_us
                .zip(drained_us)
                .map(|(acknowledged_us, drained_us)| Processor { acknowledged_us, drained_us }),
            client_us: each(&|sample| Some(sample.client)).unwrap_or(0.0),
            peak_memory_bytes: last.peak_memory,
            observed: finite(&last.observed),
            grown: finite(&per_operation(samples.iter().map(|sample| &sample.grown), all.done.operations)),
            requests: requests(samples, all.done.operations),
            emptied: last.emptied.clone(),
        })
    }
}

/// Sums, divided by the number of operations.
fn per_operation<'s>(
    samples: impl Iterator<Item = &'s BTreeMap<String, f64>>,
    operations: u64,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in samples.flatten() {
        *sums.entry(name.clone()).or_default() += value / operations.max(1) as f64;
    }
    sums
}

fn requests(samples: &[Sample], operations: u64) -> Option<BTreeMap<String, f64>> {
    let counts: Option<Vec<_>> = samples.iter().map(|sample| sample.requests.as_ref()).collect();
    let counts: Vec<BTreeMap<String, f64>> = counts?
        .into_iter()
        .map(|count| count.iter().map(|(name, count)| (name.clone(), *count as f64)).collect())
        .collect();
    Some(finite(&per_operation(counts.iter(), operations)))
}

/// What JSON can hold and give back as it was.
fn finite(observed: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let finite = observed.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| (name.clone(), thousandths(*value))).collect()
}

impl Comparison {
    /// Puts two sides together. There is a ratio only if both ran with their caches in the same state.
    pub(crate) fn new(
        workload: Workload,
        target: Option<Measurement>,
        reference: Option<Measurement>,
        mut notes: Vec<String>,
    ) -> Self {
        let both = target.as_ref().zip(reference.as_ref());
        let kernel = |cache: Cache| match cache {
            Cache::Warm => None,
            Cache::Cold { names, .. } => Some(names),
        };
        let alike = both.is_some_and(|(target, reference)| kernel(target.cache) == kernel(reference.cache));
        if both.is_some() && !alike {
            notes.push("no ratio: the kernel's caches were not in the same state on both sides".to_string());
        }
        let ratio = both.filter(|_| alike).map(|(target, reference)| Ratio {
            acknowledged: quotient(&target.acknowledged, &reference.acknowledged),
            synced: target.synced.as_ref().zip(reference.synced.as_ref()).map(|(t, r)| quotient(t, r)),
            drained: target.drained.as_ref().zip(reference.drained.as_ref()).map(|(t, r)| quotient(t, r)),
        });
        Self { workload, unit: workload.unit(), target, reference, ratio, notes }
    }
}

fn quotient(target: &Rates, reference: &Rates) -> f64 {
    thousandths(target.median / reference.median.max(0.001))
}

/// Rounds to three decimals, so that a figure reads the same after JSON.
pub(crate) fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Report {
    /// The report as an aligned table.
    pub fn to_text(&self) -> String {
        crate::text::table(self)
    }

    /// The report as one page of HTML that needs nothing else: plots, tables, light and dark.
    pub fn to_html(&self) -> String {
        crate::html::page(self)
    }

    /// The report as JSON, for people to read and programs to keep.
    ///
    /// # Errors
    ///
    /// None that a report from [`crate::run`] can cause; a report built by hand may hold a number that JSON has not.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
