//! Pending entries: which are chosen, who holds them, and what is in them.

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

/// Which pending entries are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingFilter {
    /// Those that this consumer holds.
    pub consumer: Option<String>,
    /// Those of consumers whose process has no heartbeat.
    pub dead: bool,
    /// Those that came into the stream longer ago than this.
    pub older_than: Option<Duration>,
    /// Those that their consumer does not have in progress but tries again later.
    pub set_aside: bool,
    /// Those that at least so many worker processes died with in progress.
    pub crashes: Option<u64>,
    /// Those that were delivered at least so often since they were last set aside.
    pub deliveries: Option<u64>,
    /// At most so many, the oldest first.
    pub limit: u16,
}

impl PendingFilter {
    /// Whether nothing but the limit leaves anything out.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        *self == Self { limit: self.limit, ..Self::default() }
    }
}

/// What the stream holds of a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// An order.
    Order,
    /// Something that happened to an order.
    Event,
    /// Fields that are neither.
    NoOrder,
    /// Nothing: the entry was deleted or trimmed.
    Gone,
}

/// An event, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingEvent {
    /// What happened.
    pub event: EventKind,
    /// To which order.
    pub order: OrderId,
    /// Whose it is.
    pub user: UserId,
    /// What was bought.
    pub voucher: VoucherId,
    /// The outside's own id of it.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

impl From<Event> for PendingEvent {
    fn from(Event { kind: event, order, user, voucher, reference, .. }: Event) -> Self {
        Self { event, order, user, voucher, reference }
    }
}

/// A pending entry, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct PendingView {
    /// Its id.
    pub entry: String,
    /// Who holds it.
    pub consumer: String,
    /// The process of that consumer has a heartbeat.
    pub alive: bool,
    /// Since it was delivered; None: it is claimable.
    pub idle_s: Option<f64>,
    /// `tidegate consumers drain` has offered it to all workers, and none has taken it yet.
    pub offered: bool,
    /// How often it was delivered since it was last set aside.
    pub deliveries: u64,
    /// Its consumer does not have it in progress and tries it again later: it waits for its turn, for a store that is away,
    /// or for something that others hold.
    pub set_aside: bool,
    /// What others hold of what it needs. Known where its process names its user, its voucher or its id, or has set
    /// everything aside for the same cause.
    pub waits_for: Option<NamedCause>,
    /// Worker processes that died with it in progress; None: this user of Redis may not know.
    pub crashes: Option<u64>,
    /// Since it came into the stream.
    pub age_s: f64,
    /// Its content.
    #[serde(flatten)]
    pub content: PendingContent,
}

/// The content of a pending entry: an order, an event, or why it is neither.
#[derive(Clone, Debug, Serialize)]
pub struct PendingContent {
    /// What is left of it in the stream.
    pub payload: Payload,
    /// What is wanted, where it is an order.
    pub order: Option<Order>,
    /// What happened, where it is an event.
    pub event: Option<PendingEvent>,
    /// Why it is neither.
    pub error: Option<String>,
}

impl PendingView {
    fn with_cause(self, notes: &BTreeMap<String, SetAsideNote>) -> Self {
        let note = notes.get(process_of(&self.consumer)).filter(|_| self.set_aside);
        let waits_for = note.and_then(|note| cause(note, &self.keys()));
        Self { waits_for, ..self }
    }

    /// What it may wait for. Where several are named, it stopped at the first of them.
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

/// What an entry waits for that its process has set aside. The process names the causes of most of its entries, but not
/// which entry waits for which.
fn cause(note: &SetAsideNote, its_keys: &[(&str, i64)]) -> Option<NamedCause> {
    let named = its_keys.iter().find_map(|(kind, key)| {
        let is_its = |cause: &&NamedCause| cause.kind == *kind && cause.key == key.unsigned_abs();
        note.causes.iter().find(is_its)
    });
    let is_of_all = |cause: &&NamedCause| cause.key == 0 && cause.entries == note.entries;
    named.or_else(|| note.causes.iter().find(is_of_all)).cloned()
}
