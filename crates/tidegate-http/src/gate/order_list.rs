//! The list of a user's orders of a voucher, for callers that do not know the ids of the orders.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_compare::{Silent, text::error_chain};
use tidegate_operations::{
    order_find::{OrderFindRequest, find_orders_in},
    order_progress::{OrderLookup, WatchedOrder},
};
use tidegate_orders::{OrderId, UserId, VoucherId};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    following::Generation,
    headers::parsed,
    problem::{Problem, ProblemKind},
};
use crate::server::parameter;

/// The largest number of orders in a list.
const MOST_ORDERS: u16 = 100;
/// The number of entries that a search reads of each group: unread, pending, dead.
const BUDGET: u64 = 100;
/// The largest number of searches at the same time. A search costs more than a look at one order.
const SEARCHES: usize = 2;
/// The time that MySQL has to answer.
const MYSQL_PATIENCE: Duration = Duration::from_secs(2);
/// The time that a whole search has.
const WITHIN: Duration = Duration::from_secs(5);

/// The searches for a user's orders of a voucher.
#[derive(Debug)]
pub struct OrderList(Semaphore);

impl OrderList {
    pub fn new() -> Self {
        Self(Semaphore::new(SEARCHES))
    }

    /// Finds the orders of a user for a voucher in both stores, the latest first, as JSON.
    pub async fn answer(
        &self,
        generation: &Generation,
        (voucher, user): (VoucherId, UserId),
    ) -> Result<Value, Problem> {
        let Ok(_permit) = self.0.try_acquire() else { return Err(ProblemKind::TooManyQuestions.into()) };
        let away = |error: anyhow::Error| ProblemKind::StoresAway.because(error_chain(&error));
        match timeout(WITHIN, search(generation, voucher, user)).await {
            Ok(found) => found.map_err(away),
            Err(_) => Err(away(anyhow::anyhow!("Redis or MySQL did not answer within {WITHIN:?}"))),
        }
    }
}

/// Reads from a query whose orders are asked for. If a proxy names the user, it is `only` this one.
pub fn asked(query: Option<&str>, only: Option<UserId>) -> Result<(VoucherId, UserId), Problem> {
    let missing = |name: &str| ProblemKind::BadQuestion.because(format!("`{name}` is missing"));
    let value = |name| {
        parameter(query.unwrap_or_default(), &[name]).map_err(|why| ProblemKind::BadQuestion.because(why))
    };
    let voucher = parsed(&value("voucherId")?.ok_or_else(|| missing("voucherId"))?, "voucherId")?;
    let user = match value("userId")?.map(|user| parsed(&user, "userId")).transpose()?.or(only) {
        Some(user) => user,
        None => return Err(missing("userId")),
    };
    if only.is_some_and(|only| only != user) {
        return Err(ProblemKind::NoSuchPage.because("a user sees only its own orders"));
    }
    Ok((voucher, user))
}

async fn search(generation: &Generation, voucher: VoucherId, user: UserId) -> anyhow::Result<Value> {
    let (redis, mysql) = generation.gates.stores_of_voucher(voucher)?;
    let request = OrderFindRequest {
        user: Some(user),
        voucher: Some(voucher),
        open: false,
        limit: MOST_ORDERS,
        budget: BUDGET,
    };
    let found = find_orders_in(&redis, &mysql, MYSQL_PATIENCE, &request, &Silent).await?;
    let mut ids: Vec<OrderId> = Vec::new();
    for order in found.orders.iter().map(|found| found.order) {
        if !ids.contains(&order) {
            ids.push(order);
        }
    }
    let mut watched: Vec<WatchedOrder> =
        ids.into_iter().map(|order| WatchedOrder::new(order, Some(voucher))).collect();
    let orders = OrderLookup::new(redis, mysql, MYSQL_PATIENCE).read(&mut watched).await?;
    // An order id may belong to another user since the search, if the stores were repaired meanwhile.
    let own: Vec<_> = orders.into_iter().filter(|order| order.user == Some(user)).collect();
    Ok(json!({ "orders": serde_json::to_value(own)?, "isComplete": found.unsearched.is_empty() }))
}
