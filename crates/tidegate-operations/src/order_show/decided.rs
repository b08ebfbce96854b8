//! The decisions about orders that are in MySQL.

use std::collections::{HashMap, HashSet};

use tidegate_orders::{
    OrderFacts, OrderStatus, Records, RecordsError,
    order::{OrderId, UserId, VoucherId},
    order_status::RowFact,
};

/// Returns the status of each order that MySQL has written or refused. Orders that belong to another user or voucher in
/// MySQL are left out.
///
/// # Errors
/// If MySQL does not answer or the tables are not ready.
pub async fn decided(
    records: Records<'_>,
    orders: &[(OrderId, UserId, VoucherId)],
) -> Result<HashMap<OrderId, OrderStatus>, RecordsError> {
    let mut facts: HashMap<OrderId, OrderFacts> = HashMap::new();
    let ids: Vec<OrderId> = orders.iter().map(|(order, ..)| *order).collect();
    let owners: HashSet<(OrderId, i64, i64)> =
        orders.iter().map(|(order, user, voucher)| (*order, user.get(), voucher.get())).collect();
    for it in records.refusals().by_ids(&ids).await? {
        if owners.contains(&(it.order, it.user, it.voucher)) {
            facts.entry(it.order).or_insert(OrderFacts::NOTHING).is_refused = true;
        }
    }
    for row in records.orders().by_ids(&ids).await? {
        if owners.contains(&(row.order, row.user, row.voucher)) {
            facts.entry(row.order).or_insert(OrderFacts::NOTHING).row = RowFact::Own(row.state());
        }
    }
    Ok(facts.into_iter().map(|(order, facts)| (order, facts.status())).collect())
}
