//! What requeue, cancel and drop have in common: look at the letters that were selected, ask, go through them page by page.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{DeadLetters, gate::GateError};
use tidegate_stream::{EntryId, Letter, Outage};

use super::{
    groups::{Counted, Groups},
    selection::Selection,
};
use crate::{
    config::Settings,
    exit::Exit,
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
};

/// Letters that are named one by one, at most.
const MOST_NAMED: usize = 20;

/// What is done to letters.
pub trait Deed {
    /// Its command: `requeue`.
    const COMMAND: &'static str;
    /// What was done: `requeued`.
    const DONE: &'static str;

    /// What is asked before it is done to so many: `Put 3 letters back into stream.orders?`
    fn question(&self, letters: &str) -> String;

    /// What of the command line belongs to it, to go on with the rest: ` --force`.
    fn typed(&self) -> &'static str;

    /// Which of them stay, and why. Changes nothing.
    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage>;

    /// Does it, to each of them or not. An error that concerns one letter only is its [`Fate::Failed`].
    async fn act(&self, letters: &[Letter]) -> Result<Vec<Fate>, Outage>;
}

/// What became of a letter.
#[derive(Debug)]
pub enum Fate {
    /// It was done.
    Done(Note),
    /// There was no such letter any more: somebody else was faster.
    Gone,
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
                "the order id is another order's, so nothing can be given back by it: see RUNBOOK, id_taken"
            }
            Self::NoOrder => "no order, so there is nothing to give back: export, then drop",
            Self::Foreign => "no letter of tidegate: somebody else wrote it there",
            Self::HoldsOrder => "an order: requeue or cancel it",
            Self::HoldsUnits => {
                "by the journal the order took units, which nobody has given back: see RUNBOOK, id_taken"
            }
            Self::Rejected => {
                "MySQL refused the cancelled row that keeps the order from being written, so nothing was given back"
            }
            Self::Failed => "Redis refused",
        }
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

impl Stays {
    fn add(&mut self, why: Obstacle, letter: &Letter, error: Option<String>) {
        let new = || Staying { why, letters: 0, first: Vec::new(), error };
        let staying = self.0.entry(why).or_insert_with(new);
        staying.letters += 1;
        if staying.first.len() < MOST_NAMED {
            staying.first.push(letter.id.to_string());
        }
    }

    fn list(self) -> Vec<Staying> {
        self.0.into_values().collect()
    }
}

fn lines_of(staying: &[Staying], missing: &[String]) -> Vec<String> {
    let stay = staying.iter().map(|Staying { why, letters, first, error }| {
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
    stay: Vec<Staying>,
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
        let lines = [Some(head), table].into_iter().flatten().chain(lines_of(&self.stay, &self.missing));
        lines.collect::<Vec<_>>().join("\n")
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
    stay: Vec<Staying>,
    missing: Vec<String>,
    #[serde(skip)]
    ending: Ending,
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
        lines.extend(lines_of(&self.stay, &self.missing));
        lines.join("\n")
    }

    fn counts(&self) -> Json {
        let stay: u64 = self.stay.iter().map(|staying| staying.letters).sum();
        json!({ self.what: self.letters, "gone": self.gone, "stay": stay + self.missing.len() as u64 })
    }

    fn ending(&self) -> Ending {
        self.ending.clone()
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
    let work = async |found: Found, job: &Job| Ok(go(dead, &selection, deed, found, job).await);
    Change::new(settings, change).run(found, work).await
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
    let (mut would, mut last) = (0, None);
    let mut walk = selection.walk(dead);
    while let Some(page) = walk.next().await.context("Failed to read the dead letters")? {
        progress.add(page.looked_at);
        missing.extend(page.missing.iter().map(EntryId::to_string));
        let judged = deed.judge(&page.letters).await.context("Failed to look at the orders")?;
        for (letter, obstacle) in page.letters.iter().zip(judged) {
            groups.add(letter);
            last = Some(letter.id);
            match obstacle {
                Some(obstacle) => stays.add(obstacle, letter, None),
                None => would += 1,
            }
        }
    }
    Ok(Found {
        stream: settings.stream.dead.clone(),
        counted: groups.counted(),
        would,
        stay: stays.list(),
        missing,
        question: deed.question(&counted(would, "letter")),
        last,
    })
}

/// Goes through the letters, page by page. What was done before an error is told with it.
async fn go<D: Deed>(dead: &DeadLetters, selection: &Selection, deed: &D, found: Found, job: &Job) -> Answer {
    let Found { stream, counted, missing, .. } = found;
    job.progress.expect(counted.letters, "letters");
    let (mut letters, mut gone, mut seen) = (0, 0, 0);
    let (mut first, mut stays, mut last) = (Vec::new(), Stays::default(), None);
    let mut walk = selection.walk(dead);
    let go_on = |last| format!("tidegate dead {}{}{}", D::COMMAND, selection.typed_after(last), deed.typed());
    let ending = loop {
        if job.is_stopped() {
            break Ending::Stopped { go_on: go_on(last) };
        }
        let step = async {
            let Some(page) = walk.next().await? else { return Ok(None) };
            let fates = deed.act(&page.letters).await?;
            Ok::<_, Outage>(Some((page, fates)))
        };
        let (page, fates) = match step.await {
            Ok(Some(step)) => step,
            Ok(None) => break Ending::Done,
            Err(error) => break Ending::Failed { error: error.to_string(), go_on: go_on(last) },
        };
        for (letter, fate) in page.letters.iter().zip(fates) {
            seen += 1;
            match fate {
                Fate::Done(note) => {
                    letters += 1;
                    first.extend((first.len() < MOST_NAMED).then_some(note));
                }
                Fate::Gone => gone += 1,
                Fate::Stays(obstacle) => stays.add(obstacle, letter, None),
                Fate::Rejected(error) => stays.add(Obstacle::Rejected, letter, Some(error)),
                Fate::Failed(error) => stays.add(Obstacle::Failed, letter, Some(error.to_string())),
            }
        }
        last = page.letters.last().map(|letter| letter.id).or(last);
        job.progress.add(page.letters.len() as u64);
    };
    let stay = stays.list();
    let is_refused = !stay.is_empty() || !missing.is_empty();
    if ending == Ending::Done {
        gone += counted.letters.saturating_sub(seen);
    }
    let ending = if ending == Ending::Done && is_refused { Ending::Refused } else { ending };
    Answer { stream, what: D::DONE, letters, first, gone, stay, missing, ending }
}
