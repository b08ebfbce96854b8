//! Tests of claims: lanes take over the entries of other consumers.

use std::time::Instant;

use tidegate_stream::{LaneSettings, Outcome, Script};

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, number, set_aside, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_entries_of_a_dead_consumer_are_drained_while_new_ones_go_on() {
    const ALL: usize = 100_000;
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(ALL, "dead").await;
    fixture.age("dead").await;
    // Some entries alone, and more in a row than one claim scans.
    let mut deleted: Vec<_> = ids.iter().skip(1).step_by(10).copied().collect();
    deleted.extend(ids[20_000..26_000].iter().copied());
    deleted.sort_unstable();
    deleted.dedup();
    for some in deleted.chunks(5000) {
        let some: Vec<String> = some.iter().map(ToString::to_string).collect();
        fixture.call::<u64>(&format!("XDEL s {}", some.join(" "))).await;
    }
    let new = fixture.add(2000).await;
    let handler = RecordingHandler::done();
    let waiting_read = fixture.reads.hold_when("BLOCK");
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 500, ..settings() }).await;
    waiting_read.reached().await.unwrap();
    assert_eq!(fixture.pending().await, 0, "no read waits for new entries before the list is drained");
    waiting_read.release();
    eventually("all are counted", async || {
        let counts = fixture.counters.counts();
        counts.done + counts.gone == (ALL + new.len()) as u64
    })
    .await;

    let counts = fixture.counters.counts();
    assert_eq!(counts.gone, deleted.len() as u64);
    assert_eq!(counts.claimed, ALL as u64);
    let batches = handler.batches();
    let last_new = batches.iter().rposition(|batch| new.contains(&batch.ids[0])).unwrap();
    assert!(last_new < 12, "new entries waited for the scan: batch {last_new} of {}", batches.len());
    let mut once = handler.ids();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), handler.ids().len(), "nothing is handled twice");
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_were_touched_lately_are_not_claimed() {
    let fixture = Fixture::start().await;
    let old = fixture.add_delivered(5, "dead").await;
    fixture.age("dead").await;
    fixture.add_delivered(5, "alive").await;
    let handler = RecordingHandler::done();
    let lane =
        fixture.run("c1", &handler, LaneSettings { block: ms(5), claim_every: ms(5), ..settings() }).await;
    eventually("ten scans", async || fixture.calls_of("xautoclaim").await >= 10).await;
    assert_eq!(handler.ids(), old);
    assert_eq!(fixture.pending().await, 5);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_takes_long_is_not_claimed_by_another_lane() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(10, "slow").await;
    let idle = ms(600);
    let greedy = LaneSettings { block: ms(5), claim_idle: idle, claim_every: ms(5), ..settings() };
    let (slow, thief) = (RecordingHandler::done(), RecordingHandler::done());
    slow.shut_door();
    let begun = Instant::now();
    let slow_lane = fixture.run("slow", &slow, greedy.clone()).await;
    slow.until_seen(10).await;
    let thief_lane = fixture.run("thief", &thief, greedy).await;
    eventually("scans for many times as long", async || begun.elapsed() > idle * 4).await;
    assert!(thief.ids().is_empty(), "{} were stolen", thief.ids().len());

    slow.open_door();
    fixture.nothing_is_pending().await;
    assert_eq!(slow.ids(), ids);
    slow_lane.stop().await;
    thief_lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_reply_is_lost_strands_nothing() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(25, "dead").await;
    fixture.age("dead").await;
    let handler = RecordingHandler::done();
    let lost = fixture.commands.drop_next_reply("XAUTOCLAIM");
    let lane = fixture.run("c1", &handler, settings()).await;
    lost.reached().await.unwrap();
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids(), ids);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_claim_finds_deleted_is_told_and_crashes_are_counted_also_when_redis_goes_away_right_after_it()
{
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(10, "dead").await;
    fixture.age("dead").await;
    fixture.call::<u64>(&format!("XDEL s {} {}", ids[3], ids[7])).await;
    let count_crashes = Script::new("count_crashes", include_str!("../../../../lua/count_crashes.lua"));
    let handler = RecordingHandler::done();
    handler.shut_door();
    let counting = fixture.commands.hold_when(count_crashes.sha1());
    let lane = fixture.run("c1", &handler, settings()).await;
    counting.reached().await.unwrap();
    fixture.commands.cut().await;
    eventually("the outage is noticed", async || fixture.log.count("outage began") > 0).await;
    assert_eq!(fixture.counters.counts().gone, 2);
    fixture.commands.pass();
    handler.until_seen(8).await;
    assert_eq!(fixture.call::<usize>("HLEN s.deaths").await, 8, "all that the dead one had in progress");
    handler.open_door();
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || {
        let counts = fixture.counters.counts();
        (counts.done, counts.gone, counts.claimed) == (8, 2, 10)
    })
    .await;
    assert_eq!(fixture.log.count("ERROR pending entries without payload"), 1);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_entries_can_be_left_to_be_tried_again_and_be_dead() {
    let fixture = Fixture::start().await;
    fixture.add_delivered(30, "dead").await;
    fixture.age("dead").await;
    let handler = RecordingHandler::new(|entry| match number(entry) {
        5 => set_aside(),
        7 | 23 => crate::fixture::dead("unreadable"),
        _ => Outcome::Done,
    });
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("one is left", async || fixture.pending().await == 1).await;
    eventually("two are buried", async || fixture.call::<usize>("XLEN s.dead").await == 2).await;
    let left: Vec<(String, String, u64, u64)> = fixture.call("XPENDING s g1 - + 10").await;
    assert_eq!(left[0].1, "c1");
    lane.stop().await;
}
