//! A table that fits any width: names give way first, then columns go from the right. A number is shown whole or not at
//! all.

use super::format::{head, tail, width};

/// A name is not cut below this.
const NAME_LEAST: usize = 8;
/// Notes that get less are left out.
const NOTE_LEAST: usize = 16;

/// What a text says about how things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    Plain,
    /// It was seen a while ago.
    Old,
    /// All is well.
    Good,
    /// Somebody should know.
    Warn,
    /// Somebody should come.
    Bad,
}

/// A text with its tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// How it is meant.
    pub tone: Tone,
}

impl Cell {
    /// A text with a tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// A text that says nothing special.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    /// The same, seen a while ago.
    pub fn old_if(self, is_old: bool) -> Self {
        if is_old { Self { tone: Tone::Old, ..self } } else { self }
    }
}

/// How a column is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On the left; its beginning may be cut. The first column is one.
    Name,
    /// On the right, as wide as its longest, and never narrower than this.
    Number(usize),
    /// On the left.
    Word,
    /// On the left; takes what is left, and its last words may be cut. Only the last column may be one.
    Note,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Titles and kinds of the columns.
    pub columns: Vec<(&'static str, Kind)>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// There are more than were read.
    pub has_more: bool,
    /// What stands there without rows.
    pub empty: &'static str,
}

impl Grid {
    /// No table at all.
    pub fn nothing() -> Self {
        Self { columns: Vec::new(), rows: Vec::new(), has_more: false, empty: "" }
    }

    /// Rows with the header that show all; 0: it is no table at all.
    pub fn height(&self) -> usize {
        if self.columns.is_empty() {
            return 0;
        }
        1 + self.rows.len().max(1) + usize::from(self.has_more)
    }

    /// The header and as many rows as fit, each cell as wide as its column.
    pub fn lines(&self, columns: usize, height: usize) -> Vec<Vec<Cell>> {
        let fit = self.fit(columns);
        let titles = self.columns.iter().map(|(title, _)| Cell::plain(*title)).collect::<Vec<_>>();
        let mut lines = vec![self.line(&titles, &fit)];
        let room = height.saturating_sub(1);
        let is_cut = self.has_more || self.rows.len() > room;
        let shown = if is_cut { self.rows.len().min(room.saturating_sub(1)) } else { self.rows.len() };
        lines.extend(self.rows[..shown].iter().map(|row| self.line(row, &fit)));
        if self.rows.is_empty() {
            lines.push(vec![Cell::new(self.empty, Tone::Old)]);
        } else if is_cut {
            lines.push(vec![Cell::new(self.rest(shown), Tone::Old)]);
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
                Cell::new(if at == 0 { text } else { format!("{gap}{text}") }, cell.tone)
            });
        padded.collect()
    }

    /// The widest layout that fits.
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

/// How wide the columns are that are shown.
struct Fit {
    gap: usize,
    widths: Vec<usize>,
}
