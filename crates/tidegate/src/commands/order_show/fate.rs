//! What the fate of an order is, after all that was found of it, and what can be done. Pure.

use serde::Serialize;
use tidegate_orders::{
    OrderId,
    story::{EntryFacts, EntryState, JournalFacts, LetterFacts, OrderRow, RefusalRow, Story},
};

use crate::{moment::utc, output::counted, pending::shell_word};

/// What the facts do not tell.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The order.
    pub order: OrderId,
    /// A worker lives.
    pub workers_live: bool,
    /// How long an entry lies before others claim it.
    pub claim_idle_ms: u64,
    /// The name of the stream.
    pub stream: String,
    /// How many entries of each stream were looked at, at most.
    pub scan: u64,
}

/// Where an order ended, or where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In MySQL.
    Written,
    /// In MySQL, cancelled or refunded since.
    Cancelled,
    /// Refused by MySQL.
    Refused,
    /// Given back to Redis.
    GivenBack,
    /// Among the dead letters.
    Dead,
    /// In the stream, unread.
    Undelivered,
    /// In a pending list.
    Pending,
    /// Nowhere, though it was admitted.
    Lost,
    /// Not to be told from what could be read.
    Unsure,
    /// Nobody has heard of it.
    Unknown,
}

/// The fate of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// In a word.
    pub is: Place,
    /// In a sentence, with what can be done.
    pub sentence: String,
    /// What to type.
    pub commands: Vec<String>,
}

/// Decides.
pub fn fate(story: &Story, around: &Surroundings) -> Fate {
    let open = story.entries.iter().find(|entry| entry.state.is_open());
    let fate = match (&story.row, &story.refusal, open) {
        (Some(row), ..) => written(story, row, open, around),
        (None, Some(refusal), _) => refused(story, refusal, open, around),
        (None, None, Some(entry)) => in_flight(story, entry, around),
        (None, None, None) => at_rest(story, around),
    };
    if story.searched.mysql
        || !matches!(fate.is, Place::Dead | Place::GivenBack | Place::Lost | Place::Unknown)
    {
        return fate;
    }
    let sentence = format!("{} But MySQL could not be asked: it may be written all the same.", fate.sentence);
    Fate { is: Place::Unsure, sentence, commands: Vec::new() }
}

fn of(is: Place, sentence: impl Into<String>, commands: Vec<String>) -> Fate {
    Fate { is, sentence: sentence.into(), commands }
}

fn written(story: &Story, row: &OrderRow, open: Option<&EntryFacts>, around: &Surroundings) -> Fate {
    let units = if row.quantity == 1 { String::new() } else { format!(" ({} units)", row.quantity) };
    let wrote = format!(
        "It is written: order {} of user {} for voucher {}{units}, {}",
        row.order,
        row.user,
        row.voucher,
        moment_of(row.created_ms)
    );
    let mut commands = Vec::new();
    let (is, mut sentence) = if row.is_cancelled() {
        (Place::Cancelled, format!("{wrote}, and {} since: it counts no units.", status(row.status)))
    } else {
        (Place::Written, format!("{wrote}, {}.", status(row.status)))
    };
    let release =
        story.journal.iter().find(|journal| journal.is_release() && is_voucher(journal, row.voucher));
    if let (Some(release), false) = (release, row.is_cancelled()) {
        sentence += &format!(
            " It was given back to Redis all the same ({} by {}): its units are sold twice.",
            moment_of(release.at_ms),
            release.by.as_deref().unwrap_or("somebody")
        );
        commands.push(format!("tidegate audit --voucher {}", row.voucher));
    }
    if let Some(entry) = open {
        sentence +=
            &format!(" Its entry {} is still open: whoever handles it next only acknowledges it.", entry.id);
        commands.extend(claim(entry));
    }
    for letter in &story.letters {
        let who = match letter.wanted.user {
            Some(user) if user.get() != row.user => format!("of user {user} has the same id"),
            _ => "of it is left".to_owned(),
        };
        sentence += &format!(" A dead letter {who}: {}.", letter.id);
        commands.push(format!("tidegate dead show {}", letter.id));
    }
    if commands.is_empty() {
        sentence += " Nothing is to be done.";
    }
    if let Some(entry) =
        open.filter(|entry| matches!(entry.state, EntryState::Undelivered) && !around.workers_live)
    {
        sentence += &format!(" Entry {} waits for a worker to be started.", entry.id);
    }
    of(is, sentence, commands)
}

fn refused(story: &Story, refusal: &RefusalRow, open: Option<&EntryFacts>, around: &Surroundings) -> Fate {
    let why = match refusal.reason.as_str() {
        "out_of_stock" => "MySQL had no unit left for it",
        "user_has_order" => "its user had an order for this voucher already",
        other => other,
    };
    let refused = format!("It was refused {}: {why}", moment_of(refusal.at_ms));
    let new_id = "A new attempt needs a new order id.";
    if let Some(release) = story.journal.iter().find(|journal| journal.is_release()) {
        let when = moment_of(release.at_ms);
        return of(
            Place::Refused,
            format!("{refused}; it was given back to Redis {when}. {new_id}"),
            Vec::new(),
        );
    }
    if let Some(entry) = open {
        let worker = if around.workers_live { "a worker" } else { "the first worker that is started" };
        let sentence = format!(
            "{refused}; {worker} gives it back to Redis when it handles entry {}. {new_id}",
            entry.id
        );
        return of(Place::Refused, sentence, claim(entry).into_iter().collect());
    }
    if story.journal.is_empty() {
        let sentence = format!("{refused}; no journal tells whether it was given back to Redis. {new_id}");
        return of(Place::Refused, sentence, vec![format!("tidegate audit --voucher {}", refusal.voucher)]);
    }
    let again = story.entries.iter().find(|entry| entry.wanted.is_some()).map(replay);
    let sentence = format!("{refused}; it was not given back to Redis. Handled once more, it is. {new_id}");
    let commands = vec![again.unwrap_or_else(|| format!("tidegate audit --voucher {}", refusal.voucher))];
    of(Place::Refused, sentence, commands)
}

fn in_flight(story: &Story, entry: &EntryFacts, around: &Surroundings) -> Fate {
    let mut fate = match &entry.state {
        EntryState::Pending { .. } if entry.wanted.is_none() => {
            let gone = format!("Its entry {} is pending, but its payload was deleted or trimmed", entry.id);
            return lost(story, &gone, around);
        }
        EntryState::Pending { consumer, alive, idle_ms, deliveries } => {
            pending(story, entry, (consumer, *alive, *idle_ms, *deliveries), around)
        }
        EntryState::Undelivered | EntryState::Settled => undelivered(entry, around),
    };
    if let Some(error) = entry.wanted.as_ref().and_then(|wanted| wanted.error.as_ref()) {
        fate.sentence += &format!(" It is no order ({error}): whoever handles it buries it.");
    } else if let Some(release) = story.journal.iter().find(|journal| journal.is_release()) {
        fate.sentence += &format!(
            " It was given back {}, but what is in the stream is written all the same, and its units are sold twice.",
            moment_of(release.at_ms)
        );
    }
    for letter in &story.letters {
        fate.sentence += &format!(" A dead letter of it is there, too: {}.", letter.id);
    }
    fate
}

fn undelivered(entry: &EntryFacts, around: &Surroundings) -> Fate {
    let waits = format!("It waits in the stream since {}, as entry {}", entry_moment(entry), entry.id);
    if around.workers_live {
        return of(Place::Undelivered, format!("{waits}: a worker writes it when its turn comes."), vec![]);
    }
    let start = vec!["tidegate worker".to_owned()];
    of(Place::Undelivered, format!("{waits}, and no living worker reads the stream: start one."), start)
}

fn pending(
    story: &Story,
    entry: &EntryFacts,
    (consumer, alive, idle_ms, deliveries): (&str, bool, Option<u64>, u64),
    around: &Surroundings,
) -> Fate {
    let holds = format!("It is pending: {consumer} holds entry {}", entry.id);
    let tries = if deliveries > 1 { format!(", delivered {deliveries} times") } else { String::new() };
    if alive {
        let lock = story.lock.as_ref().filter(|lock| {
            let is_ours = lock.holder.as_ref().is_some_and(|holder| holder.starts_with("tidegate-"));
            !is_ours || deliveries > 1
        });
        let why = match lock {
            None if deliveries > 1 => "and tries it again: see its log for what keeps it".to_owned(),
            None => "and has it in hand: nothing is to be done".to_owned(),
            Some(lock) => {
                let holder = lock.holder.as_deref().unwrap_or("a program whose lock is no string");
                let ends = lock.ends_in_ms.map_or_else(
                    || "never ends by itself: RUNBOOK tells what to do about a lock that is stuck".to_owned(),
                    |ms| format!("ends in {:.0} s unless it is renewed", seconds(ms)),
                );
                format!("and waits for the lock of its user, which {holder} holds and which {ends}")
            }
        };
        return of(Place::Pending, format!("{holds}{tries}, lives, {why}."), Vec::new());
    }
    let (sentence, commands) = match (idle_ms, around.workers_live) {
        (_, false) => (
            format!("{holds}{tries}, is gone, and no living worker reads the stream: start one."),
            vec!["tidegate worker".to_owned()],
        ),
        (None, true) => (
            format!("{holds}{tries}, is gone, and it is on offer: the next worker that looks takes it."),
            vec![],
        ),
        (Some(idle_ms), true) => {
            let left = seconds(i64::try_from(around.claim_idle_ms.saturating_sub(idle_ms)).unwrap_or(0));
            let sentence = format!(
                "{holds}{tries}, and is gone: others take it in about {left:.0} s, or at once if told to."
            );
            (sentence, claim(entry).into_iter().collect())
        }
    };
    of(Place::Pending, sentence, commands)
}

fn at_rest(story: &Story, around: &Surroundings) -> Fate {
    if let Some(letter) = story.letters.first() {
        return dead(story, letter);
    }
    if let Some(release) = story.journal.iter().find(|journal| journal.is_release()) {
        let sentence = format!(
            "It was given back {} by {}, and is not written. A new attempt needs a new order id.",
            moment_of(release.at_ms),
            release.by.as_deref().unwrap_or("somebody")
        );
        return of(Place::GivenBack, sentence, Vec::new());
    }
    if let Some(entry) = story.entries.first() {
        let (id, when) = (entry.id, entry_moment(entry));
        let seen = format!(
            "Its entry {id} of {when} is acknowledged, but it is neither written nor refused nor buried"
        );
        return lost(story, &seen, around);
    }
    match story.journal.first() {
        Some(journal) => {
            let when = moment_of(journal.at_ms);
            let user = journal.by.as_deref().unwrap_or("unknown");
            let voucher = journal.voucher;
            let admitted = format!(
                "It was admitted {when} for user {user} and voucher {voucher}, and its entry is not there"
            );
            lost(story, &admitted, around)
        }
        None => unknown(story, around),
    }
}

fn dead(story: &Story, letter: &LetterFacts) -> Fate {
    let reason = letter.reason.as_deref().unwrap_or("no reason given");
    let error = letter.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let when = moment_of(letter.at_ms);
    let buried = format!("It is a dead letter, buried {when} for {reason}{error}");
    let show = format!("tidegate dead show {}", letter.id);
    if let Some(release) = story.journal.iter().find(|journal| journal.is_release()) {
        let back =
            format!("{buried}, and was given back {}: it must not be run again.", moment_of(release.at_ms));
        return of(Place::Dead, back, vec![show]);
    }
    let id = letter.id;
    let sentence = format!("{buried}: mend the cause and run it again, or cancel it, which gives it back.");
    let commands = vec![show, format!("tidegate dead requeue {id}"), format!("tidegate dead cancel {id}")];
    of(Place::Dead, sentence, commands)
}

/// Nothing holds it any more, as far as was searched.
fn lost(story: &Story, seen: &str, around: &Surroundings) -> Fate {
    let unsearched = unsearched(story);
    if !unsearched.is_empty() {
        let sentence = format!("{seen}. Whether it is lost, cannot be told: {}.", unsearched.join("; "));
        return of(Place::Unsure, sentence, again(story, around));
    }
    let sentence = format!("{seen}: it is lost. Appended again with the same id, it is written once.");
    let in_stream = story.entries.iter().find(|entry| entry.wanted.is_some());
    let commands = in_stream.map(replay).or_else(|| append(story, around)).into_iter().collect();
    of(Place::Lost, sentence, commands)
}

fn unknown(story: &Story, around: &Surroundings) -> Fate {
    let unsearched = unsearched(story);
    if unsearched.is_empty() {
        let sentence = "Nobody has heard of it: it was never admitted, or every trace of it was deleted.";
        return of(Place::Unknown, sentence, Vec::new());
    }
    let sentence = format!("Nothing was found of it; but {}.", unsearched.join("; "));
    of(Place::Unknown, sentence, again(story, around))
}

/// What was not looked at, and might tell more.
fn unsearched(story: &Story) -> Vec<String> {
    let search = &story.searched;
    let mut parts = Vec::new();
    for (what, searched) in [("stream", &search.stream), ("dead letters", &search.dead)] {
        if !searched.complete && searched.entries > 0 {
            let looked_at = counted(searched.entries, "entry");
            let down_to = searched.down_to;
            parts.push(format!(
                "of the {what}, only {looked_at} were looked at, the latest down to {down_to}"
            ));
        } else if !searched.complete {
            parts.push(format!("the {what} could not be read"));
        }
    }
    if !search.all_journals {
        parts.push(format!(
            "the journals of {} were looked into, not of all",
            counted(search.journals, "voucher")
        ));
    }
    if !story.errors.is_empty() {
        parts.push("not everything could be read".to_owned());
    }
    parts
}

/// The question again, with more.
fn again(story: &Story, around: &Surroundings) -> Vec<String> {
    let search = &story.searched;
    if search.stream.complete && search.dead.complete {
        return Vec::new();
    }
    vec![format!("tidegate order show {} --scan {}", around.order, around.scan.saturating_mul(100))]
}

/// Appends an order again of which only the journal is left.
fn append(story: &Story, around: &Surroundings) -> Option<String> {
    let journal = story.journal.iter().find(|journal| journal.is_admission())?;
    let user = journal.by.as_ref()?;
    let quantity = journal.change.map_or(1, i64::abs);
    let quantity = if quantity == 1 { String::new() } else { format!(" quantity {quantity}") };
    let (stream, voucher, order) = (shell_word(&around.stream), journal.voucher, around.order);
    Some(format!("redis-cli XADD {stream} '*' userId {user} voucherId {voucher} id {order}{quantity}"))
}

fn replay(entry: &EntryFacts) -> String {
    format!("tidegate replay --from {0} --to {0}", entry.id)
}

/// What makes others take an entry from a consumer that is gone.
fn claim(entry: &EntryFacts) -> Option<String> {
    match &entry.state {
        EntryState::Pending { consumer, alive: false, idle_ms: Some(_), .. } => {
            Some(format!("tidegate pending claim --consumer {}", shell_word(consumer)))
        }
        _ => None,
    }
}

fn is_voucher(journal: &JournalFacts, voucher: i64) -> bool {
    journal.voucher.get() == voucher
}

fn entry_moment(entry: &EntryFacts) -> String {
    utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX))
}

fn moment_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc)
}

fn seconds(ms: i64) -> f64 {
    std::time::Duration::from_millis(ms.unsigned_abs()).as_secs_f64()
}

/// The tutorial's numbers.
pub fn status(status: i64) -> String {
    match status {
        1 => "unpaid".to_owned(),
        2 => "paid".to_owned(),
        3 => "used".to_owned(),
        4 => "cancelled".to_owned(),
        5 => "refunding".to_owned(),
        6 => "refunded".to_owned(),
        other => format!("status {other}"),
    }
}

#[cfg(test)]
mod tests;
