//! The read of the stream in a comparison: events that MySQL should have recorded, and orders that are in no complete
//! journal.

use crate::{
    CompareError,
    lost_events::EventPage,
    table::{Said, hash_of},
};
use std::collections::BTreeSet;

use tidegate_orders::{
    Order,
    wire::{Message, is_event},
};
use tidegate_stream::EntryId;

use super::{DIFFERENCES, KNOWN, Pass};

/// The orders with events that MySQL has not recorded, and the first entry with such an event.
#[derive(Debug)]
pub(crate) struct WithEvents {
    pub(crate) orders: BTreeSet<(u32, i64)>,
    pub(crate) first: EntryId,
}

impl Default for WithEvents {
    fn default() -> Self {
        Self { orders: BTreeSet::new(), first: EntryId::MAX }
    }
}

impl Pass<'_> {
    /// Reads the entries that the group has settled: events, and orders of vouchers without a complete journal.
    pub(super) async fn read_stream(&mut self, range: (EntryId, EntryId)) -> Result<(), CompareError> {
        let fields = self.stores.redis.keys().fields();
        let counts = self.counted.counts.is_some();
        let needs_orders =
            counts || !self.is_counted && self.sales.iter().flatten().any(|sale| !sale.is_complete);
        let mut pages = self.stores.redis().stream_pages(range);
        while let Some(page) = self.pace.step(pages.next(u64::MAX)).await? {
            let (mut events, mut orders) = (EventPage::default(), Vec::new());
            for entry in page.into_iter().filter(|entry| needs_orders || is_event(entry)) {
                let message = fields.decode_message(&entry);
                self.count_entry(&entry, &message);
                match message {
                    Ok(Message::Order(order)) => {
                        self.add_entered(entry.id, &order);
                        if counts {
                            orders.push((entry.id, order));
                        }
                    }
                    // There are too many such orders, so the comparison continues in parts.
                    Ok(Message::Event(_)) if self.with_events.orders.len() > DIFFERENCES => {}
                    Ok(Message::Event(event)) => {
                        events
                            .add(entry.id, event, self.index, |(place, order)| self.is_settled(place, order));
                    }
                    Err(_) => {}
                }
            }
            if !events.is_empty() {
                let unrecorded = self.pace.step(events.unrecorded(self.stores)).await?;
                for (at, entry, _) in unrecorded {
                    self.with_events.first = self.with_events.first.min(entry);
                    self.with_events.orders.insert(at);
                }
            }
            self.follow(orders).await?;
            self.go_on()?;
        }
        Ok(())
    }

    /// Whether neither the order nor an event of it is in flight.
    fn is_settled(&self, place: u32, order: i64) -> bool {
        self.part.has(order) && !self.in_flight.has_order(place, order)
    }

    fn add_entered(&mut self, entry: EntryId, order: &Order) {
        let Some(place) = self.index.of(order.voucher) else { return };
        let Some(sale) = self.sale(place).filter(|sale| !sale.is_complete) else { return };
        let id = order.id.get();
        self.counted.redis_orders += 1;
        if !self.is_counted && sale.has_entry(Some(entry)) && self.is_wanted(place, id) {
            self.orders.add(&Said { id, voucher: place, what: hash_of(&[KNOWN]) });
        }
    }
}
