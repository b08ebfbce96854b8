//! `tidegate dead list`: what died, and why.

use std::collections::VecDeque;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::{
    door,
    groups::{Counted, Groups},
    letter::Summary,
    selection::FilterArgs,
};
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::Progress,
    output::{OutputArgs, counted, table},
};

const EXAMPLES: &str = "\
Examples:
  tidegate dead list
  tidegate dead list --reason unknown_voucher --voucher 7
  tidegate dead list --from -2h --limit 1000 --json
  tidegate dead list --user 1001

Counts all that match by reason and voucher, then shows the newest of them: 10, or as many as --limit says. Voucher and user are found also in entries that
are no orders, where they can be read. Of a letter that says `requeued 2`, this is the third death. Changes nothing.";

/// What `tidegate dead list` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Show so many, the newest; all are counted
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    limit: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Listed {
    stream: String,
    #[serde(flatten)]
    counted: Counted,
    /// The newest of them, which come first.
    newest: VecDeque<Summary>,
}

/// Lists them.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &DeadListArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let dead = door(settings, &redis);
    let all = dead.count().await.context("Failed to read the dead letters")?;
    let selection = args.filter.resolve(&redis, &dead).await?;
    let progress = Progress::new();
    progress.expect(all, "letters looked at");
    let (mut groups, mut newest) = (Groups::default(), VecDeque::new());
    let mut walk = selection.walk(&dead);
    while let Some(page) = walk.next().await.context("Failed to read the dead letters")? {
        progress.add(page.looked_at);
        for letter in &page.letters {
            groups.add(dead.fields(), letter);
            newest.push_front(Summary::of(dead.fields(), letter));
            newest.truncate(args.limit as usize);
        }
    }
    drop(progress);
    let listed = Listed { stream: settings.stream.dead.clone(), counted: groups.counted(), newest };
    args.output.print(&listed, render)?;
    Ok(Exit::Ok)
}

fn render(listed: &Listed) -> String {
    let Listed { stream, counted: Counted { letters, .. }, newest, .. } = listed;
    let mut text = format!("{stream}: {}\n{}", counted(*letters, "letter"), listed.counted.text());
    if !newest.is_empty() {
        let mut table = table(&Summary::HEADER);
        let mut above = None;
        for letter in newest {
            table.add_row(letter.cells(above));
            above = Some(letter);
        }
        text += &format!("\n\n{table}");
    }
    match *letters - newest.len() as u64 {
        0 => text,
        older => format!("{text}\nand {older} older: --limit {letters} shows all"),
    }
}
