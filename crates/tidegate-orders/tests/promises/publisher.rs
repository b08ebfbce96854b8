//! Tests of results that Redis does not take, on a real Redis and MySQL.

use std::time::Duration;

use anyhow::Result;
use fred::interfaces::{KeysInterface, StreamsInterface};
use sqlx::{MySqlPool, mysql::MySqlPoolOptions};
use tidegate_lab::{MysqlServer, Proxy};
use tidegate_orders::{
    OrderResult, Partition, Published, Publisher, ResultState, publisher::Remembered, results::PLACED, schema,
};
use tidegate_stream::EntryId;

use crate::fixture::{Fixture, connect};

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

async fn open() -> Result<(Fixture, MysqlServer, MySqlPool)> {
    let fixture = Fixture::new().await?;
    let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
    let mysql = MySqlPoolOptions::new().max_connections(2).connect(&server.url()).await?;
    schema::migrate(&mysql).await?;
    Ok((fixture, server, mysql))
}

async fn remembered(mysql: &MySqlPool) -> Result<Vec<i64>> {
    let orders = sqlx::query_scalar("SELECT order_id FROM tidegate_unannounced_result ORDER BY id");
    Ok(orders.fetch_all(mysql).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_remembered_results_those_that_redis_takes_are_published_once_and_the_others_stay() -> Result<()> {
    let (fixture, _server, mysql) = open().await?;
    let publisher = Publisher::new(
        fixture.pool.clone(),
        RESULTS,
        Published::All,
        (mysql.clone(), Duration::from_secs(20)),
    );
    fixture.typed(&format!("SET {RESULTS} taken")).await?;
    publisher.publish(&[result(1)?, result(2)?, result(3)?]).await?;
    assert_eq!(remembered(&mysql).await?, [1, 2, 3]);
    assert_eq!(publisher.publish_remembered().await?, Remembered::Refused);
    // A stream with room for two more ids.
    fixture.typed(&format!("DEL {RESULTS}")).await?;
    fixture.typed(&format!("XADD {RESULTS} 18446744073709551615-18446744073709551613 first it")).await?;
    for _ in 0..2 {
        assert_eq!(publisher.publish_remembered().await?, Remembered::Refused);
        assert_eq!(remembered(&mysql).await?, [3], "those that were taken are not published again");
        assert_eq!(fixture.pool.xlen::<u64, _>(RESULTS).await?, 3);
    }
    fixture.typed(&format!("DEL {RESULTS}")).await?;
    sqlx::query("UPDATE tidegate_unannounced_result SET result = 'none'").execute(&mysql).await?;
    publisher.publish(&[result(4)?]).await?;
    assert_eq!(publisher.publish_remembered().await?, Remembered::Published, "a row without a result goes");
    assert_eq!(publisher.publish_remembered().await?, Remembered::None);
    let refused = publisher.counters().by_state().find(|(state, _)| *state == ResultState::Refused);
    assert_eq!(refused, Some((ResultState::Refused, 3)), "and is not counted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_for_lack_of_a_right_or_of_memory_is_remembered_and_is_no_outage() -> Result<()> {
    let (fixture, _server, mysql) = open().await?;
    let publisher =
        |pool| Publisher::new(pool, RESULTS, Published::All, (mysql.clone(), Duration::from_secs(20)));
    for (order, rights) in [(1, "~* +@all -xadd"), (2, "~other +@all"), (3, "~* +@all -evalsha")] {
        fixture.typed(&format!("ACL SETUSER u{order} on >secret {rights}")).await?;
        let url = format!("redis://u{order}:secret@127.0.0.1:{}", fixture.redis.port());
        publisher(connect(&url, 1).await?).publish(&[result(order)?]).await?;
    }
    fixture.typed("CONFIG SET maxmemory 1").await?;
    publisher(fixture.pool.clone()).publish(&[result(4)?]).await?;
    assert_eq!(remembered(&mysql).await?, [1, 2, 3, 4]);
    assert_eq!(fixture.pool.exists::<u64, _>(RESULTS).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_without_a_voucher_is_published_by_one_partition() -> Result<()> {
    let (fixture, _server, mysql) = open().await?;
    let tags = ["3", "1", "0"].map(str::to_owned);
    let of_partition = |partition: Partition| {
        let key = format!("{}{RESULTS}", partition.prefix());
        let store = (mysql.clone(), Duration::from_secs(20));
        (
            key.clone(),
            Publisher::new(fixture.pool.clone(), key, Published::All, store).of_partition(partition),
        )
    };
    let partitions: Vec<(String, Publisher)> = Partition::all(&tags).into_iter().map(of_partition).collect();
    // An order of partition 1 by its id, one of a producer with ids of its own, and one whose voucher belongs to
    // another partition.
    let orders =
        [result(64 + 1)?, result(64 + 50)?, OrderResult { voucher: 5.try_into().ok(), ..result(64)? }];
    for (key, _) in &partitions {
        fixture.typed(&format!("SET {key} taken")).await?;
    }
    partitions[1].1.publish(&orders).await?;
    sqlx::query("INSERT INTO tidegate_unannounced_result (order_id, entry_id, state, result) VALUES (9, '1-1', 'dead', 'none')")
        .execute(&mysql)
        .await?;
    assert_eq!(remembered(&mysql).await?, [65, 114, 64, 9]);
    let (mut counted, mut published) = (0, Vec::new());
    for (key, publisher) in &partitions {
        fixture.typed(&format!("DEL {key}")).await?;
        counted += publisher.unpublished().await?;
        while publisher.publish_remembered().await? == Remembered::Published {}
        published.push(fixture.pool.xlen::<u64, _>(key).await?);
    }
    assert_eq!((counted, published), (4, vec![0, 1, 2]), "each once, by its voucher or else by its id");
    assert_eq!(remembered(&mysql).await?, [0_i64; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_given_up_while_it_began_takes_no_later_result_along() -> Result<()> {
    let (fixture, server, mysql) = open().await?;
    let proxy = Proxy::start(server.port()).await?;
    let only = MySqlPoolOptions::new().max_connections(1).connect(&proxy.url_for(&server)).await?;
    let publisher = Publisher::new(
        fixture.pool.clone(),
        RESULTS,
        Published::All,
        (only.clone(), Duration::from_millis(500)),
    );
    fixture.typed(&format!("SET {RESULTS} taken")).await?;
    publisher.publish(&[result(1)?]).await?;
    let begin = proxy.hold_reply_when(b"BEGIN");
    let (given_up, held) = tokio::join!(publisher.publish_remembered(), begin.reached());
    held?;
    assert!(given_up.is_err(), "no answer in time");
    begin.release();
    // The pool has no other connection.
    publisher.publish(&[result(2)?]).await?;
    only.close().await;
    assert_eq!(remembered(&mysql).await?, [1, 2], "what is remembered is committed");
    Ok(())
}
