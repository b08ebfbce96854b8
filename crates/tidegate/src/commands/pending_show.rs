//! `tidegate pending show`: one pending entry, whole.

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::{EntryId, NamedCause, Survey, server_time_ms};

use crate::{
    command_line::{CommandLine, Shell},
    config::Settings,
    connect,
    exit::Exit,
    output::OutputArgs,
    pending::{Pending, PendingReader, life, printable},
    roster::Roster,
};

/// Fields that are printed for people.
const SHOWN_FIELDS: usize = 40;

const EXAMPLES: &str = "\
Examples:
  tidegate pending show 1795174742858-0
  tidegate pending show 1795174742858-0 --json | jq .entry.order

Exits with 1 where this entry is not pending, and says what else it is.";

/// What `tidegate pending show` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingShowArgs {
    /// The id of the entry
    #[arg(value_name = "ENTRY")]
    entry: EntryId,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Shown {
    /// `pending`, `undelivered`, `acknowledged` (or never read by this group), or `not_there`.
    state: &'static str,
    /// None where it is not pending.
    entry: Option<Pending>,
    /// Fields as they stand in the entry; bytes that are no UTF-8 are replaced.
    fields: Vec<(String, String)>,
    /// What the heartbeat says of the consumer's process.
    process: Option<String>,
    /// What can be done.
    hint: String,
}

/// Shows the entry.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &PendingShowArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let names = settings.stream_names();
    let roster = Roster::read(&redis, &Keys::new(settings.keys.clone()), &names).await?;
    let survey = Survey::new(redis.clone(), names.clone());
    let (fields, now_ms) = (&settings.keys.fields, server_time_ms(&redis).await?);
    let reader = PendingReader { survey: &survey, roster: &roster, fields, now_ms };
    let pending = reader.one(args.entry).await?;
    let shown = match pending {
        Some(pending) => of_pending(pending, &roster),
        None => of_other(&survey, args.entry).await.context("Failed to read the stream")?,
    };
    args.output.print(&shown, |shown| render(shown, args.entry))?;
    Ok(if shown.entry.is_some() { Exit::Ok } else { Exit::No })
}

fn of_pending(pending: Pending, roster: &Roster) -> Shown {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = pending.content.iter().flat_map(|entry| &entry.fields);
    Shown {
        state: "pending",
        fields: fields.map(|(name, value)| (text(name), text(value))).collect(),
        process: roster.find(&pending.consumer).and_then(|member| member.process.clone()),
        hint: hint(&pending, roster.has_life()),
        entry: Some(pending),
    }
}

async fn of_other(survey: &Survey, id: EntryId) -> anyhow::Result<Shown> {
    let (state, hint) = match survey.entry(&survey.names().stream, id).await? {
        None => ("not_there", "it is not in the stream: deleted, trimmed, or never there"),
        Some(_) if survey.last_delivered().await?.is_none_or(|last| id > last) => {
            ("undelivered", "no worker has read it yet: it waits for its turn")
        }
        Some(_) => ("acknowledged", "it is settled: what became of its order, `tidegate order show` tells"),
    };
    Ok(Shown { state, entry: None, fields: Vec::new(), process: None, hint: hint.to_owned() })
}

fn hint(pending: &Pending, has_life: bool) -> String {
    let consumer = &pending.consumer;
    let next = if has_life { "the next worker that looks" } else { "the first worker that is started" };
    match pending.payload {
        "gone" => {
            return format!(
                "its payload is gone: {next} acknowledges it; `tidegate audit` tells which order is missing"
            );
        }
        _ if pending.offered => return format!("it is on offer: {next} takes it"),
        _ => {}
    }
    if pending.alive && pending.set_aside {
        let what = pending.waits_for.as_ref().map_or_else(
            || "it waits for its turn, for a store that is away, or for something that others hold (see `tidegate status`)".to_owned(),
            |NamedCause { kind, key, lasting_s, .. }| {
                format!("its process waits for {kind} {key}, since {lasting_s:.0} s")
            },
        );
        return format!(
            "process {} lives, has it not in hand and tries it again: {what}; see docs/runbook/entries-are-set-aside.md",
            process_of(consumer)
        );
    }
    if pending.alive {
        return format!(
            "process {} lives and has it in hand: if it stays, see what the worker's log says",
            process_of(consumer)
        );
    }
    format!(
        "its process is gone: others take it once it was idle for worker.claim_idle_ms, or at once after {}",
        Shell::here().line(&CommandLine::new("pending claim").flag("--consumer", Some(consumer)))
    )
}

fn render(shown: &Shown, id: EntryId) -> String {
    let Some(pending) = &shown.entry else {
        return format!("{id} is not pending: {}.", shown.hint);
    };
    let process = shown.process.as_ref().map(|process| format!(", {process}")).unwrap_or_default();
    let mut lines = vec![
        format!("entry       {id}, {:.1} s old", pending.age_s),
        format!("content     {}", pending.content()),
        format!("consumer    {} ({}{process})", pending.consumer, life(pending.alive)),
        format!("state       {}", pending.standing()),
        format!("idle        {}", pending.idle()),
        format!("deaths      {} (worker processes that died with it in hand)", pending.deaths()),
    ];
    for (name, value) in shown.fields.iter().take(SHOWN_FIELDS) {
        let value: String = value.chars().take(200).collect();
        lines.push(format!("field       {name} = {value}"));
    }
    let more = shown.fields.len().saturating_sub(SHOWN_FIELDS);
    if more > 0 {
        lines.push(format!("            and {more} more fields (--json shows all)"));
    }
    lines.push(format!("What to do: {}.", shown.hint));
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}
