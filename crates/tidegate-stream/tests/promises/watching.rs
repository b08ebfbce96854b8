//! What a lane shows of itself while it works.

use tidegate_stream::{Activity, LaneSettings, Outcome, has_group, inspect};

use crate::rig::{RecordingHandler, Rig, dead, eventually, ms, number, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_shows_what_it_does_and_with_how_many_entries() {
    let rig = Rig::start().await;
    let handler = RecordingHandler::done();
    let lane = rig.lane("c1", &handler, LaneSettings { block: ms(10_000), ..settings() }).await;
    let pulse = lane.pulse();
    let is = async |activity| eventually("its activity", async || pulse.state().activity == activity).await;
    assert_eq!(pulse.state().activity, Activity::Starting);

    let lane = rig.run_lane(lane);
    rig.until_blocked(1).await;
    is(Activity::Reading).await;
    handler.shut_door();
    rig.add(7).await;
    handler.until_seen(7).await;
    let state = pulse.state();
    assert_eq!((state.consumer.as_str(), state.activity, state.in_hand), ("c1", Activity::Handling, 7));

    // Once around, and blocked again: it has other things to do than to stand still.
    handler.open_door();
    is(Activity::Reading).await;
    assert_eq!(pulse.state().in_hand, 0);
    assert!(pulse.state().turns > state.turns);

    handler.set_store(false);
    rig.store_works.send_replace(false);
    rig.add(1).await;
    is(Activity::WaitingForStores).await;
    let knocked = *rig.probes.borrow();
    eventually("it knocks", async || *rig.probes.borrow() > knocked + 2).await;
    assert!(rig.breaker.silent_for().expect("it is open") < ms(5_000));
    assert_eq!(rig.breaker.outages().into_iter().collect::<Vec<_>>(), [("store", 1)]);
    rig.store_works.send_replace(true);
    handler.set_store(true);
    is(Activity::Reading).await;
    assert_eq!(rig.breaker.silent_for(), None);
    lane.stop().await;
    assert_eq!(pulse.state().activity, Activity::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_what_happened() {
    let rig = Rig::start().await;
    let handler =
        RecordingHandler::new(
            |entry| if number(entry).is_multiple_of(3) { dead("third") } else { Outcome::Done },
        );
    rig.add(30).await;
    let lane = rig.run("c1", &handler, settings()).await;
    rig.nothing_is_pending().await;
    eventually("all are counted", async || rig.counters.counts().done == 20).await;
    lane.stop().await;
    assert_eq!(rig.counters.buried_by_reason().into_iter().collect::<Vec<_>>(), [("no_good", 10)]);
    let (sizes, reads) = (rig.counters.sizes().spread(), rig.counters.reads().spread());
    assert_eq!((sizes.count, sizes.sum, reads.count), (3, 30, 3));
    assert_eq!(rig.counters.settlings().spread().count, 3);
    let status = inspect(&rig.pool, &rig.names).await.unwrap();
    assert_eq!((status.length, status.entries_added), (30, Some(30)));
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_the_group_is_there_is_seen() {
    let rig = Rig::start().await;
    assert!(has_group(&rig.pool, &rig.names).await.unwrap());
    let _: i64 = rig.call("XGROUP DESTROY s g1").await;
    assert!(!has_group(&rig.pool, &rig.names).await.unwrap());
    let _: i64 = rig.call("DEL s").await;
    assert!(!has_group(&rig.pool, &rig.names).await.unwrap());
    let _: String = rig.call("SET s text").await;
    has_group(&rig.pool, &rig.names).await.unwrap_err();
}
