//! Tables of text with aligned columns.
//!
//! No lines, no colours, no wrapping: rows can be cut with ordinary tools.

/// Whether the cells of a column end or begin below each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Puts rows below each other, two spaces between columns. Columns beyond `align` are left.
pub fn render(align: &[Align], rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(width[column] - cell.chars().count());
            match align.get(column).copied().unwrap_or(Align::Left) {
                Align::Left => line.extend([cell, padding.as_str(), "  "]),
                Align::Right => line.extend([padding.as_str(), cell, "  "]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number with a comma between each three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with commas, and a sign if it is negative.
pub fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", thousands(number.unsigned_abs()))
}

/// A change of a number, with its sign.
pub fn change(number: i64) -> String {
    let sign = if number < 0 { "" } else { "+" };
    format!("{sign}{}", signed(number))
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn percent(part: f64, whole: f64) -> f64 {
    match whole == 0.0 {
        true => 0.0,
        false => 100.0 * part / whole,
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, change, percent, render, signed, thousands};

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = render(&[Align::Left, Align::Right], &[row(["a", "10"]), row(["bcd", "5"])]);
        assert_eq!(text, "a    10\nbcd   5\n");
        assert_eq!(render(&[], &[]), "");
    }

    #[test]
    fn numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
        assert_eq!([-1234, 0, 1234].map(signed), ["-1,234", "0", "1,234"]);
        assert_eq!([-1234, 0, 1234].map(change), ["-1,234", "+0", "+1,234"]);
        assert_eq!(percent(1.0, 0.0), 0.0);
    }
}
