//! The counters of order ids, after a loss of data: no id may be given out that an order has.

use anyhow::Context;
use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_orders::{
    Keys, RedisStore,
    order_id::counter::{KnownSequences, RaisedCounter},
};

/// The ids of about today that MySQL has.
pub(crate) async fn in_mysql(mysql: &MySqlPool, keys: &Keys) -> anyhow::Result<KnownSequences> {
    let known = KnownSequences::in_mysql(Timestamp::now(), keys.partition(), mysql).await;
    known.context("Failed to read the order ids of today in MySQL")
}

/// Redis refuses it, because its user may not touch the counters.
pub(crate) fn is_no_right(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<fred::error::Error>());
    causes.any(|cause| cause.details().contains("NOPERM"))
}

/// Raises the counters above all ids that are known. None is ever lowered.
pub(crate) async fn raise(known: &KnownSequences, redis: &RedisStore) -> anyhow::Result<Vec<RaisedCounter>> {
    known.raise(redis).await.context("Failed to raise the counter of order ids")
}
