//! The status of a partition, for people.

use std::time::Duration;

use tidegate_compare::{
    reconciled::Reconciled,
    text::{printable, span},
};
use tidegate_stream::{NamedCause, SetAsideNote};

use super::{Whole, expirations};
use crate::{output::table, partitions::names, pending::life};
use tidegate_operations::{
    consumers::Consumer,
    finding::{Finding, Level},
    status::{Status, StreamView, VoucherStocks},
};

/// The text of the command `tidegate status` for one partition: tables, errors of failed reads, and advice.
pub fn render(status: &Status) -> String {
    let mut parts = Vec::new();
    parts.extend(status.no_worker.as_ref().map(no_worker));
    if let Some(pause) = &status.workers_paused {
        let lasting = pause
            .lasting_s
            .map(|lasting_s| format!(" for {}", span(Duration::from_secs_f64(lasting_s.max(0.0)))));
        let lasting = lasting.unwrap_or_default();
        parts.push(format!(
            "The workers are paused{lasting}, {}: {}; to resume them: tidegate resume --workers.",
            pause.origin(),
            pause.end()
        ));
    }
    if let Some(stream) = &status.stream {
        parts.push(numbers(stream));
        if !stream.group_exists && ["none", "stream"].contains(&stream.kind.as_str()) {
            parts.push(format!(
                "There is no consumer group {} yet: the first worker creates it.",
                stream.group
            ));
        }
        if stream.set_aside.entries > 0 {
            parts.push(waiting(&stream.set_aside));
        }
        if !stream.consumers.is_empty() {
            parts.push(consumers(&stream.consumers));
        }
    }
    parts.extend(status.expirations.as_ref().and_then(expirations::render));
    if let Some(sentence) = status.reconciled.as_ref().and_then(Reconciled::sentence) {
        parts.push(format!("{sentence}."));
    }
    if let Some(vouchers) = status.vouchers.as_ref().filter(|vouchers| !vouchers.is_empty()) {
        parts.push(stocks(vouchers));
    }
    if status.more_vouchers {
        parts.push("There are more vouchers: only the vouchers with the highest ids are shown.".to_owned());
    }
    parts.extend(status.errors.iter().map(|error| format!("error: {}", printable(error))));
    parts.join("\n\n")
}

fn no_worker(found: &Finding) -> String {
    let level = if found.level == Level::Error { "error" } else { "warning" };
    let advice = found.advice.as_deref().unwrap_or_default();
    format!("{level}: {}; {advice}", found.what)
}

/// The text of the command `tidegate status` with the sums of all partitions, and with the partitions that could not be
/// read completely.
pub fn whole(whole: &Whole) -> String {
    let Whole { all_partitions, unknown, stream } = whole;
    let more = if stream.undelivered_is_at_least { " or more" } else { "" };
    let mut table = table(&[&format!("all {} partitions", all_partitions.len()), "entries", "oldest"]);
    let undelivered = format!("{}{more}", stream.undelivered);
    table.add_row(["undelivered", &undelivered, &age(stream.oldest_undelivered_s)]);
    table.add_row(["pending", &stream.pending.to_string(), &age(stream.oldest_pending_s)]);
    table.add_row(["dead letters", &stream.dead_letters.to_string(), ""]);
    if unknown.is_empty() {
        return table.to_string();
    }
    format!(
        "{table}\n\nUNKNOWN: some values of {} could not be read, so the totals may be higher.",
        names(unknown)
    )
}

fn numbers(stream: &StreamView) -> String {
    let more = if stream.backlog.undelivered_is_at_least { " or more" } else { "" };
    let mut table = table(&[&stream.name, "entries", "oldest"]);
    table.add_row(["in the stream", &stream.length.to_string(), ""]);
    let undelivered = format!("{}{more}", stream.backlog.undelivered);
    table.add_row(["undelivered", &undelivered, &age(stream.backlog.oldest_undelivered_s)]);
    table.add_row(["pending", &stream.backlog.pending.to_string(), &age(stream.backlog.oldest_pending_s)]);
    if stream.set_aside.entries > 0 {
        table.add_row(["set aside", &stream.set_aside.entries.to_string(), ""]);
    }
    table.add_row(["dead letters", &stream.dead_letters.to_string(), ""]);
    table.to_string()
}

/// The table of the most frequent causes of set-aside entries.
fn waiting(set_aside: &SetAsideNote) -> String {
    let mut table = table(&["set aside for", "which", "entries", "since"]);
    for NamedCause { kind, key, entries, lasting_s } in &set_aside.causes {
        table.add_row([&printable(kind), &key.to_string(), &entries.to_string(), &age(Some(*lasting_s))]);
    }
    let named: usize = set_aside.causes.iter().map(|cause| cause.entries).sum();
    let others = set_aside.entries.saturating_sub(named);
    if others > 0 {
        table.add_row(["others", "", &others.to_string(), ""]);
    }
    table.to_string()
}

fn consumers(consumers: &[Consumer]) -> String {
    let mut table = table(&["consumer", "pending", "idle", "process"]);
    for consumer in consumers {
        table.add_row([
            &printable(&consumer.name),
            &consumer.pending.to_string(),
            &age(Some(consumer.idle_s)),
            life(consumer.alive),
        ]);
    }
    table.to_string()
}

fn stocks(vouchers: &[VoucherStocks]) -> String {
    let mut table = table(&["voucher", "stock in Redis", "stock in MySQL", "to deduct", "sale"]);
    for stocks in vouchers {
        let [redis, to_deduct] = [stocks.redis, stocks.to_deduct]
            .map(|units| units.map_or_else(|| "-".to_owned(), |units| units.to_string()));
        let sale = stocks.sale.words();
        table.add_row([&stocks.voucher.to_string(), &redis, &stocks.mysql.to_string(), &to_deduct, sale]);
    }
    table.to_string()
}

fn age(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("{seconds:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_consumer_and_no_error_of_a_store_steers_the_terminal() {
        let consumer = Consumer {
            name: "w\u{1b}[2J\nw-9".to_owned(),
            pending: 1,
            idle_s: 0.0,
            alive: true,
            process: None,
        };
        let errors = vec!["Redis: \u{1b}]0;x\u{7}\nfine".to_owned()];
        let text = consumers(&[consumer]) + &render(&Status { errors, ..Status::default() });
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("w [2J w-9") && text.contains("error: Redis:  ]0;x  fine"), "{text}");
    }
}
