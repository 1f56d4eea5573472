//! The lines as one page of HTML that loads nothing: a bar for each target, from where it should be to where it is.

use std::fmt::Write as _;

use super::{Line, Outcome, Run};
use crate::html::{STYLE, escape, head};
use crate::text::{digits, rate};

/// The axis ends at so many times the target, on both sides.
const REACH: f64 = 10.0;

/// Where the axis has labels.
const TICKS: [(f64, &str); 5] =
    [(0.1, "10 times worse"), (0.5, "2×"), (1.0, "target"), (2.0, "2×"), (10.0, "10 times better")];

/// The page, with what the first report says about program and machine.
pub fn to_html(lines: &[Line], outcomes: &[(Run, Outcome)]) -> String {
    let mut html = head("Forebay against its targets", STYLE);
    html += "<h1>Forebay against its targets</h1>\n";
    html += &summary(lines);
    html += &facts(outcomes);
    for run in Run::ALL {
        let of_run: Vec<_> = lines.iter().filter(|line| line.run == run).collect();
        if !of_run.is_empty() {
            html += &section(run, &of_run);
        }
    }
    html += "<footer><p>Each bar goes from the target to the figure, on a logarithmic axis; a line shows the least and the most of a single round. \
             Figures are medians over rounds, and a ratio to the reference where no unit is named. Daemon: processor time of the process behind \
             the mount for each operation, until nothing is pending. Requests: of the kernel to that process, for each operation.</p></footer>\n</body>\n</html>\n";
    html
}

/// How many targets are met, as figures and as a bar.
fn summary(lines: &[Line]) -> String {
    let count = |met: Option<bool>| {
        let bounded = lines.iter().filter(|line| line.at_least.is_some() || line.at_most.is_some());
        bounded.filter(|line| line.met == met).count()
    };
    let (met, missed, absent) = (count(Some(true)), count(Some(false)), count(None));
    let mut html = String::from("<section class=\"sum\">\n<div class=\"counts\">");
    for (class, number, what) in
        [("met", met, "met"), ("missed", missed, "missed"), ("absent", absent, "not measured")]
    {
        let _ = write!(html, "<span class=\"{class}\"><b>{number}</b> {what}</span>");
    }
    html += "</div>\n<div class=\"parts\" role=\"img\" aria-label=\"shares of targets met, missed and not measured\">";
    for (class, number) in
        [("met", met), ("missed", missed), ("absent", absent)].into_iter().filter(|part| part.1 > 0)
    {
        let _ = write!(html, "<i class=\"{class}\" style=\"flex-grow:{number}\"></i>");
    }
    html + "</div>\n</section>\n"
}

fn facts(outcomes: &[(Run, Outcome)]) -> String {
    let measured = outcomes.iter().find_map(|(_, outcome)| match outcome {
        Outcome::Measured(report) => Some(report),
        Outcome::LeftOut(_) => None,
    });
    let Some(report) = measured else { return String::new() };
    let mut html = String::from("<dl>\n");
    for (label, value) in report.facts() {
        // Directory and settings are each run's own.
        if ["machine", "program", "command", "date"].contains(&label) {
            let value = if label == "date" { report.started.clone() } else { value };
            let _ = writeln!(html, "<dt>{label}</dt><dd>{}</dd>", escape(&value));
        }
    }
    html + "</dl>\n"
}

fn section(run: Run, lines: &[&Line]) -> String {
    let mut html = format!("<section id=\"{run}\">\n<h2>{}</h2>\n", escape(run.title()));
    if lines.iter().all(|line| line.value.is_none()) {
        let why = lines.iter().find_map(|line| line.reason.as_deref()).unwrap_or("not measured");
        let _ = writeln!(html, "<p class=\"note\">Left out: {}</p>\n</section>", escape(why));
        return html;
    }
    html += "<div class=\"targets\">\n<div class=\"scale\"><span class=\"track\">";
    for (tick, label) in TICKS {
        let class = if tick == 0.5 || tick == 2.0 { " class=\"minor\"" } else { "" };
        let _ = write!(html, "<span{class} style=\"left:{:.2}%\">{label}</span>", place(tick));
    }
    html += "</span></div>\n";
    lines.iter().for_each(|line| html += &row(line));
    html + "</div>\n</section>\n"
}

fn row(line: &Line) -> String {
    let class = match line.met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "told",
    };
    let mut html = format!("<div class=\"{class}\"><span class=\"what\">{}", escape(&line.what));
    let small = small(line);
    if !small.is_empty() {
        let _ = write!(html, "<small>{}</small>", escape(&small));
    }
    html += "</span><span class=\"track\">";
    html += &bar(line);
    let figure = line.value.map_or("–".to_owned(), digits);
    let _ =
        write!(html, "</span><span class=\"value\"><b>{figure}</b> <small>{}</small></span>", line.bound());
    if let Some(reason) = &line.reason {
        let _ = write!(html, "<span class=\"reason\">{}</span>", escape(reason));
    }
    html + "</div>\n"
}

/// Rates, processor time and requests below a name.
fn small(line: &Line) -> String {
    let rates = match (line.rate, line.reference_rate) {
        (Some(own), Some(other)) => {
            Some(format!("{} beside {}", rate(own, line.unit), rate(other, line.unit)))
        }
        (Some(own), None) => Some(rate(own, line.unit)),
        _ => None,
    };
    let daemon = line.daemon_us.map(|us| format!("daemon {} µs", digits(us)));
    let requests = line.requests.map(|requests| format!("{} requests", digits(requests)));
    [rates, daemon, requests].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn bar(line: &Line) -> String {
    let mut html = String::new();
    for (tick, _) in TICKS {
        let class = if tick == 1.0 { " class=\"one\"" } else { "" };
        let _ = write!(html, "<i{class} style=\"left:{:.2}%\"></i>", place(tick));
    }
    let Some(at) = line.value.and_then(|value| margin(line, value)) else { return html };
    let (one, end) = (place(1.0), place(at));
    let (left, width) = (one.min(end), (one - end).abs().max(0.4));
    let title = format!("{} {}", line.verdict(), line.range());
    let _ = write!(html, "<b style=\"left:{left:.2}%;width:{width:.2}%\" title=\"{title}\"></b>");
    let ends = [line.low, line.high].map(|end| end.and_then(|end| margin(line, end)).map(place));
    if let [Some(low), Some(high)] = ends {
        let (left, width) = (low.min(high), (high - low).abs());
        let _ = write!(html, "<u style=\"left:{left:.2}%;width:{width:.2}%\"></u>");
    }
    html
}

/// By what factor a figure is better than its bound; of a ratio without a bound, than the reference.
fn margin(line: &Line, value: f64) -> Option<f64> {
    match (line.at_least, line.at_most) {
        (Some(least), _) => Some(value / least),
        (_, Some(most)) => Some(most / value.max(most / 1e6)),
        _ => None,
    }
}

/// Where a margin is, in percent of the width; outside the axis, its end.
fn place(margin: f64) -> f64 {
    (50.0 + 50.0 * margin.max(1e-9).log(REACH)).clamp(0.0, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_in_the_middle_and_the_axis_has_ends() {
        assert_eq!(
            [0.001, 0.1, 1.0, 10.0, 1e9].map(|margin| place(margin).round()),
            [0.0, 0.0, 50.0, 100.0, 100.0]
        );
    }
}
