//! Data on stdout: a table for eyes, JSON for programs.

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
    /// `command` with this flag, if it was given.
    pub fn add_to(self, command: CommandLine) -> CommandLine {
        command.switch("--json", self.json)
    }

    /// Prints `data` as JSON, or what `text` makes of it. As one of several partitions, JSON is one line.
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

    /// Prints one of many, as JSON in one line. Answers whether anybody still reads.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn print_line<T: Serialize>(self, data: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<bool> {
        if !self.json {
            print_heading()?;
        }
        self.print_line_of_partition(data, text)
    }

    /// As [`Self::print_line`], where `text` says itself of which partition it is.
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

/// The partition that what is printed is about, and whether its heading stands there already. Commands that go over several do so
/// one after the other.
static PARTITION: Mutex<Option<(String, bool)>> = Mutex::new(None);

/// What is printed from now on is about the partition with this tag; None: about the whole.
pub fn begin_partition(tag: Option<&str>) {
    *PARTITION.lock().unwrap_or_else(PoisonError::into_inner) = tag.map(|tag| (tag.to_owned(), false));
}

/// Names the partition that the next lines are about, once.
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

/// Data with the partition that it is about, where that is one of several.
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
