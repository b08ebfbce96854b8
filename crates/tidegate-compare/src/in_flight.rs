//! The orders that the consumer group still has to handle. Their outcome is not known yet, so they are not compared.
//! There is one exception: a lost order is reported even if events of this order are in flight.

use std::collections::{HashMap, HashSet};

use crate::{Pace, table::hash_of_id};
use tidegate_orders::{VoucherId, wire::Message};
use tidegate_stream::{DeliveryHistory, Entry, EntryId, Read, StreamError};

use tidegate_orders::{Keys, Order, RedisStore};

/// The number of entries and ids in a page.
const PAGE: u16 = 1_000;

/// The list of the compared vouchers, with a position for each voucher.
#[derive(Clone, Debug, Default)]
pub struct VoucherIndex {
    vouchers: Vec<VoucherId>,
    positions: HashMap<VoucherId, u32>,
}

impl VoucherIndex {
    /// Creates the list of the given vouchers, without duplicates.
    #[must_use]
    pub fn new(mut vouchers: Vec<VoucherId>) -> Self {
        vouchers.sort_unstable();
        vouchers.dedup();
        let positions = vouchers.iter().copied().zip(0..).collect();
        Self { vouchers, positions }
    }

    /// The position of a voucher in the list. None: the voucher is not compared.
    #[must_use]
    pub fn of(&self, voucher: VoucherId) -> Option<u32> {
        self.positions.get(&voucher).copied()
    }

    /// The place of a voucher number from MySQL.
    pub(crate) fn of_number(&self, voucher: i64) -> Option<u32> {
        self.of(voucher.try_into().ok()?)
    }

    /// The voucher at a position of the list.
    #[must_use]
    pub fn voucher(&self, place: u32) -> Option<VoucherId> {
        self.vouchers.get(place as usize).copied()
    }

    /// All vouchers of the list in ascending order, beginning with position 0.
    #[must_use]
    pub fn all(&self) -> &[VoucherId] {
        &self.vouchers
    }
}

/// An order whose own entry is in flight.
#[derive(Clone, Copy, Debug)]
struct OrderInFlight {
    hash: u64,
    place: u32,
    units: u32,
}

/// The stream entries that workers still have to handle, in 24 bytes each. An order with several entries counts once.
#[derive(Debug, Default)]
pub struct InFlight {
    orders: Vec<OrderInFlight>,
    /// The hashes of orders with events.
    with_events: Vec<u64>,
    users: Vec<u64>,
    /// The orders that are not written yet and their units, by place.
    pub(crate) counts: HashMap<u32, (u64, i64)>,
    /// The number of events, by place.
    pub(crate) events: HashMap<u32, u64>,
    /// Entries that are neither orders nor events, with their earlier entries before they were put back.
    pub(crate) unreadable: HashSet<EntryId>,
}

impl InFlight {
    /// Reads the stream entries that workers still have to handle. For all earlier entries that are not in the result,
    /// the outcome is already in MySQL, in Redis or among the dead letters.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn read(redis: &RedisStore, index: &VoucherIndex, pace: &Pace) -> Result<Self, StreamError> {
        let mut found = Self::default();
        let (inspector, keys) = (redis.inspector(), redis.keys());
        // The boundary is read first: an entry that is delivered later is beyond it, whatever happens to it.
        let delivered = inspector.group().last_delivered().await?.unwrap_or(EntryId::MIN);
        let stream = &inspector.names().stream;
        let mut pending = inspector.group().pending_pages((EntryId::MIN, delivered), PAGE, None);
        while let Some(page) = pace.step(pending.next()).await? {
            let ids: Vec<EntryId> = page.into_iter().map(|pending| pending.id).collect();
            let mut entries = inspector.entries(stream, &ids, Read::Whole);
            while let Some(entries) = pace.step(entries.next()).await? {
                entries.iter().flatten().for_each(|entry| found.add(entry, keys, index));
            }
        }
        let last = inspector.last_id(stream).await?;
        let mut unread = inspector.entry_pages(stream, (delivered, last), PAGE);
        while let Some(page) = pace.step(unread.next(u64::MAX)).await? {
            page.iter().for_each(|entry| found.add(entry, keys, index));
        }
        found.orders.sort_unstable_by_key(|it| it.hash);
        found.orders.dedup_by_key(|it| it.hash);
        for OrderInFlight { place, units, .. } in &found.orders {
            let counts = found.counts.entry(*place).or_default();
            (counts.0, counts.1) = (counts.0 + 1, counts.1 + i64::from(*units));
        }
        found.with_events.sort_unstable();
        found.users.sort_unstable();
        Ok(found)
    }

    fn add(&mut self, entry: &Entry, keys: &Keys, index: &VoucherIndex) {
        match keys.fields().decode_message(entry) {
            Ok(Message::Order(order)) => self.add_order(&order, index),
            Ok(Message::Event(event)) => {
                if let Some(place) = index.of(event.voucher) {
                    self.with_events.push(hash_of_id(place, event.order.get()));
                    self.users.push(hash_of_id(place, event.user.get()));
                    *self.events.entry(place).or_default() += 1;
                }
            }
            Err(_) => {
                self.unreadable.extend(DeliveryHistory::of(entry).entries().chain([entry.id]));
            }
        }
    }

    fn add_order(&mut self, order: &Order, index: &VoucherIndex) {
        let Some(place) = index.of(order.voucher) else { return };
        let units = u32::try_from(order.quantity.get()).unwrap_or(u32::MAX);
        self.orders.push(OrderInFlight { hash: hash_of_id(place, order.id.get()), place, units });
        self.users.push(hash_of_id(place, order.user.get()));
    }

    /// Whether workers still have to handle an entry of the order: the entry that placed the order, or an event.
    #[must_use]
    pub fn has_order(&self, place: u32, order: i64) -> bool {
        self.has_own_entry(place, order) || self.has_event(place, order)
    }

    /// Whether an event of the order is in flight.
    pub(crate) fn has_event(&self, place: u32, order: i64) -> bool {
        self.with_events.binary_search(&hash_of_id(place, order)).is_ok()
    }

    /// Whether workers still have to handle the entry that placed the order, and not only events of the order.
    #[must_use]
    pub fn has_own_entry(&self, place: u32, order: i64) -> bool {
        self.orders.binary_search_by_key(&hash_of_id(place, order), |it| it.hash).is_ok()
    }

    /// Whether workers still have to handle an order or an event of the user.
    #[must_use]
    pub fn has_user(&self, place: u32, user: i64) -> bool {
        self.users.binary_search(&hash_of_id(place, user)).is_ok()
    }
}
