//! The state of an order and the next steps, in words.

use tidegate_compare::text::counted;
use tidegate_operations::order_show::{
    EntryLocation, EntryRecord, JournalRecord, NextStep, OrderRecords, OrderReport,
};
use tidegate_orders::{
    OrderStatus, RowState,
    order_status::{Advice, JournalFact, LetterFact},
    records::{BuriedEvent, DeadLetterRecord, EventRow, OrderRow, RefusalRow},
};

use super::{
    not_found::{lost, unknown},
    times::{entry_time, mysql_time, time_of},
};

/// The sentence that explains an order. Other workers claim entries after `claim_idle_ms`.
pub fn sentence(report: &OrderReport, claim_idle_ms: u64) -> String {
    let records = &report.records;
    let status = report.status_without_mysql();
    let sentence = match (&records.row, &records.refusal) {
        (Some(it), _) => with_row(report, &it.row),
        (None, Some(refusal)) => refused(report, refusal),
        (None, None) => undecided(report, status, claim_idle_ms),
    };
    let sentence = sentence + &payments_due(records) + &buried_events(records);
    if report.status == OrderStatus::Unsure && status != OrderStatus::Unsure {
        return format!("{sentence} But MySQL could not be queried: the order may be written nevertheless.");
    }
    sentence
}

/// The sentence about an order that MySQL does not hold.
fn undecided(report: &OrderReport, status: OrderStatus, claim_idle_ms: u64) -> String {
    let records = &report.records;
    match status {
        OrderStatus::Pending | OrderStatus::Undelivered => in_flight(report, claim_idle_ms),
        OrderStatus::Dead => records.letters.first().map_or_else(String::new, |it| dead(report, it)),
        OrderStatus::Released => released_only(records),
        OrderStatus::Unknown => unknown(records),
        OrderStatus::Mismatched | OrderStatus::Lost | OrderStatus::Unsure => lost(records),
        // Only a row or a refusal leads to these.
        OrderStatus::Written | OrderStatus::Cancelled | OrderStatus::Contradictory | OrderStatus::Refused => {
            lost(records)
        }
    }
}

fn with_row(report: &OrderReport, row: &OrderRow) -> String {
    let units = if row.quantity == 1 { String::new() } else { format!(" ({} units)", row.quantity) };
    let order = format!("order {} of user {} for voucher {}{units}", row.order, row.user, row.voucher);
    let (when, status) = (mysql_time(row.created_ms), status(row.status));
    let mut sentence = match row.state() {
        RowState::Live => format!("It is written: {order}, {when}, {status}.") + &live(report, row),
        RowState::Cancelled => {
            let sentence = format!("It is {status}: {order}, whose row is of {when}, counts no units.");
            sentence + &cancelled(report, row)
        }
        RowState::Contradictory => {
            let slot = row.slot.map_or_else(|| "no slot".to_owned(), |slot| format!("slot {slot}"));
            format!(
                "It is neither live nor cancelled: {order}, whose row is of {when}, has {slot} and is {status}. That does \
                 not show whether its units were released (see \
                 docs/runbook/audit-fails.md#orders-are-neither-live-nor-cancelled)."
            )
        }
    };
    let open = report.records.open_entry();
    if let Some(entry) = open {
        sentence += &format!(
            " Its entry {} is still open: the next worker that handles it only acknowledges it.",
            entry.id
        );
    }
    for letter in report.records.letters.iter().filter(|letter| !letter.is_order_of(row.user, row.voucher)) {
        let who = match letter.content.user {
            Some(user) if user.get() != row.user => format!("of user {user} has the same id"),
            _ => "has the same id".to_owned(),
        };
        sentence += &format!(" A dead letter {who}: {}.", letter.id);
    }
    if report.next_steps.is_empty() && report.records.payments_due().next().is_none() {
        sentence += " Nothing is to be done.";
    }
    let waits =
        open.filter(|entry| matches!(entry.state, EntryLocation::Undelivered) && !report.workers_live);
    if let Some(entry) = waits {
        sentence += &format!(" Entry {} waits for a worker to be started.", entry.id);
    }
    sentence
}

/// The payments that have to be refunded.
fn payments_due(records: &OrderRecords) -> String {
    let payment = |event: &EventRow| match &event.reference {
        Some(reference) => format!(" Its payment {reference} has to be refunded."),
        None => " A payment of it without a ref has to be refunded.".to_owned(),
    };
    records.payments_due().map(payment).collect()
}

/// The events of the order that were buried and not recorded.
fn buried_events(records: &OrderRecords) -> String {
    let event = |it: &BuriedEvent| format!(" Its event {} is a dead letter: {}.", it.event, it.letter);
    records.buried_events.iter().map(event).collect()
}

/// The additions for an order that is live.
fn live(report: &OrderReport, row: &OrderRow) -> String {
    let mut sentence = String::new();
    if let Some((when, by)) = released(&report.records, Some(row.voucher)) {
        sentence +=
            &format!(" It was released to Redis nevertheless ({when} by {by}): its units are sold twice.");
    }
    for letter in own_letters(report, row) {
        sentence += &format!(" A dead letter of it is left, {}, which can be deleted.", letter.id);
    }
    sentence
}

/// The additions for an order that has ended.
fn cancelled(report: &OrderReport, row: &OrderRow) -> String {
    let ids: Vec<String> = own_letters(report, row).map(|letter| letter.id.to_string()).collect();
    let ids = ids.join(", ");
    if let Some((when, by)) = released(&report.records, Some(row.voucher)) {
        return match ids.as_str() {
            "" => format!(" It was released to Redis {when} by {by}."),
            ids => {
                format!(" It was released to Redis {when} by {by}; its dead letter {ids} can be deleted.")
            }
        };
    }
    if report.facts.journal == JournalFact::Other {
        return " By the journal, its id is an order of another user, so nothing can be released by it \
                (see docs/runbook/id-taken.md)."
            .to_owned();
    }
    if !ids.is_empty() {
        return format!(
            " It was not released to Redis: that is done when its dead letter {ids} is cancelled."
        );
    }
    if report.next_steps.iter().any(|step| matches!(step, NextStep::Release { .. })) {
        return " In Redis, it still holds its units, and its user is barred, until lua/release.lua releases it. \
                Unless the program that cancelled it has done that in another way, run the script from the \
                directory that has lua/; with 0 for its last 1 if the user has another live order for this \
                voucher."
            .to_owned();
    }
    String::new()
}

fn own_letters<'a>(report: &'a OrderReport, row: &OrderRow) -> impl Iterator<Item = &'a DeadLetterRecord> {
    let (user, voucher) = (row.user, row.voucher);
    report.records.letters.iter().filter(move |letter| letter.is_order_of(user, voucher))
}

fn refused(report: &OrderReport, refusal: &RefusalRow) -> String {
    let why = match refusal.reason.as_str() {
        "out_of_stock" => "MySQL had no unit left for it",
        "user_has_order" => "its user had an order for this voucher already",
        other => other,
    };
    let records = &report.records;
    let mut letters = records.letters.iter();
    let letter = letters.find(|letter| letter.is_order_of(refusal.user, refusal.voucher));
    let letter = letter.map(|letter| letter.id.to_string()).unwrap_or_default();
    let back = match (report.facts.advice(), released(records, Some(refusal.voucher))) {
        (Advice::DeleteLetter, Some((when, _))) => {
            format!(
                "it was released to Redis {when}. Its dead letter {letter} can be deleted: cancel does that."
            )
        }
        (_, Some((when, _))) => format!("it was released to Redis {when}."),
        (Advice::Release, None) => {
            format!("it was not released to Redis. That is done when its dead letter {letter} is cancelled.")
        }
        (Advice::Audit, None) => "no journal shows whether it was released to Redis.".to_owned(),
        (Advice::RunAgain, None) => "it was not released to Redis. Handled once more, it is.".to_owned(),
        _ => {
            let worker = if report.workers_live { "a worker" } else { "the first worker that is started" };
            let entry = records.entry_to_handle().map(|entry| entry.id.to_string()).unwrap_or_default();
            format!("{worker} releases it to Redis when it handles entry {entry}.")
        }
    };
    let when = mysql_time(refusal.at_ms);
    format!("It was refused {when}: {why}; {back} A new attempt needs a new order id.")
}

fn in_flight(report: &OrderReport, claim_idle_ms: u64) -> String {
    let records = &report.records;
    let Some(entry) = records.entry_to_handle() else { return String::new() };
    let mut sentence = match &entry.state {
        EntryLocation::Pending { crashes, .. } => {
            let mut sentence = pending(report, entry, claim_idle_ms);
            if *crashes > 0 {
                let workers = counted(*crashes, "worker");
                sentence += &format!(
                    " {workers} died with it in progress (see docs/runbook/dead-letters.md#workers-die)."
                );
            }
            sentence
        }
        EntryLocation::Undelivered | EntryLocation::Settled => undelivered(report, entry),
    };
    if let Some(error) = entry.content.as_ref().and_then(|content| content.error.as_ref()) {
        sentence += &format!(" It is no order ({error}): the next worker that handles it buries it.");
    } else if let Some((when, _)) = released(records, None) {
        sentence += &format!(
            " It was released {when}, but its entry in the stream is written nevertheless, and its units are sold twice."
        );
    }
    for letter in &records.letters {
        sentence += &format!(" A dead letter of it is there, too: {}.", letter.id);
    }
    sentence
}

fn undelivered(report: &OrderReport, entry: &EntryRecord) -> String {
    let waits = format!("It waits in the stream since {}, as entry {}", entry_time(entry), entry.id);
    match report.workers_live {
        true => format!("{waits}: a worker writes it when its turn comes."),
        false => format!("{waits}, and no living worker reads the stream: start one."),
    }
}

fn pending(report: &OrderReport, entry: &EntryRecord, claim_idle_ms: u64) -> String {
    let EntryLocation::Pending { consumer, alive, idle_ms, deliveries, .. } = &entry.state else {
        return String::new();
    };
    let holds = format!("It is pending: {consumer} holds entry {}", entry.id);
    if *alive {
        return format!("{holds}, is alive, {}.", in_progress(&report.records, *deliveries));
    }
    match (idle_ms, report.workers_live) {
        (_, false) => format!("{holds}, is gone, and no living worker reads the stream: start one."),
        (None, true) => {
            format!("{holds}, is gone, and it is claimable: the next worker that scans takes it.")
        }
        (Some(idle_ms), true) => {
            let left = seconds(i64::try_from(claim_idle_ms.saturating_sub(*idle_ms)).unwrap_or(0));
            format!(
                "{holds}, and is gone: another worker takes it in about {left:.0} s, or at once after \
                 tidegate consumers drain."
            )
        }
    }
}

/// The reason why a live consumer has not written the entry yet. An entry that is set aside has no deliveries.
fn in_progress(records: &OrderRecords, deliveries: u64) -> String {
    let is_set_aside = deliveries == 0;
    let lock = records.lock.as_ref().filter(|lock| {
        let is_ours = lock.holder.as_ref().is_some_and(|holder| holder.starts_with("tidegate-"));
        !is_ours || is_set_aside
    });
    let Some(lock) = lock else {
        return match is_set_aside {
            true => "and has set it aside: it waits for its turn, for a store that is away, or for a lock or row that \
                     another session holds (see `tidegate status`), and is retried",
            false => "and has it in progress: nothing is to be done",
        }
        .to_owned();
    };
    let holder = lock.holder.as_deref().unwrap_or("a program whose lock is no string");
    let ends = lock.ends_in_ms.map_or_else(
        || "never ends by itself (see docs/runbook/entries-are-set-aside.md#a-lock-is-stuck)".to_owned(),
        |ms| format!("ends in {:.0} s unless it is renewed", seconds(ms)),
    );
    format!("and waits for the lock of its user, which {holder} holds; it {ends}")
}

fn released_only(records: &OrderRecords) -> String {
    let (when, by) = released(records, None).unwrap_or_default();
    format!("It was released {when} by {by}, and is not written. A new attempt needs a new order id.")
}

fn dead(report: &OrderReport, letter: &DeadLetterRecord) -> String {
    let Some(reason) = &letter.reason else {
        return format!("It is among the dead letters, where another program wrote it ({}).", letter.id);
    };
    let when = time_of(letter.at_ms);
    let error = letter.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let what = match (report.facts.letter, report.facts.journal) {
        (LetterFact::NoOrder, _) => {
            "it is no order, so nothing of it can be released: export it, then drop it".to_owned()
        }
        (_, JournalFact::Released) => {
            let voucher = letter.content.voucher.map(|voucher| voucher.get());
            let (when, _) = released(&report.records, voucher).unwrap_or_default();
            format!("it was released {when}, and is not written any more: cancel deletes the letter")
        }
        (_, JournalFact::Other) => {
            "by the journal, its id is an order of another user, so nothing of it can be released: \
             compare the two (see docs/runbook/id-taken.md), then drop it"
                .to_owned()
        }
        (LetterFact::IdTaken, JournalFact::Nothing) => {
            "no journal says that it took units, so nothing of it can be released: \
             compare it with the order that has its id (see docs/runbook/id-taken.md), then drop it"
                .to_owned()
        }
        _ => "fix the cause and run it again, or cancel it, which releases it".to_owned(),
    };
    format!("It is a dead letter, buried {when} for {reason}{error}; {what}.")
}

/// When and by whom the order was released, by the journal of this voucher or of any.
fn released(records: &OrderRecords, voucher: Option<i64>) -> Option<(String, &str)> {
    let is_its = |note: &&JournalRecord| {
        note.is_release() && voucher.is_none_or(|voucher| note.voucher.get() == voucher)
    };
    let release = records.journal.iter().find(is_its)?;
    Some((time_of(release.at_ms), release.by.as_deref().unwrap_or("somebody")))
}

fn seconds(ms: i64) -> f64 {
    std::time::Duration::from_millis(ms.unsigned_abs()).as_secs_f64()
}

/// The status numbers of the tutorial, in words.
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
