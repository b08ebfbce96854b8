//! `tidegate pending bury`: moves pending entries that shall not be written to the dead letters.

use std::collections::HashMap;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_orders::{
    Keys, OrderId,
    keys::process_of,
    story::{Decided, decided},
};
use tidegate_stream::{BuryReply, Death, EntryId, Stream, Survey, server_time_ms};
use tokio::time::timeout;

use crate::{
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Report},
    output::{counted, table},
    pending::{Pending, PendingReader, SelectionArgs, printable},
    roster::Roster,
};

/// The word of a dead letter that an operator made.
const BY_OPERATOR: &str = "by_operator";
/// Entries whose orders are looked up in MySQL at once, before they are buried.
const CHUNK: usize = 100;

const EXAMPLES: &str = "\
Examples:
  tidegate pending bury 1795174742858-0 --why 'crashes every worker' --dry-run
  tidegate pending bury --dead --deaths 3 --why 'three workers died of it' --yes

Copies the entries to the dead letters and acknowledges them, each in one step. The letters get
the reason by_operator (dead:reason), and the text of --why (dead:error). Nothing is given back:
until the letter is run again or cancelled, the unit stays taken and the user cannot order.

Some entries stay, each with its reason:
  - what a consumer holds whose process lives, because it may be writing it just now: stop that
    worker first, and bury before others claim it
  - orders that MySQL has written or refused already: any worker acknowledges them
  - entries without payload

Exits with 1 if any entry that was meant is left, also because of --limit. Ctrl-C ends it with
6; the same command again continues.";

/// What `tidegate pending bury` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PendingBuryArgs {
    /// Ids of entries
    #[arg(value_name = "ENTRY", conflicts_with_all = ["consumer", "dead", "older_than", "set_aside", "deaths", "deliveries"])]
    entries: Vec<EntryId>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Why, for whoever reads the letter
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    why: String,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Why an entry is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Left {
    /// Its consumer lives, or another one has it by now.
    InHand,
    /// MySQL has its order.
    Written,
    /// MySQL has refused its order.
    Refused,
    /// It has no payload.
    Gone,
    /// It is not pending.
    NotPending,
}

impl Left {
    fn reason(self) -> &'static str {
        match self {
            Self::InHand => "its consumer lives and may be writing it",
            Self::Written => "its order is written; any worker acknowledges it",
            Self::Refused => "its order was refused; any worker gives it back and acknowledges it",
            Self::Gone => "its payload is gone; any worker acknowledges it",
            Self::NotPending => "it is not pending",
        }
    }
}

/// What was found.
#[derive(Debug, Serialize)]
struct Outlook {
    bury: Vec<Pending>,
    left: Vec<LeftEntry>,
    /// There are more that are meant than the limit.
    more: bool,
}

/// An entry that is left as it is.
#[derive(Clone, Debug, Serialize)]
struct LeftEntry {
    entry: String,
    why: Left,
}

impl Plan for Outlook {
    fn text(&self) -> String {
        let mut table = table(&["entry", "consumer", "content", "would be"]);
        for pending in &self.bury {
            let consumer = printable(&pending.consumer);
            table.add_row([pending.entry.as_str(), &consumer, &pending.content(), "buried"]);
        }
        for left in &self.left {
            table.add_row([left.entry.as_str(), "", "", &format!("left: {}", left.why.reason())]);
        }
        let more = if self.more { "\nThere are more of them than --limit." } else { "" };
        if self.bury.is_empty() && self.left.is_empty() {
            return "No pending entry is meant.".to_owned();
        }
        format!("{table}{more}")
    }

    fn next(&self) -> Next {
        match self.bury.len() as u64 {
            0 => Next::Nothing(Exit::No),
            count => Next::Ask(format!("Bury {}?", counted(count, "entry"))),
        }
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct Buried {
    buried: Vec<String>,
    /// Entries that were meant and are left, also those of which that was known before.
    left: Vec<LeftEntry>,
    /// There are more that are meant than the limit.
    more: bool,
}

impl Report for Buried {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} buried.", counted(self.buried.len() as u64, "entry"))];
        lines.extend(self.left.iter().map(|left| format!("{} left: {}.", left.entry, left.why.reason())));
        lines.extend(self.more.then(|| "There are more of them than --limit.".to_owned()));
        lines.join("\n")
    }

    fn counts(&self) -> Json {
        json!({ "buried": self.buried.len(), "left": self.left.len(), "over_limit": u8::from(self.more) })
    }

    fn ending(&self) -> Ending {
        match (self.more, self.left.is_empty()) {
            (true, _) => Ending::Left,
            (false, false) => Ending::Refused,
            (false, true) => Ending::Done,
        }
    }
}

/// Buries entries.
///
/// # Errors
/// When a store cannot be reached, or the flags choose nothing.
pub async fn run(settings: &Settings, args: &PendingBuryArgs) -> anyhow::Result<Exit> {
    if args.entries.is_empty() && args.selection.takes_all() {
        let message = "say which: ids of entries, --consumer, --dead, --older-than, --set-aside, --deaths or --deliveries";
        return Err(WrongUsage(message.to_owned()).into());
    }
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let (keys, names) = (Keys::new(settings.keys.clone()), settings.stream_names());
    let roster = Roster::read(&redis, &keys, &names).await?;
    let survey = Survey::new(redis.clone(), names.clone());
    let (fields, now_ms) = (&settings.keys.fields, server_time_ms(&redis).await?);
    let reader = PendingReader { survey: &survey, roster: &roster, fields, now_ms };
    let grave = Grave { stream: Stream::new(redis.clone(), names), mysql, settings, keys };
    let plan = grave.look(&reader, args).await?;
    let report = Buried { buried: Vec::new(), left: plan.left.clone(), more: plan.more };
    let work = async |plan: Outlook, done: &mut Buried, job: &Job| {
        job.progress.expect(plan.bury.len() as u64, "entries");
        for some in plan.bury.chunks(CHUNK) {
            if grave.bury(some, &args.why, job, done).await? == End::Stopped {
                return Ok(End::Stopped);
            }
        }
        Ok(End::Whole)
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

/// The steps of a burial.
struct Grave<'a> {
    stream: Stream,
    mysql: MySqlPool,
    settings: &'a Settings,
    keys: Keys,
}

impl Grave<'_> {
    async fn look(&self, reader: &PendingReader<'_>, args: &PendingBuryArgs) -> anyhow::Result<Outlook> {
        let mut outlook = Outlook { bury: Vec::new(), left: Vec::new(), more: false };
        let mut meant = Vec::new();
        if args.entries.is_empty() {
            let selected = reader.select(&args.selection).await?;
            (meant, outlook.more) = (selected.entries, selected.more);
        }
        for id in &args.entries {
            match reader.one(*id).await? {
                Some(pending) => meant.push(pending),
                None => outlook.left.push(LeftEntry { entry: id.to_string(), why: Left::NotPending }),
            }
        }
        let decided = self.decided(&meant).await?;
        for pending in meant {
            let why = match (pending.payload, pending.alive) {
                ("gone", _) => Some(Left::Gone),
                (_, true) => Some(Left::InHand),
                (_, false) => is_decided(&pending, &decided),
            };
            match why {
                None => outlook.bury.push(pending),
                Some(why) => outlook.left.push(LeftEntry { entry: pending.entry, why }),
            }
        }
        Ok(outlook)
    }

    /// Buries some, after a last look into MySQL: the answer to the question may have taken its time.
    async fn bury(&self, some: &[Pending], why: &str, job: &Job, done: &mut Buried) -> anyhow::Result<End> {
        let decided = self.decided(some).await?;
        let death = Death { reason: BY_OPERATOR, error: why.to_owned() };
        for pending in some {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let left = match (&pending.content, is_decided(pending, &decided)) {
                (_, Some(why)) => Some(why),
                (None, None) => Some(Left::Gone),
                (Some(entry), None) => {
                    let heartbeat = self.keys.heartbeat(process_of(&pending.consumer));
                    let burial = self.stream.bury_of_dead(entry, &death, &pending.consumer, heartbeat).await;
                    match burial.with_context(|| format!("Failed to bury {}", pending.entry))? {
                        BuryReply::Buried => None,
                        BuryReply::Settled => Some(Left::NotPending),
                        BuryReply::InHand => Some(Left::InHand),
                    }
                }
            };
            match left {
                None => done.buried.push(pending.entry.clone()),
                Some(why) => done.left.push(LeftEntry { entry: pending.entry.clone(), why }),
            }
            job.progress.add(1);
        }
        Ok(End::Whole)
    }

    async fn decided(&self, some: &[Pending]) -> anyhow::Result<HashMap<OrderId, Decided>> {
        let orders = some.iter().filter_map(|pending| pending.order.as_ref());
        let orders: Vec<_> = orders.map(|order| (order.id, order.user, order.voucher)).collect();
        let read = timeout(self.settings.mysql.statement_timeout, decided(&self.mysql, &orders)).await;
        read.context("MySQL did not answer in time")?.context("Failed to look for the orders in MySQL")
    }
}

/// Whether MySQL knows the fate of its order already.
fn is_decided(pending: &Pending, decided: &HashMap<OrderId, Decided>) -> Option<Left> {
    Some(match decided.get(&pending.order.as_ref()?.id)? {
        Decided::Written => Left::Written,
        Decided::Refused => Left::Refused,
    })
}
