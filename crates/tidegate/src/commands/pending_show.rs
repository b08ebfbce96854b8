//! The command `tidegate pending show`: one pending entry with all its fields.

use clap::Args;
use serde::Serialize;
use std::slice;
use tidegate_compare::text::printable;
use tidegate_operations::{
    Stores,
    pending::{EntryState, Payload, PendingView, ShownEntry},
};
use tidegate_orders::keys::process_of;
use tidegate_stream::{EntryId, NamedCause};

use crate::{
    command_line::CommandLine,
    entry_arg::EntryArg,
    exit::Exit,
    invocation::Invocation,
    output::OutputArgs,
    pending::{content, crashes, idle, life, state},
    scope::{PartitionCommand, Scope},
};

/// The most fields of an entry that are printed for people.
const SHOWN_FIELDS: usize = 40;

const EXAMPLES: &str = "\
Examples:
  tidegate pending show 1795174742858-0
  tidegate pending show 1795174742858-0 --json | jq .entry.order

If the entry is not pending, the command prints whether it is acknowledged, unread or deleted, and exits with 1.";

/// The arguments of `tidegate pending show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingShowArgs {
    /// The id of the entry
    #[arg(value_name = "ENTRY")]
    pub entry: EntryArg,
    #[command(flatten)]
    output: OutputArgs,
}

/// The pending entry and a hint, as the command prints them as JSON.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    shown: ShownEntry,
    /// The sentence about the state of the entry, and what the operator can do.
    hint: String,
}

impl PartitionCommand for PendingShowArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(slice::from_ref(&self.entry))
    }

    /// Shows one pending entry.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let shown = ShownEntry::read(redis, stores.settings(), self.entry.id).await?;
        let hint = shown.entry.as_ref().map_or_else(
            || hint_of_state(shown.state).to_owned(),
            |pending| hint_of_pending(pending, shown.workers_live),
        );
        let output = Output { shown, hint };
        self.output.print(&output, |output| render(output, self.entry.id))?;
        Ok(if output.shown.entry.is_some() { Exit::Ok } else { Exit::No })
    }
}

fn hint_of_state(state: EntryState) -> &'static str {
    match state {
        EntryState::NotThere => "it is not in the stream: it was deleted, trimmed, or never added",
        EntryState::Undelivered => "no worker has read it yet: it waits for its turn",
        EntryState::Acknowledged => {
            "it is acknowledged: for the status of its order, see `tidegate order show`"
        }
        EntryState::Pending => "it is pending",
    }
}

fn hint_of_pending(pending: &PendingView, workers_live: bool) -> String {
    let process = process_of(&pending.consumer);
    let next = if workers_live { "the next worker that scans" } else { "the first worker that you start" };
    if pending.content.payload == Payload::Gone {
        return format!(
            "its payload was deleted: {next} acknowledges the entry; `tidegate audit` names the lost order"
        );
    }
    if pending.offered {
        return format!("the entry is claimable: {next} takes it");
    }
    if pending.alive && pending.set_aside {
        let cause = pending.waits_for.as_ref().map_or_else(
            || {
                "the entry waits for its turn, for a store that cannot be reached, or for a lock or row of another \
                 session (see `tidegate status`)"
                    .to_owned()
            },
            |NamedCause { kind, key, lasting_s, .. }| {
                format!("it has been waiting for {kind} {key} for {lasting_s:.0} s")
            },
        );
        return format!(
            "process {process} is alive and has set the entry aside, to retry it later: {cause}; see \
             docs/runbook/entries-are-set-aside.md"
        );
    }
    if pending.alive {
        return format!(
            "process {process} is alive and has the entry in progress: if that takes long, see the log of this worker"
        );
    }
    let claim = CommandLine::new("consumers drain").operand(&pending.consumer);
    format!(
        "its process is gone: another worker takes the entry after worker.claim_idle_ms, or at once after {}",
        Invocation::current().line(&claim)
    )
}

fn render(Output { shown, hint }: &Output, id: EntryId) -> String {
    let Some(pending) = &shown.entry else {
        return format!("{id} is not pending: {hint}.");
    };
    let process = shown.process.as_ref().map(|process| format!(", {process}")).unwrap_or_default();
    let mut lines = vec![
        format!("entry       {id}, {:.1} s old", pending.age_s),
        format!("content     {}", content(pending)),
        format!("consumer    {} ({}{process})", pending.consumer, life(pending.alive)),
        format!("state       {}", state(pending)),
        format!("idle        {}", idle(pending)),
        format!("crashes     {} (worker processes that died with this entry in progress)", crashes(pending)),
    ];
    for (name, value) in shown.fields.iter().take(SHOWN_FIELDS) {
        let value: String = value.chars().take(200).collect();
        lines.push(format!("field       {name} = {value}"));
    }
    let more = shown.fields.len().saturating_sub(SHOWN_FIELDS);
    if more > 0 {
        lines.push(format!("            and {more} more fields (--json shows all)"));
    }
    lines.push(format!("What to do: {hint}."));
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}
