//! Both stores as the tests read them, with queries of their own: what judges the program asks nothing of the program.

use std::collections::{BTreeMap, BTreeSet};

use fred::{
    clients::Client,
    interfaces::{HashesInterface, KeysInterface, SetsInterface, StreamsInterface},
    types::Value,
};
use serde_json::Value as Json;
use sqlx::{MySqlPool, Row};

use super::{DEAD, GROUP, STREAM};

/// Fields of an entry or a note: value by name.
type Fields = BTreeMap<String, String>;

/// A Redis and a database, or a partition of them.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    pub client: &'a Client,
    pub pool: &'a MySqlPool,
    /// What all names in Redis begin with, such as `{10}:`.
    pub prefix: &'a str,
}

/// An order, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    user: i64,
    quantity: i64,
}

/// What both stores hold of a voucher.
struct Voucher {
    /// Units that MySQL had, and has left.
    in_mysql: (i64, i64),
    live: BTreeMap<i64, Held>,
    /// User and slot of each live order.
    slots: Vec<(i64, i64)>,
    /// Orders whose rows another program ended: we return nothing for them.
    ended_by_others: BTreeSet<i64>,
    stock: Option<i64>,
    buyers: BTreeSet<i64>,
    notes: BTreeMap<String, Json>,
}

/// Orders that are neither written nor refused: those in entries that are not settled, and those in dead letters.
type Elsewhere = BTreeMap<i64, Held>;

impl Stores<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Entries that are pending or undelivered; None while the group does not exist.
    pub async fn open_entries(&self) -> Option<usize> {
        let (undelivered, pending) = self.open().await?;
        Some(undelivered.len() + pending)
    }

    /// Undelivered entries, and how many are pending.
    async fn open(&self) -> Option<(Vec<(String, Fields)>, usize)> {
        let stream = self.name(STREAM);
        let groups: Vec<BTreeMap<String, Value>> = self.client.xinfo_groups(&stream).await.ok()?;
        let group = groups.into_iter().find(|group| group["name"].as_str().as_deref() == Some(GROUP))?;
        let after = format!("({}", group["last-delivered-id"].as_str()?);
        let undelivered = self.client.xrange(&stream, after, "+", None).await.ok()?;
        Some((undelivered, usize::try_from(group["pending"].as_u64()?).ok()?))
    }

    /// What MySQL holds of these vouchers and must not: more sold than there was, or two orders of a user in a slot.
    pub async fn mysql_mismatches(&self, vouchers: &[i64]) -> Vec<String> {
        let mut wrong = Vec::new();
        for voucher in vouchers {
            let found = self.voucher(*voucher).await.mysql_sum();
            wrong.extend(found.into_iter().map(|what| format!("voucher {voucher}: {what}")));
        }
        wrong
    }

    /// The same, and where Redis at a quiet moment does not hold of these vouchers what MySQL holds: stock, buyers and journal follow
    /// from the orders. `loaded` are the units of vouchers that a plain SET has put on sale.
    pub async fn mismatches(&self, vouchers: &[i64], loaded: &BTreeMap<i64, i64>) -> Vec<String> {
        let elsewhere = self.elsewhere().await;
        let mut wrong = Vec::new();
        for voucher in vouchers {
            let held = self.voucher(*voucher).await;
            let found = [
                held.mysql_sum(),
                held.redis_sum(loaded.get(voucher).copied()),
                held.admissions(elsewhere.get(voucher).unwrap_or(&Elsewhere::new())),
                held.barred(elsewhere.get(voucher).unwrap_or(&Elsewhere::new())),
            ];
            wrong.extend(found.into_iter().flatten().map(|what| format!("voucher {voucher}: {what}")));
        }
        wrong
    }

    async fn voucher(&self, voucher: i64) -> Voucher {
        let rows = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(quantity AS SIGNED), \
                    CAST(COALESCE(slot, 0) AS SIGNED), CAST(EXISTS (SELECT 1 FROM tidegate_event e \
                    WHERE e.order_id = o.id AND e.outcome = 'applied' \
                    AND e.event IN ('cancelled', 'expired', 'refunded')) AS SIGNED) FROM tb_voucher_order o WHERE voucher_id = ?";
        let rows = sqlx::query(rows).bind(voucher).fetch_all(self.pool).await.expect("MySQL answers");
        let units = "SELECT CAST(initial_stock AS SIGNED), CAST(stock AS SIGNED) FROM tb_seckill_voucher \
                     WHERE voucher_id = ?";
        let units = sqlx::query_as(units).bind(voucher).fetch_optional(self.pool).await;
        let (mut live, mut slots, mut ended_by_others) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        for row in rows {
            let [id, user, quantity, slot, is_ours]: [i64; 5] = std::array::from_fn(|at| row.get(at));
            if slot > 0 {
                live.insert(id, Held { user, quantity });
                slots.push((user, slot));
            } else if is_ours == 0 {
                ended_by_others.insert(id);
            }
        }
        let key = |name: &str| self.name(&format!("seckill:{name}:{voucher}"));
        let client = self.client;
        let plain: Option<i64> = client.get(key("stock")).await.expect("Redis answers");
        let limited: Option<i64> = client.get(key("limited")).await.expect("Redis answers");
        let notes: Fields = client.hgetall(key("journal")).await.expect("Redis answers");
        let parse = |(field, note): (String, String)| {
            let note = serde_json::from_str(&note).unwrap_or(Json::Null);
            (field, note)
        };
        Voucher {
            in_mysql: units.expect("MySQL answers").unwrap_or_default(),
            live,
            slots,
            ended_by_others,
            stock: plain.or(limited),
            buyers: client
                .smembers::<Vec<i64>, _>(key("order"))
                .await
                .expect("Redis answers")
                .into_iter()
                .collect(),
            notes: notes.into_iter().map(parse).collect(),
        }
    }

    /// By voucher.
    async fn elsewhere(&self) -> BTreeMap<i64, Elsewhere> {
        let (stream, dead) = (self.name(STREAM), self.name(DEAD));
        let letters: Vec<(String, Fields)> =
            self.client.xrange(&dead, "-", "+", None).await.unwrap_or_default();
        let (undelivered, _) = self.open().await.unwrap_or_default();
        let pending: Vec<(String, String, i64, i64)> =
            self.client.xpending(&stream, GROUP, ("-", "+", 100_000_u64)).await.unwrap_or_default();
        let mut entries: Vec<Fields> =
            letters.into_iter().chain(undelivered).map(|(_, fields)| fields).collect();
        for (id, ..) in pending {
            let entry: Vec<(String, Fields)> =
                self.client.xrange(&stream, &id, &id, None).await.expect("Redis answers");
            entries.extend(entry.into_iter().map(|(_, fields)| fields));
        }
        let mut elsewhere: BTreeMap<i64, Elsewhere> = BTreeMap::new();
        for fields in entries.iter().filter(|fields| !fields.contains_key("event")) {
            let number = |name: &str| fields.get(name).and_then(|text| text.parse::<i64>().ok());
            if let (Some(order), Some(user), Some(voucher)) =
                (number("id"), number("userId"), number("voucherId"))
            {
                let held = Held { user, quantity: number("quantity").unwrap_or(1) };
                elsewhere.entry(voucher).or_default().insert(order, held);
            }
        }
        elsewhere
    }
}

impl Voucher {
    fn mysql_sum(&self) -> Vec<String> {
        let (loaded, left) = self.in_mysql;
        let sold: i64 = self.live.values().map(|held| held.quantity).sum();
        let mut wrong = Vec::new();
        if left < 0 || left != loaded - sold {
            wrong.push(format!("{loaded} loaded, {sold} sold, {left} left in MySQL"));
        }
        let distinct: BTreeSet<_> = self.slots.iter().collect();
        if distinct.len() != self.slots.len() {
            wrong.push("a user has two orders in a slot".to_owned());
        }
        wrong
    }

    /// The stock in Redis is what was loaded, and all movements of the journal.
    fn redis_sum(&self, loaded: Option<i64>) -> Vec<String> {
        let changes = |note: &Json| {
            note["change"].as_i64().unwrap_or(0) + note["admitted"]["change"].as_i64().unwrap_or(0)
        };
        let is_complete = self.notes.contains_key("#complete");
        // Without a complete journal, units that were added or taken later count as loaded: MySQL and the book say how many.
        let counts = |field: &str| is_complete || !field.starts_with('#') || field == "#purged";
        let moved = self.notes.iter().filter(|(field, _)| counts(field)).map(|(_, note)| changes(note));
        let expected = moved.sum::<i64>() + if is_complete { 0 } else { loaded.unwrap_or(self.in_mysql.0) };
        let is_wrong = self.stock.is_some_and(|stock| stock != expected);
        let what = || format!("{:?} left in Redis, and {expected} by its journal", self.stock);
        is_wrong.then(what).into_iter().collect()
    }

    /// Orders that the journal holds as admitted, or as released.
    fn noted<'a>(&'a self, action: &'a str) -> impl Iterator<Item = (i64, &'a Json)> {
        self.notes.iter().filter_map(move |(field, note)| {
            let order = field.parse().ok().filter(|_| note["action"] == action)?;
            Some((order, note))
        })
    }

    /// An order that was admitted is somewhere, once; an order that was released is not alive.
    fn admissions(&self, elsewhere: &Elsewhere) -> Vec<String> {
        let mut wrong = Vec::new();
        for (order, note) in self.noted("admit") {
            let user = note["by"].as_str().and_then(|user| user.parse().ok());
            let admitted =
                user.zip(note["change"].as_i64()).map(|(user, change)| Held { user, quantity: -change });
            let found = self.live.get(&order).or_else(|| elsewhere.get(&order)).copied();
            if found != admitted && !self.ended_by_others.contains(&order) {
                wrong.push(format!(
                    "order {order} is admitted as {admitted:?}, and found as {found:?}: {note}"
                ));
            }
        }
        for (order, note) in self.noted("release") {
            if let Some(found) = self.live.get(&order) {
                wrong.push(format!("order {order} is released, and alive as {found:?}: {note}"));
            }
        }
        wrong
    }

    /// Whoever holds an admitted order may not buy again, and nobody is barred without an order.
    fn barred(&self, elsewhere: &Elsewhere) -> Vec<String> {
        if self.notes.is_empty() && self.stock.is_none() {
            return Vec::new();
        }
        let admitted: BTreeSet<i64> = self.noted("admit").map(|(order, _)| order).collect();
        let users = |orders: &Elsewhere, is_one: &dyn Fn(&i64) -> bool| -> BTreeSet<i64> {
            orders.iter().filter(|(order, _)| is_one(order)).map(|(_, held)| held.user).collect()
        };
        let must = users(&self.live, &|order| admitted.contains(order));
        let ended = |order: &i64| self.ended_by_others.contains(order);
        let by_note = self.noted("admit").filter(|(order, _)| ended(order));
        let mut may: BTreeSet<i64> =
            by_note.filter_map(|(_, note)| note["by"].as_str()?.parse().ok()).collect();
        may.extend(users(&self.live, &|_| true));
        may.extend(users(elsewhere, &|_| true));
        let free: Vec<_> = must.difference(&self.buyers).collect();
        let barred: Vec<_> = self.buyers.difference(&may).collect();
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
