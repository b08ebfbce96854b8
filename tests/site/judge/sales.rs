//! The sale of each voucher: stocks, slots, journal and buyers follow from the orders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::{
    Facts,
    mysql::{MysqlFacts, OrderRow},
    redis::{Held, Sale},
};

/// What MySQL alone shows of its vouchers and orders.
pub(super) fn of_mysql(mysql: &MysqlFacts) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut slots: BTreeMap<(i64, i64, i64), Vec<i64>> = BTreeMap::new();
    for (id, row) in &mysql.orders {
        if let Some(slot) = row.slot {
            slots.entry((row.voucher, row.user, slot)).or_default().push(*id);
        }
        if is_contradictory(row) {
            let (slot, status) = (row.slot, row.status);
            wrong.push(format!("order {id}: slot {slot:?} and status {status} contradict each other"));
        }
        if let Some(refusal) = mysql.refusals.get(id).filter(|_| row.is_live()) {
            wrong.push(format!("order {id} is refused ({}), and alive", refusal.reason));
        }
    }
    for ((voucher, user, slot), orders) in slots.into_iter().filter(|(_, orders)| orders.len() > 1) {
        wrong.push(format!("voucher {voucher}: user {user} has two orders in slot {slot}: {orders:?}"));
    }
    for (voucher, units) in &mysql.vouchers {
        let (Some(left), loaded) = (units.left, units.loaded) else { continue };
        let sold: i64 = live(mysql, *voucher).map(|(_, row)| row.quantity).sum();
        if left < 0 || loaded.is_some_and(|loaded| left != loaded - sold) {
            wrong.push(format!("voucher {voucher}: {loaded:?} loaded, {sold} sold, {left} left in MySQL"));
        }
    }
    wrong
}

fn is_contradictory(row: &OrderRow) -> bool {
    !matches!((row.status, row.slot), (1..=3, Some(_)) | (4 | 6, None) | (5, _))
}

fn live(mysql: &MysqlFacts, voucher: i64) -> impl Iterator<Item = (&i64, &OrderRow)> {
    mysql.orders.iter().filter(move |(_, row)| row.voucher == voucher && row.is_live())
}

/// What both stores together show of each voucher that Redis sells.
pub(super) fn of_both(facts: &Facts) -> Vec<String> {
    let mut wrong = Vec::new();
    for (voucher, sale) in &facts.redis.sales {
        let judged = Judged { facts, voucher: *voucher, sale };
        let found = [
            sale.unreadable.clone(),
            judged.forgotten().into_iter().collect(),
            judged.journal_sum(),
            judged.both_stocks(),
            judged.admissions(),
            judged.releases(),
            judged.barred(),
        ];
        wrong.extend(found.concat().into_iter().map(|what| format!("voucher {voucher}: {what}")));
    }
    wrong
}

/// Who releases an order of which Redis had units and MySQL had none.
const OUT_OF_STOCK: &str = "worker:out_of_stock";

struct Judged<'a> {
    facts: &'a Facts,
    voucher: i64,
    sale: &'a Sale,
}

/// User and units of a note that admits an order.
fn admitted(note: &Json) -> Option<Held> {
    let user = note["by"].as_str()?.parse().ok()?;
    Some(Held { user, quantity: -note["change"].as_i64()? })
}

impl Judged<'_> {
    fn is_without_journal(&self) -> bool {
        self.facts.mysql.vouchers.get(&self.voucher).is_some_and(|row| row.is_without_journal)
    }

    /// The journal holds the order of this row as admitted.
    fn is_admitted(&self, order: i64, row: &OrderRow) -> bool {
        let note = self.sale.notes.get(&order.to_string()).filter(|note| note["action"] == "admit");
        note.is_some_and(|note| admitted(note) == Some(row.held()))
    }

    /// Another program has ended the order: nothing is returned to Redis for it.
    fn is_ended_by_others(&self, order: i64) -> bool {
        let row = self.facts.mysql.orders.get(&order).filter(|row| row.voucher == self.voucher);
        let events = self.facts.mysql.events.get(&order);
        let is_ours = events.is_some_and(|events| events.iter().any(super::mysql::EventRow::has_ended));
        row.is_some_and(|row| !row.is_live()) && !is_ours
    }

    /// Redis sells what is on sale, if it ever did: it has a stock.
    fn forgotten(&self) -> Option<String> {
        let row = self.facts.mysql.vouchers.get(&self.voucher)?;
        let mut rows = self.facts.mysql.orders.values().filter(|order| order.voucher == self.voucher);
        let is_sold_here = rows.any(|order| order.entry.is_some());
        let is_gone = self.sale.stock.is_none() && self.sale.unreadable.is_empty();
        let is_own = self.facts.redis.own.contains(&self.voucher);
        // Limits may be noted before the voucher is loaded.
        let is_noted = self.sale.notes.keys().any(|field| field != "#limited");
        let what = match is_noted {
            true => "it is on sale, and Redis holds a journal, and no stock",
            false => "it is on sale, and Redis holds neither stock nor journal",
        };
        (is_own && row.is_on_sale && row.left > Some(0) && (is_sold_here || is_noted) && is_gone)
            .then(|| what.to_owned())
    }

    /// The stock in Redis is what was loaded, and all movements of the journal.
    fn journal_sum(&self) -> Vec<String> {
        let changes = |note: &Json| {
            note["change"].as_i64().unwrap_or(0) + note["admitted"]["change"].as_i64().unwrap_or(0)
        };
        let is_complete = self.sale.is_complete();
        // Without a complete journal, units that were added or taken later count as loaded: MySQL and the
        // book say how many.
        let counts = |field: &str| is_complete || !field.starts_with('#') || field == "#purged";
        let moved = self.sale.notes.iter().filter(|(field, _)| counts(field)).map(|(_, note)| changes(note));
        let in_mysql = self.facts.mysql.vouchers.get(&self.voucher).and_then(|row| row.loaded);
        let loaded = match is_complete {
            true => Some(0),
            false => self.facts.loaded.get(&self.voucher).copied().or(in_mysql),
        };
        let Some((stock, loaded)) = self.sale.stock.zip(loaded).filter(|_| !self.is_without_journal()) else {
            return Vec::new();
        };
        let expected = moved.sum::<i64>() + loaded;
        let what = || format!("{stock} left in Redis, and {expected} by its journal");
        let is_wrong = if is_complete { stock != expected } else { self.is_mismatch(stock, expected) };
        is_wrong.then(what).into_iter().collect()
    }

    /// While units are added or taken, Redis may have fewer: they are taken from it first, and added to it
    /// last.
    fn is_mismatch(&self, stock: i64, expected: i64) -> bool {
        if self.sale.is_changing { stock > expected } else { stock != expected }
    }

    /// Redis offers what MySQL has left, without the units of orders that MySQL does not have yet, or no
    /// more. Nobody can tell where some orders took units from Redis without a note, and others took none.
    fn both_stocks(&self) -> Vec<String> {
        let left = self.facts.mysql.vouchers.get(&self.voucher).and_then(|row| row.left);
        let Some((stock, left)) = self.sale.stock.zip(left) else { return Vec::new() };
        let (taken, of_nobody): (i64, i64) = match (self.is_without_journal(), self.sale.is_complete()) {
            (true, _) => (self.facts.unwritten_of(self.voucher).map(|it| it.held.quantity).sum(), 0),
            (false, true) => (self.taken_by_journal(), self.units_of_nobody()),
            (false, false) => return Vec::new(),
        };
        let expected = left - taken;
        let what = || format!("Redis offers {stock}, and {expected} by MySQL, which has {left} left");
        let is_short = stock < expected && stock >= expected - of_nobody;
        (self.is_mismatch(stock, expected) && !is_short).then(what).into_iter().collect()
    }

    /// Units that Redis has taken from its stock, beyond what MySQL has taken.
    fn taken_by_journal(&self) -> i64 {
        let is_live = |order: i64, note: &Json| {
            let row = self.facts.mysql.orders.get(&order).filter(|row| row.voucher == self.voucher);
            row.is_some_and(|row| row.is_live() && Some(row.held()) == admitted(note))
        };
        let unwritten = self.sale.noted("admit").filter(|(order, note)| !is_live(*order, note));
        let unwritten: i64 = unwritten.filter_map(|(_, note)| Some(admitted(note)?.quantity)).sum();
        // Orders of producers that take nothing from Redis, and used ones whose notes are compacted.
        let unnoted = live(&self.facts.mysql, self.voucher).filter(|(id, row)| !self.is_admitted(**id, row));
        let unnoted: i64 = unnoted.map(|(_, row)| row.quantity).sum();
        let compacted = self.sale.notes.get("#purged").and_then(|note| note["used_units"].as_i64());
        unwritten - unnoted + compacted.unwrap_or(0)
    }

    /// Units of which Redis had one and MySQL none: they are not on sale again, unless a repair has found
    /// that MySQL has them.
    fn units_of_nobody(&self) -> i64 {
        let refused = self.sale.noted("release").filter(|(_, note)| note["by"] == OUT_OF_STOCK);
        refused.filter_map(|(_, note)| Some(-note["admitted"]["change"].as_i64()?)).sum()
    }

    /// An order that was admitted is somewhere, once.
    fn admissions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (order, note) in self.sale.noted("admit") {
            let (admitted, row) = (admitted(note), self.facts.mysql.orders.get(&order));
            let live = row.filter(|row| row.voucher == self.voucher && row.is_live());
            let is_found = admitted.is_some_and(|held| {
                live.is_some_and(|row| row.held() == held) || self.facts.is_unwritten(order, held)
            });
            if !is_found && !self.is_ended_by_others(order) {
                let refusal = self.facts.mysql.refusals.get(&order).map(|refusal| &refusal.reason);
                wrong.push(format!(
                    "order {order} is admitted as {admitted:?}, and found as {row:?}, refused: {refusal:?}"
                ));
            }
        }
        wrong
    }

    /// An order that was released is not alive and will not be written, and released what it took.
    fn releases(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (order, note) in self.sale.noted("release") {
            let row = self.facts.mysql.orders.get(&order).filter(|row| row.voucher == self.voucher);
            if row.is_some_and(OrderRow::is_live) {
                wrong.push(format!("order {order} is released, and alive as {row:?}: {note}"));
            }
            let is_refused = self.facts.mysql.refusals.contains_key(&order);
            if row.is_none() && !is_refused && self.is_on_its_way(order) {
                wrong.push(format!("order {order} is released, and its entry may still be written: {note}"));
            }
            // Without a stock, no unit went back.
            let was = note["admitted"]["change"].as_i64().filter(|_| !note["from"].is_null());
            let by = note["by"].as_str().unwrap_or_default();
            // Units that MySQL never had are not sold again.
            let due = if by == OUT_OF_STOCK { 0 } else { -was.unwrap_or(0) };
            if let Some(was) = was.filter(|_| note["change"].as_i64() != Some(due)) {
                wrong.push(format!("order {order} took {} units and released others: {note}", -was));
            }
        }
        wrong
    }

    /// An entry of the order is pending, undelivered, or a dead letter.
    fn is_on_its_way(&self, order: i64) -> bool {
        let open = self.facts.redis.entries.iter().filter(|entry| entry.is_open).map(|entry| &entry.message);
        let letters = self.facts.redis.letters.iter().map(|letter| &letter.message);
        open.chain(letters).any(|message| {
            matches!(message, super::Message::Order(it) if (it.order, it.voucher) == (order, self.voucher))
        })
    }

    /// Whoever holds an admitted order may not buy again, and nobody is barred without an order.
    fn barred(&self) -> Vec<String> {
        if self.sale.notes.is_empty() && self.sale.stock.is_none() {
            return Vec::new();
        }
        let live = || live(&self.facts.mysql, self.voucher);
        let must: BTreeSet<i64> =
            live().filter(|(id, row)| self.is_admitted(**id, row)).map(|(_, row)| row.user).collect();
        let kept = self.sale.noted("admit").filter(|(order, _)| self.is_ended_by_others(*order));
        let mut may: BTreeSet<i64> = kept.filter_map(|(_, note)| Some(admitted(note)?.user)).collect();
        may.extend(live().map(|(_, row)| row.user));
        may.extend(self.facts.unwritten_of(self.voucher).map(|ordered| ordered.held.user));
        let free: Vec<_> = must.difference(&self.sale.buyers).collect();
        let barred: Vec<_> = self.sale.buyers.difference(&may).collect();
        let mut wrong = Vec::new();
        if !free.is_empty() {
            wrong.push(format!("users with a live order may buy again: {free:?}"));
        }
        if !barred.is_empty() {
            wrong.push(format!("users without an order may not buy: {barred:?}"));
        }
        wrong
    }
}
