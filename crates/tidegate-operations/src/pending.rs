//! Pending entries: which ones are chosen, which consumer holds them, and what they hold.

pub mod bury;
pub mod claim;
mod list;
mod reader;
mod show;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use tidegate_orders::{
    EventKind, LOST_IN_MYSQL, Order, OrderId, UserId, VoucherId,
    event::{Event, EventText},
    keys::process_of,
};
use tidegate_stream::{NamedCause, SetAsideNote};

pub use list::PendingList;
pub use reader::{PendingReader, PendingSelection};
pub use show::{EntryState, ShownEntry};

/// The conditions that select pending entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingFilter {
    /// The consumer that must hold the entries; None: any consumer.
    pub consumer: Option<String>,
    /// Whether to select only entries whose consumer has no heartbeat.
    pub dead: bool,
    /// The minimum time since the entry was added to the stream; None: any time.
    pub older_than: Option<Duration>,
    /// Whether to select only entries that a worker keeps pending to try them again later.
    pub set_aside: bool,
    /// The minimum number of worker processes that died while they handled the entry; None: any number.
    pub crashes: Option<u64>,
    /// The minimum number of deliveries of the entry; None: any number. Deliveries count from the last time that a
    /// worker put the entry off to a later try.
    pub deliveries: Option<u64>,
    /// The highest number of entries to select, oldest first.
    pub limit: u16,
}

impl PendingFilter {
    /// Returns whether the filter has no condition except the limit, so that all entries match.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        *self == Self { limit: self.limit, ..Self::default() }
    }
}

/// The kind of content of a pending entry: an order, an event, or unreadable content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The entry holds an order.
    Order,
    /// The entry holds an event of an order.
    Event,
    /// The entry holds neither an order nor an event.
    NoOrder,
    /// The entry was deleted or trimmed.
    Gone,
}

/// An order event in a pending entry, with the fields that the command shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingEvent {
    /// The kind of the event.
    pub event: EventKind,
    /// The order that the event is about.
    pub order: OrderId,
    /// The user of the order.
    pub user: UserId,
    /// The voucher of the order.
    pub voucher: VoucherId,
    /// The id (`ref`) that the sender gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl From<Event> for PendingEvent {
    fn from(Event { kind: event, order, user, voucher, reference, .. }: Event) -> Self {
        Self { event, order, user, voucher, reference }
    }
}

/// A pending entry, with the values that the command shows.
#[derive(Clone, Debug, Serialize)]
pub struct PendingView {
    /// The id of the entry.
    pub entry: String,
    /// The name of the consumer that holds the entry.
    pub consumer: String,
    /// Whether the worker process of the consumer has a heartbeat.
    pub alive: bool,
    /// The seconds since the entry was last delivered; None: any worker may claim the entry now.
    pub idle_s: Option<f64>,
    /// Whether `tidegate consumers drain` has offered the entry to all workers, and no worker has claimed the entry
    /// yet.
    pub offered: bool,
    /// The number of deliveries of the entry, counted from the last time that a worker put the entry off to a later
    /// try.
    pub deliveries: u64,
    /// Whether the worker put the entry off to a later try, because the entry waits for an earlier entry, an
    /// unavailable store, or a lock of another process.
    pub set_aside: bool,
    /// The reason why the entry waits for a later try. None: the worker has not reported the reason for this entry.
    pub waits_for: Option<NamedCause>,
    /// The number of worker processes that died while they handled the entry; None: the Redis user may not read this
    /// number.
    pub crashes: Option<u64>,
    /// The seconds since the entry was added to the stream.
    pub age_s: f64,
    /// The content of the entry.
    #[serde(flatten)]
    pub content: PendingContent,
}

/// The content of a pending entry: an order, an event, or the error if the content is neither.
#[derive(Clone, Debug, Serialize)]
pub struct PendingContent {
    /// The kind of the content: an order, an event, or unreadable content.
    pub payload: Payload,
    /// The order in the entry; None: the entry does not hold an order.
    pub order: Option<Order>,
    /// The event in the entry; None: the entry does not hold an event.
    pub event: Option<PendingEvent>,
    /// The reason why the entry holds neither an order nor an event.
    pub error: Option<String>,
}

impl PendingView {
    fn with_cause(self, notes: &BTreeMap<String, SetAsideNote>) -> Self {
        let note = notes.get(process_of(&self.consumer)).filter(|_| self.set_aside);
        let waits_for = note.and_then(|note| cause(note, &self.keys()));
        Self { waits_for, ..self }
    }

    /// Returns the causes for which the entry may wait, in the order in which a worker checks them: it stops at the
    /// first one.
    fn keys(&self) -> Vec<(&'static str, i64)> {
        let of_order = self.content.order.as_ref().map(|it| (it.id, it.user, it.voucher));
        let of_event = self.content.event.as_ref().map(|it| (it.order, it.user, it.voucher));
        let Some((order, user, voucher)) = of_order.or(of_event) else { return Vec::new() };
        let others = [
            ("user_lock", user.get()),
            ("voucher_row", voucher.get()),
            ("order_row", order.get()),
            ("node_behind", 0),
            (LOST_IN_MYSQL, voucher.get()),
            ("release", voucher.get()),
        ];
        let earlier = self.content.event.is_some().then_some(("earlier_entry", order.get()));
        earlier.into_iter().chain(others).collect()
    }
}

/// Returns the cause for which an entry waits that its process has set aside. The process notes the causes of most of
/// its entries, but not which entry waits for which cause.
fn cause(note: &SetAsideNote, its_keys: &[(&str, i64)]) -> Option<NamedCause> {
    let named = its_keys.iter().find_map(|(kind, key)| {
        let is_its = |cause: &&NamedCause| cause.kind == *kind && cause.key == key.unsigned_abs();
        note.causes.iter().find(is_its)
    });
    let is_of_all = |cause: &&NamedCause| cause.key == 0 && cause.entries == note.entries;
    named.or_else(|| note.causes.iter().find(is_of_all)).cloned()
}
