//! What requeue, cancel and drop have in common: look at the letters that were selected, ask, go through them page by page.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_orders::{DeadLetters, VoucherId, gate::GateError};
use tidegate_stream::{EntryId, Letter, Outage};

use super::{
    groups::{Counted, Groups},
    selection::Selection,
};
use crate::{
    command_line::CommandLine,
    config::Settings,
    exit::Exit,
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
};

/// Letters that are named one by one, at most.
const MOST_NAMED: usize = 20;

/// What is done to letters.
pub trait Deed {
    /// Its command: `dead requeue`.
    const COMMAND: &'static str;
    /// What was done: `requeued`.
    const DONE: &'static str;

    /// What is asked before it is done to so many: `Put 3 letters back into stream.orders?`
    fn question(&self, letters: &str) -> String;

    /// `command` with the flags that belong to it.
    fn typed(&self, command: CommandLine) -> CommandLine {
        command
    }

    /// Which of them stay, and why. Changes nothing.
    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage>;

    /// What of these, which nothing keeps from it, it would not help, because they would die again. Changes nothing.
    async fn doomed(&self, _letters: &[&Letter]) -> Result<Vec<Doom>, Outage> {
        Ok(Vec::new())
    }

    /// Does it, to each of them or not. An error that concerns one letter only is its [`Fate::Failed`]. With an outage
    /// among the fates, nothing was done to letters that have none, and nobody knows whether it was to those with the
    /// outage.
    ///
    /// # Errors
    /// When nothing was done.
    async fn act(&self, letters: &[Letter]) -> Result<Vec<Result<Fate, Outage>>, Outage>;
}

/// What became of a letter.
#[derive(Debug)]
pub enum Fate {
    /// It was done.
    Done(Note),
    /// There was no such letter any more: somebody else was faster.
    Gone,
    /// It is gone, and its order, which somebody else cancelled at the same time, is given back now.
    GivenBack,
    /// It stays.
    Stays(Obstacle),
    /// It stays, because MySQL refuses a row.
    Rejected(String),
    /// It stays, because Redis refuses.
    Failed(GateError),
}

/// One letter to which something was done.
#[derive(Debug, Serialize)]
pub struct Note {
    /// The letter.
    pub letter: String,
    /// What exactly was done, in a word.
    pub outcome: &'static str,
    /// Its order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The entry that it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

/// Why a letter stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// It was put back so often before that somebody has to insist.
    NeedsForce,
    /// More fields than a script can add.
    TooManyFields,
    /// Its order was given back.
    GivenBack,
    /// Its order is cancelled in MySQL.
    Cancelled,
    /// Its order is written.
    OrderExists,
    /// Its order id is another order's.
    IdTaken,
    /// It holds no order.
    NoOrder,
    /// Somebody else wrote it there.
    Foreign,
    /// It holds an order.
    HoldsOrder,
    /// By the journal, its order took units.
    HoldsUnits,
    /// MySQL refuses a row.
    Rejected,
    /// Others hold rows of MySQL that it needs.
    Contended,
    /// Redis refuses.
    Failed,
}

impl Obstacle {
    fn why(self) -> &'static str {
        match self {
            Self::NeedsForce => "requeued operator.requeue_limit times or more: once more only with --force",
            Self::TooManyFields => "more fields than a script can add to a stream",
            Self::GivenBack => {
                "the order was given back: a new attempt needs a new order id; cancel deletes the letter"
            }
            Self::Cancelled => {
                "the order is cancelled in MySQL and would not be written: cancel gives it back and deletes the letter"
            }
            Self::OrderExists => "the order stands in MySQL: after a requeue it counts as already there",
            Self::IdTaken => {
                "the order id is another order's, so nothing can be given back by it: drop deletes the letter, unless \
                 the journal names its user (see docs/runbook/id-taken.md)"
            }
            Self::NoOrder => "no order, so there is nothing to give back: export, then drop",
            Self::Foreign => "no letter of tidegate: somebody else wrote it there",
            Self::HoldsOrder => "an order: requeue or cancel it",
            Self::HoldsUnits => {
                "by the journal the order took units, which nobody has given back: see docs/runbook/id-taken.md"
            }
            Self::Rejected => {
                "MySQL refused the cancelled row that keeps the order from being written, so nothing was given back"
            }
            Self::Contended => {
                "another session holds rows that this needs: nothing was done, type it again in a while"
            }
            Self::Failed => "Redis refused",
        }
    }
}

/// Why a letter would die again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doom {
    /// MySQL has no row of its voucher.
    UnknownVoucher(VoucherId),
    /// Its order id is another order's.
    IdTaken,
    /// It holds no order.
    NoOrder,
}

/// Letters that would die again, for one reason.
#[derive(Clone, Debug, Serialize)]
struct Again {
    /// The reason that their next letters would have, or `no_order`.
    reason: &'static str,
    voucher: Option<VoucherId>,
    letters: u64,
}

impl Again {
    fn of((doom, letters): (Doom, u64)) -> Self {
        let (reason, voucher) = match doom {
            Doom::UnknownVoucher(voucher) => ("unknown_voucher", Some(voucher)),
            Doom::IdTaken => ("id_taken", None),
            Doom::NoOrder => ("no_order", None),
        };
        Self { reason, voucher, letters }
    }

    fn text(&self) -> String {
        let why = match (self.voucher, self.reason) {
            (Some(voucher), _) => {
                format!(
                    "MySQL has no row of voucher {voucher}; see tidegate voucher show --voucher {voucher}"
                )
            }
            (None, "id_taken") => "the order id is another order's".to_owned(),
            (None, _) => "it holds no order".to_owned(),
        };
        format!("{} would die again: {why}", counted(self.letters, "letter"))
    }
}

/// Letters that stay, for one reason.
#[derive(Clone, Debug, Serialize)]
struct Staying {
    why: Obstacle,
    letters: u64,
    /// The first of them.
    first: Vec<String>,
    /// What the store said of the first.
    error: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Stays(BTreeMap<Obstacle, Staying>);

impl Serialize for Stays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.values())
    }
}

impl Stays {
    fn add(&mut self, why: Obstacle, letter: &Letter, error: Option<String>) {
        let new = || Staying { why, letters: 0, first: Vec::new(), error };
        let staying = self.0.entry(why).or_insert_with(new);
        staying.letters += 1;
        if staying.first.len() < MOST_NAMED {
            staying.first.push(letter.id.to_string());
        }
    }
}

fn lines_of(stays: &Stays, missing: &[String]) -> Vec<String> {
    let stay = stays.0.values().map(|Staying { why, letters, first, error }| {
        let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let ids = shortened(first, *letters);
        let verb = if *letters == 1 { "stays" } else { "stay" };
        format!("{} {verb}: {}{error} ({ids})", counted(*letters, "letter"), why.why())
    });
    let gone = (!missing.is_empty()).then(|| format!("not there: {}", missing.join(" ")));
    stay.chain(gone).collect()
}

fn shortened(ids: &[String], all: u64) -> String {
    let more = if all > ids.len() as u64 { " ..." } else { "" };
    format!("{}{more}", ids.join(" "))
}

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    stream: String,
    #[serde(flatten)]
    counted: Counted,
    /// How many of them it would be done to.
    would: u64,
    /// Of these, the ones that it would not help, for the most frequent reasons.
    again: Vec<Again>,
    stay: Stays,
    /// Ids that were typed and are not there.
    missing: Vec<String>,
    #[serde(skip)]
    question: String,
    #[serde(skip)]
    last: Option<EntryId>,
}

impl Plan for Found {
    fn text(&self) -> String {
        let head = format!("{}: {} selected", self.stream, counted(self.counted.letters, "letter"));
        let table = Some(self.counted.text()).filter(|table| !table.is_empty());
        let lines = [Some(head), table].into_iter().flatten().chain(self.again.iter().map(Again::text));
        lines.chain(lines_of(&self.stay, &self.missing)).collect::<Vec<_>>().join("\n")
    }

    fn next(&self) -> Next {
        match (self.would, self.counted.letters, self.missing.len()) {
            (0, 0, 0) => Next::Nothing(Exit::Ok),
            (0, ..) => Next::Nothing(Exit::No),
            _ => Next::Ask(self.question.clone()),
        }
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct Answer {
    stream: String,
    /// What was done to them: `requeued`, `cancelled` or `dropped`.
    what: &'static str,
    letters: u64,
    /// The first of them.
    first: Vec<Note>,
    /// Letters that were not there any more: somebody else was faster.
    gone: u64,
    /// Of these, the ones whose orders somebody else cancelled, and which were given back here.
    given_back: u64,
    stay: Stays,
    missing: Vec<String>,
    #[serde(skip)]
    rest: CommandLine,
}

impl Report for Answer {
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {} {}", self.stream, counted(self.letters, "letter"), self.what)];
        lines.extend(self.first.iter().map(|Note { letter, outcome, order, entry }| {
            let order = order.as_ref().map(|order| format!(", order {order}")).unwrap_or_default();
            let entry = entry.as_ref().map(|entry| format!(" as {entry}")).unwrap_or_default();
            format!("  {letter} {}{entry}{order}", outcome.replace('_', " "))
        }));
        let more = self.letters - self.first.len() as u64;
        lines.extend((more > 0).then(|| format!("  and {more} more")));
        let gone = counted(self.gone, "letter");
        lines.extend((self.gone > 0).then(|| format!("{gone} not there any more: somebody else was faster")));
        let given_back = counted(self.given_back, "order");
        lines.extend(
            (self.given_back > 0)
                .then(|| format!("of these, {given_back} cancelled meanwhile: given back now")),
        );
        lines.extend(lines_of(&self.stay, &self.missing));
        lines.join("\n")
    }

    fn counts(&self) -> Json {
        let stay: u64 = self.stay.0.values().map(|staying| staying.letters).sum();
        json!({ self.what: self.letters, "gone": self.gone, "stay": stay + self.missing.len() as u64 })
    }

    fn ending(&self) -> Ending {
        let is_all_done = self.stay.0.is_empty() && self.missing.is_empty();
        if is_all_done { Ending::Done } else { Ending::Refused }
    }

    fn go_on(&self) -> Option<CommandLine> {
        Some(self.rest.clone())
    }
}

impl Answer {
    fn add(&mut self, letter: &Letter, fate: Fate) {
        match fate {
            Fate::Done(note) => {
                self.letters += 1;
                self.first.extend((self.first.len() < MOST_NAMED).then_some(note));
            }
            Fate::Gone => self.gone += 1,
            Fate::GivenBack => {
                self.gone += 1;
                self.given_back += 1;
            }
            Fate::Stays(obstacle) => self.stay.add(obstacle, letter, None),
            Fate::Rejected(error) => self.stay.add(Obstacle::Rejected, letter, Some(error)),
            Fate::Failed(error) => self.stay.add(Obstacle::Failed, letter, Some(error.to_string())),
        }
    }
}

/// Runs a command.
///
/// # Errors
/// When a store cannot be reached, or nobody can be asked.
pub async fn run<D: Deed>(
    settings: &Settings,
    change: &ChangeArgs,
    (dead, selection): (&DeadLetters, Selection),
    deed: &D,
) -> anyhow::Result<Exit> {
    let found = look(settings, dead, &selection, deed).await?;
    let selection = selection.up_to(found.last);
    let report = Answer {
        stream: found.stream.clone(),
        what: D::DONE,
        letters: 0,
        first: Vec::new(),
        gone: 0,
        given_back: 0,
        stay: Stays::default(),
        missing: found.missing.clone(),
        rest: CommandLine::new(D::COMMAND),
    };
    let work = async |found: Found, done: &mut Answer, job: &Job| {
        go(dead, &selection, deed, &found.counted, done, job).await
    };
    Change::new(settings, change).run_in_steps(found, report, work).await
}

async fn look<D: Deed>(
    settings: &Settings,
    dead: &DeadLetters,
    selection: &Selection,
    deed: &D,
) -> anyhow::Result<Found> {
    let all = dead.count().await.context("Failed to read the dead letters")?;
    let progress = Progress::new();
    progress.expect(selection.length(all), "letters looked at");
    let (mut groups, mut stays, mut missing) = (Groups::default(), Stays::default(), Vec::new());
    let (mut would, mut last, mut dooms) = (0, None, BTreeMap::<Doom, u64>::new());
    let mut walk = selection.walk(dead);
    while let Some(page) = walk.next().await.context("Failed to read the dead letters")? {
        progress.add(page.looked_at);
        missing.extend(page.missing.iter().map(EntryId::to_string));
        let judged = deed.judge(&page.letters).await.context("Failed to look at the orders")?;
        let mut free = Vec::new();
        for (letter, obstacle) in page.letters.iter().zip(judged) {
            groups.add(dead.fields(), letter);
            last = Some(letter.id);
            match obstacle {
                Some(obstacle) => stays.add(obstacle, letter, None),
                None => free.push(letter),
            }
        }
        would += free.len() as u64;
        for doom in deed.doomed(&free).await.context("Failed to look at the orders")? {
            *dooms.entry(doom).or_default() += 1;
        }
    }
    let mut again: Vec<Again> = dooms.into_iter().map(Again::of).collect();
    again.sort_by_key(|again| Reverse(again.letters));
    again.truncate(MOST_NAMED);
    Ok(Found {
        stream: settings.stream.dead.clone(),
        counted: groups.counted(),
        would,
        again,
        stay: stays,
        missing,
        question: deed.question(&counted(would, "letter")),
        last,
    })
}

/// Goes through the letters, page by page.
async fn go<D: Deed>(
    dead: &DeadLetters,
    selection: &Selection,
    deed: &D,
    counted: &Counted,
    done: &mut Answer,
    job: &Job,
) -> anyhow::Result<End> {
    job.progress.expect(counted.letters, "letters");
    let (mut walk, mut seen) = (selection.walk(dead), 0);
    let command = || deed.typed(CommandLine::new(D::COMMAND));
    loop {
        done.rest = walk.typed_rest(command());
        let Some(page) = walk.next().await.context("Failed to read the dead letters")? else { break };
        if job.is_stopped() {
            return Ok(End::Stopped);
        }
        let (mut settled, mut outage) = (BTreeSet::new(), None);
        for (letter, fate) in page.letters.iter().zip(deed.act(&page.letters).await?) {
            match fate {
                Ok(fate) => {
                    done.add(letter, fate);
                    settled.insert(letter.id);
                }
                Err(error) => outage = Some(error),
            }
        }
        if let Some(outage) = outage {
            let left = page.letters.iter().find(|letter| !settled.contains(&letter.id));
            let after = left.map(|letter| letter.id.previous());
            done.rest = selection.typed_after(after, &settled, command());
            return Err(outage.into());
        }
        seen += page.letters.len() as u64;
        job.progress.add(page.letters.len() as u64);
    }
    // What was there when it was asked about.
    done.gone += counted.letters.saturating_sub(seen);
    Ok(End::Whole)
}
