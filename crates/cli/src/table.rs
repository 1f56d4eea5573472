//! Tables on a terminal.

/// Columns under their titles, as wide as they need to be, two spaces apart.
#[must_use]
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(titles);
    text.extend(rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
    text
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "10".to_owned()], ["längere".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "N"], &rows), "NAME     N\na        10\nlängere\n");
        assert_eq!(table(["NAME", "N"], &[]), "NAME  N\n");
    }
}
