//! What a worker writes down for others. The notes outlive a stop, or say at the stop that nothing is in progress.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{RedisStore, WorkInProgress, work_in_progress};
use tidegate_stream::{Counters, LaneStatus, SetAsideNote, SetAsideNotes, server_time_ms};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How often others are told what is set aside.
const POST_EVERY: Duration = Duration::from_secs(1);

/// Writes down for others what is set aside, while anything is.
pub async fn post(
    set_aside_notes: &SetAsideNotes,
    process: &str,
    counters: &Counters,
    stop: CancellationToken,
) {
    let mut posted = None;
    loop {
        let notice = SetAsideNote::of(counters.set_aside());
        // One of a process before this one may be there still.
        if notice.entries > 0 || posted != Some(0) {
            match set_aside_notes.write(process, &notice).await {
                Ok(()) => posted = Some(notice.entries),
                Err(error) => tracing::debug!(%error, "could not write down what is set aside"),
            }
        }
        if stop.run_until_cancelled(sleep(POST_EVERY)).await.is_none() {
            // What is pending from now on is nobody's any more.
            let _gone = set_aside_notes.write(process, &SetAsideNote::default()).await;
            return;
        }
    }
}

/// Writes down for others since when the oldest batch is in progress, for ever: also while a stop waits for batches.
pub async fn publish_in_progress(redis: &RedisStore, process: &str, lanes: &[Arc<LaneStatus>]) {
    loop {
        let told = async {
            // The clock first: what is read from now on is read later than that.
            let now_ms = server_time_ms(redis.pool()).await.map_err(|error| error.to_string())?;
            let states = lanes.iter().map(|lane| lane.state());
            let turns = states.filter(|lane| lane.activity.may_hold_entries()).map(|lane| lane.turn_lasting);
            let work = WorkInProgress::at(now_ms, turns.max());
            work_in_progress::write(redis, process, work).await.map_err(|error| error.to_string())
        };
        if let Err(error) = told.await {
            tracing::debug!(error, "could not write down since when entries are in progress");
        }
        sleep(POST_EVERY).await;
    }
}
