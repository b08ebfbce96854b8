//! The events that the group has acknowledged and MySQL has not recorded.
//!
//! The handler records each event with its entry, whatever the outcome, before the event is acknowledged. So an event
//! without such a record is lost, unless it is a dead letter or was put back into the stream as another entry. Each
//! page of the stream costs one lookup by the primary key, and recorded events are not kept.

use crate::{CompareError, in_flight::VoucherIndex, redis_side::DeadOrders, stores::ComparedStores};
use std::collections::{HashMap, HashSet};

use tidegate_orders::{
    Event,
    ledger::{IncomingEvent, unrecorded},
};
use tidegate_stream::{DeliveryHistory, Entry, EntryId};

/// An order, with the place of its voucher.
type At = (u32, i64);

/// The events of a page of the stream that are looked up.
#[derive(Debug, Default)]
pub(crate) struct EventPage(Vec<(u32, IncomingEvent)>);

impl EventPage {
    /// Adds the event of an entry, if its order is `wanted`.
    pub(crate) fn add(
        &mut self,
        entry: EntryId,
        event: Event,
        index: &VoucherIndex,
        wanted: impl Fn(At) -> bool,
    ) {
        if let Some(place) = index.of(event.voucher).filter(|place| wanted((*place, event.order.get()))) {
            self.0.push((place, IncomingEvent { event, entry }));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the events that MySQL has not recorded, each with its entry and its user.
    pub(crate) async fn unrecorded(
        self,
        stores: &ComparedStores,
    ) -> Result<Vec<(At, EntryId, i64)>, CompareError> {
        let (places, events): (Vec<u32>, Vec<IncomingEvent>) = self.0.into_iter().unzip();
        let missing = unrecorded(&stores.mysql, &events).await?;
        let missing = missing.into_iter().filter_map(|at| Some((places.get(at)?, events.get(at)?)));
        let told = missing.map(|(place, IncomingEvent { event, entry })| {
            ((*place, event.order.get()), *entry, event.user.get())
        });
        Ok(told.collect())
    }
}

/// The lost events of some orders, gathered page by page.
#[derive(Debug, Default)]
pub(crate) struct LostEvents {
    unrecorded: Vec<(At, EntryId, i64)>,
    /// The earlier entries of events that were put back into the stream.
    put_back: HashSet<EntryId>,
}

impl LostEvents {
    /// Notes an entry that holds an event.
    pub(crate) fn note(&mut self, entry: &Entry) {
        self.put_back.extend(DeliveryHistory::of(entry).entries());
    }

    /// Adds the events of a page that MySQL has not recorded.
    pub(crate) fn add(&mut self, unrecorded: Vec<(At, EntryId, i64)>) {
        self.unrecorded.extend(unrecorded);
    }

    /// The orders with lost events, each with the user of its first lost event.
    pub(crate) fn by_order(self, dead: &DeadOrders) -> HashMap<At, i64> {
        let Self { unrecorded, put_back } = self;
        let mut lost = HashMap::new();
        for (at, entry, user) in unrecorded {
            if !put_back.contains(&entry) && !dead.has_event(entry) {
                lost.entry(at).or_insert(user);
            }
        }
        lost
    }
}
