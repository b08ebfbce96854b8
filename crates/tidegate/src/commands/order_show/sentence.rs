//! The sentences about the status of an order and the next steps.

use tidegate_compare::text::counted;
use tidegate_operations::order_show::{
    EntryLocation, EntryRecord, JournalRecord, NextStep, OrderRecords, OrderReport,
};
use tidegate_orders::{
    OrderStatus, RowState,
    order_status::{Advice, JournalFact, LetterFact},
    records::{BuriedEvent, DeadLetterRecord, EventRow, OrderRow, RefusalRow},
    user_lock::is_worker,
};

use super::{
    not_found::{lost, unknown},
    times::{entry_time, mysql_time, time_of},
};

/// The sentences that explain the status of an order to an operator. `claim_idle_ms` is the time after which other
/// workers may claim an entry.
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
        return format!("{sentence} But MySQL could not be queried, so the order may be written.");
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
            let sentence = format!("It is {status}: {order}. Its row is of {when}, and counts no units.");
            sentence + &cancelled(report, row)
        }
        RowState::Contradictory => {
            let slot = row.slot.map_or_else(|| "no slot".to_owned(), |slot| format!("slot {slot}"));
            format!(
                "It is neither live nor cancelled: {order} has {slot} and is {status}. Its row is of {when}. It is \
                 unknown whether its units were released (see \
                 docs/runbook/audit-fails.md#orders-are-neither-live-nor-cancelled)."
            )
        }
    };
    let open = report.records.open_entry();
    if let Some(entry) = open {
        sentence += &format!(
            " Its entry {} is not acknowledged yet: the next worker that handles this entry only acknowledges it.",
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
        sentence += " You need not do anything.";
    }
    let waits =
        open.filter(|entry| matches!(entry.state, EntryLocation::Undelivered) && !report.workers_live);
    if let Some(entry) = waits {
        sentence += &format!(" Entry {} waits until you start a worker.", entry.id);
    }
    sentence
}

/// The payments that have to be refunded.
fn payments_due(records: &OrderRecords) -> String {
    let payment = |event: &EventRow| match &event.reference {
        Some(reference) => format!(" Its payment {reference} has to be refunded."),
        None => " A payment of this order without a ref has to be refunded.".to_owned(),
    };
    records.payments_due().map(payment).collect()
}

/// The events of the order that were buried and not recorded.
fn buried_events(records: &OrderRecords) -> String {
    let event = |it: &BuriedEvent| format!(" Its event {} is a dead letter: {}.", it.event, it.letter);
    records.buried_events.iter().map(event).collect()
}

/// The sentences that are added for a live order.
fn live(report: &OrderReport, row: &OrderRow) -> String {
    let mut sentence = String::new();
    if let Some((when, by)) = released(&report.records, Some(row.voucher)) {
        sentence +=
            &format!(" But it was also released in Redis ({when} by {by}): its units can be sold twice.");
    }
    for letter in own_letters(report, row) {
        sentence += &format!(" Its dead letter {} can be deleted.", letter.id);
    }
    sentence
}

/// The sentences that are added for a cancelled or refunded order.
fn cancelled(report: &OrderReport, row: &OrderRow) -> String {
    let ids: Vec<String> = own_letters(report, row).map(|letter| letter.id.to_string()).collect();
    let ids = ids.join(", ");
    if let Some((when, by)) = released(&report.records, Some(row.voucher)) {
        return match ids.as_str() {
            "" => format!(" It was released in Redis {when} by {by}."),
            ids => {
                format!(" It was released in Redis {when} by {by}; its dead letter {ids} can be deleted.")
            }
        };
    }
    if report.facts.journal == JournalFact::Other {
        return " In the journal, the order id belongs to another user, so no units can be released \
                (see docs/runbook/id-taken.md)."
            .to_owned();
    }
    if !ids.is_empty() {
        return format!(" It was not released in Redis: to release it, cancel its dead letter {ids}.");
    }
    if report.next_steps.iter().any(|step| matches!(step, NextStep::Release { .. })) {
        return " In Redis, the order still holds its units, and its user cannot order again. If the program \
                that cancelled the order has not released it in another way, run lua/release.lua as below, in \
                the directory that has lua/. If the user has another live order for this voucher, type 0 instead \
                of the last 1."
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
        "out_of_stock" => "MySQL had too few units left",
        "user_has_order" => "its user had an order for this voucher already",
        other => other,
    };
    let records = &report.records;
    let mut letters = records.letters.iter();
    let letter = letters.find(|letter| letter.is_order_of(refusal.user, refusal.voucher));
    let letter = letter.map(|letter| letter.id.to_string()).unwrap_or_default();
    let back = match (report.facts.advice(), released(records, Some(refusal.voucher))) {
        (Advice::DeleteLetter, Some((when, _))) => {
            format!("it was released in Redis {when}. To delete its dead letter {letter}, cancel the letter.")
        }
        (_, Some((when, _))) => format!("it was released in Redis {when}."),
        (Advice::Release, None) => {
            format!("it was not released in Redis. To release it, cancel its dead letter {letter}.")
        }
        (Advice::Audit, None) => "no journal shows whether it was released in Redis.".to_owned(),
        (Advice::RunAgain, None) => {
            "it was not released in Redis. To release it, replay its entry.".to_owned()
        }
        _ => {
            let worker = if report.workers_live { "a worker" } else { "the first worker that you start" };
            let entry = records.entry_to_handle().map(|entry| entry.id.to_string()).unwrap_or_default();
            format!("{worker} releases it in Redis after it has read entry {entry}.")
        }
    };
    let when = mysql_time(refusal.at_ms);
    format!("It was refused {when}: {why}; {back} To order again, use a new order id.")
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
                    " {workers} died with the entry in progress (see docs/runbook/dead-letters.md#workers-die)."
                );
            }
            sentence
        }
        EntryLocation::Undelivered | EntryLocation::Settled => undelivered(report, entry),
    };
    if let Some(error) = entry.content.as_ref().and_then(|content| content.error.as_ref()) {
        sentence +=
            &format!(" The entry is no order ({error}): the next worker that handles the entry buries it.");
    } else if let Some((when, _)) = released(records, None) {
        sentence += &format!(
            " It was released {when}, but its entry is in the stream: workers will write it and sell its units twice."
        );
    }
    for letter in &records.letters {
        sentence += &format!(" The order also has a dead letter: {}.", letter.id);
    }
    sentence
}

fn undelivered(report: &OrderReport, entry: &EntryRecord) -> String {
    let waits =
        format!("It has been waiting in the stream since {}, as entry {}", entry_time(entry), entry.id);
    match report.workers_live {
        true => format!("{waits}: a worker writes it when its turn comes."),
        false => format!("{waits}, and no living worker reads the stream: start a worker."),
    }
}

fn pending(report: &OrderReport, entry: &EntryRecord, claim_idle_ms: u64) -> String {
    let EntryLocation::Pending { consumer, alive, idle_ms, deliveries, .. } = &entry.state else {
        return String::new();
    };
    let holds = format!("It is pending: {consumer} holds entry {}", entry.id);
    if *alive {
        return format!("{holds}, is alive {}.", in_progress(&report.records, *deliveries));
    }
    match (idle_ms, report.workers_live) {
        (_, false) => format!("{holds} but is gone, and no living worker reads the stream: start a worker."),
        (None, true) => {
            format!("{holds} but is gone. The entry is claimable: the next worker that scans takes it.")
        }
        (Some(idle_ms), true) => {
            let left = seconds(i64::try_from(claim_idle_ms.saturating_sub(*idle_ms)).unwrap_or(0));
            format!(
                "{holds} but is gone: another worker takes the entry in about {left:.0} s, or at once after \
                 tidegate consumers drain."
            )
        }
    }
}

/// The phrase about why a live consumer has not written the entry yet. An entry that is set aside has 0 deliveries.
fn in_progress(records: &OrderRecords, deliveries: u64) -> String {
    let is_set_aside = deliveries == 0;
    let lock = records.lock.as_ref().filter(|lock| {
        let is_ours = lock.holder.as_deref().is_some_and(is_worker);
        !is_ours || is_set_aside
    });
    let Some(lock) = lock else {
        return match is_set_aside {
            true => "and has set the entry aside: it retries the entry later. The entry waits for its turn, for a \
                     store, or for a lock or row of another session (see `tidegate status`)",
            false => "and has the entry in progress: you need not do anything",
        }
        .to_owned();
    };
    let holder = lock.holder.as_deref().unwrap_or("a program whose lock has an unknown layout");
    let ends = lock.ends_in_ms.map_or_else(
        || "never expires (see docs/runbook/entries-are-set-aside.md#a-lock-is-stuck)".to_owned(),
        |ms| format!("expires in {:.0} s unless it is renewed", seconds(ms)),
    );
    format!("and waits for the lock of the user. {holder} holds the lock, which {ends}")
}

fn released_only(records: &OrderRecords) -> String {
    let (when, by) = released(records, None).unwrap_or_default();
    format!("It was released {when} by {by}, and is not written. To order again, use a new order id.")
}

fn dead(report: &OrderReport, letter: &DeadLetterRecord) -> String {
    let Some(reason) = &letter.reason else {
        return format!(
            "It is among the dead letters ({}), where another program, not Tidegate, wrote it.",
            letter.id
        );
    };
    let when = time_of(letter.at_ms);
    let error = letter.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let what = match (report.facts.letter, report.facts.journal) {
        (LetterFact::NoOrder, _) => {
            "the letter holds no order, so no units can be released: export it, then drop it".to_owned()
        }
        (_, JournalFact::Released) => {
            let voucher = letter.content.voucher.map(|voucher| voucher.get());
            let (when, _) = released(&report.records, voucher).unwrap_or_default();
            format!(
                "the order was released {when} and will not be written: tidegate dead cancel deletes the letter"
            )
        }
        (_, JournalFact::Other) => {
            "in the journal, its order id belongs to another user, so no units can be released: \
             compare both orders (see docs/runbook/id-taken.md), then drop the letter"
                .to_owned()
        }
        (LetterFact::IdTaken, JournalFact::Nothing) => {
            "no journal shows that the order took units, so no units can be released: \
             compare the order with the other order of this id (see docs/runbook/id-taken.md), then drop the letter"
                .to_owned()
        }
        _ => "fix the cause and requeue the letter; or cancel it, to release the order".to_owned(),
    };
    format!("It is a dead letter since {when}, for the reason {reason}{error}; {what}.")
}

/// When and by whom the order was released, according to the journals. With `voucher`, only its journal counts.
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

/// The word for a number in the column `status` of the tutorial's table of orders.
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
