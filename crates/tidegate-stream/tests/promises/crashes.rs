//! Tests of entries that crash the processes that handle them.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fred::prelude::*;
use tidegate_stream::{
    Activity, Breaker, Counters, Entry, EntryId, Exclusive, Handled, Handler, Lane, LaneSettings, Outage,
    Outcome, Reader, RedisConnectionSettings, Stream, StreamNames, connect_pool, connect_reader,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{DEADLINE, Fixture, RecordingHandler, eventually, ms, number, set_aside, settings};

const URL: &str = "TIDEGATE_TEST_DEADLY_URL";

/// A process of two lanes, which aborts when it handles an entry with the field `deadly`.
struct Deadly;

impl Handler for Deadly {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        // The other lane has time to read a batch, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        if batch.iter().any(|entry| entry.fields.iter().any(|(name, _)| name == "deadly")) {
            std::process::abort();
        }
        Ok(vec![Outcome::Done; batch.len()].into())
    }
}

#[test]
#[ignore = "a process that the tests below start"]
fn deadly_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis = RedisConnectionSettings {
            url,
            master: None,
            sentinels: None,
            connections: 2,
            command_timeout: ms(2000),
            connect_timeout: ms(2000),
        };
        let names = StreamNames { stream: "s".into(), dead: "s.dead".into(), group: "g1".into() };
        let pool = connect_pool(&redis).await.unwrap();
        let stream = Stream::new(pool, names.clone());
        let (breaker, counters, alone) =
            (Arc::new(Breaker::default()), Arc::new(Counters::default()), Arc::default());
        let mut lanes = Vec::new();
        for at in 0..2 {
            let reader =
                Reader::new(connect_reader(&redis).await.unwrap(), names.clone(), format!("deadly-{at}"));
            let settings = LaneSettings { batch: 20, ..settings() };
            let lane = Lane::new(
                reader,
                stream.clone(),
                Arc::new(Deadly),
                Arc::clone(&breaker),
                Arc::clone(&counters),
                settings,
            );
            lanes.push(lane.with_exclusive(Arc::<Exclusive>::clone(&alone)));
        }
        let stop = CancellationToken::new();
        let lanes: Vec<_> = lanes.into_iter().map(|lane| tokio::spawn(lane.run(stop.clone()))).collect();
        for lane in lanes {
            lane.await.unwrap();
        }
    });
}

impl Fixture {
    /// Starts the deadly process again and again, until no entry is left that crashes it, and returns how often it
    /// crashed.
    async fn run_deadly(&self) -> usize {
        for crashes in 0.. {
            assert!(crashes < 20, "it dies for ever");
            let exe = std::env::current_exe().unwrap();
            let mut child = Command::new(exe)
                .args(["--exact", "crashes::deadly_process", "--ignored", "--nocapture"])
                .env(URL, self.redis.url())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let deadline = std::time::Instant::now() + DEADLINE;
            let mut is_settled = false;
            while !is_settled && child.try_wait().unwrap().is_none() {
                assert!(std::time::Instant::now() < deadline, "it neither dies nor settles all");
                is_settled = self.pending().await == 0 && self.undelivered().await == 0;
                tokio::time::sleep(ms(5)).await;
            }
            if is_settled {
                child.kill().unwrap();
                child.wait().unwrap();
                return crashes;
            }
        }
        unreachable!("counts for ever")
    }

    async fn undelivered(&self) -> usize {
        let groups: Vec<std::collections::HashMap<String, Value>> = self.call("XINFO GROUPS s").await;
        let last = groups[0]["last-delivered-id"].as_string().unwrap();
        self.call::<Vec<Value>>(&format!("XRANGE s ({last} + COUNT 1")).await.len()
    }
}

impl Fixture {
    /// Adds an entry that `c1` has set aside, with a note of three crashes, so that it has to be handled alone.
    pub async fn add_suspect(&self, note: &str) -> EntryId {
        let suspect = self.add_delivered(1, "c1").await[0];
        let _set_aside: Value = self.call(&format!("XCLAIM s g1 c1 0 {suspect} RETRYCOUNT 0 JUSTID")).await;
        let lua = "return redis.call('HSET', 's.deaths', ARGV[1], ARGV[2])";
        let noted: Value = self.eval(lua, &[&suspect.to_string(), note]).await;
        assert_eq!(noted.as_u64(), Some(1));
        suspect
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_kills_its_process_is_handled_alone_and_buried_and_takes_no_neighbour_along() {
    let fixture = Fixture::start().await;
    fixture.add(30).await;
    let deadly: String = fixture.call("XADD s * n 0 deadly yes").await;
    fixture.add(200).await;
    let died = fixture.run_deadly().await;
    assert_eq!(died, 5, "twice among others, three times alone");
    let letters: Vec<(String, Vec<String>)> = fixture.call("XRANGE s.dead - +").await;
    assert_eq!(letters.len(), 1, "no neighbour is buried");
    let letter = &letters[0].1;
    let about = |name: &str| letter.iter().skip_while(|field| *field != name).nth(1).cloned().unwrap();
    assert_eq!((about("dead:entry"), about("dead:reason")), (deadly, "killed_worker".to_owned()));
    assert_eq!(fixture.call::<usize>("HLEN s.deaths").await, 0, "nothing is left of those that were settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_entries_that_kill_are_both_found_and_everything_else_is_done() {
    let fixture = Fixture::start().await;
    for _ in 0..2 {
        fixture.add(25).await;
        let _deadly: String = fixture.call("XADD s * n 0 deadly yes").await;
    }
    fixture.add(25).await;
    fixture.run_deadly().await;
    let letters: Vec<(String, Vec<String>)> = fixture.call("XRANGE s.dead - +").await;
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|(_, fields)| fields.contains(&"deadly".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_kills_claimants_of_other_names_is_found_too() {
    let fixture = Fixture::start().await;
    fixture.add_delivered(3, "dead").await;
    fixture.age("dead").await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let lane = fixture.run("dead-too", &handler, LaneSettings { claim_every: ms(20), ..settings() }).await;
    handler.until_seen(3).await;
    lane.kill().await;
    fixture.age("dead-too").await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, LaneSettings { claim_every: ms(20), ..settings() }).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.sizes(), [1, 1, 1], "each is handled alone");
    assert_eq!(fixture.log.count("workers now handle this entry alone"), 3);
    eventually("crashes are forgotten", async || fixture.call::<usize>("HLEN s.deaths").await == 0).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_and_a_stop_are_no_crashes() {
    let fixture = Fixture::start().await;
    fixture.add(10).await;
    for _ in 0..6 {
        let handler = RecordingHandler::done();
        handler.set_store(false);
        fixture.store_works.send_replace(false);
        let lane = fixture.run("c1", &handler, settings()).await;
        handler.until_seen(10).await;
        eventually("the store is away", async || fixture.breaker.is_open()).await;
        lane.kill().await;
        fixture.store_works.send_replace(true);
        eventually("the store is back", async || !fixture.breaker.is_open()).await;
    }
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.sizes(), [10]);
    assert_eq!(fixture.call::<usize>("EXISTS s.deaths").await, 0);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_interrupted_counts_the_crashes_of_the_process_before_once_and_none_of_its_own() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(30, "c1").await;
    // The process before crashed with every other entry in progress.
    for id in ids.iter().step_by(2) {
        let _set_aside: Value = fixture.call(&format!("XCLAIM s g1 c1 0 {id} RETRYCOUNT 0 JUSTID")).await;
    }
    let handler = RecordingHandler::done();
    handler.shut_door();
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(10).await;
    fixture.reads.cut().await;
    fixture.commands.cut().await;
    handler.open_door();
    eventually("it cannot be settled", async || fixture.log.count("outage began") > 0).await;
    handler.shut_door();
    fixture.reads.pass();
    fixture.commands.pass();
    handler.until_seen(20).await;
    assert_eq!(handler.ids()[10..20], ids[..10], "the same ones again");
    let crashes: std::collections::BTreeMap<String, String> = fixture.call("HGETALL s.deaths").await;
    let died: std::collections::BTreeMap<String, String> =
        ids.iter().skip(1).step_by(2).map(|id| (id.to_string(), "1".to_owned())).collect();
    assert_eq!(crashes, died);
    handler.open_door();
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_alone_that_waits_for_something_else_is_in_nobodys_way_and_is_done_when_that_is_over() {
    let fixture = Fixture::start().await;
    // Earlier versions wrote the note with a token.
    let suspect = fixture.add_suspect("3 0af7").await;
    let door = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&door);
    let handler = RecordingHandler::new(move |entry| {
        if number(entry) == 1 && !is_open.load(Ordering::Relaxed) { set_aside() } else { Outcome::Done }
    });
    let alone = Arc::<Exclusive>::default();
    let mut lanes = Vec::new();
    for consumer in ["c1", "c2"] {
        let lane = fixture.lane(consumer, &handler, settings()).await.with_exclusive(Arc::clone(&alone));
        lanes.push(fixture.run_lane(lane));
    }
    eventually("it is tried", async || handler.ids().contains(&suspect)).await;
    fixture.add(200).await;
    eventually("all others are done", async || fixture.counters.counts().done == 200).await;
    assert_eq!(fixture.pending().await, 1);
    door.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    let with_it = handler.batches().into_iter().filter(|batch| batch.ids.contains(&suspect));
    assert!(with_it.map(|batch| batch.ids.len()).all(|size| size == 1), "it is handled alone");
    eventually("its crashes are forgotten", async || fixture.call::<usize>("HLEN s.deaths").await == 0).await;
    for lane in lanes {
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_alone_that_comes_back_is_tried_again_soon_however_long_it_had_to_wait_for_others() {
    let fixture = Fixture::start().await;
    let suspect = fixture.add_suspect("3").await;
    let handler = RecordingHandler::new(|entry| if number(entry) == 1 { set_aside() } else { Outcome::Done });
    handler.shut_door();
    let alone = Arc::<Exclusive>::default();
    let busy = fixture.lane("c2", &handler, settings()).await.with_exclusive(Arc::clone(&alone));
    let busy = fixture.run_lane(busy);
    fixture.add(1).await;
    handler.until_seen(1).await;
    let waiting = fixture.lane("c1", &handler, settings()).await.with_exclusive(Arc::clone(&alone));
    let lane_status = waiting.lane_status();
    let waiting = fixture.run_lane(waiting);
    eventually("it waits for the other", async || lane_status.state().activity == Activity::Yielding).await;
    let wait = ms(600);
    eventually("it has waited", async || lane_status.state().lasting > wait).await;
    handler.open_door();
    handler.until_seen(3).await;
    let tries: Vec<_> =
        handler.batches().into_iter().filter(|batch| batch.ids == [suspect]).map(|batch| batch.at).collect();
    let rest = tries[1] - tries[0];
    assert!(rest < wait * 15 / 2, "a rest of {rest:?}, as if the wait had been a try");
    waiting.stop().await;
    busy.stop().await;
}

/// Crash counts only help to find the entry that crashes processes. Without them, the lanes find it as late as if they
/// counted none.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_that_cannot_be_read_count_as_none_and_stop_nobody() {
    let of_another_type = "SET s.deaths x";
    let not_allowed = "ACL SETUSER default resetkeys ~s ~s.dead ~added";
    for spoil in [of_another_type, not_allowed] {
        let fixture = Fixture::start().await;
        let ids = fixture.add_delivered(2, "c1").await;
        let _set_aside: Value =
            fixture.call(&format!("XCLAIM s g1 c1 0 {} RETRYCOUNT 0 JUSTID", ids[0])).await;
        let _spoiled: Value = fixture.call(spoil).await;
        let door = Arc::new(AtomicBool::new(false));
        let is_open = Arc::clone(&door);
        let handler = RecordingHandler::new(move |entry| {
            if number(entry) == 1 && !is_open.load(Ordering::Relaxed) { set_aside() } else { Outcome::Done }
        });
        let lane = fixture.run("c1", &handler, settings()).await;
        fixture.add(100).await;
        eventually("the others are done", async || fixture.counters.counts().done == 101).await;
        let tries = || handler.ids().into_iter().filter(|id| *id == ids[0]).count();
        eventually("it is tried again and again", async || tries() > 3).await;
        assert_eq!(fixture.pending().await, 1);
        assert_eq!(*fixture.probes.borrow(), 0, "{spoil}: no outage");
        door.store(true, Ordering::Relaxed);
        fixture.nothing_is_pending().await;
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_crash_counts_neither_reads_counts_nor_buries_because_of_crashes() {
    let mut fixture = Fixture::start().await;
    fixture.stream = fixture.stream.clone().without_crash_counts();
    let suspect = fixture.add_suspect("9").await;
    let in_progress = fixture.add_delivered(2, "c1").await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids(), [&[suspect][..], &in_progress].concat());
    assert_eq!(fixture.call::<Vec<String>>("HGETALL s.deaths").await, [suspect.to_string(), "9".to_owned()]);
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 0);
    lane.stop().await;
}
