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

/// The most fields that are printed for people.
const SHOWN_FIELDS: usize = 40;

const EXAMPLES: &str = "\
Examples:
  tidegate pending show 1795174742858-0
  tidegate pending show 1795174742858-0 --json | jq .entry.order

Exits with 1 if this entry is not pending, and prints its state.";

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

/// The result, as it is printed as JSON.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    shown: ShownEntry,
    /// The next steps for the operator.
    hint: String,
}

impl PartitionCommand for PendingShowArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Entries(slice::from_ref(&self.entry))
    }

    /// Shows one entry.
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
        EntryState::NotThere => "it is not in the stream: deleted, trimmed, or never there",
        EntryState::Undelivered => "no worker has read it yet: it waits for its turn",
        EntryState::Acknowledged => "it is settled: for the state of its order, see `tidegate order show`",
        EntryState::Pending => "it is pending",
    }
}

fn hint_of_pending(pending: &PendingView, workers_live: bool) -> String {
    let process = process_of(&pending.consumer);
    let next = if workers_live { "the next worker that scans" } else { "the first worker that is started" };
    if pending.content.payload == Payload::Gone {
        return format!(
            "its payload is gone: {next} acknowledges it; `tidegate audit` names the order that is missing"
        );
    }
    if pending.offered {
        return format!("it is claimable: {next} takes it");
    }
    if pending.alive && pending.set_aside {
        let cause = pending.waits_for.as_ref().map_or_else(
            || {
                "it waits for its turn, for a store that is away, or for a lock or row that another session holds (see \
                 `tidegate status`)"
                    .to_owned()
            },
            |NamedCause { kind, key, lasting_s, .. }| {
                format!("its process waits for {kind} {key}, since {lasting_s:.0} s")
            },
        );
        return format!(
            "process {process} is alive, does not have it in progress, and retries it later: {cause}; see \
             docs/runbook/entries-are-set-aside.md"
        );
    }
    if pending.alive {
        return format!(
            "process {process} is alive and has it in progress: if it stays, see the log of that worker"
        );
    }
    let claim = CommandLine::new("consumers drain").operand(&pending.consumer);
    format!(
        "its process is gone: another worker takes it once it was idle for worker.claim_idle_ms, or at once after {}",
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
        format!("crashes     {} (worker processes that died with it in progress)", crashes(pending)),
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
