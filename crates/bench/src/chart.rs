//! Plots as inline SVG. Colours are classes, so that the page's style sheet decides light or dark.

use std::fmt::Write as _;

use crate::text::{nanoseconds, rate};
use crate::{Comparison, Latency, Measurement, Rates, Unit};

/// Width of every plot in its own units; the page scales it to what it has.
const WIDTH: f64 = 340.0;

/// Width of an axis of rates.
const SCALE: f64 = WIDTH - 2.0;

const BAR: f64 = 16.0;
const ROW: f64 = 34.0;

/// Rates as bars from zero, one for each side, acknowledged over drained, with a whisker from slowest to fastest round.
pub(crate) fn rates(result: &Comparison) -> String {
    let mut bars: Vec<(&str, String, &Rates)> = Vec::new();
    for (side, class, of) in sides(result) {
        bars.push((class, side.to_string(), &of.acknowledged));
        bars.extend(of.drained.as_ref().map(|drained| (class, format!("{side}, drained"), drained)));
    }
    let end = end_of_axis(bars.iter().map(|(_, _, rates)| rates.max).fold(0.001, f64::max), result.unit);
    let scale = |value: f64| value / end * SCALE;
    let label = format!("{}: rates of {}", result.workload.title(), names(result));
    let height = ROW * bars.len() as f64;
    let mut svg = open(height + 16.0, &label);
    svg += &rate_axis(height, end, result.unit);
    for (index, (class, name, rates)) in bars.iter().enumerate() {
        let top = ROW * index as f64;
        let faint = if name.ends_with("drained") { " faint" } else { "" };
        let value = rate(rates.median, result.unit);
        let (length, middle) = (scale(rates.median).max(1.0), top + 14.0 + BAR / 2.0);
        let _ = write!(svg, r#"<text class="name" x="0" y="{:.1}">{name}</text>"#, top + 11.0);
        let _ = write!(svg, r#"<text class="value" x="{WIDTH}" y="{:.1}">{value}</text>"#, top + 11.0);
        let _ = write!(
            svg,
            r#"<rect class="{class}{faint}" x="0" y="{:.1}" width="{length:.1}" height="{BAR}" rx="2"><title>{name}: {}</title></rect>"#,
            top + 14.0,
            rounds(rates, result.unit)
        );
        if rates.rounds.len() > 1 {
            let (low, high) = (scale(rates.min), scale(rates.max));
            let _ = write!(
                svg,
                r#"<path class="whisker" d="M{low:.1} {middle:.1}H{high:.1}M{low:.1} {0:.1}v8M{high:.1} {0:.1}v8"/>"#,
                middle - 4.0
            );
        }
    }
    svg + "</svg>"
}

/// Latency as marks on a logarithmic axis: p50, p99 and the longest, one line for each side.
pub(crate) fn latencies(result: &Comparison) -> String {
    let sides: Vec<_> = sides(result).collect();
    let marks =
        |latency: &Latency| [("p50", latency.p50_ns), ("p99", latency.p99_ns), ("max", latency.max_ns)];
    let exponents: Vec<f64> = sides
        .iter()
        .flat_map(|(_, _, of)| marks(&of.latency))
        .map(|(_, ns)| (ns.max(1) as f64).log10())
        .collect();
    let low = exponents.iter().copied().fold(f64::INFINITY, f64::min).floor().min(12.0);
    let high = exponents.iter().copied().fold(0.0, f64::max).ceil().max(low + 1.0);
    let scale = |exponent: f64| 18.0 + (exponent - low) / (high - low) * (WIDTH - 38.0);
    let height = 22.0 * sides.len() as f64;
    let label = format!("{}: latency of {}", result.workload.title(), names(result));
    let mut svg = open(height + 22.0, &label);
    for decade in low as i32..=high as i32 {
        let (x, text) = (scale(f64::from(decade)), nanoseconds(10_u64.saturating_pow(decade.max(0) as u32)));
        let text = text.replace(".00", "").replace(".0", "");
        let _ = write!(svg, r#"<path class="grid" d="M{x:.1} 2V{height:.1}"/>"#);
        let _ = write!(svg, r#"<text class="tick" x="{x:.1}" y="{:.1}">{text}</text>"#, height + 14.0);
    }
    for (index, (side, class, of)) in sides.iter().enumerate() {
        let y = 12.0 + 22.0 * index as f64;
        let at = marks(&of.latency).map(|(name, ns)| (name, ns, scale((ns.max(1) as f64).log10())));
        let _ = write!(svg, r#"<path class="line {class}" d="M{:.1} {y}H{:.1}"/>"#, at[0].2, at[2].2);
        for (radius, (name, ns, x)) in [6.0, 4.5, 3.0].into_iter().zip(at) {
            let title = format!("{side} {name}: {}", nanoseconds(ns));
            let _ = write!(
                svg,
                r#"<circle class="{class}" cx="{x:.1}" cy="{y}" r="{radius}"><title>{title}</title></circle>"#
            );
        }
    }
    svg + "</svg>"
}

/// A round figure of the unit at or above `most`: the end of an axis of rates.
fn end_of_axis(most: f64, unit: Unit) -> f64 {
    let step: f64 = match unit {
        Unit::BytesPerSecond => 1024.0,
        Unit::OperationsPerSecond => 1000.0,
    };
    let most = most.max(0.001);
    let scale = step.powf(most.log(step).floor().max(0.0));
    let scale = scale * 10_f64.powf((most / scale).log10().floor());
    let round = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0].into_iter().find(|round| round * scale >= most);
    round.unwrap_or(10.0) * scale
}

/// The axis of rates: nothing, half and the end, with lines from `0` to `height`.
fn rate_axis(height: f64, end: f64, unit: Unit) -> String {
    let mut svg = String::new();
    let label = |value: f64| rate(value, unit).replace(".00 ", " ").replace(".0 ", " ");
    for (x, anchor, text) in
        [(0.0, "start", "0".to_string()), (0.5, "middle", label(end / 2.0)), (1.0, "end", label(end))]
    {
        let x = x * SCALE;
        let _ = write!(svg, r#"<path class="grid" d="M{x:.1} 0V{height:.1}"/>"#);
        let y = height + 11.0;
        let _ = write!(svg, r#"<text class="tick {anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }
    svg
}

fn sides(result: &Comparison) -> impl Iterator<Item = (&'static str, &'static str, &Measurement)> {
    let sides = [("target", "target", &result.target), ("reference", "reference", &result.reference)];
    sides.into_iter().filter_map(|(side, class, of)| Some((side, class, of.as_ref()?)))
}

fn names(result: &Comparison) -> &'static str {
    if result.reference.is_some() { "target and reference" } else { "target" }
}

fn rounds(rates: &Rates, unit: Unit) -> String {
    let rounds: Vec<_> = rates.rounds.iter().map(|value| rate(*value, unit)).collect();
    rounds.join(", ")
}

fn open(height: f64, label: &str) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height:.1}" role="img" aria-label="{label}">"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_figures() {
        let mebi = 1_048_576.0;
        for (most, unit, end) in [
            (0.5, Unit::OperationsPerSecond, 0.6),
            (950.0, Unit::OperationsPerSecond, 1000.0),
            (1010.0, Unit::OperationsPerSecond, 1200.0),
            (41_000.0, Unit::OperationsPerSecond, 60_000.0),
            (177.0 * mebi, Unit::BytesPerSecond, 200.0 * mebi),
            (1500.0 * mebi, Unit::BytesPerSecond, 1.6 * 1024.0 * mebi),
        ] {
            assert!(
                (end_of_axis(most, unit) / end - 1.0).abs() < 1e-9,
                "{most}: {}",
                end_of_axis(most, unit)
            );
        }
    }
}
