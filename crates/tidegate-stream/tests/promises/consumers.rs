//! Removing consumers that are gone for good.

use std::time::{Duration, Instant};

use fred::types::{Key, Value};
use tidegate_stream::{ConsumerRemover, inspect};

use crate::rig::{Rig, eventually, ms};

fn heartbeat(consumer: &str) -> Key {
    format!("alive:{consumer}").into()
}

async fn names(rig: &Rig) -> Vec<String> {
    let mut infos = inspect::consumers(&rig.pool, &rig.names).await.unwrap();
    infos.sort_by(|one, other| one.name.cmp(&other.name));
    infos.into_iter().map(|info| info.name).collect()
}

async fn until_idle(rig: &Rig, idle: Duration) {
    eventually("all are idle", async || {
        let infos = inspect::consumers(&rig.pool, &rig.names).await.unwrap();
        infos.iter().all(|info| u128::from(info.idle_ms) >= idle.as_millis())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_empty_idle_consumers_without_a_heartbeat_are_removed() {
    let rig = Rig::start().await;
    let idle = ms(600);
    rig.add_delivered(3, "holds-entries").await;
    for consumer in ["alive", "dead"] {
        let _created: Value = rig.call(&format!("XGROUP CREATECONSUMER s g1 {consumer}")).await;
    }
    let _ok: Value = rig.call("SET alive:alive 1").await;
    until_idle(&rig, idle).await;
    // This one has asked a moment ago.
    let asked = Instant::now();
    let _nothing: Value = rig.call("XREADGROUP GROUP g1 recent STREAMS s >").await;

    let patient = ConsumerRemover::new(rig.pool.clone(), rig.names.clone(), Duration::from_secs(3600));
    assert!(patient.run_once(heartbeat).await.unwrap().is_empty(), "nobody has been idle for an hour");
    let remover = ConsumerRemover::new(rig.pool.clone(), rig.names.clone(), idle);
    let removed = remover.run_once(heartbeat).await.unwrap();
    // On a slow machine a moment may be long: then it may go, too.
    if asked.elapsed() < idle {
        assert_eq!(removed, ["dead"]);
    } else {
        assert_eq!(removed[0], "dead");
    }

    until_idle(&rig, idle).await;
    remover.run_once(heartbeat).await.unwrap();
    assert_eq!(names(&rig).await, ["alive", "holds-entries"]);
    assert_eq!(rig.pending().await, 3);

    let _deleted: Value = rig.call("DEL alive:alive").await;
    assert_eq!(remover.run_once(heartbeat).await.unwrap(), ["alive"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_gets_an_entry_between_look_and_removal_stays() {
    let rig = Rig::start().await;
    let _created: Value = rig.call("XGROUP CREATECONSUMER s g1 dead").await;
    let remover = ConsumerRemover::new(rig.pool.clone(), rig.names.clone(), Duration::ZERO);
    let hold = rig.commands.hold_when("alive:dead");
    let looking = tokio::spawn(async move { remover.run_once(heartbeat).await });
    hold.reached().await.unwrap();
    rig.add_delivered(1, "dead").await;
    hold.release();
    assert!(looking.await.unwrap().unwrap().is_empty());
    assert_eq!(rig.pending().await, 1);
    assert_eq!(names(&rig).await, ["dead"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_group_is_told_from_other_errors() {
    let rig = Rig::start().await;
    let _destroyed: Value = rig.call("XGROUP DESTROY s g1").await;
    let error = inspect::consumers(&rig.pool, &rig.names).await.unwrap_err();
    assert!(matches!(error, tidegate_stream::StreamError::NoGroup(_)), "{error:?}");
}
