//! The layout of help texts: paragraphs are filled to the width of the terminal, and commands are listed in groups.

use clap::Command;

/// Joins the lines of the text after the options, for a command and all its subcommands, so that clap can wrap the text
/// at the width of the terminal.
pub fn filled(command: Command) -> Command {
    let text = command.get_after_help().map(|text| paragraphs(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(filled)
}

/// Joins the lines of each paragraph. An indented line (an example, a table) and the line after it keep their line
/// breaks.
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

/// The groups in which the help lists the commands, each with its first command.
const GROUPS: [(&str, &str); 5] =
    [("Sell", "voucher"), ("Look", "order"), ("Change", "pause"), ("Repair", "reconcile"), ("Run", "worker")];

/// Lists the commands of the program in groups in the help text. clap has no headings for commands, so this function
/// hides clap's list and adds another list.
pub fn grouped(command: Command) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let list = command.clone().help_template("{subcommands}").render_help().ansi().to_string();
    let mut grouped = format!("{header}Commands:{header:#}");
    for line in list.lines() {
        let begins = |first: &str| line.starts_with(&format!("  {literal}{first}{literal:#} "));
        if let Some((group, _)) = GROUPS.iter().find(|(_, first)| begins(first)) {
            grouped.extend(["\n ", group, ":"]);
        }
        grouped.extend(["\n", line]);
    }
    let usage = "{about-with-newline}\n{usage-heading} {usage}";
    command
        .help_template(format!("{usage}\n\n{grouped}\n\n{{all-args}}{{after-help}}"))
        .override_usage("tidegate [OPTIONS] <COMMAND>")
        .mut_subcommands(|it| it.hide(true))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{GROUPS, grouped, paragraphs};
    use crate::cli::Cli;

    #[test]
    fn the_help_lists_every_command_once_and_each_group_before_its_first() {
        let help = grouped(Cli::command()).render_help().to_string();
        let lines: Vec<&str> = help.lines().collect();
        for (group, first) in GROUPS {
            let at = lines.iter().position(|line| *line == format!(" {group}:")).expect("the group is there");
            assert!(lines[at + 1].starts_with(&format!("  {first} ")), "{help}");
        }
        for command in Cli::command().get_subcommands() {
            let begins = |line: &&&str| line.starts_with(&format!("  {} ", command.get_name()));
            assert_eq!(lines.iter().filter(begins).count(), 1, "{}: {help}", command.get_name());
        }
    }

    #[test]
    fn prose_becomes_one_line_and_examples_stay_as_they_are() {
        let text = "Examples:\n  tidegate a\n  tidegate b\n\nOne sentence\nof two lines.\n\nAnother.";
        let filled = "Examples:\n  tidegate a\n  tidegate b\n\nOne sentence of two lines.\n\nAnother.";
        assert_eq!(paragraphs(text), filled);
    }
}
