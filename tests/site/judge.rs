//! What judges the system at a quiet moment: both stores, read and added up by the tests' own statements,
//! parsers and arithmetic.
//!
//! It asks nothing of the program and uses nothing of its readers: what judges must not share the mistakes of
//! what it judges. Each finding is a sentence that names a voucher, an order, an entry or a campaign. `tests/pipeline/judge.rs` breaks
//! every fact by hand and sees it named.

mod entries;
mod events;
mod limits;
pub mod mysql;
mod redis;
mod sales;

use std::collections::BTreeMap;

use self::{
    mysql::{MysqlFacts, OrderRow},
    redis::{Held, Message, Ordered, RedisFacts},
};
use super::stores::Stores;

/// What both stores hold.
struct Facts {
    mysql: MysqlFacts,
    redis: RedisFacts,
    /// Units of vouchers that a plain SET has put on sale.
    loaded: BTreeMap<i64, i64>,
    /// Orders that are neither written nor refused nor released: those in entries that are not settled, and
    /// those in dead letters. Under one id there may be those of several users.
    unwritten: BTreeMap<i64, Vec<Ordered>>,
}

impl Stores<'_> {
    /// What must not be at a quiet moment, of these vouchers, a sentence each: stocks, slots, buyers, journal
    /// and counters follow from the orders, orders from their events, and each entry has its end. `loaded`
    /// are the units of vouchers that a plain SET has put on sale.
    pub async fn mismatches(&self, vouchers: &[i64], loaded: &BTreeMap<i64, i64>) -> Vec<String> {
        let facts = self.facts(vouchers, loaded).await;
        [lasting(&facts), sales::of_both(&facts), limits::miscounted(&facts)].concat()
    }

    /// As [`Stores::mismatches`], where Redis has lost data: its stocks, journals and counters prove nothing.
    pub async fn mismatches_after_a_loss(&self, vouchers: &[i64]) -> Vec<String> {
        lasting(&self.facts(vouchers, &BTreeMap::new()).await)
    }

    async fn facts(&self, vouchers: &[i64], loaded: &BTreeMap<i64, i64>) -> Facts {
        let redis = self.read_redis(vouchers).await;
        let named = redis.sales.keys().copied().collect();
        let mysql = MysqlFacts::read(self.pool, Some(&named)).await;
        let unwritten = unwritten(&mysql, &redis);
        Facts { mysql, redis, loaded: loaded.clone(), unwritten }
    }
}

/// What MySQL and the entries that are there prove.
fn lasting(facts: &Facts) -> Vec<String> {
    [
        facts.redis.unreadable.clone(),
        sales::of_mysql(&facts.mysql),
        events::of_mysql(&facts.mysql),
        entries::without_an_end(facts),
        events::of_both(facts),
    ]
    .concat()
}

fn unwritten(mysql: &MysqlFacts, redis: &RedisFacts) -> BTreeMap<i64, Vec<Ordered>> {
    let open = redis.entries.iter().filter(|entry| entry.is_open).map(|entry| &entry.message);
    let letters = redis.letters.iter().map(|letter| &letter.message);
    let mut unwritten: BTreeMap<i64, Vec<Ordered>> = BTreeMap::new();
    for message in open.chain(letters) {
        let Message::Order(ordered) = message else { continue };
        let row = mysql.orders.get(&ordered.order);
        let is_written = row.is_some_and(|row| row.holds(ordered));
        let is_released = redis.sales[&ordered.voucher].is_released(ordered.order);
        let is_known = unwritten.get(&ordered.order).is_some_and(|known| {
            known.iter().any(|other| (other.voucher, other.held) == (ordered.voucher, ordered.held))
        });
        let is_refused = mysql.refusals.get(&ordered.order).is_some_and(|it| it.user == ordered.held.user);
        // One that is refused or cancelled and not released holds its units in Redis still: a letter of it
        // says so.
        if !is_written && !is_released && !is_refused && !is_known {
            unwritten.entry(ordered.order).or_default().push(ordered.clone());
        }
    }
    unwritten
}

impl OrderRow {
    /// It is the live row of this order.
    fn holds(&self, ordered: &Ordered) -> bool {
        self.is_live() && (self.voucher, self.held()) == (ordered.voucher, ordered.held)
    }

    fn held(&self) -> Held {
        Held { user: self.user, quantity: self.quantity }
    }
}

impl Facts {
    /// An order that is on its way or dead, with these units.
    fn is_unwritten(&self, order: i64, held: Held) -> bool {
        self.unwritten.get(&order).is_some_and(|all| all.iter().any(|ordered| ordered.held == held))
    }

    /// Orders of a voucher that are on their way or dead.
    fn unwritten_of(&self, voucher: i64) -> impl Iterator<Item = &Ordered> {
        self.unwritten.values().flatten().filter(move |ordered| ordered.voucher == voucher)
    }
}
