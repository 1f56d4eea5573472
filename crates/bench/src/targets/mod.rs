//! What the file system is to reach: each target is one figure of one run against a bound.
//!
//! A caller makes runs of [`Run::ALL`], each a [`crate::Plan`] with the workloads, jobs, terms and reference that the run names, and gives the reports,
//! or why there are none, to [`judge`]. Nothing is judged that was not measured.

mod figure;
mod page;
mod run;
mod table;
mod text;

use serde::{Deserialize, Serialize};

use self::figure::Found;
use self::table::{Bound, Target, targets};
use crate::{Measurement, Report, Unit, Workload};

pub use page::to_html;
pub use run::{Beside, Run};
pub use text::to_text;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Report>),
    /// It could not be measured here, and why.
    LeftOut(String),
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
    /// The figure, from medians over rounds; absent if it was not measured.
    pub value: Option<f64>,
    /// The least that a single round gives, where each gives one.
    pub low: Option<f64>,
    /// The most that a single round gives.
    pub high: Option<f64>,
    /// The least it shall be.
    pub at_least: Option<f64>,
    /// The most it shall be.
    pub at_most: Option<f64>,
    /// Whether it is so; absent without a figure or a bound.
    pub met: Option<bool>,
    /// The volume's median rate, acknowledged, in `unit`.
    pub rate: Option<f64>,
    /// The reference's.
    pub reference_rate: Option<f64>,
    /// What rates count.
    pub unit: Unit,
    /// The daemon's processor time for each operation until drained, µs, where it was counted.
    pub daemon_us: Option<f64>,
    /// The client's processor time for each operation, µs.
    pub client_us: Option<f64>,
    /// Requests of the kernel for each operation, where they were counted.
    pub requests: Option<f64>,
    /// Why there is no figure.
    pub reason: Option<String>,
}

/// Each target of the runs that were made or tried with what they gave for it.
pub fn judge(runs: &[(Run, Outcome)]) -> Vec<Line> {
    let outcome = |run| runs.iter().find(|(made, _)| *made == run).map(|(_, outcome)| outcome);
    targets().iter().filter_map(|target| Some(line(target, outcome(target.run)?))).collect()
}

fn line(target: &Target, outcome: &Outcome) -> Line {
    let report = match outcome {
        Outcome::Measured(report) => Some(&**report),
        Outcome::LeftOut(_) => None,
    };
    let found = report.and_then(|report| Found::of(report, target.workload));
    let value = found.as_ref().and_then(|found| found.value(target.figure));
    let (at_least, at_most) = match target.bound {
        Bound::AtLeast(least) => (Some(least), None),
        Bound::AtMost(most) => (None, Some(most)),
        Bound::None => (None, None),
    };
    let bounded = at_least.is_some() || at_most.is_some();
    let within =
        |value: f64| at_least.is_none_or(|least| value >= least) && at_most.is_none_or(|most| value <= most);
    let of = found.as_ref().map(|found| found.target);
    let beside = found.as_ref().and_then(|found| found.result.reference.as_ref());
    let noted = || {
        let result = report?.results.iter().find(|result| result.workload == target.workload)?;
        result.notes.first().cloned()
    };
    let reason = match outcome {
        Outcome::LeftOut(why) => Some(why.clone()),
        Outcome::Measured(_) if value.is_none() => noted(),
        Outcome::Measured(_) => None,
    };
    let met = value.filter(|_| bounded).map(|value| within(value.value));
    Line {
        what: target.what.to_owned(),
        run: target.run,
        workload: target.workload,
        value: value.map(|value| value.value),
        low: value.and_then(|value| Some(value.range?.0)),
        high: value.and_then(|value| Some(value.range?.1)),
        at_least,
        at_most,
        met,
        rate: of.map(|of| of.acknowledged.median),
        reference_rate: beside.map(|beside| beside.acknowledged.median),
        unit: target.workload.unit(),
        daemon_us: of.and_then(|of| of.daemon).map(|daemon| daemon.drained_us),
        client_us: of.map(|of| of.client_us),
        requests: of.and_then(Measurement::requests_an_operation),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::figure::Figure;
    use super::*;

    #[test]
    fn every_target_is_of_a_workload_that_its_run_measures() {
        for target in targets() {
            assert!(target.run.workloads().contains(&target.workload), "{}", target.what);
            if let Figure::OfOwn(other) | Figure::TailOf(other) = target.figure {
                assert!(target.run.workloads().contains(&other), "{}", target.what);
            }
        }
    }

    #[test]
    fn every_run_has_a_target_and_a_name_of_its_own() {
        let targets = targets();
        for (index, run) in Run::ALL.into_iter().enumerate() {
            assert!(targets.iter().any(|target| target.run == run), "{run}");
            assert!(Run::ALL[..index].iter().all(|other| other.name() != run.name()), "{run}");
            assert_eq!(serde_json::to_value(run).unwrap(), run.name());
        }
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(judge(&[]), []);
        let lines = judge(&[(Run::Many, Outcome::LeftOut("no room".to_owned()))]);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.value.is_none() && line.met.is_none()));
        let text = to_text(&lines);
        assert!(text.contains("0 met, 0 missed") && text.contains("no room"), "{text}");
        assert!(to_html(&lines, &[]).contains("no room"));
    }
}
