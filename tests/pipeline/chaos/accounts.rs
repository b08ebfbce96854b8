//! The orders and payments that a store still knows, and the checks of their final states.

use std::collections::{BTreeMap, BTreeSet};

use fred::interfaces::SetsInterface;
use tidegate_orders::{
    EventKind,
    scripts::AdmitReply,
    wire::{FieldNames, Message},
};

use super::operator;
use crate::{fixture::until, life_model::fleet::Fleet};

/// The orders and payments that a store still has data of.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub orders: BTreeSet<i64>,
    /// The payments, by order and reference.
    payments: BTreeSet<(i64, Option<String>)>,
}

impl Known {
    /// Reads the orders and payments that the stores know now.
    pub async fn read(fleet: &Fleet<'_>) -> Self {
        let (mut known, fields) = (Self::default(), FieldNames::default());
        for entry in fleet.entries().await {
            match fields.decode_message(&entry).expect("nothing else was appended") {
                Message::Order(order) => _ = known.orders.insert(order.id.get()),
                Message::Event(event) if event.kind == EventKind::Paid => {
                    let reference = event.reference.map(|reference| reference.to_string());
                    known.payments.insert((event.order.get(), reference));
                }
                Message::Event(_) => {}
            }
        }
        known.orders.extend(dead(fleet).await);
        let journals: Vec<String> =
            fleet.fixture.redis_says(&["KEYS", "seckill:journal:*"]).await.convert().expect("keys");
        for journal in journals {
            let orders: Vec<String> =
                fleet.fixture.redis_says(&["HKEYS", &journal]).await.convert().expect("fields");
            known.orders.extend(orders.iter().filter_map(|order| order.parse::<i64>().ok()));
        }
        known.orders.extend(outcomes(fleet).await);
        let payments = "SELECT order_id, ref FROM tidegate_event WHERE event = 'paid'";
        let payments: Vec<(i64, Option<String>)> =
            sqlx::query_as(payments).fetch_all(&fleet.pool).await.expect("MySQL answers");
        known.payments.extend(payments);
        known
    }

    pub fn add(&mut self, other: Self) {
        self.orders.extend(other.orders);
        self.payments.extend(other.payments);
    }
}

/// The orders that have a row or a refusal.
async fn outcomes(fleet: &Fleet<'_>) -> BTreeSet<i64> {
    let sql = "SELECT CAST(id AS SIGNED) FROM tb_voucher_order UNION SELECT order_id FROM tidegate_refusal";
    let orders: Vec<i64> = sqlx::query_scalar(sql).fetch_all(&fleet.pool).await.expect("MySQL answers");
    orders.into_iter().collect()
}

/// The orders among the dead letters.
async fn dead(fleet: &Fleet<'_>) -> BTreeSet<i64> {
    let letters = fleet.fixture.dead().await;
    letters.iter().filter_map(|letter| letter.get("id")?.parse().ok()).collect()
}

/// Checks all invariants when no entry is open any more.
pub async fn check(fleet: &Fleet<'_>, vouchers: &[i64], known: &Known) {
    let mut ends = outcomes(fleet).await;
    ends.extend(dead(fleet).await);
    let lost: Vec<&i64> = known.orders.difference(&ends).collect();
    assert!(
        lost.is_empty(),
        "orders that somebody knew, and that have no row, no refusal and no dead letter: {lost:?}"
    );
    let homes = "SELECT order_id, ref FROM tidegate_event WHERE event = 'paid' AND outcome IN ('applied', 'refund_due')";
    let homes: Vec<(i64, Option<String>)> =
        sqlx::query_as(homes).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let homes: BTreeSet<_> = homes.into_iter().collect();
    let homeless: Vec<_> = known.payments.difference(&homes).collect();
    assert!(homeless.is_empty(), "payments without a home: {homeless:?}");
    for voucher in vouchers {
        check_sale(fleet, *voucher).await;
    }
}

async fn check_sale(fleet: &Fleet<'_>, voucher: i64) {
    let live = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(quantity AS SIGNED) FROM tb_voucher_order \
                WHERE voucher_id = ? AND slot IS NOT NULL ORDER BY id";
    let live: Vec<(i64, i64, i64)> =
        sqlx::query_as(live).bind(voucher).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let users: BTreeMap<i64, i64> = live.iter().map(|(order, user, _)| (*user, *order)).collect();
    assert_eq!(users.len(), live.len(), "voucher {voucher}: a user has two live orders: {live:?}");
    let (loaded, in_mysql, in_redis) = fleet.stocks(voucher).await;
    let sold: i64 = live.iter().map(|(_, _, quantity)| quantity).sum();
    assert!(sold <= loaded, "voucher {voucher}: {sold} of {loaded} are sold");
    let held = held_by_letters(fleet, voucher).await;
    let dead: i64 = held.values().sum();
    if (in_mysql, in_redis) != (loaded - sold, Some(loaded - sold - dead)) {
        let (look, journal) = (operator::look(fleet).await, fleet.fixture.journal(voucher).await);
        panic!(
            "voucher {voucher}: of {loaded}, {sold} are sold and {dead} dead; MySQL has {in_mysql} left, Redis {in_redis:?}: {look:#} \
             {journal:#?}"
        );
    }
    assert!(fleet.has_complete_journal(voucher).await, "of voucher {voucher}");
    let buyers: Vec<i64> =
        fleet.fixture.client.smembers(format!("seckill:order:{voucher}")).await.expect("Redis answers");
    let buyers: BTreeSet<i64> = buyers.into_iter().collect();
    let users: BTreeSet<i64> = users.into_keys().chain(held.into_keys()).collect();
    assert_eq!(buyers, users, "voucher {voucher}: buyers, and users with live or dead orders");
    for (order, user, quantity) in live {
        let reply = fleet.admit((order, user, voucher), quantity).await;
        assert_eq!(reply, AdmitReply::AdmittedBefore, "order {order} of {user} is asked for again");
    }
    ask_for_ended(fleet, voucher).await;
}

/// The units that dead letters hold, by user: Redis admitted their orders, and MySQL has no outcome of that user's
/// order. A sale may use an id again if no order was admitted under it, or if that order was cancelled. Such an order
/// dies as `id_taken`.
async fn held_by_letters(fleet: &Fleet<'_>, voucher: i64) -> BTreeMap<i64, i64> {
    let journal = fleet.fixture.journal(voucher).await;
    let mut held = BTreeMap::new();
    for letter in fleet.fixture.dead().await {
        let number = |name: &str| letter.get(name).and_then(|text| text.parse::<i64>().ok());
        let (Some(order), Some(user)) = (number("id"), number("userId")) else { continue };
        let note = journal.get(&order.to_string()).map_or("", String::as_str);
        let is_admitted = note.contains(r#""action":"admit""#) && note.contains(&format!(r#""by":"{user}""#));
        if number("voucherId") == Some(voucher)
            && is_admitted
            && !has_outcome(fleet, (order, user, voucher)).await
        {
            held.insert(user, number("quantity").unwrap_or(1));
        }
    }
    held
}

/// Whether MySQL has a row or a refusal of this order with this user and voucher.
async fn has_outcome(fleet: &Fleet<'_>, (order, user, voucher): (i64, i64, i64)) -> bool {
    let sql = "SELECT (SELECT COUNT(*) FROM tb_voucher_order WHERE id = ? AND user_id = ? AND voucher_id = ?) \
               + (SELECT COUNT(*) FROM tidegate_refusal WHERE order_id = ? AND user_id = ? AND voucher_id = ?)";
    let mut found = sqlx::query_scalar::<_, i64>(sql);
    for number in [order, user, voucher, order, user, voucher] {
        found = found.bind(number);
    }
    found.fetch_one(&fleet.pool).await.expect("MySQL answers") > 0
}

/// Requests orders again that have ended. They must not become live again, whatever the answer is. A Redis that has
/// forgotten an order, and was repaired by difference, may answer as for a new one.
async fn ask_for_ended(fleet: &Fleet<'_>, voucher: i64) {
    let ended = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(quantity AS SIGNED) FROM tb_voucher_order \
                 WHERE voucher_id = ? AND slot IS NULL UNION \
                 SELECT order_id, user_id, CAST(quantity AS SIGNED) FROM tidegate_refusal WHERE voucher_id = ?";
    let ended = sqlx::query_as(ended).bind(voucher).bind(voucher).fetch_all(&fleet.pool);
    let ended: Vec<(i64, i64, i64)> = ended.await.expect("MySQL answers");
    for (order, user, quantity) in &ended {
        fleet.admit((*order, *user, voucher), *quantity).await;
    }
    until("all is settled", || fleet.is_settled()).await;
    let live = "SELECT CAST(id AS SIGNED) FROM tb_voucher_order WHERE voucher_id = ? AND slot IS NOT NULL";
    let live: Vec<i64> =
        sqlx::query_scalar(live).bind(voucher).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let revived: Vec<_> = ended.iter().filter(|(order, ..)| live.contains(order)).collect();
    assert!(revived.is_empty(), "voucher {voucher}: ended, and live again: {revived:?}");
}
