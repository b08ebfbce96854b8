//! What Redis says against MySQL, before what MySQL lacks decides anything for good.
//!
//! MySQL may be older than it was: restored from a backup, or replaced by a server that lacks its last seconds. Then it lacks
//! orders that were settled, and ends of orders that were given back. Until a repair brings these back, a payment would be due
//! back although its order exists, and an order would be refused for one that has ended.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tidegate_stream::{EntryId, Letter, Outage, Read, StreamError, StreamInspector};
use tokio::sync::Mutex;

use crate::{
    gate::Gate,
    order::{OrderId, Subject, VoucherId},
    wire::{FieldNames, is_event},
};

/// What entries wait for that depend on what MySQL has lost.
pub const LOST_IN_MYSQL: &str = "lost_in_mysql";

/// Letters a page.
const PAGE: u16 = 1_000;

/// The journals and the dead letters.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    gate: Gate,
    buried: Arc<BuriedOrders>,
}

impl Witness {
    pub(crate) fn new(gate: Gate, inspector: StreamInspector) -> Self {
        let fields = gate.fields().clone();
        let buried = Arc::new(BuriedOrders { inspector, fields, known: Mutex::default() });
        Self { gate, buried }
    }

    /// Of these orders, of which MySQL knows nothing although their entries are settled, those that it has lost: a journal holds
    /// them as these users' own, and they are no dead letters.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn lost(&self, orders: &[Subject]) -> Result<HashSet<OrderId>, Outage> {
        if orders.is_empty() {
            return Ok(HashSet::new());
        }
        let ids: Vec<_> = orders.iter().map(|(order, _, voucher)| (*voucher, *order)).collect();
        let notes = self.gate.journal_entries(&ids).await.map_err(outage)?;
        let is_held = |(order, user, voucher): &&Subject| {
            let note = notes.get(&(*voucher, *order));
            note.is_some_and(|note| note.is_admission() && note.is_by(*user))
        };
        let held: Vec<Subject> = orders.iter().filter(is_held).copied().collect();
        let buried = self.buried.of(&held).await.map_err(outage)?;
        Ok(held.into_iter().map(|(order, ..)| order).filter(|order| !buried.contains(order)).collect())
    }

    /// Of these orders, which are live in MySQL, those whose end it has lost: a journal has given them back.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn ended(&self, live: &[(VoucherId, OrderId)]) -> Result<HashSet<OrderId>, Outage> {
        if live.is_empty() {
            return Ok(HashSet::new());
        }
        let ended = self.gate.given_back(live).await.map_err(outage)?;
        Ok(ended.into_iter().map(|(_, order)| order).collect())
    }
}

/// Finds dead letters by their orders. Nobody pays for that before it is asked for the first time, and each letter is read once.
#[derive(Debug)]
struct BuriedOrders {
    inspector: StreamInspector,
    fields: FieldNames,
    known: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    /// Those up to here were read.
    up_to: EntryId,
    by_order: HashMap<Subject, Vec<EntryId>>,
}

impl BuriedOrders {
    /// Those of these orders that are dead letters.
    async fn of(&self, orders: &[Subject]) -> Result<HashSet<OrderId>, StreamError> {
        let mut buried = HashSet::new();
        if orders.is_empty() {
            return Ok(buried);
        }
        let mut known = self.known.lock().await;
        self.read_new(&mut known).await?;
        for subject in orders {
            let Some(letters) = known.by_order.get_mut(subject) else { continue };
            self.retain_those_there(letters).await?;
            if letters.is_empty() {
                known.by_order.remove(subject);
            } else {
                buried.insert(subject.0);
            }
        }
        Ok(buried)
    }

    async fn read_new(&self, known: &mut Letters) -> Result<(), StreamError> {
        let dead = &self.inspector.names().dead;
        let last = self.inspector.last_id(dead).await?;
        let mut pages = self.inspector.entry_pages(dead, (known.up_to, last), PAGE);
        while let Some(page) = pages.next(u64::MAX).await? {
            for letter in page.into_iter().map(Letter::parse) {
                known.up_to = letter.id;
                let entry = letter.entry();
                let of = self.fields.glimpse(&entry);
                if let (Some(order), Some(user), Some(voucher), false) =
                    (of.id, of.user, of.voucher, is_event(&entry))
                {
                    known.by_order.entry((order, user, voucher)).or_default().push(letter.id);
                }
            }
        }
        Ok(())
    }

    /// Letters are put back, given back and deleted.
    async fn retain_those_there(&self, letters: &mut Vec<EntryId>) -> Result<(), StreamError> {
        let (names, mut there) = (self.fields.naming_order(), Vec::new());
        let mut pages = self.inspector.entries(&self.inspector.names().dead, letters, Read::Fields(&names));
        while let Some(page) = pages.next().await? {
            there.extend(page.into_iter().flatten().map(|letter| letter.id));
        }
        *letters = there;
        Ok(())
    }
}

fn outage(error: impl std::fmt::Display) -> Outage {
    Outage::new("Redis", error)
}
