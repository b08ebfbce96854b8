//! Results that Redis did not take, on a real Redis and MySQL.

use std::time::Duration;

use anyhow::Result;
use fred::interfaces::StreamsInterface;
use sqlx::{MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    Announced, Announcer, OrderResult, ResultState, announcer::Remembered, results::PLACED, schema,
};
use tidegate_stream::EntryId;

use crate::ground::Ground;

const RESULTS: &str = "stream.orders.results";

fn result(order: i64) -> Result<OrderResult> {
    Ok(OrderResult {
        order: order.try_into()?,
        user: None,
        voucher: None,
        quantity: None,
        state: ResultState::Refused,
        reference: None,
        reason: None,
        step: PLACED,
        entry: EntryId { ms: 1, seq: order.unsigned_abs() },
        at_ms: 1,
        traceparent: None,
    })
}

async fn remembered(mysql: &MySqlPool) -> Result<Vec<i64>> {
    let orders = sqlx::query_scalar("SELECT order_id FROM tidegate_unannounced_result ORDER BY id");
    Ok(orders.fetch_all(mysql).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_remembered_results_those_that_redis_takes_are_announced_once_and_the_others_stay() -> Result<()> {
    let ground = Ground::new().await?;
    let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
    let mysql = MySqlPoolOptions::new().max_connections(2).connect(&server.url()).await?;
    schema::migrate(&mysql).await?;
    let announcer = Announcer::new(
        ground.pool.clone(),
        RESULTS,
        Announced::All,
        (mysql.clone(), Duration::from_secs(20)),
    );
    ground.typed(&format!("SET {RESULTS} taken")).await?;
    announcer.announce(&[result(1)?, result(2)?, result(3)?]).await?;
    assert_eq!(remembered(&mysql).await?, [1, 2, 3]);
    assert_eq!(announcer.announce_remembered().await?, Remembered::Refused);
    // A stream that has room for two ids.
    ground.typed(&format!("DEL {RESULTS}")).await?;
    ground.typed(&format!("XADD {RESULTS} 18446744073709551615-18446744073709551613 first it")).await?;
    for _ in 0..2 {
        assert_eq!(announcer.announce_remembered().await?, Remembered::Refused);
        assert_eq!(remembered(&mysql).await?, [3], "those that were taken are not announced again");
        assert_eq!(ground.pool.xlen::<u64, _>(RESULTS).await?, 3);
    }
    ground.typed(&format!("DEL {RESULTS}")).await?;
    sqlx::query("UPDATE tidegate_unannounced_result SET result = 'none'").execute(&mysql).await?;
    announcer.announce(&[result(4)?]).await?;
    assert_eq!(announcer.announce_remembered().await?, Remembered::Announced, "a row without a result goes");
    assert_eq!(announcer.announce_remembered().await?, Remembered::None);
    let refused = announcer.counters().by_state().find(|(state, _)| *state == ResultState::Refused);
    assert_eq!(refused, Some((ResultState::Refused, 3)), "and is not counted");
    Ok(())
}
