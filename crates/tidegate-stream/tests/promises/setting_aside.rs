//! Tests of entries that are set aside: they wait by their ids, and the lanes handle other entries meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use tidegate_stream::{Activity, Cause, LaneSettings, Outcome, RetryWait};

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, number, set_aside, set_aside_for, settings};

/// A door that holds entries back until the test opens it.
fn door() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let door = Arc::new(AtomicBool::new(false));
    (Arc::clone(&door), door)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_entries_of_one_cause_stop_nobody_and_are_done_when_it_is_over() {
    const HELD: usize = 10_000;
    let fixture = Fixture::start().await;
    let (open, door) = door();
    let handler = RecordingHandler::new(move |entry| {
        if number(entry) <= HELD && !open.load(Ordering::Relaxed) { set_aside_for(7) } else { Outcome::Done }
    });
    let held = fixture.add(HELD).await;
    let others = fixture.add(5_000).await;
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 500, ..settings() }).await;
    eventually("all others are done", async || fixture.counters.counts().done == others.len() as u64).await;
    assert_eq!(fixture.pending().await, HELD);
    assert_eq!(fixture.counters.set_aside().entries(), HELD);
    // Each entry was handed over once, and a few of them again and again.
    let again = handler.ids().len() - HELD - others.len();
    assert!(again < 500, "{again} tries of what is held");
    let top = fixture.counters.set_aside().top(3);
    assert_eq!((top.len(), top[0].cause.key, top[0].entries), (1, 7, HELD));

    let batches = handler.batches().len();
    door.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    let batches = handler.batches().len() - batches;
    assert!(batches < 60, "{HELD} entries in {batches} batches");
    assert_eq!(handler.ids().iter().collect::<BTreeSet<_>>().len(), held.len() + others.len());
    eventually("none is set aside", async || fixture.counters.set_aside().entries() == 0).await;
    lane.stop().await;
    // The calls of both scripts and of this test, which reads the pending list now and then.
    let (mut calls, most) = (0, 2 * HELD);
    for command in ["xpending", "xrange", "xinfo|stream", "xclaim"] {
        calls += fixture.calls_of(command).await;
    }
    assert!(calls > HELD && calls < most, "{calls} calls to set {HELD} entries aside and to fetch them");
}

/// A lane finds its own entries among others. It leaves entries alone that other consumers hold, or that were deleted
/// or trimmed.
#[tokio::test(flavor = "multi_thread")]
async fn entries_are_set_aside_and_fetched_whatever_lies_between_them() {
    const CAUSES: u64 = 10;
    let fixture = Fixture::start().await;
    let (open, door) = door();
    // The first three wait for the same cause. Until a cause is over, the lane tries few of its entries, so it finds a
    // trimmed one late.
    let handler = RecordingHandler::new(move |entry| match (number(entry) as u64).max(3) % CAUSES {
        3 if open.load(Ordering::Relaxed) => Outcome::Done,
        key => set_aside_for(key),
    });
    let ids = fixture.add(1_000).await;
    let lane = fixture.lane("c1", &handler, LaneSettings { batch: 200, ..settings() }).await;
    let lane_status = lane.lane_status();
    let lane = fixture.run_lane(lane);
    eventually("all are set aside", async || fixture.counters.set_aside().entries() == 1_000).await;
    // Without the pause, one of them may be in progress for a try, and then it is done.
    fixture.pause_switch.pause("a test", "");
    eventually("it has nothing in progress", async || lane_status.state().activity == Activity::Paused).await;
    // Of the entries with the cause that ends soon, the first three are trimmed, one is deleted, and another consumer
    // takes one.
    let of_cause: Vec<_> = ids.iter().skip(2).step_by(CAUSES as usize).collect();
    let _trimmed: usize = fixture.call(&format!("XTRIM s MINID {}", ids[3])).await;
    let _deleted: usize = fixture.call(&format!("XDEL s {}", of_cause[50])).await;
    let _taken: fred::types::Value = fixture.call(&format!("XCLAIM s g1 c2 0 {} JUSTID", of_cause[99])).await;
    door.store(true, Ordering::Relaxed);
    fixture.pause_switch.resume("a test");
    eventually("all that can be done is", async || fixture.counters.counts().done == 97).await;
    eventually("what was deleted is told", async || fixture.counters.counts().gone == 4).await;
    lane.stop().await;
    let done: BTreeSet<_> = handler.ids().into_iter().collect();
    assert_eq!(done.len(), 1_000);
    let left: Vec<fred::types::Value> = fixture.call("XPENDING s g1 - + 1000 c2").await;
    assert_eq!(left.len(), 1, "what another consumer holds stays with it");
}

/// Since Redis 7, a claim removes a deleted entry from the pending list, so no lane could report its loss.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_goes_while_it_is_in_progress_is_told_although_it_is_set_aside_then() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::new(|_| set_aside_for(1));
    handler.shut_door();
    let ids = fixture.add(10).await;
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(10).await;
    let _trimmed: usize = fixture.call(&format!("XTRIM s MINID {}", ids[2])).await;
    let _deleted: usize = fixture.call(&format!("XDEL s {} {}", ids[4], ids[9])).await;
    handler.open_door();
    eventually("they are told", async || fixture.counters.counts().gone == 4).await;
    assert_eq!(fixture.pending().await, 6);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_that_is_over_does_not_wait_for_one_that_is_not() {
    let fixture = Fixture::start().await;
    let (open, door) = door();
    let handler = RecordingHandler::new(move |entry| match number(entry) % 2 {
        0 if !open.load(Ordering::Relaxed) => set_aside_for(2),
        1 => set_aside_for(1),
        _ => Outcome::Done,
    });
    fixture.add(1_000).await;
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 100, ..settings() }).await;
    eventually("all are set aside", async || fixture.counters.set_aside().entries() == 1_000).await;
    door.store(true, Ordering::Relaxed);
    eventually("one half is done", async || fixture.counters.counts().done == 500).await;
    assert_eq!(fixture.counters.set_aside().by_kind()["door"].entries, 500);
    assert_eq!(fixture.pending().await, 500);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_more_may_be_set_aside_nothing_new_is_read_and_both_ends_are_told_once() {
    let fixture = Fixture::start().await;
    let (open, door) = door();
    let handler =
        RecordingHandler::new(
            move |_| {
                if open.load(Ordering::Relaxed) { Outcome::Done } else { set_aside() }
            },
        );
    let ids = fixture.add(60).await;
    let lane = fixture.run("c1", &handler, LaneSettings { set_aside_max: 30, ..settings() }).await;
    eventually("it is full", async || {
        fixture.log.count("ERROR the limit of set-aside entries is reached") == 1
    })
    .await;
    // The lane tries single entries, less and less often.
    handler.until_seen(36).await;
    assert_eq!(fixture.pending().await, 30);
    assert!(handler.ids().iter().all(|id| ids[..30].contains(id)), "only the first were handed over");
    assert!(fixture.counters.set_aside().entries() <= 30);
    door.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || fixture.counters.counts().done == 60).await;
    assert_eq!(fixture.log.count("ERROR the limit of set-aside entries is reached"), 1);
    eventually("the end is told", async || {
        fixture.log.count("WARN the number of set-aside entries is below the limit") == 1
    })
    .await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconnect_reads_none_of_what_is_set_aside() {
    let fixture = Fixture::start().await;
    let (open, door) = door();
    let handler = RecordingHandler::new(move |entry| {
        if number(entry) <= 3_000 && !open.load(Ordering::Relaxed) { set_aside() } else { Outcome::Done }
    });
    fixture.add(3_000).await;
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 100, ..settings() }).await;
    eventually("all are set aside", async || fixture.counters.set_aside().entries() == 3_000).await;
    let seen = handler.ids().len();
    for round in 1..=3 {
        fixture.reads.cut_connections().await;
        fixture.commands.cut_connections().await;
        let new = fixture.add(10).await;
        eventually("new ones are read", async || new.iter().all(|id| handler.ids().contains(id))).await;
        eventually("it came back", async || fixture.counters.reconnects() >= round).await;
    }
    let again = handler.ids().len() - seen - 30;
    assert!(again < 300, "{again} tries");
    door.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_is_not_claimed_from_one_that_lives_and_soon_from_one_that_died() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::new(|_| set_aside());
    fixture.add(1_000).await;
    // The lane resets the idle time twenty times as often as it has to, because the machine may stall.
    let keeping = LaneSettings { batch: 100, block: ms(5), claim_idle: ms(300), ..settings() };
    let claiming = LaneSettings { claim_idle: ms(2000), claim_every: ms(5), ..keeping.clone() };
    let lane = fixture.run("holder", &handler, keeping).await;
    eventually("all are set aside", async || fixture.counters.set_aside().entries() == 1_000).await;
    let thief = RecordingHandler::done();
    let begun = Instant::now();
    let thief_lane = fixture.run("thief", &thief, claiming).await;
    eventually("it has scanned for more than twice as long", async || begun.elapsed() > ms(5000)).await;
    assert!(thief.ids().is_empty(), "{} were stolen", thief.ids().len());

    lane.kill().await;
    fixture.nothing_is_pending().await;
    assert_eq!(thief.ids().len(), 1_000);
    thief_lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_found_again_by_the_next_process_of_the_same_name_and_is_no_crash() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::new(|_| set_aside());
    fixture.add(200).await;
    let mut in_progress = BTreeSet::new();
    for _ in 0..6 {
        let lane = fixture.run("c1", &handler, settings()).await;
        let seen = handler.ids().len();
        handler.until_seen(seen + 200).await;
        let held = async || {
            let held: Vec<(String, String, u64, u64)> = fixture.call("XPENDING s g1 - + 1000").await;
            assert_eq!(held.len(), 200);
            held.into_iter().filter(|held| held.3 > 0).map(|held| held.0).collect::<Vec<_>>()
        };
        eventually("it has none in progress", async || held().await.is_empty()).await;
        lane.kill().await;
        // A try may have begun just then. Redis answers this probe after the commands that the lane sent.
        fixture.stream.probe().await.unwrap();
        in_progress.extend(held().await);
    }
    let blamed: Vec<String> = fixture.call("HKEYS s.deaths").await;
    assert!(
        blamed.iter().all(|id| in_progress.contains(id)),
        "{blamed:?} are blamed, {in_progress:?} were in progress"
    );
    assert!(in_progress.len() < 20, "most were set aside each time");
    let done = RecordingHandler::done();
    let lane = fixture.run("c1", &done, settings()).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_wait_is_told_once_when_it_begins_and_once_when_it_ends_and_many_are_summed_up() {
    let fixture = Fixture::start().await;
    let (open, door) = door();
    let handler = RecordingHandler::new(move |entry| {
        if open.load(Ordering::Relaxed) { Outcome::Done } else { set_aside_for(number(entry) as u64) }
    });
    fixture.add(50).await;
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("the others are summed up", async || {
        fixture.log.count("WARN entries are set aside for more causes of the given kind") == 1
    })
    .await;
    assert_eq!(fixture.log.count("WARN entries are set aside: the worker retries them"), 3);
    assert_eq!(fixture.log.count(" entries=1"), 3, "each waits for something of its own, and is told as one");
    door.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    eventually("the end is told", async || {
        fixture.log.count("WARN no entry is set aside any more for any cause of this kind") == 1
            && fixture.log.count("WARN no entry is set aside for the given cause any more") == 3
    })
    .await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_wait_for_each_other_in_several_lanes_are_done_in_order_with_few_tries() {
    const ENTRIES: usize = 4_000;
    let fixture = Fixture::start().await;
    let (next, causes) = (AtomicUsize::new(1), Arc::clone(fixture.counters.set_aside()));
    let handler = RecordingHandler::new(move |entry| {
        let cause = Cause::in_order("account", 7);
        if next
            .compare_exchange(number(entry), number(entry) + 1, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            return Outcome::SetAside(cause);
        }
        causes.wake([cause]);
        Outcome::Done
    });
    fixture.add(ENTRIES).await;
    let mut lanes = Vec::new();
    for name in ["c1", "c2", "c3", "c4"] {
        // A wait of a minute: an entry that no lane wakes comes too late.
        let settings = LaneSettings {
            batch: 100,
            block: ms(60_000),
            retry: RetryWait { first: ms(60_000), longest: ms(60_000) },
            ..settings()
        };
        lanes.push(fixture.run(name, &handler, settings).await);
    }
    fixture.nothing_is_pending().await;
    let tries = handler.ids().len();
    eprintln!("{tries} tries of {ENTRIES} entries");
    assert!(tries < 4 * ENTRIES, "{tries} tries");
    eventually("none is set aside", async || fixture.counters.set_aside().entries() == 0).await;
    for lane in lanes {
        lane.stop().await;
    }
}
