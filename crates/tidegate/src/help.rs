//! How help is laid out: what stands in the source at its width is filled to that of the terminal.

/// Lets the text behind the options of a command, and of all its subcommands, be filled by whoever prints it: without this,
/// lines that are longer than the terminal leave a few words alone on the next one.
pub fn filled(command: clap::Command) -> clap::Command {
    let text = command.get_after_help().map(|text| paragraphs(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(filled)
}

/// One line for each paragraph. What is indented (an example, a table), and what follows it, begins a line of its own.
fn paragraphs(text: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut before = "";
    for line in text.lines() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        if !filled.is_empty() {
            filled.push(if is_prose(before) && is_prose(line) { ' ' } else { '\n' });
        }
        filled.push_str(line);
        before = line;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::paragraphs;

    #[test]
    fn prose_becomes_one_line_and_examples_stay_as_they_are() {
        let text = "Examples:\n  tidegate a\n  tidegate b\n\nOne sentence\nof two lines.\n\nAnother.";
        let filled = "Examples:\n  tidegate a\n  tidegate b\n\nOne sentence of two lines.\n\nAnother.";
        assert_eq!(paragraphs(text), filled);
    }
}
