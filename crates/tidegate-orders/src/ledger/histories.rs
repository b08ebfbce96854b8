//! What MySQL knows of orders, for whoever asks beside the workers: the same look-up that decides on events.

use std::collections::{BTreeSet, HashMap};

use sqlx::MySqlPool;

use super::sql;
use crate::{event::History, order::OrderId, vouchers::VoucherError};

/// Orders a look-up.
const LOOKUP: usize = 1_000;

/// The rows, refusals and events of these orders; those that MySQL knows nothing of are left out. One round trip for a
/// thousand of them, by primary keys, without a lock.
///
/// # Errors
/// When MySQL does not answer or the tables are not ready.
pub async fn read_histories(
    pool: &MySqlPool,
    orders: &[OrderId],
) -> Result<HashMap<OrderId, History>, VoucherError> {
    let mut histories = HashMap::new();
    for orders in orders.chunks(LOOKUP) {
        let orders: BTreeSet<OrderId> = orders.iter().copied().collect();
        let mut connection = pool.acquire().await?;
        histories.extend(sql::look_up_histories(&mut connection, &orders).await?);
    }
    Ok(histories)
}
