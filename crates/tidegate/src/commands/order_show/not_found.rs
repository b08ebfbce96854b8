//! The sentence about an order that no store holds: its last trace, and what was not searched.

use tidegate_compare::text::counted;
use tidegate_operations::order_show::{Coverage, OrderRecords};

use super::times::{entry_time, time_of};

/// The sentence about an order that Redis admitted, but that is not in MySQL, the stream or the dead letters.
pub fn lost(records: &OrderRecords) -> String {
    let seen = last_seen(records);
    let unsearched = unsearched(records);
    if unsearched.is_empty() {
        return format!(
            "{seen}: the order is lost. If you append it again with the same id, it is written once."
        );
    }
    format!("{seen}. It is unknown whether the order is lost: {}.", unsearched.join("; "))
}

fn last_seen(records: &OrderRecords) -> String {
    if let Some(entry) = records.open_entry() {
        return format!("Its entry {} is pending, but its payload was deleted or trimmed", entry.id);
    }
    if let Some(entry) = records.entries.first() {
        let (id, when) = (entry.id, entry_time(entry));
        return format!(
            "Its entry {id} of {when} is acknowledged, but the order is neither written, refused nor a dead letter"
        );
    }
    let Some(note) = records.journal.first() else { return "No store holds the order".to_owned() };
    let voucher = note.voucher;
    let (Some(user), true) = (note.by.as_deref(), note.is_admission()) else {
        return format!(
            "The journal of voucher {voucher} has an unreadable note of the order, and its entry is not in the stream"
        );
    };
    let when = time_of(note.at_ms);
    format!(
        "The order was admitted {when} for user {user} and voucher {voucher}; its entry is not in the stream"
    )
}

pub fn unknown(records: &OrderRecords) -> String {
    let unsearched = unsearched(records);
    if unsearched.is_empty() {
        return "No store knows the order: it was never admitted, or its traces were deleted. A refusal (sold out, \
                paused, ...) leaves no trace: ask the caller for the reply."
            .to_owned();
    }
    format!("No trace of the order was found, but the search is incomplete: {}.", unsearched.join("; "))
}

/// The phrases about data that was not searched and may hold the order.
fn unsearched(records: &OrderRecords) -> Vec<String> {
    let Coverage { stream, dead, journals, all_journals, .. } = &records.search.coverage;
    let mut parts = Vec::new();
    for (what, searched) in [("stream", stream), ("dead letters", dead)] {
        if !searched.complete && searched.entries > 0 {
            let looked_at = counted(searched.entries, "entry");
            let down_to = searched.down_to;
            parts.push(format!(
                "of the {what}, only the newest {looked_at} were searched, down to id {down_to}"
            ));
        } else if !searched.complete {
            parts.push(format!("the {what} could not be read"));
        }
    }
    if !all_journals {
        let journals = counted(*journals, "voucher");
        parts.push(format!("only the journals of {journals} were searched, not all journals"));
    }
    if !records.search.errors.is_empty() {
        parts.push("some data could not be read".to_owned());
    }
    parts
}
