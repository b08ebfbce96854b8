//! `tidegate consumers list`: who reads, who lives, and what each holds.

use clap::Args;
use serde::Serialize;
use tidegate_orders::Keys;

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    output::{OutputArgs, table},
    pending::{life, printable},
    roster::{Member, Roster},
};

const EXAMPLES: &str = "\
Examples:
  tidegate consumers list
  tidegate consumers list --json | jq '.consumers[] | select(.alive | not) | .name'

A consumer is a lane of a worker: shop-7-1 is lane 1 of process shop-7. A process is alive while it renews its heartbeat
(worker.heartbeat_ttl_ms). Consumers of other programs have none, and count as gone.";

/// What `tidegate consumers list` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConsumersListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct List {
    stream: String,
    group: String,
    consumers: Vec<Member>,
}

/// Lists the consumers.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &ConsumersListArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let names = settings.stream_names();
    let roster = Roster::read(&redis, &Keys::new(settings.keys.clone()), &names).await?;
    let list = List { stream: names.stream, group: names.group, consumers: roster.members };
    args.output.print(&list, render)?;
    Ok(Exit::Ok)
}

fn render(list: &List) -> String {
    if list.consumers.is_empty() {
        return format!("Group {} of {} has no consumers.", list.group, list.stream);
    }
    let mut table = table(&["consumer", "pending", "idle", "process", "heartbeat"]);
    for member in &list.consumers {
        table.add_row([
            printable(&member.name),
            member.pending.to_string(),
            format!("{:.1} s", member.idle_s),
            life(member.alive).to_owned(),
            printable(member.process.as_deref().unwrap_or_default()),
        ]);
    }
    table.to_string()
}
