//! All ratios of a report on one logarithmic axis, as elements that a page lays out: text keeps its size however wide the page is.

use std::fmt::Write as _;

use crate::text::digits;
use crate::{Comparison, Ratio};

/// Where the axis may begin and end, and where it has labels.
const STOPS: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Labels that are left where there would be too many.
const FEW: [f64; 7] = [0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0];

/// The axis: ratios from `low` to `high`.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// One that has all `ratios`, and some room on both sides of 1.
    fn of(ratios: &[&Ratio]) -> Self {
        let values = || ratios.iter().flat_map(|ratio| each(ratio));
        let (least, most) = (values().fold(0.5, f64::min), values().fold(2.0, f64::max));
        let low = STOPS.into_iter().rfind(|stop| *stop <= least).unwrap_or(STOPS[0]);
        let high = STOPS.into_iter().find(|stop| *stop >= most).unwrap_or(STOPS[STOPS.len() - 1]);
        Self { low, high }
    }

    /// Where a ratio is, in percent of the width; outside the axis, its end.
    fn at(&self, ratio: f64) -> f64 {
        let place = (ratio.max(1e-9) / self.low).log10() / (self.high / self.low).log10();
        place.clamp(0.0, 1.0) * 100.0
    }

    fn ticks(&self) -> Vec<f64> {
        let all: Vec<_> = STOPS.into_iter().filter(|stop| (self.low..=self.high).contains(stop)).collect();
        if all.len() <= 6 { all } else { all.into_iter().filter(|stop| FEW.contains(stop)).collect() }
    }
}

/// The chart, with a sentence that counts the losses; nothing where there are no ratios.
pub(crate) fn chart(results: &[Comparison]) -> String {
    let rated: Vec<_> =
        results.iter().filter_map(|result| Some((result.workload, result.ratio.as_ref()?))).collect();
    if rated.is_empty() {
        return String::new();
    }
    let ratios: Vec<_> = rated.iter().map(|(_, ratio)| *ratio).collect();
    let axis = Axis::of(&ratios);
    let mut html = format!("<section>\n<h2>Target against reference</h2>\n<p>{}</p>\n", losses(&ratios));
    html += "<div class=\"ratios\">\n<div class=\"scale\"><span class=\"track\">";
    for tick in axis.ticks() {
        let _ = write!(html, "<span style=\"left:{:.2}%\">{}×</span>", axis.at(tick), digits_of_tick(tick));
    }
    html += "</span></div>\n";
    for (workload, ratio) in rated {
        html += &row(&axis, workload.name(), workload.title(), ratio);
    }
    html + "</div>\n</section>\n"
}

fn row(axis: &Axis, name: &str, title: &str, ratio: &Ratio) -> String {
    let drained = ratio.drained.map(|drained| format!(" ({})", digits(drained))).unwrap_or_default();
    let mut html = format!("<div><a href=\"#{name}\">{title}</a><span class=\"track\">");
    for tick in axis.ticks() {
        let class = if tick == 1.0 { " class=\"one\"" } else { "" };
        let _ = write!(html, "<i{class} style=\"left:{:.2}%\"></i>", axis.at(tick));
    }
    for (value, faint) in each(ratio).zip(["", " faint"]) {
        let (one, end) = (axis.at(1.0), axis.at(value));
        let class = if value < 1.0 { "loss" } else { "gain" };
        let (left, width) = (one.min(end), (one - end).abs().max(0.3));
        let _ = write!(html, "<b class=\"{class}{faint}\" style=\"left:{left:.2}%;width:{width:.2}%\"></b>");
    }
    let _ =
        writeln!(html, "</span><span class=\"value\">{}{drained}</span></div>", digits(ratio.acknowledged));
    html
}

fn each(ratio: &Ratio) -> impl Iterator<Item = f64> {
    [Some(ratio.acknowledged), ratio.drained].into_iter().flatten()
}

fn digits_of_tick(tick: f64) -> String {
    if tick >= 1.0 { format!("{tick:.0}") } else { format!("{tick}") }
}

/// How often the target is slower, in words.
fn losses(ratios: &[&Ratio]) -> String {
    let slower = ratios.iter().filter(|ratio| ratio.acknowledged < 1.0).count();
    let drained: Vec<_> = ratios.iter().filter_map(|ratio| ratio.drained).collect();
    let slower_drained = drained.iter().filter(|ratio| **ratio < 1.0).count();
    let also = match drained.len() {
        0 => String::new(),
        all => format!(", and drained (the faint bars, in parentheses) in {slower_drained} of {all}"),
    };
    format!(
        "Median rate of the target divided by that of the reference. The target is slower in {slower} of {} workloads{also}.",
        ratios.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_all_ratios_and_few_labels() {
        let ratio = |acknowledged, drained| Ratio { acknowledged, synced: None, drained };
        let near = Axis::of(&[&ratio(0.9, None), &ratio(1.1, None)]);
        assert_eq!((near.low, near.high, near.ticks()), (0.5, 2.0, vec![0.5, 1.0, 2.0]));
        assert_eq!((near.at(0.5), near.at(1.0), near.at(2.0)), (0.0, 50.0, 100.0));
        let wide = Axis::of(&[&ratio(0.3, Some(0.013)), &ratio(30.0, None)]);
        assert_eq!((wide.low, wide.high), (0.01, 50.0));
        assert_eq!(wide.ticks(), [0.01, 0.1, 0.5, 1.0, 2.0, 10.0]);
        let beyond = Axis::of(&[&ratio(0.0, Some(1e6))]);
        assert_eq!((beyond.at(0.0), beyond.at(1e6)), (0.0, 100.0));
    }

    #[test]
    fn losses_are_counted() {
        let text = losses(&[
            &Ratio { acknowledged: 0.5, synced: None, drained: Some(0.2) },
            &Ratio { acknowledged: 2.0, synced: None, drained: None },
        ]);
        assert!(text.contains("slower in 1 of 2 workloads") && text.contains("in 1 of 1"), "{text}");
    }
}
