//! The lines as a table for a terminal.

use std::fmt::Write as _;

use super::{Line, Run};
use crate::text::digits;

const HEADS: [&str; 8] = ["", "figure", "rounds", "target", "", "daemon µs", "requests", ""];

impl Line {
    /// The bound as people write it.
    pub(super) fn bound(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), _) => format!("≥ {}", digits(least)),
            (_, Some(most)) => format!("≤ {}", digits(most)),
            _ => String::new(),
        }
    }

    pub(super) fn verdict(&self) -> &'static str {
        match (self.met, self.value) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, Some(_)) => "",
            (None, None) => "not measured",
        }
    }

    /// The least and the most that a round gave.
    pub(super) fn range(&self) -> String {
        match (self.low, self.high) {
            (Some(low), Some(high)) if low < high => format!("{}–{}", digits(low), digits(high)),
            _ => String::new(),
        }
    }

    fn cells(&self) -> [String; HEADS.len()] {
        let figure = |value: Option<f64>| value.map_or(String::new(), digits);
        [
            format!("  {}", self.what),
            figure(self.value),
            self.range(),
            self.bound(),
            self.verdict().to_owned(),
            figure(self.daemon_us),
            figure(self.requests),
            self.reason.clone().unwrap_or_default(),
        ]
    }
}

/// The lines as a table, one part for each run.
pub fn to_text(lines: &[Line]) -> String {
    let left_out = |run| lines.iter().filter(|line| line.run == run).all(|line| line.value.is_none());
    let measured = lines.iter().filter(|line| !left_out(line.run));
    let rows: Vec<_> = measured.map(|line| (line.run, line.cells())).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
        cells.chain([HEADS[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let mut text = aligned(&HEADS.map(str::to_owned), &widths);
    for run in Run::ALL {
        let of_run: Vec<_> = rows.iter().filter(|(of, _)| *of == run).collect();
        if let Some(line) = lines.iter().find(|line| line.run == run) {
            let _ = writeln!(text, "\n{} ({run})", run.title());
            if left_out(run) {
                let _ = writeln!(
                    text,
                    "  left out: {}",
                    line.reason.as_deref().unwrap_or("nothing was measured")
                );
            }
        }
        of_run.iter().for_each(|(_, cells)| text += &aligned(cells, &widths));
    }
    text + &summary(lines)
}

/// Words to the left, figures to the right.
fn aligned(cells: &[String; HEADS.len()], widths: &[usize; HEADS.len()]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
        line += &match column {
            0 | 3 | 4 | 7 => format!("{cell}{pad}  "),
            _ => format!("{pad}{cell}  "),
        };
    }
    format!("{}\n", line.trim_end())
}

fn summary(lines: &[Line]) -> String {
    let count = |met: bool| lines.iter().filter(|line| line.met == Some(met)).count();
    let absent = lines.iter().filter(|line| line.value.is_none()).count();
    let absent = if absent > 0 { format!(", {absent} not measured") } else { String::new() };
    format!(
        "\n{} met, {} missed{absent}. Figures are medians over rounds, and a ratio to the reference where no unit is named; rounds: the least\n\
         and the most of a single one. Daemon: processor time an operation until drained. Requests: of the kernel, an operation.\n",
        count(true),
        count(false)
    )
}
