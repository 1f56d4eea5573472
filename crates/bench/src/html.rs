//! The report as one page of HTML that loads nothing: style and plots are inside.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::text::{bytes, digits, nanoseconds, rate, spread};
use crate::{Comparison, Measurement, Report, chart, ratios};

/// The style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("report.css");

/// What the marks of a latency plot are.
const KEY: &str = "<span class=\"key\"><i class=\"p50\"></i>p50 <i class=\"p99\"></i>p99 <i class=\"longest\"></i>longest</span>";

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let title = format!("Benchmark of {}", report.target.place.path.display());
    let title = escape(&title);
    let mut html = head(&title, STYLE);
    let _ = write!(html, "<h1>{title}</h1>\n<dl>\n");
    for (label, value) in report.facts() {
        let _ = writeln!(html, "<dt>{label}</dt><dd>{}</dd>", escape(&value));
    }
    html += "</dl>\n";
    html += &ratios::chart(&report.results);
    html += "<main>\n";
    for result in &report.results {
        html += &card(result);
    }
    html += "</main>\n<footer><p>Bars are medians over rounds, with a line from the slowest to the fastest round. Drained: \
             until nothing was pending (fsync, syncfs, and what the mount itself had to finish). Latency is on a logarithmic \
             axis.</p></footer>\n</body>\n</html>\n";
    html
}

fn card(result: &Comparison) -> String {
    let workload = result.workload;
    let mut html = format!("<article id=\"{}\">\n<h3><span>{}</span>", workload.name(), workload.title());
    if let Some(ratio) = result.ratio {
        let class = if ratio.acknowledged < 1.0 { "slower" } else { "faster" };
        let _ = write!(html, " <span class=\"{class}\">{} × reference</span>", digits(ratio.acknowledged));
    }
    html += "</h3>\n";
    for note in &result.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    if result.target.is_some() || result.reference.is_some() {
        html += &chart::rates(result);
        let _ = writeln!(html, "\n<h4>latency: {}{KEY}</h4>", workload.latency_of());
        html += &chart::latencies(result);
        html += "\n<details><summary>figures</summary>\n";
        html += &figures(result);
        html += "</details>\n";
    }
    html + "</article>\n"
}

fn figures(result: &Comparison) -> String {
    let sides = [("target", &result.target), ("reference", &result.reference)];
    let sides: Vec<_> = sides.into_iter().filter_map(|(side, of)| Some((side, of.as_ref()?))).collect();
    let mut html = String::from("<div class=\"wide\"><table><tr><th></th>");
    for (side, _) in &sides {
        let _ = write!(html, "<th>{side}</th>");
    }
    html += "</tr>\n";
    let unit = result.unit;
    let rates = |rates: &crate::Rates| format!("{} ({})", rate(rates.median, unit), spread(rates));
    let row = |label: &str, cell: &dyn Fn(&Measurement) -> Option<String>| {
        let cells: Vec<_> = sides.iter().map(|(_, of)| cell(of)).collect();
        if cells.iter().all(Option::is_none) {
            return String::new();
        }
        let cells: String =
            cells.into_iter().map(|cell| format!("<td>{}</td>", cell.unwrap_or_default())).collect();
        format!("<tr><th>{label}</th>{cells}</tr>\n")
    };
    html += &row("acknowledged", &|of| Some(rates(&of.acknowledged)));
    html += &row("synced", &|of| of.synced.as_ref().map(rates));
    html += &row("drained", &|of| of.drained.as_ref().map(rates));
    html += &row("latency p50", &|of| Some(nanoseconds(of.latency.p50_ns)));
    html += &row("latency p99", &|of| Some(nanoseconds(of.latency.p99_ns)));
    html += &row("latency max", &|of| Some(nanoseconds(of.latency.max_ns)));
    html += &row("operations a round", &|of| Some(of.operations.to_string()));
    html += &row("contents a round", &|of| (of.bytes > 0).then(|| bytes(of.bytes)));
    html += &row("cache", &|of| Some(of.cache_in_words()));
    html += &row("daemon, µs an operation", &|of| of.daemon.map(|daemon| digits(daemon.acknowledged_us)));
    html += &row("the same, until drained", &|of| of.daemon.map(|daemon| digits(daemon.drained_us)));
    html += &row("client, µs an operation", &|of| Some(digits(of.client_us)));
    html += &row("daemon's peak memory", &|of| of.peak_memory_bytes.map(bytes));
    html += &row("requests an operation", &|of| of.requests_an_operation().map(digits));
    let kinds = sides.iter().flat_map(|(_, of)| of.requests.iter().flat_map(|requests| requests.keys()));
    for kind in kinds.collect::<BTreeSet<_>>() {
        let label = format!("– {}", escape(kind));
        html += &row(&label, &|of| of.requests.as_ref()?.get(kind).map(|count| digits(*count)));
    }
    let observed: Vec<_> = sides.iter().map(|(_, of)| of.observed_in_words()).collect();
    let labels = observed.iter().flatten().map(|(label, _)| label);
    for label in labels.collect::<BTreeSet<_>>() {
        let cells = observed.iter().map(|words| {
            let found = words.iter().find(|(name, _)| name == label);
            format!("<td>{}</td>", found.map_or(String::new(), |(_, value)| escape(value)))
        });
        let cells: String = cells.collect();
        let _ = writeln!(html, "<tr><th>{}</th>{cells}</tr>", escape(label));
    }
    html + "</table></div>\n"
}

/// A page up to the begin of its body.
pub(crate) fn head(title: &str, style: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n"
    )
}

/// Text that no reader takes for markup.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
