//! `tidegate pending list`: which entries were read and are not acknowledged, and who holds them.

use clap::Args;
use serde::Serialize;
use tidegate_orders::Keys;
use tidegate_stream::{Survey, server_time_ms};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    output::{OutputArgs, counted},
    pending::{self, Pending, PendingReader, SelectionArgs},
    roster::Roster,
};

const EXAMPLES: &str = "\
Examples:
  tidegate pending list
  tidegate pending list --dead
  tidegate pending list --older-than 5m --set-aside
  tidegate pending list --deaths 1
  tidegate pending list --consumer shop-7-0 --limit 1000 --json | jq .entries[].order.id

A consumer is a lane of a worker. Its process is alive while it has a heartbeat.

  set aside  nobody has the entry in hand. Its worker tries it again when its turn comes: when a
             store is back, or what it needs is free. The list says what others hold, if the
             worker told. `tidegate status` has all causes, and since when
  deaths     so many worker processes died with the entry in hand. From the second death on, the
             entry is handled alone; after five it is buried
  on offer   `tidegate pending claim` has offered the entry to all workers

If an entry has no payload any more, it was deleted or trimmed. Workers acknowledge it and say
so in their log.";

/// What `tidegate pending list` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingListArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct List {
    stream: String,
    group: String,
    /// Of the whole group.
    pending: u64,
    entries: Vec<Pending>,
    /// There are more that are meant than the limit.
    more: bool,
}

/// Lists what is pending.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &PendingListArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let names = settings.stream_names();
    let roster = Roster::read(&redis, &Keys::new(settings.keys.clone()), &names).await?;
    let survey = Survey::new(redis.clone(), names.clone());
    let (fields, now_ms) = (&settings.keys.fields, server_time_ms(&redis).await?);
    let reader = PendingReader { survey: &survey, roster: &roster, fields, now_ms };
    let selected = reader.select(&args.selection).await?;
    let list = List {
        stream: names.stream,
        group: names.group,
        pending: roster.members.iter().map(|member| member.pending).sum(),
        entries: selected.entries,
        more: selected.more,
    };
    args.output.print(&list, render)?;
    Ok(Exit::Ok)
}

fn render(list: &List) -> String {
    let pending = counted(list.pending, "entry");
    if list.entries.is_empty() {
        return format!("None of them: {pending} of group {} are pending.", list.group);
    }
    let more = if list.more { ", and there are more (--limit)" } else { "" };
    let shown = list.entries.len();
    format!("{}\n\n{shown} shown of {pending} pending{more}.", pending::render(&list.entries))
}
