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

/// The flag `--json` of every command that prints data.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON; ids are strings, because JSON numbers lose digits above 2^53
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    /// Adds the flag `--json` to `command`, if the user typed this flag.
    pub fn add_to(self, command: CommandLine) -> CommandLine {
        command.switch("--json", self.json)
    }

    /// Prints `data` as JSON, or prints the text that `text` creates from `data`. If there are several partitions, the
    /// JSON of each partition is a single line.
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

    /// Prints one of many items, as JSON in one line if the user typed `--json`. Returns whether a program still reads
    /// the output.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print_line<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<bool> {
        if !self.json {
            print_heading()?;
        }
        self.print_line_of_partition(data, text)
    }

    /// Prints one of many items like [`Self::print_line`], if `text` already contains the tag of its partition.
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

/// Sets the partition to which all following output belongs. None: the output belongs to the whole system.
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

/// Data that is printed together with the tag of its partition, if there are several partitions.
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

/// Writes lines to stdout. If the reader has closed the pipe (`| head`), this is no failure.
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

/// Writes lines to stderr, separate from the data on stdout. If stderr is closed, it does nothing.
pub fn print_note(text: &str) {
    let _closed = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// The least terminal width, in columns, to which a table is fitted. In a narrower terminal, the terminal wraps lines.
/// A terminal without a size reports 0.
const NARROWEST: u16 = 40;

/// Whether stdout is a terminal, so that a person reads the output.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Creates an empty table: with borders on a terminal, otherwise with bare columns.
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
