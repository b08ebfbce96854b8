//! A table that fits any width: names are cut first, then columns are removed from the right. A number is shown whole
//! or not at all.

use super::format::{head, tail, width};

/// The least width, in columns, to which a name is cut.
const NAME_LEAST: usize = 8;
/// The least width, in columns, that a note needs to be shown.
const NOTE_LEAST: usize = 16;

/// The severity of a text in the live view, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A text without a special meaning.
    Plain,
    /// A value that was read a while ago.
    Old,
    /// A text that says that all is well.
    Good,
    /// A warning that an operator should know.
    Warn,
    /// A problem that an operator should act on now.
    Bad,
}

/// The text of a table cell in the live view, with its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The text of the cell.
    pub text: String,
    /// The severity of the cell's text, which decides its colour.
    pub severity: Severity,
}

impl Cell {
    /// Creates a cell with a text and a severity.
    pub fn new(text: impl Into<String>, severity: Severity) -> Self {
        Self { text: text.into(), severity }
    }

    /// Creates a cell whose text has the severity `Plain`.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Severity::Plain)
    }

    /// Returns the cell, with the severity `Old` if `is_old` is true.
    pub fn old_if(self, is_old: bool) -> Self {
        if is_old { Self { severity: Severity::Old, ..self } } else { self }
    }
}

/// The layout of a table column in the live view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name on the left, whose beginning may be cut. The first column is a name.
    Name,
    /// A number, aligned on the right. The column is as wide as its longest text, and has at least this width.
    Number(usize),
    /// A word on the left.
    Word,
    /// A note on the left that takes the rest of the width, and may be cut between words. Only the last column may be a
    /// note.
    Note,
}

/// A table of the live view.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The titles and layouts of the table's columns.
    pub columns: Vec<(&'static str, Kind)>,
    /// The rows of the table, each with one cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the store has more rows than were read.
    pub has_more: bool,
    /// The text that is shown if the table has no rows.
    pub empty: &'static str,
}

impl Grid {
    /// Creates an empty table, which takes no space in the live view.
    pub fn nothing() -> Self {
        Self { columns: Vec::new(), rows: Vec::new(), has_more: false, empty: "" }
    }

    /// The number of lines for the header and all rows of the table; 0 for an empty table.
    pub fn height(&self) -> usize {
        if self.columns.is_empty() {
            return 0;
        }
        1 + self.rows.len().max(1) + usize::from(self.has_more)
    }

    /// The lines of the table to draw: the header and as many rows as fit. Each cell is as wide as its column.
    pub fn lines(&self, columns: usize, height: usize) -> Vec<Vec<Cell>> {
        let fit = self.fit(columns);
        let titles = self.columns.iter().map(|(title, _)| Cell::plain(*title)).collect::<Vec<_>>();
        let mut lines = vec![self.line(&titles, &fit)];
        let room = height.saturating_sub(1);
        let is_cut = self.has_more || self.rows.len() > room;
        let shown = if is_cut { self.rows.len().min(room.saturating_sub(1)) } else { self.rows.len() };
        lines.extend(self.rows[..shown].iter().map(|row| self.line(row, &fit)));
        if self.rows.is_empty() {
            lines.push(vec![Cell::new(self.empty, Severity::Old)]);
        } else if is_cut {
            lines.push(vec![Cell::new(self.rest(shown), Severity::Old)]);
        }
        lines.truncate(height);
        lines
    }

    fn rest(&self, shown: usize) -> String {
        match (self.rows.len() - shown, self.has_more) {
            (0, _) => "and more".to_owned(),
            (rest, false) => format!("and {rest} more"),
            (rest, true) => format!("and {rest} or more"),
        }
    }

    fn line(&self, cells: &[Cell], fit: &Fit) -> Vec<Cell> {
        let gap = " ".repeat(fit.gap);
        let kinds = self.columns.iter().map(|(_, kind)| *kind);
        let padded =
            cells.iter().zip(kinds).zip(&fit.widths).enumerate().map(|(at, ((cell, kind), columns))| {
                let text = match kind {
                    Kind::Name => tail(&cell.text, *columns),
                    Kind::Note => head(&cell.text, *columns),
                    Kind::Number(_) | Kind::Word => cell.text.clone(),
                };
                let space = " ".repeat(columns.saturating_sub(width(&text)));
                let text = if matches!(kind, Kind::Number(_)) { space + &text } else { text + &space };
                Cell::new(if at == 0 { text } else { format!("{gap}{text}") }, cell.severity)
            });
        padded.collect()
    }

    /// The column widths of the widest layout that fits.
    fn fit(&self, columns: usize) -> Fit {
        let wanted: Vec<usize> = (0..self.columns.len()).map(|at| self.wanted(at)).collect();
        for count in (1..=wanted.len()).rev() {
            for gap in [2, 1] {
                let mut widths = wanted[..count].to_vec();
                let has_note = self.columns[count - 1].1 == Kind::Note;
                if has_note {
                    widths[count - 1] = widths[count - 1].min(NOTE_LEAST);
                }
                let others = widths[1..].iter().sum::<usize>() + gap * (count - 1);
                let Some(room) = columns.checked_sub(others) else { continue };
                if room < widths[0].min(NAME_LEAST) {
                    continue;
                }
                widths[0] = widths[0].min(room);
                if has_note {
                    widths[count - 1] += room - widths[0];
                }
                return Fit { gap, widths };
            }
        }
        Fit { gap: 0, widths: vec![columns] }
    }

    fn wanted(&self, at: usize) -> usize {
        let (title, kind) = self.columns[at];
        let least = if let Kind::Number(least) = kind { least } else { 0 };
        let texts = self.rows.iter().map(|row| width(&row[at].text));
        texts.chain([width(title), least]).max().unwrap_or_default()
    }
}

/// The widths of the columns that are shown, in characters.
struct Fit {
    gap: usize,
    widths: Vec<usize>,
}
