//! Tests of a failover. The new server gave the ids of the entries to other entries, or does not have the entries.

use tidegate_lab::RedisServer;
use tidegate_stream::{Confirmation, ConfirmedIn, EntryId, Failover, LaneSettings, Outcome};

use crate::fixture::{Fixture, RecordingHandler, Running, dead, eventually, ms, number, settings};

/// Adds entries with these ids. Their numbers count up from `from`.
async fn add(fixture: &Fixture, ids: std::ops::RangeInclusive<u64>, from: usize) -> Vec<EntryId> {
    let mut added = Vec::new();
    for (ms, n) in ids.zip(from..) {
        let id: String = fixture.call(&format!("XADD s {ms}-1 n {n}")).await;
        added.push(id.parse().unwrap());
    }
    added
}

/// A lane whose server is replaced by another one while it has the entries 1-1 to 3-1 in progress. On the new server, a
/// dead consumer has other entries with the same ids.
async fn replaced_in_progress(fixture: &Fixture, handler: &std::sync::Arc<RecordingHandler>) -> Running {
    handler.shut_door();
    let ids = add(fixture, 1..=3, 1).await;
    let possible = LaneSettings { failover: Failover::Possible, ..settings() };
    let lane = fixture.run("c1", handler, possible).await;
    handler.until_seen(3).await;
    fixture.redis.kill9().unwrap();
    fixture.redis.restart().unwrap();
    eventually("the other server answers", async || fixture.try_call::<String>("PING").await.is_ok()).await;
    let _ok: String = fixture.call("XGROUP CREATE s g1 0 MKSTREAM").await;
    assert_eq!(add(fixture, 1..=3, 11).await, ids);
    let _read: fred::types::Value = fixture.call("XREADGROUP GROUP g1 dead COUNT 3 STREAMS s >").await;
    lane
}

/// Checks that the dead consumer still has its entries, and that the lane handles new ones.
async fn is_unharmed(fixture: &Fixture, handler: &RecordingHandler, lane: Running) {
    let later = add(fixture, 4..=5, 14).await;
    eventually("the lane goes on", async || later.iter().all(|id| handler.ids().contains(id))).await;
    eventually("and settles", async || fixture.pending().await == 3).await;
    let held: Vec<fred::types::Value> = fixture.call("XPENDING s g1 - + 10 dead").await;
    assert_eq!(held.len(), 3, "nobody has settled what nobody has handled");
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 0);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_progress_is_not_acknowledged_on_another_server() {
    let fixture = Fixture::start_forgetful().await;
    let handler = RecordingHandler::done();
    let lane = replaced_in_progress(&fixture, &handler).await;
    handler.open_door();
    is_unharmed(&fixture, &handler, lane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_progress_is_not_buried_on_another_server() {
    let fixture = Fixture::start_forgetful().await;
    let handler = RecordingHandler::new(|entry| if number(entry) < 4 { dead("no") } else { Outcome::Done });
    let lane = replaced_in_progress(&fixture, &handler).await;
    handler.open_door();
    is_unharmed(&fixture, &handler, lane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_waits_for_entries_goes_on_with_those_of_another_server() {
    let fixture = Fixture::start_forgetful().await;
    let handler = RecordingHandler::done();
    let possible = LaneSettings { failover: Failover::Possible, ..settings() };
    let lane = fixture.run("c1", &handler, possible).await;
    for round in 0..5 {
        add(&fixture, 1..=3, 1).await;
        handler.until_seen(6 * round + 3).await;
        fixture.nothing_is_pending().await;
        fixture.redis.kill9().unwrap();
        fixture.redis.restart().unwrap();
        eventually("the other server answers", async || fixture.try_call::<String>("PING").await.is_ok())
            .await;
        // The lane may create the group itself.
        let _made = fixture.try_call::<String>("XGROUP CREATE s g1 0 MKSTREAM").await;
        add(&fixture, 1..=3, 1).await;
        handler.until_seen(6 * round + 6).await;
        fixture.nothing_is_pending().await;
        let _deleted: i64 = fixture.call("DEL s").await;
    }
    assert_eq!(handler.ids().len(), 30, "each once");
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_another_server_than_the_readers_are_not_handled() {
    let fixture = Fixture::start().await;
    let promoted = Fixture::start().await;
    for (fixture, from) in [(&fixture, 1), (&promoted, 11)] {
        add(fixture, 1..=3, from).await;
        let _read: fred::types::Value = fixture.call("XREADGROUP GROUP g1 c1 COUNT 3 STREAMS s >").await;
    }
    // The old master still answers, so the connections for commands do not notice.
    fixture.reads.lead_to(promoted.redis.port());
    let numbers = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&numbers);
    let handler = RecordingHandler::new(move |entry| {
        seen.lock().unwrap().push(number(entry));
        Outcome::Done
    });
    handler.shut_door();
    let possible = LaneSettings { failover: Failover::Possible, ..settings() };
    let lane = fixture.run("c1", &handler, possible).await;
    eventually("it has an entry, or notices", async || {
        !handler.ids().is_empty() || !fixture.breaker.outages().is_empty()
    })
    .await;
    fixture.commands.lead_to(promoted.redis.port());
    fixture.commands.cut_connections().await;
    handler.open_door();
    promoted.nothing_is_pending().await;
    lane.stop().await;
    let mut numbers = numbers.lock().unwrap().clone();
    numbers.sort_unstable();
    assert_eq!(
        numbers,
        [11, 12, 13],
        "what is acknowledged was handled, and what another server has was not"
    );
    assert_eq!(fixture.call::<fred::types::Value>("XPENDING s g1 - + 10").await.into_array().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_handled_only_once_a_replica_has_them() {
    let fixture = Fixture::start().await;
    let port = fixture.redis.port().to_string();
    let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().unwrap();
    let _added = fixture.add(1).await;
    eventually("the replica is there", async || fixture.call::<i64>("WAIT 1 1000").await == 1).await;
    let wanted =
        Confirmation { replicas: 1.try_into().unwrap(), within: ms(100), place: ConfirmedIn::Memory };
    let replicated = LaneSettings { replicas: Some(wanted), ..settings() };
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, replicated.clone()).await;
    handler.until_seen(1).await;
    fixture.nothing_is_pending().await;

    replica.stop().unwrap();
    fixture.add(3).await;
    let outages = || fixture.breaker.outages().get("Redis").copied().unwrap_or_default();
    // New entries at first, then those of its own pending list.
    eventually("it has tried them again and again", async || outages() > 3).await;
    assert_eq!(handler.ids().len(), 1, "no entry was handled that no replica has");
    // Newer servers answer WAIT at once over a connection that has written nothing.
    for _ in 0..3 {
        let wait = fixture.reads.hold_when("WAIT");
        wait.reached().await.unwrap();
        wait.cut();
    }
    lane.stop().await;
    let lane = fixture.run("c1", &handler, replicated).await;
    let before = outages();
    eventually("nor does another process", async || outages() > before).await;
    assert_eq!(handler.ids().len(), 1, "no entry was handled that no replica has");

    replica.cont().unwrap();
    handler.until_seen(4).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids().len(), 4, "each once");
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_others_have_by_now_is_no_outage() {
    let fixture = Fixture::start().await;
    let port = fixture.redis.port().to_string();
    let _replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().unwrap();
    let first = fixture.add(1).await[0];
    eventually("the replica is there", async || fixture.call::<i64>("WAIT 1 1000").await == 1).await;
    let wanted =
        Confirmation { replicas: 1.try_into().unwrap(), within: ms(5_000), place: ConfirmedIn::Memory };
    let handler = RecordingHandler::done();
    // The lane has read its batch and is about to ask for replicas when another consumer takes the batch.
    let asks = fixture.reads.hold_when("EVALSHA");
    let lane = fixture.run("c1", &handler, LaneSettings { replicas: Some(wanted), ..settings() }).await;
    asks.reached().await.unwrap();
    let _claimed: fred::types::Value = fixture.call(&format!("XCLAIM s g1 other 0 {first}")).await;
    asks.release();
    let second = fixture.add(1).await[0];
    handler.until_seen(1).await;
    assert_eq!(handler.ids(), [second], "what another has, it leaves to that one");
    assert!(fixture.breaker.outages().is_empty(), "{:?}", fixture.breaker.outages());
    eventually("its own is settled", async || fixture.pending().await == 1).await;
    lane.stop().await;
}
