//! The flags that select pending entries, and the table that shows them.

use std::time::Duration;

use clap::Args;
use tidegate_compare::text::printable;
use tidegate_operations::pending::{PendingEvent, PendingFilter, PendingView};
use tidegate_stream::NamedCause;

use crate::{output::table, times};

/// The flags that select pending entries.
#[derive(Args, Clone, Debug)]
pub struct PendingSelectionArgs {
    /// Select entries that this consumer holds
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Select entries of consumers whose process has no heartbeat
    #[arg(long, conflicts_with = "consumer")]
    dead: bool,
    /// Select entries that were added to the stream longer ago than this, such as 90m or 2h
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    older_than: Option<Duration>,
    /// Select entries that their consumer has left for later (set aside), and will retry
    #[arg(long)]
    set_aside: bool,
    /// Select entries that were in progress when a worker crashed, at least this number of times
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    crashes: Option<u64>,
    /// Select entries with at least this number of deliveries since they were last put off to a later try
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    deliveries: Option<u64>,
    /// The most entries to select, the oldest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
}

impl PendingSelectionArgs {
    /// The filter that these flags describe.
    pub fn filter(&self) -> PendingFilter {
        let Self { consumer, dead, older_than, set_aside, crashes, deliveries, limit } = self.clone();
        PendingFilter { consumer, dead, older_than, set_aside, crashes, deliveries, limit }
    }
}

/// The word which says whether a process lives: `alive` or `gone`.
pub fn life(alive: bool) -> &'static str {
    if alive { "alive" } else { "gone" }
}

/// The table of pending entries that a command shows to people.
pub fn render(entries: &[PendingView]) -> String {
    let mut table = table(&["entry", "consumer", "process", "idle", "state", "crashes", "content"]);
    for pending in entries {
        table.add_row([
            pending.entry.clone(),
            printable(&pending.consumer),
            life(pending.alive).to_owned(),
            idle(pending),
            state(pending),
            crashes(pending),
            content(pending),
        ]);
    }
    table.to_string()
}

/// The text about a pending entry: in progress, or put off to a later try, with the cause.
pub fn state(pending: &PendingView) -> String {
    match &pending.waits_for {
        _ if !pending.set_aside && pending.alive => "in progress".to_owned(),
        _ if !pending.set_aside => "was in progress".to_owned(),
        Some(NamedCause { kind, key: 0, .. }) => format!("set aside: {}", printable(kind)),
        Some(NamedCause { kind, key, .. }) => format!("set aside: {} {key}", printable(kind)),
        None => "set aside".to_owned(),
    }
}

/// The text which says how many worker processes died while they handled the entry.
pub fn crashes(pending: &PendingView) -> String {
    pending.crashes.map_or_else(|| "?".to_owned(), |crashes| crashes.to_string())
}

/// The text of the time since an entry's last delivery, or `claimable` if any worker may take the entry at once.
pub fn idle(pending: &PendingView) -> String {
    pending.idle_s.map_or_else(|| "claimable".to_owned(), |idle| format!("{idle:.1} s"))
}

/// The text about the content of an entry: its event, order, user and voucher, or why they are unknown.
pub fn content(pending: &PendingView) -> String {
    if let Some(PendingEvent { event, order, user, voucher, reference }) = &pending.content.event {
        let reference = reference.as_ref().map(|text| format!(", ref {text}")).unwrap_or_default();
        return format!("{event} of order {order} of user {user} for voucher {voucher}{reference}");
    }
    match (&pending.content.order, &pending.content.error) {
        (Some(order), _) => {
            let quantity =
                if order.quantity.get() == 1 { String::new() } else { format!(" x {}", order.quantity) };
            format!("order {} of user {} for voucher {}{quantity}", order.id, order.user, order.voucher)
        }
        (None, Some(error)) => format!("no order: {error}"),
        (None, None) => "no payload (deleted or trimmed)".to_owned(),
    }
}

/// Quotes a word for a shell, so that it can be typed in a command.
pub fn shell_word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}
