//! The counters of order ids after a loss of data: no counter may assign the id of an existing order again.

use anyhow::Context;
use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_orders::{
    Keys, RedisStore,
    order_id::counter::{KnownSequences, RaisedCounter},
};

/// Reads the order ids of about today from MySQL.
pub(crate) async fn in_mysql(mysql: &MySqlPool, keys: &Keys) -> anyhow::Result<KnownSequences> {
    let known = KnownSequences::in_mysql(Timestamp::now(), keys.partition(), mysql).await;
    known.context("Failed to read the order ids of today in MySQL")
}

/// Whether Redis refused because its user has no right to the counters.
pub(crate) fn is_no_right(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<fred::error::Error>());
    causes.any(|cause| cause.details().contains("NOPERM"))
}

/// Raises the counters above all known ids. This never lowers a counter.
pub(crate) async fn raise(known: &KnownSequences, redis: &RedisStore) -> anyhow::Result<Vec<RaisedCounter>> {
    known.raise(redis).await.context("Failed to raise the order id counters in Redis")
}
