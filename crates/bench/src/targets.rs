//! What the file system is to reach: each target is one figure of one run against a bound.
//!
//! A caller makes the runs of [`Run::ALL`], each a [`crate::Plan`] with the workloads, jobs and reference that the run names, and gives the reports to
//! [`judge`]. Nothing is judged that was not measured.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::text::digits;
use crate::{Measurement, Report, Sizes, Workload};

/// A run of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// Names and small files, as mounted by default, beside the do-nothing file system on the same terms.
    Names,
    /// The same with lifetimes of 0: the daemon answers everything.
    NamesAsked,
    /// Names and small files beside the local file system.
    NamesLocal,
    /// Large files and trees beside the local file system, one job.
    Data,
    /// Large files beside the local file system, four jobs.
    DataOfFour,
    /// Small files synced one by one by 16 jobs.
    Synced,
    /// Very many small files, the volume alone.
    Many,
}

/// What a run measures the volume beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The do-nothing file system over the same transport, with the same capabilities and lifetimes.
    DoNothing,
    /// A directory of the local file system that the volume lies on.
    Local,
    /// Nothing.
    Nothing,
}

impl Run {
    /// All runs, in the order to make them.
    pub const ALL: [Self; 7] = [
        Self::Names,
        Self::NamesAsked,
        Self::NamesLocal,
        Self::Data,
        Self::DataOfFour,
        Self::Synced,
        Self::Many,
    ];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Names => "names, beside the do-nothing file system",
            Self::NamesAsked => "names with lifetimes of 0, beside the do-nothing file system",
            Self::NamesLocal => "names, beside the local file system",
            Self::Data => "data, beside the local file system",
            Self::DataOfFour => "data by four jobs, beside the local file system",
            Self::Synced => "synced small files",
            Self::Many => "very many small files",
        }
    }

    /// What it measures beside.
    pub fn beside(self) -> Beside {
        match self {
            Self::Names | Self::NamesAsked => Beside::DoNothing,
            Self::NamesLocal | Self::Data | Self::DataOfFour | Self::Synced => Beside::Local,
            Self::Many => Beside::Nothing,
        }
    }

    /// Whether the volume is to be mounted so that the kernel asks for every name and attribute.
    pub fn asks_always(self) -> bool {
        self == Self::NamesAsked
    }

    /// Concurrent jobs.
    pub fn jobs(self) -> usize {
        match self {
            Self::Data => 1,
            Self::Synced => 16,
            _ => 4,
        }
    }

    /// Rounds of a full comparison.
    pub fn rounds(self) -> usize {
        if self == Self::Many { 1 } else { 5 }
    }

    /// What it measures.
    pub fn workloads(self) -> &'static [Workload] {
        use Workload as W;
        match self {
            Self::Names | Self::NamesAsked | Self::NamesLocal => {
                &[W::Create, W::StatWarm, W::ListCold, W::Rename, W::Unlink, W::SmallWrite, W::SmallReadWarm]
            }
            Self::Data => &[
                W::SequentialWrite,
                W::SequentialReadCold,
                W::SequentialReadWarm,
                W::RandomReadWarm,
                W::TreeWrite,
                W::TreeRemove,
            ],
            Self::DataOfFour => &[
                W::SequentialReadCold,
                W::SequentialReadWarm,
                W::RandomReadWarm,
                W::RandomWrite,
                W::RewrittenReadCold,
            ],
            Self::Synced => &[W::SmallSync],
            Self::Many => &[W::Many],
        }
    }

    /// How much it does in a round.
    pub fn sizes(self, quick: bool) -> Sizes {
        match (self, quick) {
            (_, true) => Sizes::quick(),
            (Self::Many, false) => Sizes { many_files: 1_000_000, many_directories: 1_000, ..Sizes::full() },
            (_, false) => Sizes::full(),
        }
    }
}

/// Which figure is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// Acknowledged rate divided by the reference's.
    Ratio,
    /// Rate until synced divided by the reference's.
    SyncedRatio,
    /// Rate until synced, in operations a second.
    SyncedRate,
    /// Seconds for 100,000 operations, acknowledged.
    SecondsFor100k,
    /// Acknowledged rate divided by that of another workload on the same side.
    OfOwn(Workload),
    /// Operations for each unit by which an observed figure grew.
    PerGrowth(&'static str),
    /// Growth of an observed figure for each operation.
    Growth(&'static str),
    /// The daemon's processor time for each operation until drained, µs.
    Processor,
    /// The daemon's most memory, MiB.
    PeakMemory,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Only told.
    None,
}

struct Target {
    what: &'static str,
    run: Run,
    workload: Workload,
    figure: Figure,
    bound: Bound,
}

/// The figure of a target in one comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What is judged, in words.
    pub what: String,
    /// In which run.
    pub run: Run,
    /// The workload.
    pub workload: Workload,
    /// The figure; absent if it was not measured.
    pub value: Option<f64>,
    /// The least it shall be.
    pub at_least: Option<f64>,
    /// The most it shall be.
    pub at_most: Option<f64>,
    /// Whether it is so; absent without a figure or a bound.
    pub met: Option<bool>,
    /// The daemon's processor time for each operation until drained, µs, where it was counted.
    pub daemon_us: Option<f64>,
    /// Requests of the kernel for each operation, where they were counted.
    pub requests: Option<f64>,
}

/// The table, in the order of the lines.
fn targets() -> Vec<Target> {
    use Bound::{AtLeast, AtMost, None};
    use Figure as F;
    use Workload as W;
    let target = |what, run, workload, figure, bound| Target { what, run, workload, figure, bound };
    let changing = [
        ("create an empty file", W::Create),
        ("create, write 4 KiB, close", W::SmallWrite),
        ("unlink", W::Unlink),
        ("rename", W::Rename),
    ];
    let mut all = Vec::new();
    for run in [Run::Names, Run::NamesAsked] {
        all.push(target("warm stat", run, W::StatWarm, F::Ratio, AtLeast(0.8)));
        all.push(target("warm open, read 4 KiB, close", run, W::SmallReadWarm, F::Ratio, AtLeast(0.8)));
        all.extend(changing.map(|(what, workload)| target(what, run, workload, F::Ratio, AtLeast(0.5))));
    }
    all.extend(
        changing.map(|(what, workload)| target(what, Run::Names, workload, F::Processor, AtMost(60.0))),
    );
    all.extend(changing.map(|(what, workload)| target(what, Run::NamesLocal, workload, F::Ratio, None)));
    for run in [Run::Data, Run::DataOfFour] {
        all.push(target("warm sequential read", run, W::SequentialReadWarm, F::Ratio, AtLeast(0.95)));
        all.push(target("warm random 4 KiB read", run, W::RandomReadWarm, F::Ratio, AtLeast(0.85)));
        all.push(target("cold sequential read", run, W::SequentialReadCold, F::Ratio, AtLeast(0.9)));
    }
    all.extend([
        target("sequential write, fsync", Run::Data, W::SequentialWrite, F::SyncedRatio, AtLeast(0.8)),
        target("unpack a source tree", Run::Data, W::TreeWrite, F::Ratio, AtLeast(1.0 / 3.0)),
        target("remove it", Run::Data, W::TreeRemove, F::Ratio, AtLeast(0.25)),
        target(
            "random 4 KiB writes/s, fsync",
            Run::DataOfFour,
            W::RandomWrite,
            F::SyncedRate,
            AtLeast(40_000.0),
        ),
        target(
            "read after random writes, of before",
            Run::DataOfFour,
            W::RewrittenReadCold,
            F::OfOwn(W::SequentialReadCold),
            AtLeast(0.7),
        ),
        target(
            "files a sync of the journal",
            Run::Synced,
            W::SmallSync,
            F::PerGrowth("journal_syncs"),
            AtLeast(8.0),
        ),
        target("synced small files", Run::Synced, W::SmallSync, F::Ratio, None),
        target("list 100,000 files cold, s", Run::NamesLocal, W::ListCold, F::SecondsFor100k, AtMost(0.4)),
        target("metadata a file, bytes", Run::Many, W::Many, F::Growth("metadata_bytes"), AtMost(150.0)),
        target("most memory, MiB", Run::Many, W::Many, F::PeakMemory, AtMost(200.0)),
    ]);
    all
}

/// Each target with what the runs gave for it.
pub fn judge(runs: &[(Run, Report)]) -> Vec<Line> {
    let report = |run| runs.iter().find(|(made, _)| *made == run).map(|(_, report)| report);
    let line = |target: Target| {
        let found = report(target.run).and_then(|report| Found::of(report, target.workload));
        let value = found.as_ref().and_then(|found| found.value(target.figure));
        let (at_least, at_most) = match target.bound {
            Bound::AtLeast(least) => (Some(least), None),
            Bound::AtMost(most) => (None, Some(most)),
            Bound::None => (None, None),
        };
        let bounded = at_least.is_some() || at_most.is_some();
        let within = |value: f64| {
            at_least.is_none_or(|least| value >= least) && at_most.is_none_or(|most| value <= most)
        };
        let of = found.as_ref().map(|found| found.target);
        Line {
            what: target.what.to_owned(),
            run: target.run,
            workload: target.workload,
            value,
            at_least,
            at_most,
            met: value.filter(|_| bounded).map(within),
            daemon_us: of.and_then(|of| of.daemon).map(|daemon| daemon.drained_us),
            requests: of.and_then(Measurement::requests_an_operation),
        }
    };
    targets().into_iter().map(line).collect()
}

/// A workload of a report.
struct Found<'r> {
    report: &'r Report,
    workload: Workload,
    target: &'r Measurement,
}

impl<'r> Found<'r> {
    fn of(report: &'r Report, workload: Workload) -> Option<Self> {
        let result = report.results.iter().find(|result| result.workload == workload)?;
        Some(Found { report, workload, target: result.target.as_ref()? })
    }

    fn value(&self, figure: Figure) -> Option<f64> {
        let result = self.report.results.iter().find(|result| result.workload == self.workload)?;
        let grown = |name: &str| self.target.grown.get(name).copied().filter(|grown| *grown > 0.0);
        match figure {
            Figure::Ratio => Some(result.ratio?.acknowledged),
            Figure::SyncedRatio => result.ratio?.synced,
            Figure::SyncedRate => Some(self.target.synced.as_ref()?.median),
            Figure::SecondsFor100k => Some(100_000.0 / self.target.acknowledged.median.max(0.001)),
            Figure::OfOwn(other) => {
                let other = Found::of(self.report, other)?.target;
                Some(self.target.acknowledged.median / other.acknowledged.median.max(0.001))
            }
            Figure::PerGrowth(name) => grown(name).map(|grown| 1.0 / grown),
            Figure::Growth(name) => grown(name),
            Figure::Processor => Some(self.target.daemon?.drained_us),
            Figure::PeakMemory => Some(self.target.peak_memory_bytes? as f64 / f64::from(1 << 20)),
        }
    }
}

impl Line {
    /// The bound as people write it.
    fn bound(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), _) => format!("≥ {}", digits(least)),
            (_, Some(most)) => format!("≤ {}", digits(most)),
            _ => String::new(),
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.met, self.value) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, Some(_)) => "",
            (None, None) => "not measured",
        }
    }
}

/// The lines as a table for a terminal, one part for each run.
pub fn to_text(lines: &[Line]) -> String {
    let mut text = String::new();
    for run in Run::ALL {
        let of_run: Vec<_> = lines.iter().filter(|line| line.run == run).collect();
        if of_run.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}", run.title());
        let figure = |value: Option<f64>| value.map_or(String::new(), digits);
        for line in of_run {
            let _ = writeln!(
                text,
                "  {:<38} {:>8}  {:<9} {:<12} {:>8} µs {:>6} requests",
                line.what,
                figure(line.value),
                line.bound(),
                line.verdict(),
                figure(line.daemon_us),
                figure(line.requests),
            );
        }
    }
    let missed = lines.iter().filter(|line| line.met == Some(false)).count();
    let met = lines.iter().filter(|line| line.met == Some(true)).count();
    let _ =
        writeln!(text, "\n{met} met, {missed} missed. Daemon: processor time an operation until drained.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_of_a_workload_that_its_run_measures() {
        for target in targets() {
            assert!(target.run.workloads().contains(&target.workload), "{}", target.what);
            if let Figure::OfOwn(other) = target.figure {
                assert!(target.run.workloads().contains(&other), "{}", target.what);
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let lines = judge(&[]);
        assert_eq!(lines.len(), targets().len());
        assert!(lines.iter().all(|line| line.value.is_none() && line.met.is_none()));
        assert!(to_text(&lines).contains("0 met, 0 missed"));
    }
}
