//! Durations as people type them.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration: `90m`, `2h 30m`, `7d`. A day has 24 hours.
///
/// # Errors
/// When the text is no duration, or is negative.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let span = text.trim().parse::<Span>().ok();
    let exact = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let positive = exact.and_then(|exact| Duration::try_from(exact).ok());
    positive.ok_or_else(|| "give a duration, such as 90m, 2h or 7d".to_owned())
}
