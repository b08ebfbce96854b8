//! Words and numbers as people read them, and what others wrote without what could steer a terminal.

/// What an error says, with its causes. Some of them repeat their cause: it is said once.
#[must_use]
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Text that others wrote, for a terminal: whoever may write to Redis could otherwise steer it.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// As [`printable`], for text of several lines.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), " ")
}

/// A number with its noun: `1 order`, `2 orders`, `2 entries`.
#[must_use]
pub fn counted(count: impl Into<i128>, noun: &str) -> String {
    match (count.into(), noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (count, Some(stem)) => format!("{count} {stem}ies"),
        (count, None) => format!("{count} {noun}s"),
    }
}

/// Milliseconds in seconds, as they are shown.
#[must_use]
pub fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}1m"), "a [2Jb c 1m");
        assert_eq!(printable_lines("a\u{1b}[2J\n\tb\r\u{7}"), "a [2J\n\tb  ");
    }
}
