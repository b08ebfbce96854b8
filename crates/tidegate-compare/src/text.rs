//! The formatting of words and numbers for operators, and the cleaning of foreign text for terminals.

use tidegate_stream::readable;

/// The address of the runbook page about Redis keys of a wrong type.
pub const WRONG_TYPE: &str = "docs/runbook/audit-fails.md#a-key-has-a-wrong-type";

/// The text of an error with its causes, each once. If a key has a wrong type, the text also names the page of the
/// runbook about such keys.
#[must_use]
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| readable(&cause.to_string())) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if text.contains("WRONGTYPE") && !text.contains(WRONG_TYPE) {
        text = format!("{text}; see {WRONG_TYPE}");
    }
    text
}

/// Replaces control characters in a text from Redis, because such characters could control the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Replaces control characters in a text of several lines, as [`printable`] does.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), " ")
}

/// A number with its noun: `1 order`, `2 orders`, `2 entries`, `2 keys`, `2 crashes`.
#[must_use]
pub fn counted(count: impl Into<i128>, noun: &str) -> String {
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (count.into(), stem) {
        (1, _) => format!("1 {noun}"),
        (count, Some(stem)) => format!("{count} {stem}ies"),
        (count, None) if noun.ends_with("sh") => format!("{count} {noun}es"),
        (count, None) => format!("{count} {noun}s"),
    }
}

/// A time span in its two largest units: `45 s`, `30 min`, `1 h 30 min`, `2 d 6 h`.
#[must_use]
pub fn span(time: std::time::Duration) -> String {
    let s = time.as_secs() + u64::from(time.subsec_millis() >= 500);
    let units = [(s / 86_400, "d"), (s / 3_600 % 24, "h"), (s / 60 % 60, "min"), (s % 60, "s")];
    let said =
        units.iter().filter(|(count, _)| *count > 0).take(2).map(|(count, unit)| format!("{count} {unit}"));
    let said = said.collect::<Vec<_>>().join(" ");
    if said.is_empty() { "0 s".to_owned() } else { said }
}

/// A number of bytes in the largest unit that it reaches: `532 bytes`, `1.4 MB`. Each unit is 1000 times the previous
/// unit.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(
        || counted(bytes, "byte"),
        |(unit, name)| format!("{:.1} {name}", bytes as f64 / unit as f64),
    )
}

/// Converts milliseconds to seconds for display.
#[must_use]
pub fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_said_in_its_two_largest_units() {
        for (s, said) in [
            (0, "0 s"),
            (45, "45 s"),
            (1_800, "30 min"),
            (5_400, "1 h 30 min"),
            (90_061, "1 d 1 h"),
            (86_460, "1 d 1 min"),
        ] {
            assert_eq!(span(std::time::Duration::from_secs(s)), said);
        }
    }

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}1m"), "a [2Jb c 1m");
        assert_eq!(printable_lines("a\u{1b}[2J\n\tb\r\u{7}"), "a [2J\n\tb  ");
    }
}
