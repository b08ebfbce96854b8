//! Data on stdout: a table for eyes, JSON for programs.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use tidegate_operations::text::printable_lines;

use crate::command_line::CommandLine;

/// The flag of every command that prints data.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON; ids are strings, because JSON numbers lose digits above 2^53
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    /// `command` with this flag, if it was given.
    pub fn add_to(self, command: CommandLine) -> CommandLine {
        command.switch("--json", self.json)
    }

    /// Prints `data` as JSON, or what `text` makes of it.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(data).context("Failed to write JSON")?
        } else {
            text(data)
        };
        print(&text)
    }

    /// Prints one of many, as JSON in one line. Answers whether anybody still reads.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print_line<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<bool> {
        let text =
            if self.json { serde_json::to_string(data).context("Failed to write JSON")? } else { text(data) };
        is_read(&text)
    }
}

/// Writes lines to stdout. A reader who went away early (`| head`) is no failure.
///
/// # Errors
/// When stdout cannot be written to.
pub fn print(text: &str) -> anyhow::Result<()> {
    is_read(text).map(|_| ())
}

fn is_read(text: &str) -> anyhow::Result<bool> {
    match writeln!(io::stdout(), "{}", printable_lines(text.trim_end())) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.context("Failed to write to stdout").map(|()| true),
    }
}

/// Writes lines to stderr, beside the data. If stderr is closed, the work and its exit code still count.
pub fn print_note(text: &str) {
    let _closed = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// Narrower than this, a table is left to the terminal to wrap: one letter a line helps nobody. A terminal without a
/// size says 0.
const NARROWEST: u16 = 40;

/// Whether somebody looks at what is printed, and no program or file takes it.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// An empty table: with lines on a terminal, bare columns otherwise.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    if is_terminal() {
        table.load_style(presets::UTF8_FULL_CONDENSED);
        if table.width().is_some_and(|width| width >= NARROWEST) {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
    } else {
        table.load_style(presets::NOTHING);
    }
    table.set_header(header);
    table
}
