//! The whole output of `tidegate order show`, for people.

use tidegate_compare::text::{counted, printable};
use tidegate_operations::order_show::{EntryLocation, EntryRecord, JournalRecord, OrderRecords};
use tidegate_orders::{
    event::EventOutcome,
    records::{BuriedEvent, DeadLetterRecord, EntryContent, EventRow, OrderDetails},
};

use super::{ShownOrder, sentence::status, times::mysql_time};
use crate::{
    pending::life,
    times::{utc, utc_whole},
};

/// The output text: the records of the order in each store, the status of the order, and the commands to type.
pub fn render(shown: &ShownOrder) -> String {
    let records = &shown.records;
    let mut lines = vec![line("order", &format!("{}{}", shown.order, made(records)))];
    match records.journal.as_slice() {
        [] => lines.push(line("journal", "nothing")),
        journal => lines.extend(journal.iter().map(|journal| line("journal", &noted(journal)))),
    }
    match (records.entries.as_slice(), records.search.trimmed.as_slice()) {
        ([], []) => lines.push(line("stream", "nothing")),
        (entries, trimmed) => {
            lines.extend(entries.iter().map(|entry| line("stream", &entry_text(entry))));
            lines.extend(trimmed.iter().map(|id| line("stream", &format!("{id}: not there any more"))));
        }
    }
    match records.letters.as_slice() {
        [] if !records.buried_events.is_empty() => {}
        [] => lines.push(line("dead", "nothing")),
        letters => lines.extend(letters.iter().map(|letter| line("dead", &letter_text(letter)))),
    }
    lines.extend(records.buried_events.iter().map(|event| line("dead", &buried_event_text(event))));
    lines.extend(mysql(records));
    lines.extend(records.events.iter().map(|event| line("event", &event_text(event))));
    if let Some(user) = shown.user {
        let vouchers: Vec<String> = records.buyer_of.iter().map(ToString::to_string).collect();
        let of = if vouchers.is_empty() {
            "is no buyer".to_owned()
        } else {
            format!("is a buyer of {}", vouchers.join(", "))
        };
        lines.push(line("buyers", &format!("user {user} {of}")));
    }
    if let Some(lock) = &records.lock {
        let ends = lock.ends_in_ms.map_or_else(|| "never ends".to_owned(), |ms| format!("ends in {ms} ms"));
        let holder = lock.holder.as_deref().unwrap_or("another program (unknown layout)");
        lines.push(line("lock", &format!("held by {holder}, {ends}")));
    }
    lines.extend(records.search.errors.iter().map(|error| line("error", error)));
    lines.push(String::new());
    lines.push(shown.conclusion.sentence.clone());
    lines.extend(shown.conclusion.commands.iter().map(|command| format!("  {command}")));
    lines.extend(shown.note.clone());
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

fn line(name: &str, text: &str) -> String {
    format!("{name:<9}{text}")
}

fn made(records: &OrderRecords) -> String {
    let ms = records.made_ms.and_then(|ms| i64::try_from(ms).ok());
    ms.map_or_else(String::new, |ms| format!(", made {} (as its id says)", utc(ms)))
}

fn mysql(records: &OrderRecords) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(details) = &records.row {
        let OrderDetails { row, paid_ms, used_ms, refunded_ms, updated_ms } = details;
        let units = counted(row.quantity, "unit");
        let mut text = format!("user {}, voucher {}, {units}, {}", row.user, row.voucher, status(row.status));
        let times = [
            ("written", row.created_ms),
            ("paid", *paid_ms),
            ("used", *used_ms),
            ("refunded", *refunded_ms),
            ("changed", updated_ms.filter(|ms| Some(*ms) != row.created_ms)),
        ];
        for (what, ms) in times.iter().filter_map(|(what, ms)| Some((what, (*ms)?))) {
            text += &format!(", {what} {}", utc_whole(ms));
        }
        text += &row.entry.as_ref().map_or_else(String::new, |entry| format!(", from entry {entry}"));
        lines.push(line("MySQL", &text));
    }
    if let Some(it) = &records.refusal {
        let units = counted(it.quantity, "unit");
        let at = it.at_ms.map(utc_whole).unwrap_or_default();
        let entry = it.entry.map_or_else(|| "unknown".to_owned(), |entry| entry.to_string());
        let text = format!(
            "refused {at}: {}; user {}, voucher {}, {units}, entry {entry}",
            it.reason, it.user, it.voucher
        );
        lines.push(line("MySQL", &text));
    }
    if lines.is_empty() {
        lines.push(line(
            "MySQL",
            if records.search.coverage.mysql { "nothing" } else { "could not be queried" },
        ));
    }
    lines
}

/// A line about an event: its time, its kind, its outcome, and its cause.
fn event_text(event: &EventRow) -> String {
    let when = mysql_time(event.at_ms);
    let EventRow { event: what, outcome, entry, moved, .. } = event;
    let mut text = match EventOutcome::from_word(outcome) {
        EventOutcome::Rejected(_) => format!("{when}: {what}, rejected ({outcome})"),
        _ => format!("{when}: {what}, {outcome}"),
    };
    if let Some(to) = moved.to {
        let from = moved.from.map_or_else(|| "not written".to_owned(), status);
        text += &format!(" ({from} -> {})", status(to));
    }
    for (name, value) in [("ref", &event.reference), ("payment", &event.payment), ("reason", &event.reason)] {
        text += &value.as_ref().map(|value| format!(", {name} {value}")).unwrap_or_default();
    }
    if moved.released > 0 {
        text += &format!(", {} released", counted(moved.released, "unit"));
    }
    format!("{text}, entry {entry}")
}

fn noted(journal: &JournalRecord) -> String {
    let at = journal.at_ms.map(utc).unwrap_or_default();
    let by = journal.by.as_deref().unwrap_or("somebody");
    let units = counted(journal.change.unwrap_or(0).abs(), "unit");
    let voucher = journal.voucher;
    if journal.is_admission() {
        let restored = journal.repaired.as_ref().map(|repair| format!(", restored by {repair}"));
        let restored = restored.unwrap_or_default();
        return format!("voucher {voucher}: admitted {at}, user {by}, {units} taken{restored}");
    }
    if journal.is_release() {
        return format!("voucher {voucher}: released {at} by {by}, {units} raised");
    }
    format!("voucher {voucher}: a note that cannot be read")
}

fn entry_text(entry: &EntryRecord) -> String {
    let at = utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX));
    let state = match &entry.state {
        EntryLocation::Undelivered => "not read yet".to_owned(),
        EntryLocation::Settled => "acknowledged".to_owned(),
        EntryLocation::Pending { consumer, alive, idle_ms, deliveries, crashes } => {
            let idle = idle_ms.map_or_else(
                || "claimable".to_owned(),
                |ms| format!("for {:.1} s", std::time::Duration::from_millis(ms).as_secs_f64()),
            );
            let process = life(*alive);
            let standing = if *deliveries == 0 { "set aside" } else { "in progress" };
            let crashes = if *crashes > 0 { format!(", crashes: {crashes}") } else { String::new() };
            format!("pending with {consumer} ({process}), {idle}, {standing}{crashes}")
        }
    };
    let content = entry.content.as_ref().map_or_else(|| "payload gone".to_owned(), content_text);
    format!("{}, added {at}: {content}; {state}", entry.id)
}

fn letter_text(letter: &DeadLetterRecord) -> String {
    let at = letter.at_ms.map(utc).unwrap_or_default();
    let reason = letter.reason.as_deref().unwrap_or("no reason");
    let error = letter.error.as_deref().unwrap_or_default();
    let entry = letter.entry.map_or_else(|| "unknown".to_owned(), |entry| entry.to_string());
    format!("{}, buried {at}: {reason}: {error}; entry {entry}, {}", letter.id, content_text(&letter.content))
}

fn buried_event_text(BuriedEvent { letter, at_ms, reason, event, reference }: &BuriedEvent) -> String {
    let at = at_ms.map(utc).unwrap_or_default();
    let reference = reference.as_ref().map(|text| format!(", ref {text}")).unwrap_or_default();
    format!(
        "{letter}, buried {at}: {}; its event {event}{reference}",
        reason.as_deref().unwrap_or("no reason")
    )
}

fn content_text(content: &EntryContent) -> String {
    match (content.user, content.voucher, &content.error) {
        (.., Some(error)) => format!("no order: {error}"),
        (Some(user), Some(voucher), None) => {
            format!("user {user}, voucher {voucher}, {}", counted(content.quantity, "unit"))
        }
        _ => "no order".to_owned(),
    }
}
