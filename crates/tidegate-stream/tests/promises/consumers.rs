//! Tests of the removal of consumers that will not come back.

use std::time::{Duration, Instant};

use fred::types::{Key, Value};
use tidegate_stream::{ConsumerRemover, inspect};

use crate::fixture::{Fixture, eventually, ms};

fn heartbeat(consumer: &str) -> Key {
    format!("alive:{consumer}").into()
}

async fn names(fixture: &Fixture) -> Vec<String> {
    let mut infos = inspect::consumers(&fixture.pool, &fixture.names).await.unwrap();
    infos.sort_by(|one, other| one.name.cmp(&other.name));
    infos.into_iter().map(|info| info.name).collect()
}

async fn until_idle(fixture: &Fixture, idle: Duration) {
    eventually("all are idle", async || {
        let infos = inspect::consumers(&fixture.pool, &fixture.names).await.unwrap();
        infos.iter().all(|info| u128::from(info.idle_ms) >= idle.as_millis())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_empty_idle_consumers_without_a_heartbeat_are_removed() {
    let fixture = Fixture::start().await;
    let idle = ms(600);
    fixture.add_delivered(3, "holds-entries").await;
    for consumer in ["alive", "dead"] {
        let _created: Value = fixture.call(&format!("XGROUP CREATECONSUMER s g1 {consumer}")).await;
    }
    let _ok: Value = fixture.call("SET alive:alive 1").await;
    until_idle(&fixture, idle).await;
    // This consumer has just read.
    let asked = Instant::now();
    let _nothing: Value = fixture.call("XREADGROUP GROUP g1 recent STREAMS s >").await;

    let patient =
        ConsumerRemover::new(fixture.pool.clone(), fixture.names.clone(), Duration::from_secs(3600));
    assert!(patient.run_once(heartbeat).await.unwrap().is_empty(), "nobody has been idle for an hour");
    let remover = ConsumerRemover::new(fixture.pool.clone(), fixture.names.clone(), idle);
    let removed = remover.run_once(heartbeat).await.unwrap();
    // On a slow machine, the idle time may be over: then this consumer may be removed, too.
    if asked.elapsed() < idle {
        assert_eq!(removed, ["dead"]);
    } else {
        assert_eq!(removed[0], "dead");
    }

    until_idle(&fixture, idle).await;
    remover.run_once(heartbeat).await.unwrap();
    assert_eq!(names(&fixture).await, ["alive", "holds-entries"]);
    assert_eq!(fixture.pending().await, 3);

    let _deleted: Value = fixture.call("DEL alive:alive").await;
    assert_eq!(remover.run_once(heartbeat).await.unwrap(), ["alive"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_gets_an_entry_between_look_and_removal_stays() {
    let fixture = Fixture::start().await;
    let _created: Value = fixture.call("XGROUP CREATECONSUMER s g1 dead").await;
    let remover = ConsumerRemover::new(fixture.pool.clone(), fixture.names.clone(), Duration::ZERO);
    let hold = fixture.commands.hold_when("alive:dead");
    let looking = tokio::spawn(async move { remover.run_once(heartbeat).await });
    hold.reached().await.unwrap();
    fixture.add_delivered(1, "dead").await;
    hold.release();
    assert!(looking.await.unwrap().unwrap().is_empty());
    assert_eq!(fixture.pending().await, 1);
    assert_eq!(names(&fixture).await, ["dead"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_group_is_told_from_other_errors() {
    let fixture = Fixture::start().await;
    let _destroyed: Value = fixture.call("XGROUP DESTROY s g1").await;
    let error = inspect::consumers(&fixture.pool, &fixture.names).await.unwrap_err();
    assert!(matches!(error, tidegate_stream::StreamError::NoGroup(_)), "{error:?}");
}
