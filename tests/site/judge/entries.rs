//! The ends of entries: what is settled was written, refused, released or buried, and what is buried was not
//! written.

use std::collections::BTreeSet;

use super::{
    Facts, Message,
    redis::{Entry, Ordered},
};

/// Settled entries that left nothing, and letters of orders that are alive.
pub(super) fn without_an_end(facts: &Facts) -> Vec<String> {
    let mut wrong = Vec::new();
    let buried: BTreeSet<(i64, i64)> = facts.letters().map(|it| (it.order, it.held.user)).collect();
    for entry in facts.redis.entries.iter().filter(|entry| !entry.is_open) {
        match &entry.message {
            Message::Order(ordered) => {
                let is_buried = buried.contains(&(ordered.order, ordered.held.user));
                if !is_buried && !facts.has_end(ordered) {
                    let row = facts.mysql.orders.get(&ordered.order);
                    wrong.push(format!(
                        "voucher {}: order {} of entry {} is settled, and nowhere; its id has {row:?}",
                        ordered.voucher, ordered.order, entry.id
                    ));
                }
            }
            Message::Other { must_be_buried: true } if !facts.is_buried_or_followed(&entry.id) => {
                wrong.push(format!("entry {} is neither order nor event, settled, and not buried", entry.id));
            }
            Message::Event(_) | Message::Other { .. } => {}
        }
    }
    for letter in facts.redis.letters.iter().filter(|letter| letter.earlier.is_empty()) {
        let Message::Order(ordered) = &letter.message else { continue };
        if facts.mysql.orders.get(&ordered.order).is_some_and(|row| row.holds(ordered)) {
            let (order, entry) = (ordered.order, &letter.entry);
            wrong.push(format!("order {order} is alive, and its entry {entry:?} is a dead letter"));
        }
    }
    wrong
}

impl Facts {
    /// Orders of dead letters.
    fn letters(&self) -> impl Iterator<Item = &Ordered> {
        self.redis.letters.iter().filter_map(|letter| match &letter.message {
            Message::Order(ordered) => Some(ordered),
            _ => None,
        })
    }

    /// It is written, refused or released, or another entry of it is on its way.
    fn has_end(&self, ordered: &Ordered) -> bool {
        let Ordered { order, voucher, held, .. } = *ordered;
        let row = self.mysql.orders.get(&order);
        let is_row = row.is_some_and(|row| {
            // One that was cancelled before it came has no units: nobody knew then how many it would have.
            let is_quantity = row.quantity == held.quantity || !row.is_live();
            (row.user, row.voucher) == (held.user, voucher) && is_quantity
        });
        let refusal = self.mysql.refusals.get(&order);
        let is_refused =
            refusal.is_some_and(|refusal| (refusal.user, refusal.voucher) == (held.user, voucher));
        let sale = self.redis.sales.get(&voucher);
        is_row
            || is_refused
            || sale.is_some_and(|sale| sale.is_released(order))
            || self.is_unwritten(order, held)
    }

    /// A letter holds the entry, or it was put back as another entry.
    pub(super) fn is_buried_or_followed(&self, entry: &String) -> bool {
        let is_letter = self.redis.letters.iter().any(|it| it.entry.as_ref() == Some(entry));
        let letters = self.redis.letters.iter().flat_map(|letter| &letter.earlier);
        let later = self.redis.entries.iter().flat_map(|Entry { earlier, .. }| earlier);
        is_letter || letters.chain(later).any(|earlier| earlier == entry)
    }
}
