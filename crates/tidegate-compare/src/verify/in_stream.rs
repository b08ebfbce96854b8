//! The entries that the stream holds of the candidates.

use crate::{
    CompareError,
    in_flight::InFlight,
    lost_events::{EventPage, LostEvents},
    redis_side::{DeadOrders, Entered},
};
use std::collections::{BTreeSet, HashMap, HashSet};

use tidegate_orders::wire::Message;
use tidegate_stream::EntryId;

use super::{At, Verify};

/// The entries and lost events of the candidates in the stream.
#[derive(Default)]
pub(super) struct InStream {
    /// The entries of candidates that are in no complete journal.
    pub(super) entered: HashMap<At, Vec<Entered>>,
    /// The user of the first lost event, for candidates with lost events.
    pub(super) lost_events: HashMap<At, i64>,
}

impl Verify<'_> {
    /// Reads the entries of candidates that are in no complete journal, and the lost events of all candidates.
    pub(super) async fn in_stream(
        &self,
        orders: &BTreeSet<At>,
        (in_flight, dead): (&InFlight, &DeadOrders),
        end: EntryId,
    ) -> Result<InStream, CompareError> {
        let is_without =
            |at: &At| self.unnoted.contains(at) || self.sale(at.0).is_some_and(|sale| !sale.is_complete);
        let without: HashSet<At> = orders.iter().copied().filter(is_without).collect();
        let with_events: HashSet<At> = orders.intersection(&self.with_events.orders).copied().collect();
        let first = match (without.is_empty(), with_events.is_empty()) {
            (true, true) => return Ok(InStream::default()),
            (true, false) => self.with_events.first,
            (false, _) => EntryId::MIN,
        };
        let (mut entered, mut lost) = (HashMap::<At, Vec<Entered>>::new(), LostEvents::default());
        let mut pages = self.stores.redis().stream_pages((first.previous(), end));
        while let Some(page) = self.pace.step(pages.next(u64::MAX)).await? {
            let mut events = EventPage::default();
            for entry in page {
                match self.stores.redis.keys().fields().decode_message(&entry) {
                    Ok(Message::Order(order)) => {
                        let at = self.index.of(order.voucher).map(|place| (place, order.id.get()));
                        if let Some(at) = at.filter(|at| without.contains(at)) {
                            let (user, quantity) = (order.user.get(), order.quantity.get());
                            let entered = entered.entry(at).or_default();
                            // One entry of each user is enough.
                            entered.retain(|it| it.user != user);
                            entered.push(Entered { entry: entry.id, user, quantity });
                        }
                    }
                    Ok(Message::Event(event)) => {
                        let is_wanted =
                            |at: At| with_events.contains(&at) && !in_flight.has_order(at.0, at.1);
                        events.add(entry.id, event, self.index, is_wanted);
                        lost.note(&entry);
                    }
                    Err(_) => {}
                }
            }
            if !events.is_empty() {
                lost.add(self.pace.step(events.unrecorded(self.stores)).await?);
            }
            self.go_on()?;
        }
        Ok(InStream { entered, lost_events: lost.by_order(dead) })
    }
}
