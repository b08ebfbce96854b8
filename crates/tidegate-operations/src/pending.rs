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

/// A filter for pending entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingFilter {
    /// The consumer that must hold the entries.
    pub consumer: Option<String>,
    /// Whether only entries of consumers without a heartbeat are chosen.
    pub dead: bool,
    /// The age since the entry was added to the stream, above which entries are chosen.
    pub older_than: Option<Duration>,
    /// Whether only entries are chosen that their consumer has set aside to retry them later.
    pub set_aside: bool,
    /// The number of worker processes that must have died while they handled the entry, at least.
    pub crashes: Option<u64>,
    /// The number of deliveries since the entry was last set aside, at least.
    pub deliveries: Option<u64>,
    /// The number of entries at most, oldest first.
    pub limit: u16,
}

impl PendingFilter {
    /// Returns whether the filter accepts every entry, apart from the limit.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        *self == Self { limit: self.limit, ..Self::default() }
    }
}

/// The content of a pending entry in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The entry holds an order.
    Order,
    /// The entry holds an event of an order.
    Event,
    /// The entry holds fields of neither.
    NoOrder,
    /// The entry was deleted or trimmed.
    Gone,
}

/// An event, as the command shows it.
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
    /// The id that the other system gave to the event.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl From<Event> for PendingEvent {
    fn from(Event { kind: event, order, user, voucher, reference, .. }: Event) -> Self {
        Self { event, order, user, voucher, reference }
    }
}

/// A pending entry, as the command shows it.
#[derive(Clone, Debug, Serialize)]
pub struct PendingView {
    /// The id of the entry.
    pub entry: String,
    /// The consumer that holds the entry.
    pub consumer: String,
    /// Whether the process of that consumer has a heartbeat.
    pub alive: bool,
    /// The seconds since the entry was delivered; None: it is claimable.
    pub idle_s: Option<f64>,
    /// Whether `tidegate consumers drain` has made the entry claimable, and no worker has claimed it yet.
    pub offered: bool,
    /// The number of deliveries since the entry was last set aside.
    pub deliveries: u64,
    /// Whether its consumer has set the entry aside to retry it later: it waits for its turn, for an unavailable store,
    /// or for something that others hold.
    pub set_aside: bool,
    /// The cause for which the entry waits. It is known if the process's note names the entry's user, voucher or order,
    /// or if all its entries wait for the same cause.
    pub waits_for: Option<NamedCause>,
    /// The number of worker processes that died while they handled the entry; None: this user of Redis may not read it.
    pub crashes: Option<u64>,
    /// The seconds since the entry was added to the stream.
    pub age_s: f64,
    /// The content of the entry.
    #[serde(flatten)]
    pub content: PendingContent,
}

/// The content of a pending entry: an order, an event, or the reason why it is neither.
#[derive(Clone, Debug, Serialize)]
pub struct PendingContent {
    /// The kind of the content.
    pub payload: Payload,
    /// The order, if the entry holds one.
    pub order: Option<Order>,
    /// The event, if the entry holds one.
    pub event: Option<PendingEvent>,
    /// The reason why the entry holds neither.
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
