//! Data on stdout: tables for people, JSON for programs.

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use anyhow::Context;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::{Serialize, Serializer, ser};
use serde_json::{Value as Json, json};
use tidegate_compare::text::printable_lines;

use crate::command_line::CommandLine;

/// The flag of every command that prints data.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON; ids are strings, because JSON numbers lose digits above 2^53
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    /// Adds this flag to `command`, if it was given.
    pub fn add_to(self, command: CommandLine) -> CommandLine {
        command.switch("--json", self.json)
    }

    /// Prints `data` as JSON, or the text that `text` makes of it. If it is one of several partitions, the JSON is one
    /// line.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let text = if self.json {
            let is_one_of_several = PARTITION.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            let data = OfPartition(data);
            let json = if is_one_of_several {
                serde_json::to_string(&data)
            } else {
                serde_json::to_string_pretty(&data)
            };
            json.context("Failed to write JSON")?
        } else {
            print_heading()?;
            text(data)
        };
        print(&text)
    }

    /// Prints one item of many, as JSON in one line. Returns whether a program still reads the output.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print_line<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<bool> {
        if !self.json {
            print_heading()?;
        }
        self.print_line_of_partition(data, text)
    }

    /// Prints one item like [`Self::print_line`], for a `text` that names its partition itself.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print_line_of_partition<T: Serialize>(
        self,
        data: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<bool> {
        is_read(&match self.json {
            true => serde_json::to_string(&OfPartition(data)).context("Failed to write JSON")?,
            false => text(data),
        })
    }
}

/// The partition that the printed data belongs to, and whether its heading was printed. Commands on several partitions
/// print one after the other.
static PARTITION: Mutex<Option<(String, bool)>> = Mutex::new(None);

/// Sets the partition of everything that is printed from now on. None: the whole system.
pub fn begin_partition(tag: Option<&str>) {
    *PARTITION.lock().unwrap_or_else(PoisonError::into_inner) = tag.map(|tag| (tag.to_owned(), false));
}

/// Prints the heading of the partition, once.
fn print_heading() -> anyhow::Result<()> {
    let mut partition = PARTITION.lock().unwrap_or_else(PoisonError::into_inner);
    match partition.as_mut() {
        Some((tag, is_there)) if !*is_there => {
            *is_there = true;
            print(&format!("Partition {{{tag}}}:"))
        }
        _ => Ok(()),
    }
}

/// Data with its partition, if there are several.
struct OfPartition<'a, T>(&'a T);

impl<T: Serialize> Serialize for OfPartition<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let partition = PARTITION.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((tag, _)) = partition.as_ref() else { return self.0.serialize(serializer) };
        match serde_json::to_value(self.0).map_err(ser::Error::custom)? {
            Json::Object(mut fields) => {
                fields.insert("partition".to_owned(), tag.as_str().into());
                fields.serialize(serializer)
            }
            data => json!({ "partition": tag, "data": data }).serialize(serializer),
        }
    }
}

/// Writes lines to stdout. A reader that closed the pipe early (`| head`) is no failure.
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

/// Writes lines to stderr, apart from the data. If stderr is closed, the work and its exit code still count.
pub fn print_note(text: &str) {
    let _closed = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// The width below which the terminal wraps a table: a table with one letter in a line cannot be read. A terminal
/// without a size reports 0.
const NARROWEST: u16 = 40;

/// Whether a person reads the output, and no program or file receives it.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Creates an empty table: with lines on a terminal, otherwise with bare columns.
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
