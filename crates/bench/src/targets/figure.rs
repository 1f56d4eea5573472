//! The figures that are judged, and how each comes from a report.

use crate::report::thousandths;
use crate::{Comparison, Measurement, Report, Workload};

/// Which figure is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Figure {
    /// Acknowledged rate divided by the reference's.
    Ratio,
    /// Rate until synced divided by the reference's.
    SyncedRatio,
    /// Rate until synced, in operations a second.
    SyncedRate,
    /// Seconds for 100,000 operations, acknowledged.
    SecondsFor100k,
    /// Seconds for 1,000,000 operations, acknowledged.
    SecondsForMillion,
    /// Acknowledged rate divided by that of another workload on the same side.
    OfOwn(Workload),
    /// Acknowledged rate divided by one that is stated elsewhere, operations a second.
    OfStatedRate(f64),
    /// The daemon's processor time for each operation until drained divided by one that is stated elsewhere, µs.
    OfStatedTime(f64),
    /// Time of an operation divided by what its requests would have cost at the reference's price of a request.
    OfRequestsCost,
    /// 99th percentile of the latency, median of the rounds, µs.
    Tail,
    /// The same divided by that of another workload on the same side.
    TailOf(Workload),
    /// Operations for each unit by which an observed figure grew.
    PerGrowth(&'static str),
    /// Growth of an observed figure for each operation.
    Growth(&'static str),
    /// The daemon's processor time for each operation until drained, µs.
    Processor,
    /// Processor time of daemon and client together, divided by the reference's.
    AllProcessor,
    /// The daemon's most memory, MiB.
    PeakMemory,
}

/// A figure, with the least and the most of it over rounds where each round has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    pub(super) value: f64,
    pub(super) range: Option<(f64, f64)>,
}

impl Value {
    fn alone(value: f64) -> Self {
        Self { value, range: None }
    }

    /// The value with the range of what each round gives.
    fn over(value: f64, rounds: impl Iterator<Item = f64>) -> Self {
        let range = rounds.fold(None, |range: Option<(f64, f64)>, round| {
            let (low, high) = range.unwrap_or((round, round));
            Some((low.min(round), high.max(round)))
        });
        Self { value, range }
    }
}

/// A workload of a report.
pub(super) struct Found<'r> {
    pub(super) report: &'r Report,
    pub(super) result: &'r Comparison,
    pub(super) target: &'r Measurement,
}

impl<'r> Found<'r> {
    pub(super) fn of(report: &'r Report, workload: Workload) -> Option<Self> {
        let result = report.results.iter().find(|result| result.workload == workload)?;
        Some(Found { report, result, target: result.target.as_ref()? })
    }

    pub(super) fn value(&self, figure: Figure) -> Option<Value> {
        let target = self.target;
        let rounds = &target.acknowledged.rounds;
        let grown = |name: &str| target.grown.get(name).copied().filter(|grown| *grown > 0.0);
        let seconds = |operations: f64| {
            let of = move |rate: f64| operations / rate.max(0.001);
            Value::over(of(target.acknowledged.median), rounds.iter().map(move |rate| of(*rate)))
        };
        match figure {
            Figure::Ratio => {
                let reference = &self.result.reference.as_ref()?.acknowledged;
                let ratio = self.result.ratio?.acknowledged;
                Some(Value::over(ratio, pairs(rounds, &reference.rounds)))
            }
            Figure::SyncedRatio => {
                let (own, reference) =
                    (target.synced.as_ref()?, self.result.reference.as_ref()?.synced.as_ref()?);
                Some(Value::over(self.result.ratio?.synced?, pairs(&own.rounds, &reference.rounds)))
            }
            Figure::SyncedRate => {
                let synced = target.synced.as_ref()?;
                Some(Value::over(synced.median, synced.rounds.iter().copied()))
            }
            Figure::SecondsFor100k => Some(seconds(1e5)),
            Figure::SecondsForMillion => Some(seconds(1e6)),
            Figure::OfOwn(other) => {
                let other = &Found::of(self.report, other)?.target.acknowledged;
                let ratio = target.acknowledged.median / other.median.max(0.001);
                Some(Value::over(ratio, pairs(rounds, &other.rounds)))
            }
            Figure::OfStatedRate(stated) => {
                let ratio = target.acknowledged.median / stated;
                Some(Value::over(ratio, rounds.iter().map(|rate| rate / stated)))
            }
            Figure::OfStatedTime(stated) => Some(Value::alone(target.daemon?.drained_us / stated)),
            Figure::OfRequestsCost => self.of_requests_cost(),
            Figure::Tail => {
                let rounds = || target.p99_rounds_ns.iter().map(|ns| *ns as f64 / 1e3);
                Some(Value::over(median(rounds())?, rounds()))
            }
            Figure::TailOf(other) => {
                let tails =
                    |of: &Measurement| of.p99_rounds_ns.iter().map(|ns| *ns as f64).collect::<Vec<_>>();
                let (own, other) = (tails(target), tails(Found::of(self.report, other)?.target));
                let ratio = median(own.iter().copied())? / median(other.iter().copied())?.max(1.0);
                Some(Value::over(ratio, pairs(&own, &other)))
            }
            Figure::PerGrowth(name) => grown(name).map(|grown| Value::alone(1.0 / grown)),
            Figure::Growth(name) => grown(name).map(Value::alone),
            Figure::Processor => Some(Value::alone(target.daemon?.drained_us)),
            Figure::AllProcessor => {
                let all = |of: &Measurement| of.client_us + of.daemon.map_or(0.0, |daemon| daemon.drained_us);
                Some(Value::alone(all(target) / all(self.result.reference.as_ref()?).max(0.001)))
            }
            Figure::PeakMemory => Some(Value::alone(target.peak_memory_bytes? as f64 / f64::from(1 << 20))),
        }
    }

    fn of_requests_cost(&self) -> Option<Value> {
        let reference = self.result.reference.as_ref()?;
        let (asked, asked_there) = (self.target.requests_an_operation()?, reference.requests_an_operation()?);
        // More requests than the reference's are allowed their time, each at its price.
        let allowed = asked / asked_there.max(1e-9);
        let rounds = pairs(&reference.acknowledged.rounds, &self.target.acknowledged.rounds);
        let ratio = reference.acknowledged.median / self.target.acknowledged.median.max(0.001);
        Some(Value::over(ratio / allowed, rounds.map(|ratio| ratio / allowed)))
    }
}

/// What each round of one gives, divided by the same round of the other.
fn pairs(of: &[f64], by: &[f64]) -> impl Iterator<Item = f64> {
    of.iter().zip(by).map(|(of, by)| thousandths(of / by.max(0.001)))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values.get(middle).copied(),
        _ => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
    }
}
