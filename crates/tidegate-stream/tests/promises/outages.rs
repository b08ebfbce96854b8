//! Tests of stores that are down, replies that are lost, and connections that break.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fred::types::Value;
use tidegate_stream::{Activity, EntryId, LaneSettings, Outcome, Script, SharedReader, breaker};

use crate::fixture::{Fixture, RecordingHandler, dead, eventually, ms, number, settings};

fn is_open(fixture: &Fixture) -> bool {
    fixture.breaker.state() != breaker::State::Closed
}

/// Whether the handler saw each of these entries at least once.
fn saw_all(handler: &RecordingHandler, ids: &[EntryId]) -> bool {
    let seen: std::collections::HashSet<EntryId> = handler.ids().into_iter().collect();
    ids.iter().all(|id| seen.contains(id))
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_store_is_away_nothing_is_read_and_afterwards_everything_is_handled() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lanes =
        [fixture.run("c1", &handler, settings()).await, fixture.run("c2", &handler, settings()).await];
    fixture.until_blocked(2).await;
    handler.set_store(false);
    fixture.store_works.send_replace(false);
    let mut ids = fixture.add(1).await;
    eventually("the breaker opens", async || is_open(&fixture)).await;
    // The other lane may have been reading, and handles one more batch at most.
    ids.extend(fixture.add(100).await);
    eventually("no read is under way", async || {
        fixture.call::<String>("INFO clients").await.contains("blocked_clients:0")
    })
    .await;
    let (reads, probes) = (fixture.calls_of("xreadgroup").await, *fixture.probes.borrow());
    eventually("five probes more", async || *fixture.probes.borrow() >= probes + 5).await;
    assert!(fixture.calls_of("xreadgroup").await <= reads + 1, "nothing is read");
    assert!(fixture.pending().await <= 20, "lanes x batch");
    assert!(is_open(&fixture));
    assert_eq!((fixture.log.count("outage began"), fixture.log.count("outage over")), (1, 0));

    handler.set_store(true);
    fixture.store_works.send_replace(true);
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    assert_eq!((fixture.log.count("outage began"), fixture.log.count("outage over")), (1, 1));
    assert_eq!(fixture.counters.counts().retried, 0, "no failure is counted against any entry");
    for lane in lanes {
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_error_the_own_pending_list_comes_first() {
    let fixture = Fixture::start().await;
    let ids = fixture.add(30).await;
    let handler = RecordingHandler::done();
    handler.set_store(false);
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("the outage is noticed", async || fixture.log.count("outage began") > 0).await;
    handler.set_store(true);
    fixture.nothing_is_pending().await;
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    let seen = handler.ids();
    let repeated = seen.len() - 30;
    assert!(repeated >= 10 && repeated.is_multiple_of(10));
    assert!(
        seen[..repeated].chunks(10).all(|batch| batch == &ids[..10]),
        "the first ten, until they are done"
    );
    assert_eq!(seen[repeated..], ids);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_obeyed_while_a_store_is_away() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    let handler = RecordingHandler::done();
    handler.set_store(false);
    fixture.store_works.send_replace(false);
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("the breaker opens", async || is_open(&fixture)).await;
    assert!(lane.stop().await < ms(1000));
    assert_eq!(fixture.pending().await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_reply_is_lost_strands_nothing_and_is_not_sent_again() {
    for source in ["BLOCK", "XREADGROUP"] {
        let fixture = Fixture::start().await;
        let mut ids = fixture.add_delivered(5, "c1").await;
        ids.extend(fixture.add(25).await);
        let handler = RecordingHandler::done();
        let lost = fixture.reads.drop_next_reply(source);
        let lane = fixture.run("c1", &handler, settings()).await;
        lost.reached().await.unwrap();
        eventually("all are handled", async || handler.ids().len() >= 30).await;
        fixture.nothing_is_pending().await;
        assert_eq!(handler.ids(), ids, "each once and in order, although a reply to {source} was lost");
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_of_several_replies_is_lost_all_that_was_read_is_handled_once() {
    // The last of four calls that one request sends after the first batch: 32, 32, 32 and 4 entries.
    const LAST: &str = "COUNT\r\n$1\r\n4\r\n";
    for is_dropped in [true, false] {
        let fixture = Fixture::start().await;
        let ids = fixture.add(300).await;
        let handler = RecordingHandler::done();
        let dropped = is_dropped.then(|| fixture.reads.drop_next_reply(LAST));
        // All later replies are held, too, so only another connection helps.
        let held = (!is_dropped).then(|| fixture.reads.hold_reply_when(LAST));
        let by_pieces = LaneSettings { batch: 100, batch_bytes: 1 << 20, ..settings() };
        let shared_reader = SharedReader::new(by_pieces.batch_bytes).over(fixture.read_connection().await);
        let lane = fixture.lane("c1", &handler, by_pieces).await;
        let lane = fixture.run_lane(lane.with_shared_reader(Arc::new(shared_reader)));
        if let Some(dropped) = dropped {
            dropped.reached().await.unwrap();
        }
        if let Some(held) = &held {
            held.reached().await.unwrap();
        }
        handler.until_seen(300).await;
        fixture.nothing_is_pending().await;
        assert_eq!(handler.ids(), ids, "each once and in order");
        let outages: u64 = fixture.breaker.outages().values().sum();
        assert!(outages <= 1, "{outages} outages");
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_none_of_several_replies_comes_the_outage_is_told_soon() {
    let fixture = Fixture::start().await;
    let ids = fixture.add(2_000).await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let batch = LaneSettings { batch: 1_000, batch_bytes: 1 << 20, ..settings() };
    // The timeout of a worker: the connection itself does not notice earlier.
    let connection = fixture.read_connection_within(ms(5_000)).await;
    let shared_reader = Arc::new(SharedReader::new(batch.batch_bytes).over(connection));
    let lane = fixture.lane("c1", &handler, batch).await.with_shared_reader(shared_reader);
    let lane = fixture.run_lane(lane);
    handler.until_seen(1_000).await;
    fixture.reads.black_hole();
    handler.open_door();
    // Each of the calls has two seconds more than the one before.
    let begun = Instant::now();
    eventually("it is told", async || !fixture.breaker.outages().is_empty()).await;
    assert!(begun.elapsed() < ms(8_000), "{:?}", begun.elapsed());
    fixture.reads.pass();
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_obeyed_while_redis_does_not_answer_and_a_part_of_a_read_is_left() {
    let mut fixture = Fixture::start().await;
    // The timeout of a worker. Until then, no call fails.
    fixture.stream = fixture.stream_within(ms(5_000)).await;
    fixture.add(1_000).await;
    fixture.add_large(100, 64 << 10).await;
    let handler = RecordingHandler::done();
    let by_bytes = LaneSettings { batch: 1_000, batch_bytes: 1 << 20, ..settings() };
    let fetch = Script::new("fetch", include_str!("../../lua/fetch.lua"));
    let fetches = fixture.commands.hold_when(fetch.sha1());
    let lane = fixture.run("c1", &handler, by_bytes).await;
    fetches.reached().await.unwrap();
    fixture.commands.black_hole();
    let took = lane.stop().await;
    assert!(took < ms(4_000), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_replies_each_may_take_its_time() {
    // Less than one call may take, and more than half of it.
    const SLOWLY: Duration = ms(1_500);
    let fixture = Fixture::start().await;
    let ids = fixture.add(200).await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let by_pieces = LaneSettings { batch: 100, batch_bytes: 1 << 20, ..settings() };
    let lane = fixture.run("c1", &handler, by_pieces).await;
    handler.until_seen(100).await;
    // One request of four calls: 32, 32, 32 and 4 entries.
    let first = fixture.reads.hold_reply_when("COUNT\r\n$2\r\n32\r\n");
    let last = fixture.reads.hold_reply_when("COUNT\r\n$1\r\n4\r\n");
    handler.open_door();
    for held in [first, last] {
        held.reached().await.unwrap();
        tokio::time::sleep(SLOWLY).await;
        held.release();
    }
    handler.until_seen(200).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids(), ids, "each once and in order");
    assert!(fixture.breaker.outages().is_empty(), "{:?}", fixture.breaker.outages());
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settling_whose_reply_is_lost_loses_nothing() {
    let fixture = Fixture::start().await;
    let ids = fixture.add(25).await;
    let handler = RecordingHandler::done();
    let lost = fixture.commands.drop_next_reply("XACK");
    let lane = fixture.run("c1", &handler, settings()).await;
    lost.reached().await.unwrap();
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burial_whose_reply_is_lost_gives_one_dead_letter() {
    let fixture = Fixture::start().await;
    fixture.add(25).await;
    let bury = Script::new("bury", include_str!("../../../../lua/bury.lua"));
    let handler = RecordingHandler::new(|entry| if number(entry) == 4 { dead("no") } else { Outcome::Done });
    let lost = fixture.commands.drop_next_reply(bury.sha1());
    // Otherwise the first call answers NOSCRIPT.
    let loading = fixture.pool.clone();
    let _sha1: Value =
        fred::interfaces::LuaInterface::script_load(loading.next(), include_str!("../../../../lua/bury.lua"))
            .await
            .unwrap();
    let lane = fixture.run("c1", &handler, settings()).await;
    lost.reached().await.unwrap();
    handler.until_seen(25).await;
    fixture.nothing_is_pending().await;
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 1);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_a_black_hole_notices_and_recovers() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let block = ms(300);
    let lane = fixture.run("c1", &handler, LaneSettings { block, ..settings() }).await;
    let mut ids = fixture.add(5).await;
    fixture.nothing_is_pending().await;
    fixture.until_blocked(1).await;
    fixture.reads.black_hole();
    let begun = Instant::now();
    // Redis hands the entry to a reader that is gone.
    ids.extend(fixture.add(1).await);
    eventually("it is noticed", async || fixture.log.count("outage began") > 0).await;
    // Up to three seconds: two of margin, and one for a slow machine.
    assert!(begun.elapsed() < block + ms(3000), "noticed after {:?}", begun.elapsed());
    ids.extend(fixture.add(5).await);
    fixture.reads.pass();
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_a_black_hole_is_noticed_and_does_not_delay_a_stop() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    let other = fixture.run("c2", &handler, settings()).await;
    fixture.until_blocked(2).await;
    fixture.reads.black_hole();
    fixture.commands.black_hole();
    eventually("it is noticed", async || is_open(&fixture)).await;
    let took = lane.stop().await;
    assert!(took < ms(3000), "took {took:?}");
    fixture.reads.pass();
    fixture.commands.pass();
    let ids = fixture.add(5).await;
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_wait_for_their_turn_to_read_do_not_meet_an_outage_one_after_the_other() {
    const LANES: usize = 8;
    // The time after which a read without an answer is given up.
    const READ: std::time::Duration = ms(2000);
    let fixture = Fixture::start().await;
    fixture.add(100 * LANES).await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let shared_reader = Arc::new(SharedReader::new(settings().batch_bytes));
    let (mut lanes, mut lane_statuses) = (Vec::new(), Vec::new());
    for at in 0..LANES {
        let lane = fixture
            .lane(&format!("c{at}"), &handler, settings())
            .await
            .with_shared_reader(Arc::clone(&shared_reader));
        lane_statuses.push(lane.lane_status());
        lanes.push(fixture.run_lane(lane));
    }
    // Each lane has a full batch, so all of them read the next one without waiting.
    handler.until_seen(10 * LANES).await;
    fixture.store_works.send_replace(false);
    fixture.reads.black_hole();
    let begun = Instant::now();
    handler.open_door();
    let all_are =
        async |activity| lane_statuses.iter().all(|lane_status| lane_status.state().activity == activity);
    eventually("all wait for Redis", async || all_are(Activity::WaitingForStores).await).await;
    // Another lane may have begun to read before the first one reported the outage.
    let took = begun.elapsed();
    assert!(took < READ * 4, "{took:?} for {LANES} lanes");

    fixture.reads.pass();
    fixture.store_works.send_replace(true);
    fixture.nothing_is_pending().await;
    eventually("all are done", async || fixture.counters.counts().done == 100 * LANES as u64).await;
    for lane in lanes {
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_comes_back_and_nothing_is_lost() {
    let fixture = Fixture::start_durable().await;
    let handler = RecordingHandler::done();
    let lanes =
        [fixture.run("c1", &handler, settings()).await, fixture.run("c2", &handler, settings()).await];
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.extend(fixture.add(500).await);
        fixture.redis.kill9().unwrap();
        fixture.redis.restart().unwrap();
        ids.extend(fixture.add(50).await);
    }
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    for lane in lanes {
        assert!(lane.is_running());
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_are_made_again_and_nothing_is_lost() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lanes =
        [fixture.run("c1", &handler, settings()).await, fixture.run("c2", &handler, settings()).await];
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.extend(fixture.add(100).await);
        let _killed: u64 = fixture.call("CLIENT KILL TYPE normal SKIPME yes").await;
    }
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    fixture.nothing_is_pending().await;
    for lane in lanes {
        assert!(lane.is_running());
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_entry_is_counted_once_although_settling_broke_off() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(10, "c1").await;
    fixture.call::<u64>(&format!("XDEL s {}", ids[7])).await;
    let handler = RecordingHandler::new(|entry| if number(entry) == 4 { dead("no") } else { Outcome::Done });
    // No other command contains this text.
    let hold = fixture.commands.hold_when("no_good");
    let lane = fixture.run("c1", &handler, settings()).await;
    hold.reached().await.unwrap();
    eventually("the burial is given up", async || fixture.log.count("outage began") > 0).await;
    hold.cut();
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || {
        let counts = fixture.counters.counts();
        (counts.done, counts.buried, counts.gone) == (8, 1, 1)
    })
    .await;
    assert_eq!(fixture.log.count("ERROR pending entries without payload"), 1);
    lane.stop().await;
}

/// Ten waits, which begin at 20 ms and double up to 500 ms. Each wait takes at least half of that.
const TEN_TURNS: std::time::Duration = ms(1300);

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_cannot_be_made_again_makes_no_hot_loop() {
    let fixture = Fixture::start().await;
    let _ok: Value = fixture.call("ACL SETUSER default -xgroup|create").await;
    let _destroyed: Value = fixture.call("XGROUP DESTROY s g1").await;
    let begun = Instant::now();
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("eleven reads", async || fixture.calls_of("xgroup|createconsumer").await >= 11).await;
    assert!(begun.elapsed() > TEN_TURNS, "eleven reads in {:?}", begun.elapsed());

    let _ok: Value = fixture.call("ACL SETUSER default +xgroup|create").await;
    let ids = fixture.add(3).await;
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_wrong_type_makes_no_hot_loop() {
    let fixture = Fixture::start().await;
    let _deleted: Value = fixture.call("DEL s").await;
    let _ok: Value = fixture.call("SET s text").await;
    let begun = Instant::now();
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("eleven reads", async || fixture.calls_of("xpending").await >= 11).await;
    assert!(begun.elapsed() > TEN_TURNS, "eleven reads in {:?}", begun.elapsed());

    let _deleted: Value = fixture.call("DEL s").await;
    let ids = fixture.add(3).await;
    eventually("all are handled", async || saw_all(&handler, &ids)).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_that_fails_makes_no_hot_loop() {
    let fixture = Fixture::start().await;
    let _ok: Value = fixture.call("ACL SETUSER default -xack").await;
    fixture.add(10).await;
    let begun = Instant::now();
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(11 * 10).await;
    assert!(begun.elapsed() > TEN_TURNS, "eleven tries in {:?}", begun.elapsed());
    let _ok: Value = fixture.call("ACL SETUSER default +xack").await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
}
