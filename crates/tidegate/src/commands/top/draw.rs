//! Drawing of the live view: plain ASCII, and colours that a terminal may leave out, because the text says the same.

use ratatui::{
    Frame,
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
};

use super::{
    format::{width, wrap},
    grid::{Grid, Severity},
    view::TopView,
};

const KEYS: &str = "q quits";
const KEYS_OF_PAGES: &str = "q quits, Tab and Shift-Tab show the other partitions";
/// The terminal height, in lines, from which on sections are separated by blank lines.
const ROOMY: usize = 24;
/// The terminal height, in lines, below which the list of keys is left out.
const SMALL: usize = 8;
/// The fewest lines of a section: its header, one row and a line such as `and 8 more`.
const SECTION_LEAST: usize = 3;

/// Whether the live view of `tidegate top` has one page or several pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// The view has only one page.
    One,
    /// The view has several pages.
    Many,
}

/// Draws the lines of the live view that fit on the terminal.
pub fn draw(frame: &mut Frame<'_>, view: &TopView, paging: Paging) {
    let area = frame.area();
    let lines = lines(view, paging, usize::from(area.width), usize::from(area.height));
    frame.render_widget(Text::from(lines), area);
}

fn lines(view: &TopView, paging: Paging, columns: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(view, columns)];
    lines.extend(alerts(view, columns, height / 4));
    let space = usize::from(height >= ROOMY);
    section(&mut lines, &view.stream, columns, space + view.stream.height(), space);
    let keys = usize::from(height >= SMALL);
    let rest = height.saturating_sub(lines.len() + keys);
    let (above, below) = share(
        rest,
        space + view.consumers.height(),
        match view.vouchers.height() {
            0 => 0,
            height => space + height,
        },
    );
    section(&mut lines, &view.consumers, columns, above, space);
    section(&mut lines, &view.vouchers, columns, below, space);
    if keys > 0 {
        lines.resize(height - keys, Line::default());
        let told = if paging == Paging::One { KEYS } else { KEYS_OF_PAGES };
        lines.push(Line::styled(told, tint(Severity::Old)));
    }
    lines
}

fn title(view: &TopView, columns: usize) -> Line<'static> {
    let state: usize = view.state.iter().map(|cell| width(&cell.text) + 2).sum();
    let room = columns.saturating_sub(state);
    let subject: String = view.subject.chars().take(room).collect();
    let space = " ".repeat(room.saturating_sub(width(&subject)));
    let mut spans = vec![Span::styled(format!("{subject}{space}"), Modifier::BOLD)];
    spans.extend(view.state.iter().map(|cell| Span::styled(format!("  {}", cell.text), tint(cell.severity))));
    Line::from(spans).style(Modifier::REVERSED)
}

fn alerts(view: &TopView, columns: usize, most: usize) -> Vec<Line<'static>> {
    let lines = view.alerts.iter().flat_map(|alert| {
        let style = tint(alert.severity);
        wrap(&alert.text, columns).into_iter().map(move |line| Line::styled(line, style))
    });
    lines.take(most).collect()
}

fn section(lines: &mut Vec<Line<'static>>, grid: &Grid, columns: usize, height: usize, space: usize) {
    let height = height.saturating_sub(space);
    // A header without rows has no information.
    if height < 2 || grid.columns.is_empty() {
        return;
    }
    lines.extend(std::iter::repeat_n(Line::default(), space));
    for (at, cells) in grid.lines(columns, height).into_iter().enumerate() {
        let line =
            Line::from_iter(cells.into_iter().map(|cell| Span::styled(cell.text, tint(cell.severity))));
        lines.push(if at == 0 { line.style(Modifier::BOLD | Modifier::UNDERLINED) } else { line });
    }
}

/// The heights of two sections that share the `rest` lines. Lines that one section does not need go to the other
/// section. If there is no room for both sections, only the upper section is shown.
fn share(rest: usize, above: usize, below: usize) -> (usize, usize) {
    if rest < above.min(SECTION_LEAST) + below.min(SECTION_LEAST) {
        return (above.min(rest), 0);
    }
    let given = above.min(rest.saturating_sub(below).max(rest - rest / 2));
    (given, below.min(rest - given))
}

fn tint(severity: Severity) -> Style {
    match severity {
        Severity::Plain => Style::new(),
        Severity::Old => Style::new().add_modifier(Modifier::DIM),
        Severity::Good => Style::new().fg(Color::Green),
        Severity::Warn => Style::new().fg(Color::Yellow),
        Severity::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn what_one_section_does_not_need_is_the_others() {
        assert_eq!(share(10, 20, 20), (5, 5));
        assert_eq!(share(11, 20, 20), (6, 5));
        assert_eq!(share(10, 3, 20), (3, 7));
        assert_eq!(share(10, 20, 2), (8, 2));
        assert_eq!(share(50, 5, 6), (5, 6));
        assert_eq!(share(0, 5, 6), (0, 0));
    }

    #[test]
    fn no_section_is_a_header_alone() {
        assert_eq!(share(6, 20, 20), (3, 3));
        assert_eq!(share(5, 20, 20), (5, 0));
        assert_eq!(share(5, 20, 2), (3, 2));
    }
}
