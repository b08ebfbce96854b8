//! Another server in the place of the one that handed the entries over, which gave the same ids to other entries.

use tidegate_stream::{EntryId, Failover, LaneSettings, Outcome};

use crate::rig::{RecordingHandler, Rig, Running, dead, eventually, number, settings};

/// Entries with these ids, of which each has the number `from` or above.
async fn add(rig: &Rig, ids: std::ops::RangeInclusive<u64>, from: usize) -> Vec<EntryId> {
    let mut added = Vec::new();
    for (ms, n) in ids.zip(from..) {
        let id: String = rig.call(&format!("XADD s {ms}-1 n {n}")).await;
        added.push(id.parse().unwrap());
    }
    added
}

/// A lane that has entries 1-1 to 3-1 in hand when its server is replaced by another one, where a dead consumer has the entries
/// 1-1 to 3-1, which are others.
async fn replaced_in_hand(rig: &Rig, handler: &std::sync::Arc<RecordingHandler>) -> Running {
    handler.shut_door();
    let ids = add(rig, 1..=3, 1).await;
    let possible = LaneSettings { failover: Failover::Possible, ..settings() };
    let lane = rig.run("c1", handler, possible).await;
    handler.until_seen(3).await;
    rig.redis.kill9().unwrap();
    rig.redis.restart().unwrap();
    eventually("the other server answers", async || rig.try_call::<String>("PING").await.is_ok()).await;
    let _ok: String = rig.call("XGROUP CREATE s g1 0 MKSTREAM").await;
    assert_eq!(add(rig, 1..=3, 11).await, ids);
    let _read: fred::types::Value = rig.call("XREADGROUP GROUP g1 dead COUNT 3 STREAMS s >").await;
    lane
}

/// The dead consumer's entries are still there, and the lane goes on.
async fn is_unharmed(rig: &Rig, handler: &RecordingHandler, lane: Running) {
    let later = add(rig, 4..=5, 14).await;
    eventually("the lane goes on", async || later.iter().all(|id| handler.ids().contains(id))).await;
    eventually("and settles", async || rig.pending().await == 3).await;
    let held: Vec<fred::types::Value> = rig.call("XPENDING s g1 - + 10 dead").await;
    assert_eq!(held.len(), 3, "nobody has settled what nobody has handled");
    assert_eq!(rig.call::<usize>("XLEN s.dead").await, 0);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_hand_is_not_acknowledged_on_another_server() {
    let rig = Rig::start_forgetful().await;
    let handler = RecordingHandler::done();
    let lane = replaced_in_hand(&rig, &handler).await;
    handler.open_door();
    is_unharmed(&rig, &handler, lane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_hand_is_not_buried_on_another_server() {
    let rig = Rig::start_forgetful().await;
    let handler = RecordingHandler::new(|entry| if number(entry) < 4 { dead("no") } else { Outcome::Done });
    let lane = replaced_in_hand(&rig, &handler).await;
    handler.open_door();
    is_unharmed(&rig, &handler, lane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_waits_for_entries_goes_on_with_those_of_another_server() {
    let rig = Rig::start_forgetful().await;
    let handler = RecordingHandler::done();
    let possible = LaneSettings { failover: Failover::Possible, ..settings() };
    let lane = rig.run("c1", &handler, possible).await;
    for round in 0..5 {
        add(&rig, 1..=3, 1).await;
        handler.until_seen(6 * round + 3).await;
        rig.nothing_is_pending().await;
        rig.redis.kill9().unwrap();
        rig.redis.restart().unwrap();
        eventually("the other server answers", async || rig.try_call::<String>("PING").await.is_ok()).await;
        // The lane may make the group itself.
        let _made = rig.try_call::<String>("XGROUP CREATE s g1 0 MKSTREAM").await;
        add(&rig, 1..=3, 1).await;
        handler.until_seen(6 * round + 6).await;
        rig.nothing_is_pending().await;
        let _deleted: i64 = rig.call("DEL s").await;
    }
    assert_eq!(handler.ids().len(), 30, "each once");
    lane.stop().await;
}
