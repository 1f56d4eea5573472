//! The report as a table for a terminal, and figures as people read them.

use std::fmt::Write as _;

use crate::{Cache, Comparison, Measurement, Rates, Report, Unit};

/// A rate with its unit, three significant digits.
pub(crate) fn rate(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BytesPerSecond => scaled(value, 1024.0, &["B/s", "KiB/s", "MiB/s", "GiB/s"]),
        Unit::OperationsPerSecond => scaled(value, 1000.0, &["/s", "k/s", "M/s"]),
    }
}

/// A size with its unit.
pub(crate) fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A time with its unit.
pub(crate) fn nanoseconds(value: u64) -> String {
    scaled(value as f64, 1000.0, &["ns", "µs", "ms", "s"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", digits(value), units[unit])
}

/// About three significant digits, at most three decimals.
pub(crate) fn digits(value: f64) -> String {
    match value {
        _ if value == 0.0 || value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Slowest and fastest round as percents of the median.
pub(crate) fn spread(rates: &Rates) -> String {
    let percent = |value: f64| (value / rates.median.max(0.001) - 1.0) * 100.0;
    format!("{:+.0}/{:+.0}%", percent(rates.min), percent(rates.max))
}

const COLUMNS: usize = 11;

const HEADS: [&str; COLUMNS] =
    ["", "", "rate", "spread", "drained", "p50", "p99", "max", "daemon µs", "requests", "ratio (drained)"];

/// The whole report.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    for (label, value) in report.facts() {
        let _ = writeln!(text, "{label:<10} {value}");
    }
    let mut rows = vec![HEADS.map(str::to_string)];
    for result in &report.results {
        rows.extend(rows_of(result));
    }
    let widths: Vec<_> = (0..HEADS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    text.push('\n');
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in
            row.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0)
        {
            let pad = " ".repeat(width - cell.chars().count());
            line += &if column < 2 { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    for note in report.results.iter().flat_map(|result| &result.notes) {
        let _ = writeln!(text, "note: {note}");
    }
    text += &cold(report);
    text += &held(report);
    text += "\nRates are medians over rounds, acknowledged and drained (nothing pending). Spread: slowest and fastest round.\n";
    text += "Latency is of one operation. Daemon: processor time of the process behind the mount for each operation,\n";
    text += "until drained. Requests: of the kernel to that process, for each operation. Ratio: target's median rate divided\n";
    text += "by the reference's; above 1 the target is faster.\n";
    text
}

/// Which caches were emptied before the cold steps, once for each answer.
fn cold(report: &Report) -> String {
    let mut lines: Vec<String> = Vec::new();
    for result in &report.results {
        for (side, of) in [("target", &result.target), ("reference", &result.reference)] {
            let Some(of) = of.as_ref().filter(|of| of.cache != Cache::Warm) else { continue };
            let line = format!("{side}, {}\n", of.cache_in_words());
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines.concat()
}

/// What the process behind the target held once the workloads that make files had drained.
fn held(report: &Report) -> String {
    let mut text = String::new();
    for result in report.results.iter().filter(|result| result.workload.founds_family()) {
        let Some(of) = result.target.as_ref().filter(|of| !of.observed.is_empty()) else { continue };
        let peak = of.peak_memory_bytes.map(|peak| ("peak memory".to_string(), bytes(peak)));
        let words = of.observed_in_words().into_iter().chain(peak);
        let words: Vec<_> = words.map(|(label, value)| format!("{label} {value}")).collect();
        let _ = writeln!(text, "held after {}: {}", result.workload.title(), words.join(", "));
    }
    text
}

fn rows_of(result: &Comparison) -> Vec<[String; COLUMNS]> {
    let ratio = result.ratio.map_or(String::new(), |ratio| match ratio.drained {
        Some(drained) => format!("{} ({})", digits(ratio.acknowledged), digits(drained)),
        None => digits(ratio.acknowledged),
    });
    let title = result.workload.title().to_string();
    let mut rows = Vec::new();
    let sides = [("target", &result.target), ("reference", &result.reference)];
    for (side, measurement) in sides.into_iter().filter_map(|(side, of)| Some((side, of.as_ref()?))) {
        let first = rows.is_empty();
        let (title, ratio) = if first { (title.clone(), ratio.clone()) } else { Default::default() };
        rows.push(row(title, side, measurement, result.unit, ratio));
    }
    if rows.is_empty() {
        let mut row: [String; COLUMNS] = Default::default();
        (row[0], row[1]) = (title, "left out".to_string());
        rows.push(row);
    }
    rows
}

fn row(title: String, side: &str, of: &Measurement, unit: Unit, ratio: String) -> [String; COLUMNS] {
    [
        title,
        side.to_string(),
        rate(of.acknowledged.median, unit),
        spread(&of.acknowledged),
        of.drained.as_ref().map_or(String::new(), |drained| rate(drained.median, unit)),
        nanoseconds(of.latency.p50_ns),
        nanoseconds(of.latency.p99_ns),
        nanoseconds(of.latency.max_ns),
        of.daemon.map_or(String::new(), |daemon| digits(daemon.drained_us)),
        of.requests_an_operation().map_or(String::new(), digits),
        ratio,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(rate(1536.0, Unit::BytesPerSecond), "1.50 KiB/s");
        assert_eq!(rate(999.9, Unit::OperationsPerSecond), "1.00 k/s");
        assert_eq!(rate(23_456.0, Unit::OperationsPerSecond), "23.5 k/s");
        assert_eq!(nanoseconds(412), "412 ns");
        assert_eq!(nanoseconds(45_678), "45.7 µs");
        assert_eq!(bytes(16 << 30), "16.0 GiB");
        assert_eq!([0.0, 0.0123, 0.512, 12.34, 123.4].map(digits), ["0", "0.012", "0.51", "12.3", "123"]);
        assert_eq!(spread(&Rates::new(vec![90.0, 100.0, 130.0])), "-10/+30%");
    }
}
