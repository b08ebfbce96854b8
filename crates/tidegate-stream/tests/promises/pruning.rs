//! Tests of the deletion of old entries.

use fred::types::Value;
use tidegate_stream::StreamPruner;

use crate::fixture::{Fixture, ms};

async fn length(fixture: &Fixture) -> usize {
    fixture.call("XLEN s").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_group_has_not_read_or_not_acknowledged_is_not_trimmed() {
    let fixture = Fixture::start().await;
    let pruner = StreamPruner::new(fixture.pool.clone(), fixture.names.clone(), ms(0));
    let ids = fixture.add_delivered(1000, "c").await;
    fixture.add(1000).await;
    assert_eq!(pruner.run_once().await.unwrap(), 0, "all are pending or unread");

    for id in &ids[..500] {
        let _acked: Value = fixture.call(&format!("XACK s g1 {id}")).await;
    }
    let _made: Value = fixture.call("XGROUP CREATE s slow 0").await;
    assert_eq!(pruner.run_once().await.unwrap(), 0, "another group has read nothing");

    let _set: Value = fixture.call(&format!("XGROUP SETID s slow {}", ids[999])).await;
    let trimmed = pruner.run_once().await.unwrap();
    // Redis deletes whole nodes, of a hundred entries at most.
    assert!((401..=500).contains(&trimmed), "{trimmed}");
    assert_eq!(length(&fixture).await, 2000 - usize::try_from(trimmed).unwrap());
    let first_pending: Vec<Value> = fixture.call(&format!("XRANGE s {0} {0}", ids[500])).await;
    assert_eq!(first_pending.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_within_the_retention_stays_and_a_long_stream_is_trimmed_whole() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(25_000, "c").await;
    let _set: Value = fixture.eval("return redis.call('XGROUP', 'DESTROY', 's', 'g1')", &[]).await;
    let pruner = StreamPruner::new(fixture.pool.clone(), fixture.names.clone(), ms(0));
    assert_eq!(pruner.run_once().await.unwrap(), 0, "no group says what it needs");

    let _made: Value = fixture.call(&format!("XGROUP CREATE s g1 {}", ids[24_999])).await;
    let patient = StreamPruner::new(fixture.pool.clone(), fixture.names.clone(), ms(3_600_000));
    assert_eq!(patient.run_once().await.unwrap(), 0, "all are younger than an hour");
    pruner.run_once().await.unwrap();
    assert!(length(&fixture).await <= 100);
    let nothing = Fixture::start().await;
    assert_eq!(
        StreamPruner::new(nothing.pool.clone(), nothing.names.clone(), ms(0)).run_once().await.unwrap(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_twenty_digits_are_told_apart() {
    let fixture = Fixture::start().await;
    // Three neighbours that are the same number as a double. The group `g1` needs the third entry, and `slow` the
    // second.
    let [first, second, third] = ["18446744073709551612", "18446744073709551613", "18446744073709551614"];
    let _set: Value = fixture.call("CONFIG SET stream-node-max-entries 1").await;
    for sequence in [first, second, third] {
        let _added: Value = fixture.call(&format!("XADD s 5-{sequence} f v")).await;
    }
    let _moved: Value = fixture.call(&format!("XGROUP SETID s g1 5-{third}")).await;
    let _made: Value = fixture.call("XGROUP CREATE s slow 0").await;
    let _read: Value = fixture.call("XREADGROUP GROUP slow c COUNT 2 STREAMS s >").await;
    let _acked: Value = fixture.call(&format!("XACK s slow 5-{first}")).await;
    StreamPruner::new(fixture.pool.clone(), fixture.names.clone(), ms(0)).run_once().await.unwrap();
    let pending: Vec<Value> = fixture.call(&format!("XRANGE s 5-{second} 5-{second}")).await;
    assert_eq!(pending.len(), 1, "it is pending");
}
