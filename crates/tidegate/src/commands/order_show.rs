//! `tidegate order show`: one order's whole story, what its fate is, and what can be done.

mod fate;
mod text;

use clap::Args;
use serde::Serialize;
use tidegate_orders::{
    Keys, OrderId, UserId, VoucherId,
    story::{Question, Stores, Story, Trail},
};
use tidegate_stream::{EntryId, Survey};

use self::fate::{Fate, Surroundings, fate};
use crate::{
    command_line::Shell,
    config::Settings,
    connect,
    exit::Exit,
    operator::Progress,
    output::{OutputArgs, told},
    roster::Roster,
};

/// Of each stream.
pub const SCAN: u64 = 100_000;

const EXAMPLES: &str = "\
Examples:
  tidegate order show 662196605998333958
  tidegate order show 662196605998333958 --voucher 7
  tidegate order show 662196605998333958 --json | jq -r .fate.is

Shows what MySQL, the journal, the stream, the pending list and the dead letters hold of the
order, with times. Then it says in a sentence what became of the order, and what to type. Fates:
written, cancelled, contradictory, refused, given_back, dead, undelivered, pending, lost,
unsure, unknown.

An id tells neither voucher nor entry. If MySQL and the dead letters do not know it, the command
looks into the journals of the vouchers with the highest ids, and then into all journals that
Redis holds. It also searches the stream: around the time within the id, if `tidegate admit`
made it, and then from the end. --voucher, --user and --entry save these searches. It says what
it did not search.

Exits with 1 if nothing was found, and with 3 if a store is away, after showing what it can.";

/// What `tidegate order show` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderShowArgs {
    /// The id of the order
    #[arg(value_name = "ORDER")]
    order: OrderId,
    /// Its voucher, if it is known
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// Its user, if it is known
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// Its entry, if it is known
    #[arg(long, value_name = "ENTRY")]
    entry: Option<EntryId>,
    /// Entries of the stream, and as many dead letters, to look through at most
    #[arg(long, value_name = "NUMBER", default_value_t = SCAN, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Told {
    order: OrderId,
    fate: Fate,
    #[serde(flatten)]
    story: Story,
    #[serde(skip)]
    question: Question,
    /// What the commands need besides.
    #[serde(skip)]
    note: Option<String>,
}

/// Tells the story.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn run(settings: &Settings, args: &OrderShowArgs) -> anyhow::Result<Exit> {
    let OrderShowArgs { order, voucher, user, entry, scan, .. } = *args;
    let question = Question { order, voucher, user, entry, budget: scan };
    let (redis, mysql) = tokio::join!(connect::redis(settings), connect::mysql(settings));
    let mut errors = Vec::new();
    let mut keep = |error: anyhow::Error| errors.push(told(&error));
    let (redis, mysql) = (redis.map_err(&mut keep).ok(), mysql.map_err(&mut keep).ok());

    let (keys, names) = (Keys::new(settings.keys.clone()), settings.stream_names());
    let survey = redis.as_ref().map(|redis| Survey::new(redis.clone(), names.clone()));
    let trail = redis.as_ref().zip(survey.as_ref());
    let trail = trail.map(|(pool, survey)| Trail { pool, survey, keys: &keys });
    let patience = settings.mysql.statement_timeout;
    let stores = Stores { redis: trail.as_ref(), mysql: mysql.as_ref(), patience };
    let progress = Progress::new();
    progress.expect(scan.saturating_mul(2), "entries looked at");
    let mut story = stores.tell(&question, |entries| progress.add(entries)).await;
    drop(progress);

    let mut workers_live = false;
    if let Some(redis) = &redis {
        let roster = Roster::read(redis, &keys, &names).await;
        workers_live = roster.map_err(&mut keep).is_ok_and(|roster| roster.has_life());
    }
    errors.extend(std::mem::take(&mut story.errors));
    story.errors = errors;
    let around = Surroundings {
        question,
        workers_live,
        claim_idle_ms: u64::try_from(settings.worker.claim_idle.as_millis()).unwrap_or(u64::MAX),
        stream: names.stream,
        keys,
        requeue_limit: settings.operator.requeue_limit,
    };
    let (mut fate, shell) = (fate(&story, &around), Shell::here());
    let note = shell.note().filter(|_| fate.commands.iter().any(|command| command.starts_with("tidegate ")));
    fate.commands.iter_mut().for_each(|command| *command = shell.complete(command));
    let told = Told { order, fate, story, question, note };
    args.output.print(&told, text::render)?;
    Ok(match (told.story.errors.is_empty(), told.story.is_unknown()) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::No,
        (true, false) => Exit::Ok,
    })
}
