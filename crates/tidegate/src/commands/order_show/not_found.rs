//! The sentence about an order that no store holds: where it was last seen, and what was not searched.

use tidegate_compare::text::counted;
use tidegate_operations::order_show::{Coverage, OrderRecords};

use super::times::{entry_time, time_of};

/// The sentence if nothing holds the order any more, as far as was searched.
pub fn lost(records: &OrderRecords) -> String {
    let seen = last_seen(records);
    let unsearched = unsearched(records);
    if unsearched.is_empty() {
        return format!("{seen}: it is lost. Appended again with the same id, it is written once.");
    }
    format!("{seen}. Whether it is lost is unknown: {}.", unsearched.join("; "))
}

fn last_seen(records: &OrderRecords) -> String {
    if let Some(entry) = records.open_entry() {
        return format!("Its entry {} is pending, but its payload was deleted or trimmed", entry.id);
    }
    if let Some(entry) = records.entries.first() {
        let (id, when) = (entry.id, entry_time(entry));
        return format!(
            "Its entry {id} of {when} is acknowledged, but it is neither written nor refused nor buried"
        );
    }
    let Some(note) = records.journal.first() else { return "Nothing holds it".to_owned() };
    let voucher = note.voucher;
    let (Some(user), true) = (note.by.as_deref(), note.is_admission()) else {
        return format!(
            "The journal of voucher {voucher} has a note of it that cannot be read, and its entry is not there"
        );
    };
    let when = time_of(note.at_ms);
    format!("It was admitted {when} for user {user} and voucher {voucher}, and its entry is not there")
}

pub fn unknown(records: &OrderRecords) -> String {
    let unsearched = unsearched(records);
    if unsearched.is_empty() {
        return "No store knows it: it was never admitted, or every trace of it was deleted. The gate may have refused it \
                (sold out, paused, ...), which leaves no trace: ask the caller which reply came."
            .to_owned();
    }
    format!("No trace of it was found; but {}.", unsearched.join("; "))
}

/// The places that were not searched, and may hold more.
fn unsearched(records: &OrderRecords) -> Vec<String> {
    let Coverage { stream, dead, journals, all_journals, .. } = &records.search.coverage;
    let mut parts = Vec::new();
    for (what, searched) in [("stream", stream), ("dead letters", dead)] {
        if !searched.complete && searched.entries > 0 {
            let looked_at = counted(searched.entries, "entry");
            let down_to = searched.down_to;
            parts
                .push(format!("of the {what}, only {looked_at} were searched, the latest down to {down_to}"));
        } else if !searched.complete {
            parts.push(format!("the {what} could not be read"));
        }
    }
    if !all_journals {
        let journals = counted(*journals, "voucher");
        parts.push(format!("the journals of {journals} were searched, not of all"));
    }
    if !records.search.errors.is_empty() {
        parts.push("not everything could be read".to_owned());
    }
    parts
}
