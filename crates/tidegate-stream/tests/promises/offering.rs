//! Tests of making the entries of a dead consumer claimable, so that other lanes take them at once.

use fred::types::Value;
use tidegate_stream::{
    ClaimableStep, EntryId, Holder, LaneSettings, MakeClaimable, RetryWait, StreamInspector, is_claimable,
};

use crate::fixture::{DEADLINE, Fixture, RecordingHandler, eventually, ms, set_aside, settings};

/// Lanes that scan for claimable entries all the time, and would wait an hour for any other reason to claim.
fn scanning() -> LaneSettings {
    LaneSettings { block: ms(5), claim_every: ms(20), ..settings() }
}

fn holder(consumer: &str, young_ms: u64) -> Holder {
    let heartbeat = Some(format!("alive:{consumer}").into());
    Holder { consumer: consumer.to_owned(), heartbeat, young_ms }
}

/// Makes all entries of the holder claimable, and returns the sums.
async fn offer(fixture: &Fixture, holder: &Holder) -> Option<ClaimableStep> {
    let make_claimable = MakeClaimable::new(fixture.pool.clone(), fixture.names.clone());
    let (mut sum, mut after) = (ClaimableStep::default(), EntryId::MIN);
    loop {
        let step = make_claimable.step(holder, after).await.unwrap()?;
        sum.offered += step.offered;
        sum.before += step.before;
        sum.young += step.young;
        sum.gone += step.gone;
        match step.last {
            Some(last) => after = last,
            None => return Some(sum),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_keeps_owner_and_deliveries_and_is_taken_by_the_next_scan() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(450, "dead").await;
    let offered = offer(&fixture, &holder("dead", 0)).await;
    assert_eq!(offered, Some(ClaimableStep { offered: 450, ..ClaimableStep::default() }));
    let again = offer(&fixture, &holder("dead", 0)).await;
    assert_eq!(again, Some(ClaimableStep { before: 450, ..ClaimableStep::default() }), "twice does no harm");

    let inspector = StreamInspector::new(fixture.pool.clone(), fixture.names.clone());
    let all = (EntryId::MIN, EntryId::MAX);
    let held = inspector.group().pending_entries(all, 1000, Some("dead")).await.unwrap();
    assert_eq!(held.iter().map(|pending| pending.id).collect::<Vec<_>>(), ids);
    assert!(held.iter().all(|pending| pending.deliveries == 1 && is_claimable(pending.idle_ms)));

    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, scanning()).await;
    handler.until_seen(450).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
    assert_eq!(fixture.counters.counts().claimed, 450);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_living_consumer_is_offered_unless_its_heartbeat_is_left_out() {
    let fixture = Fixture::start().await;
    fixture.add_delivered(3, "living").await;
    let _ok: Value = fixture.call("SET alive:living 1").await;
    assert_eq!(offer(&fixture, &holder("living", 0)).await, None);
    let forced = Holder { heartbeat: None, ..holder("living", 0) };
    assert_eq!(
        offer(&fixture, &forced).await,
        Some(ClaimableStep { offered: 3, ..ClaimableStep::default() })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_although_its_holder_lives_and_no_other_does_is_set_aside_by_it_as_before() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    let handler = RecordingHandler::new(|_| set_aside());
    // The lane does not try the entry again meanwhile: a try of a claimable entry lets go of it.
    let lane = fixture
        .run(
            "c1",
            &handler,
            LaneSettings { retry: RetryWait { first: DEADLINE * 4, longest: DEADLINE * 4 }, ..scanning() },
        )
        .await;
    eventually("all are set aside", async || fixture.counters.set_aside().entries() == 5).await;
    let forced = Holder { heartbeat: None, ..holder("c1", 0) };
    assert_eq!(
        offer(&fixture, &forced).await,
        Some(ClaimableStep { offered: 5, ..ClaimableStep::default() })
    );
    let inspector = StreamInspector::new(fixture.pool.clone(), fixture.names.clone());
    eventually("it has taken them", async || {
        let all = (EntryId::MIN, EntryId::MAX);
        let held = inspector.group().pending_entries(all, 10, Some("c1")).await.unwrap();
        held.len() == 5 && !held.iter().any(|pending| is_claimable(pending.idle_ms))
    })
    .await;
    let scans = fixture.calls_of("xautoclaim").await;
    eventually("three scans more", async || fixture.calls_of("xautoclaim").await >= scans + 3).await;
    assert_eq!(fixture.counters.set_aside().entries(), 5, "each counts once");
    assert_eq!((handler.ids().len(), fixture.counters.counts().claimed), (5, 0));
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_lately_and_what_has_no_payload_stays_as_it_is() {
    let fixture = Fixture::start().await;
    fixture.add_delivered(1, "dead").await;
    fixture.age("dead").await;
    let ids = fixture.add_delivered(2, "dead").await;
    let _deleted: Value = fixture.call(&format!("XDEL s {}", ids[1])).await;
    fixture.add_delivered(1, "other").await;
    let offered = offer(&fixture, &holder("dead", 60_000)).await;
    assert_eq!(offered, Some(ClaimableStep { offered: 1, young: 1, gone: 1, ..ClaimableStep::default() }));
    assert_eq!(fixture.pending().await, 4, "none is dropped");

    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, scanning()).await;
    handler.until_seen(1).await;
    lane.stop().await;
    let inspector = StreamInspector::new(fixture.pool.clone(), fixture.names.clone());
    assert_eq!(inspector.group().pending_entry(ids[0]).await.unwrap().unwrap().consumer, "dead");
}
