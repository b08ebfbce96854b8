//! What the fate of an order is, after all that was found of it, and what can be done. Pure.

use serde::Serialize;
use tidegate_orders::{
    Keys, RowState, UserId,
    story::{EntryFacts, EntryState, JournalFacts, LetterFacts, OrderRow, Question, RefusalRow, Story},
};

use crate::{moment::utc, output::counted, pending::shell_word};

/// What the facts do not tell.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// What was asked.
    pub question: Question,
    /// A worker lives.
    pub workers_live: bool,
    /// How long an entry lies before others claim it.
    pub claim_idle_ms: u64,
    /// The name of the stream.
    pub stream: String,
    /// The names of the other keys.
    pub keys: Keys,
    /// From how many burials on a letter is put back only if somebody insists.
    pub requeue_limit: u32,
}

/// Where an order ended, or where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In MySQL.
    Written,
    /// In MySQL, cancelled or refunded: it was written once, or never will be.
    Cancelled,
    /// In MySQL, neither live nor cancelled: slot and status contradict each other.
    Contradictory,
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
    let order = format!("order {} of user {} for voucher {}{units}", row.order, row.user, row.voucher);
    let (when, status) = (moment_of(row.created_ms), status(row.status));
    let (is, mut sentence, mut commands) = match row.state() {
        RowState::Cancelled => {
            let sentence = format!("It is {status}: {order}, whose row is of {when}, counts no units.");
            let (more, commands) = cancelled(story, row, around);
            (Place::Cancelled, sentence + &more, commands)
        }
        RowState::Live => {
            let sentence = format!("It is written: {order}, {when}, {status}.");
            let (more, commands) = live(story, row, around);
            (Place::Written, sentence + &more, commands)
        }
        RowState::Contradictory => {
            let slot = row.slot.map_or_else(|| "no slot".to_owned(), |slot| format!("slot {slot}"));
            let sentence = format!(
                "It is neither live nor cancelled: {order}, whose row is of {when}, has {slot} and is {status}. Nobody can tell \
                 from that whether its units went back (see docs/runbook/contradictory-orders.md)."
            );
            let audit = format!("tidegate audit --voucher {}", row.voucher);
            (Place::Contradictory, sentence, vec![audit])
        }
    };
    if let Some(entry) = open {
        sentence +=
            &format!(" Its entry {} is still open: whoever handles it next only acknowledges it.", entry.id);
        commands.extend(claim(entry));
    }
    for letter in story.letters.iter().filter(|letter| !letter.is_order_of(row.user, row.voucher)) {
        let who = match letter.wanted.user {
            Some(user) if user.get() != row.user => format!("of user {user} has the same id"),
            _ => "has the same id".to_owned(),
        };
        sentence += &format!(" A dead letter {who}: {}.", letter.id);
        commands.push(show(letter));
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

/// What else is to be said of an order that counts, and what to type.
fn live(story: &Story, row: &OrderRow, around: &Surroundings) -> (String, Vec<String>) {
    let (mut sentence, mut commands) = (String::new(), Vec::new());
    if let Some((when, by)) = given_back(story, Some(row.voucher)) {
        sentence +=
            &format!(" It was given back to Redis all the same ({when} by {by}): its units are sold twice.");
        commands.push(format!("tidegate audit --voucher {}", row.voucher));
    }
    for letter in story.letters.iter().filter(|letter| letter.is_order_of(row.user, row.voucher)) {
        sentence += &format!(" A dead letter of it is left, {}: run again, it only ends.", letter.id);
        commands.extend([show(letter), requeue(letter, around)]);
    }
    (sentence, commands)
}

/// What else is to be said of an order that counts no more, and what to type.
fn cancelled(story: &Story, row: &OrderRow, around: &Surroundings) -> (String, Vec<String>) {
    let letters: Vec<_> = story.letters.iter().filter(|it| it.is_order_of(row.user, row.voucher)).collect();
    let ids: Vec<String> = letters.iter().map(|letter| letter.id.to_string()).collect();
    let (ids, cancels) = (ids.join(", "), letters.iter().map(|letter| cancel(letter)).collect());
    let is_here = |note: &&JournalFacts| note.is_admission() && is_voucher(note, row.voucher);
    let admission = story.journal.iter().find(is_here);
    match (given_back(story, Some(row.voucher)), admission, letters.is_empty()) {
        (Some((when, by)), _, true) => (format!(" It was given back to Redis {when} by {by}."), cancels),
        (Some((when, by)), _, false) => {
            let back =
                format!(" It was given back to Redis {when} by {by}; its dead letter {ids} can be deleted.");
            (back, cancels)
        }
        (None, Some(note), _) if note.by.as_ref().is_some_and(|by| *by != row.user.to_string()) => {
            let sentence = " By the journal, its id is an order of another user, so nothing can be given back by it \
                            (see docs/runbook/id-taken.md).";
            (sentence.to_owned(), letters.iter().map(|letter| drop(letter)).collect())
        }
        (None, _, false) => (
            format!(" It was not given back to Redis: that is done when its dead letter {ids} is cancelled."),
            cancels,
        ),
        (None, Some(note), true) => {
            let sentence = " In Redis, it still holds its units, and its user is barred, until lua/release.lua gives it \
                            back. Unless whoever cancelled it did that in another way, type it where the directory lua \
                            is; with 0 for its last 1 if another order of the user for this voucher stands.";
            (sentence.to_owned(), vec![release(note, row, around)])
        }
        (None, None, true) => (String::new(), cancels),
    }
}

/// Gives back what no letter is left of.
fn release(note: &JournalFacts, row: &OrderRow, around: &Surroundings) -> String {
    let keys = [
        &around.keys.stock(note.voucher),
        &around.keys.buyers(note.voucher),
        &around.keys.journal(note.voucher),
    ]
    .map(|key| shell_word(&key.as_str_lossy()));
    let (order, user) = (around.question.order, row.user);
    format!(
        "redis-cli -u \"$TIDEGATE_REDIS_URL\" --eval lua/release.lua {} , {order} {user} {} 1 operator:by_hand",
        keys.join(" "),
        row.quantity
    )
}

fn refused(story: &Story, refusal: &RefusalRow, open: Option<&EntryFacts>, around: &Surroundings) -> Fate {
    let why = match refusal.reason.as_str() {
        "out_of_stock" => "MySQL had no unit left for it",
        "user_has_order" => "its user had an order for this voucher already",
        other => other,
    };
    let refused = format!("It was refused {}: {why}", moment_of(refusal.at_ms));
    let new_id = "A new attempt needs a new order id.";
    let letter = story.letters.iter().find(|letter| letter.is_order_of(refusal.user, refusal.voucher));
    let of = |more: String, commands| of(Place::Refused, format!("{refused}; {more} {new_id}"), commands);
    if let Some((when, _)) = given_back(story, None) {
        let back = format!("it was given back to Redis {when}.");
        return match letter {
            None => of(back, Vec::new()),
            Some(letter) => of(
                format!("{back} Its dead letter {} can be deleted: cancel does that.", letter.id),
                vec![cancel(letter)],
            ),
        };
    }
    if let Some(entry) = open {
        let worker = if around.workers_live { "a worker" } else { "the first worker that is started" };
        let back = format!("{worker} gives it back to Redis when it handles entry {}.", entry.id);
        return of(back, claim(entry).into_iter().collect());
    }
    if let Some(letter) = letter {
        let back = format!(
            "it was not given back to Redis. That is done when its dead letter {} is cancelled.",
            letter.id
        );
        return of(back, vec![show(letter), cancel(letter)]);
    }
    let audit = || format!("tidegate audit --voucher {}", refusal.voucher);
    if story.journal.is_empty() {
        return of("no journal tells whether it was given back to Redis.".to_owned(), vec![audit()]);
    }
    let again = story.entries.iter().find(|entry| entry.wanted.is_some()).map(replay);
    let back = "it was not given back to Redis. Handled once more, it is.".to_owned();
    of(back, vec![again.unwrap_or_else(audit)])
}

fn in_flight(story: &Story, entry: &EntryFacts, around: &Surroundings) -> Fate {
    let mut fate = match &entry.state {
        EntryState::Pending { .. } if entry.wanted.is_none() => {
            let gone = format!("Its entry {} is pending, but its payload was deleted or trimmed", entry.id);
            return lost(story, &gone, around);
        }
        EntryState::Pending { consumer, alive, idle_ms, deliveries, deaths } => {
            let fate = pending(story, entry, (consumer, *alive, *idle_ms, *deliveries == 0), around);
            with_deaths(fate, *deaths)
        }
        EntryState::Undelivered | EntryState::Settled => undelivered(entry, around),
    };
    if let Some(error) = entry.wanted.as_ref().and_then(|wanted| wanted.error.as_ref()) {
        fate.sentence += &format!(" It is no order ({error}): whoever handles it buries it.");
    } else if let Some((when, _)) = given_back(story, None) {
        fate.sentence += &format!(
            " It was given back {when}, but what is in the stream is written all the same, and its units are sold twice."
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

fn with_deaths(mut fate: Fate, deaths: u64) -> Fate {
    if deaths > 0 {
        let workers = counted(deaths, "worker");
        fate.sentence +=
            &format!(" {workers} died with it in hand (see docs/runbook/workers-die-of-an-entry.md).");
    }
    fate
}

fn pending(
    story: &Story,
    entry: &EntryFacts,
    (consumer, alive, idle_ms, set_aside): (&str, bool, Option<u64>, bool),
    around: &Surroundings,
) -> Fate {
    let holds = format!("It is pending: {consumer} holds entry {}", entry.id);
    if alive {
        let lock = story.lock.as_ref().filter(|lock| {
            let is_ours = lock.holder.as_ref().is_some_and(|holder| holder.starts_with("tidegate-"));
            !is_ours || set_aside
        });
        let why = match lock {
            None if set_aside => {
                "and has set it aside: it waits for its turn, for a store that is away, or for something that others hold \
                 (see `tidegate status`), and is tried again"
                    .to_owned()
            }
            None => "and has it in hand: nothing is to be done".to_owned(),
            Some(lock) => {
                let holder = lock.holder.as_deref().unwrap_or("a program whose lock is no string");
                let ends = lock.ends_in_ms.map_or_else(
                    || "never ends by itself (see docs/runbook/stuck-lock.md)".to_owned(),
                    |ms| format!("ends in {:.0} s unless it is renewed", seconds(ms)),
                );
                format!("and waits for the lock of its user, which {holder} holds and which {ends}")
            }
        };
        return of(Place::Pending, format!("{holds}, lives, {why}."), Vec::new());
    }
    let (sentence, commands) = match (idle_ms, around.workers_live) {
        (_, false) => (
            format!("{holds}, is gone, and no living worker reads the stream: start one."),
            vec!["tidegate worker".to_owned()],
        ),
        (None, true) => {
            (format!("{holds}, is gone, and it is on offer: the next worker that looks takes it."), vec![])
        }
        (Some(idle_ms), true) => {
            let left = seconds(i64::try_from(around.claim_idle_ms.saturating_sub(idle_ms)).unwrap_or(0));
            let sentence =
                format!("{holds}, and is gone: others take it in about {left:.0} s, or at once if told to.");
            (sentence, claim(entry).into_iter().collect())
        }
    };
    of(Place::Pending, sentence, commands)
}

fn at_rest(story: &Story, around: &Surroundings) -> Fate {
    if let Some(letter) = story.letters.first() {
        return dead(story, letter, around);
    }
    if let Some((when, by)) = given_back(story, None) {
        let sentence = format!(
            "It was given back {when} by {by}, and is not written. A new attempt needs a new order id."
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

fn dead(story: &Story, letter: &LetterFacts, around: &Surroundings) -> Fate {
    let when = moment_of(letter.at_ms);
    let Some(reason) = &letter.reason else {
        let sentence =
            format!("It stands among the dead letters, where somebody else wrote it ({}).", letter.id);
        let drop = letter.wanted.error.is_some().then(|| drop(letter));
        return of(Place::Dead, sentence, std::iter::once(show(letter)).chain(drop).collect());
    };
    let error = letter.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let buried = format!("It is a dead letter, buried {when} for {reason}{error}");
    let (what, commands) = if letter.wanted.error.is_some() {
        (
            "it is no order, so nothing can be given back of it: export it, then drop it".to_owned(),
            vec![drop(letter)],
        )
    } else if let Some((when, _)) = given_back(story, None) {
        let what =
            format!("it was given back {when}, and is not written any more: cancel deletes the letter");
        (what, vec![cancel(letter)])
    } else if is_of_another(story, letter) {
        let what = "by the journal, its id is an order of another user, so nothing can be given back of it: \
                    compare the two (see docs/runbook/id-taken.md), then drop it";
        (what.to_owned(), vec![drop(letter)])
    } else if reason == "id_taken" && !is_admitted(story, letter.wanted.user) {
        let what = "no journal says that it took units, so nothing can be given back of it: \
                    compare it with the order that has its id (see docs/runbook/id-taken.md), then drop it";
        (what.to_owned(), vec![drop(letter)])
    } else {
        let what = "mend the cause and run it again, or cancel it, which gives it back".to_owned();
        (what, vec![requeue(letter, around), cancel(letter)])
    };
    let commands = std::iter::once(show(letter)).chain(commands).collect();
    of(Place::Dead, format!("{buried}; {what}."), commands)
}

/// By a journal, this user was given the order.
fn is_admitted(story: &Story, user: Option<UserId>) -> bool {
    let is_by = |note: &JournalFacts| user.is_some_and(|user| note.by == Some(user.to_string()));
    story.journal.iter().any(|note| note.is_admission() && is_by(note))
}

/// By the journal of its voucher, the order is another user's.
fn is_of_another(story: &Story, letter: &LetterFacts) -> bool {
    let of_voucher =
        |note: &&JournalFacts| Some(note.voucher) == letter.wanted.voucher && note.is_admission();
    story.journal.iter().any(|note| of_voucher(&note)) && !is_admitted(story, letter.wanted.user)
}

fn show(letter: &LetterFacts) -> String {
    format!("tidegate dead show {}", letter.id)
}

fn requeue(letter: &LetterFacts, around: &Surroundings) -> String {
    let force = if letter.requeued >= around.requeue_limit { " --force" } else { "" };
    format!("tidegate dead requeue {}{force}", letter.id)
}

fn cancel(letter: &LetterFacts) -> String {
    format!("tidegate dead cancel {}", letter.id)
}

fn drop(letter: &LetterFacts) -> String {
    format!("tidegate dead drop {}", letter.id)
}

/// When it was given back, and by whom, as far as the journal of this voucher, or of any, tells.
fn given_back(story: &Story, voucher: Option<i64>) -> Option<(String, &str)> {
    let mut releases = story.journal.iter().filter(|note| note.is_release());
    let release = releases.find(|note| voucher.is_none_or(|voucher| is_voucher(note, voucher)))?;
    Some((moment_of(release.at_ms), release.by.as_deref().unwrap_or("somebody")))
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
    let Question { order, voucher, user, entry, budget } = &around.question;
    let hints = [
        voucher.map(|voucher| format!(" --voucher {voucher}")),
        user.map(|user| format!(" --user {user}")),
        entry.map(|entry| format!(" --entry {entry}")),
    ];
    let hints: String = hints.into_iter().flatten().collect();
    vec![format!("tidegate order show {order}{hints} --scan {}", budget.saturating_mul(100))]
}

/// Appends an order again of which only the journal is left.
fn append(story: &Story, around: &Surroundings) -> Option<String> {
    let journal = story.journal.iter().find(|journal| journal.is_admission())?;
    let user = journal.by.as_ref()?;
    let quantity = journal.change.map_or(1, i64::abs);
    let quantity = if quantity == 1 { String::new() } else { format!(" quantity {quantity}") };
    let (stream, voucher, order) = (shell_word(&around.stream), journal.voucher, around.question.order);
    Some(format!(
        "redis-cli -u \"$TIDEGATE_REDIS_URL\" XADD {stream} '*' userId {user} voucherId {voucher} id {order}{quantity}"
    ))
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
