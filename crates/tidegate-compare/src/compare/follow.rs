//! The count of orders by their state in a comparison, and of unreadable entries in the stream.

use std::collections::BTreeMap;

use tidegate_orders::{
    JournalField, JournalNote, Order, OrderId, VoucherId,
    records::{EventSum, OrderRow, RefusalRow},
    wire::{EntryIds, FieldNames, Message, WireError},
};
use tidegate_stream::{DeliveryHistory, Entry, EntryId};

use super::{Pass, Sale};
use crate::{CompareError, counts::RowSeen, in_flight::InFlight, judge::is_since, redis_side::DeadOrder};

impl Pass<'_> {
    /// Counts an entry of the stream.
    pub(super) fn count_entry(&mut self, entry: &Entry, message: &Result<Message, WireError>) {
        let Some(counts) = &mut self.counted.counts else { return };
        let voucher = match message {
            Ok(Message::Order(order)) => order.voucher,
            Ok(Message::Event(event)) => event.voucher,
            Err(error) => {
                let followed: Vec<EntryId> = DeliveryHistory::of(entry).entries().collect();
                let could_be_order = could_be_order(entry, self.stores.redis.keys().fields());
                return counts.add_unreadable(entry.id, &followed, could_be_order, error);
            }
        };
        if self.index.of(voucher).is_none() {
            counts.unplaced.insert(voucher);
        } else if let Ok(Message::Event(event)) = message {
            counts.add_event(entry.id, (voucher, event.order));
        }
    }

    /// Adds the orders of a page that are in no complete journal.
    pub(super) async fn follow(&mut self, orders: Vec<(EntryId, Order)>) -> Result<(), CompareError> {
        let mut by_place: BTreeMap<u32, Vec<(EntryId, Order, bool)>> = BTreeMap::new();
        for (entry, order) in orders {
            if let Some(place) = self.index.of(order.voucher) {
                by_place.entry(place).or_default().push((entry, order, false));
            }
        }
        for (place, mut orders) in by_place {
            let (Some(sale), Some(voucher)) = (self.sale(place), self.index.voucher(place)) else {
                continue;
            };
            if sale.is_complete {
                let ids: Vec<i64> = orders.iter().map(|(_, order, _)| order.id.get()).collect();
                let (notes, _) = self.pace.step(self.stores.redis().notes(voucher, &ids)).await?;
                let mut notes = notes.into_iter();
                // If the id belongs to another user's order, this entry must become a dead letter.
                orders.retain_mut(|(_, order, is_taken)| {
                    let note =
                        notes.next().flatten().map(|note| JournalNote::parse(&note).unwrap_or_default());
                    *is_taken =
                        note.as_ref().is_some_and(|note| is_admission_of_another(note, order.user.get()));
                    note.is_none() || *is_taken
                });
                // Orders in flight are counted there.
                orders.retain(|(_, order, _)| !self.in_flight.has_own_entry(place, order.id.get()));
            }
            if let Some(counts) = &mut self.counted.counts {
                for (entry, Order { id, user, quantity, .. }, is_taken) in orders {
                    counts.add_entry(entry, (voucher, id), (user, quantity.get()), is_taken);
                }
            }
        }
        Ok(())
    }

    /// Reads the journals that are not complete, after the stream. They add the orders that the stream no longer
    /// holds.
    pub(super) async fn read_open_journals(&mut self) -> Result<(), CompareError> {
        let (stores, pace, index) = (self.stores, self.pace, self.index);
        let Some(counts) = &mut self.counted.counts else { return Ok(()) };
        counts.sort();
        let is_open = |sale: &&Sale| !sale.is_complete && sale.snapshot.journaled > 0;
        for sale in self.sales.iter().flatten().filter(is_open) {
            let Some(voucher) = index.voucher(sale.place) else { continue };
            let seen = |field: JournalField<'_>, note: &JournalNote| {
                if let JournalField::Order(order) = field {
                    counts.add_movement(voucher, order, note);
                }
            };
            stores.redis().read_journal(voucher, pace, seen, |_| {}).await?;
        }
        counts.sort();
        Ok(())
    }

    /// Counts a dead letter, by its note in the journal and by whether MySQL has ended its order.
    pub(super) fn count_letter(
        &mut self,
        (it, voucher): (&DeadOrder, VoucherId),
        note: Option<&JournalNote>,
        is_ended: bool,
    ) {
        let Some(is_complete) = self.sale(it.place).map(|sale| sale.is_complete) else { return };
        let Some(counts) = &mut self.counted.counts else { return };
        match note.filter(|_| is_complete) {
            // The entry became a dead letter since: it counts as in flight.
            _ if is_complete && self.in_flight.has_own_entry(it.place, it.order) => {}
            Some(note) if is_admission_of_another(note, it.user) => {
                if let Ok(order) = it.order.try_into() {
                    counts.bury(it.entry, (voucher, order));
                }
            }
            Some(note) if is_ended || note.is_release() => {}
            Some(_) => counts.noted(voucher).dead.add(it.quantity),
            None => {
                if let (Ok(order), Ok(user)) = (it.order.try_into(), it.user.try_into()) {
                    counts.add_letter(it.entry, (voucher, order), user, it.quantity);
                }
            }
        }
    }

    /// Counts a row of MySQL, of any voucher.
    pub(super) fn count_row(&mut self, row: &OrderRow, events: Option<&EventSum>) {
        let Some(counts) = &mut self.counted.counts else { return };
        let Ok(voucher) = VoucherId::try_from(row.voucher) else { return };
        let Some(place) = self.index.of(voucher) else {
            counts.unplaced.insert(voucher);
            return;
        };
        let sale = self.sales.get(place as usize).and_then(Option::as_ref);
        let is_known = sale.is_none_or(|sale| {
            let came_ms = row.entry.and_then(|entry| i64::try_from(entry.ms).ok());
            let is_new = came_ms.is_some_and(|came_ms| came_ms >= sale.snapshot.at_ms);
            let is_compacted = sale.compacted(row, events).is_some();
            is_new || (sale.is_complete && is_since(row, sale.complete_since_ms) && !is_compacted)
        });
        let is_in_flight = self.in_flight.has_own_entry(place, row.order.get());
        let is_own = self.stores.redis.keys().partition().owns(voucher);
        counts.add_row(voucher, row, RowSeen { is_own, is_in_flight, is_known });
    }

    /// Counts a refusal of MySQL, of any voucher.
    pub(super) fn count_refusal(&mut self, refusal: &RefusalRow) {
        if let (Some(counts), Ok(voucher)) = (&mut self.counted.counts, refusal.voucher.try_into()) {
            counts.add_refusal(voucher, refusal.order, refusal.user);
        }
    }

    /// Finds the places of the orders that are in no complete journal.
    pub(super) fn finish_counts(&mut self) {
        let Some(counts) = &mut self.counted.counts else { return };
        let (index, in_flight, sales) = (self.index, &self.in_flight, self.sales);
        let sale = |voucher| sales.get(index.of(voucher)? as usize).and_then(Option::as_ref);
        let end = |voucher| sale(voucher).map_or(EntryId::MIN, |sale: &Sale| sale.snapshot.stream_end);
        let has_event = |open: &InFlight, (voucher, order): (VoucherId, OrderId)| {
            index.of(voucher).is_some_and(|place| open.has_event(place, order.get()))
        };
        for sale in sales.iter().flatten() {
            if let Some(voucher) = index.voucher(sale.place) {
                counts.set_redis_stock(voucher, sale.snapshot.stock);
            }
        }
        counts.set_in_flight(|(voucher, order)| {
            index.of(voucher).is_some_and(|place| in_flight.has_own_entry(place, order.get()))
        });
        counts.unreadable.set_in_flight(&in_flight.unreadable);
        let unresolved = counts.follow(end, has_event, in_flight);
        let at =
            unresolved.into_iter().filter_map(|(voucher, order)| Some((index.of(voucher)?, order.get())));
        self.counted.unnoted = at.collect();
    }
}

/// Whether the journal has the order id for another user's order.
fn is_admission_of_another(note: &JournalNote, user: i64) -> bool {
    note.buyer().is_some_and(|its| its.get() != user)
}

/// Whether an entry could be an order: an order has a user, a voucher and an id, under whatever field names. An entry
/// with fewer fields and none of these names is no badly written order: tutorials create the stream with
/// `XADD stream.orders * init 1`.
fn could_be_order(entry: &Entry, names: &FieldNames) -> bool {
    let EntryIds { id, user, voucher } = names.peek(entry);
    entry.fields.len() >= 3 || id.is_some() || user.is_some() || voucher.is_some()
}
