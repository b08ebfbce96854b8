//! The notes that a worker writes to Redis for other programs. The note about work in progress is written until all
//! lanes have stopped; the note about set-aside entries is reset at the stop.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{RedisStore, WorkInProgress, work_in_progress};
use tidegate_stream::{Counters, LaneStatus, SetAsideNote, SetAsideNotes, server_time_ms};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pause between two notes.
const POST_EVERY: Duration = Duration::from_secs(1);

/// Writes to Redis which entries this process has left pending for a later try, as long as at least one entry waits.
pub async fn post(
    set_aside_notes: &SetAsideNotes,
    process: &str,
    counters: &Counters,
    stop: CancellationToken,
) {
    let mut posted = None;
    loop {
        let notice = SetAsideNote::of(counters.set_aside());
        // The first pass always writes: a note of an earlier process may still be there.
        if notice.entries > 0 || posted != Some(0) {
            match set_aside_notes.write(process, &notice).await {
                Ok(()) => posted = Some(notice.entries),
                Err(error) => {
                    tracing::debug!(%error, "could not write to Redis which entries will be tried later")
                }
            }
        }
        if stop.run_until_cancelled(sleep(POST_EVERY)).await.is_none() {
            // The note is reset, because this process no longer works on the pending entries.
            let _gone = set_aside_notes.write(process, &SetAsideNote::default()).await;
            return;
        }
    }
}

/// Writes to Redis repeatedly which batch of entries in progress is the oldest. The notes continue while a stopping
/// worker waits for its batches.
pub async fn publish_in_progress(redis: &RedisStore, process: &str, lanes: &[Arc<LaneStatus>]) {
    loop {
        let told = async {
            // The clock is read first: entries that are read from now on are read later than that.
            let now_ms = server_time_ms(redis.pool()).await.map_err(|error| error.to_string())?;
            let states = lanes.iter().map(|lane| lane.state());
            let turns = states.filter(|lane| lane.activity.may_hold_entries()).map(|lane| lane.turn_lasting);
            let work = WorkInProgress::at(now_ms, turns.max());
            work_in_progress::write(redis, process, work).await.map_err(|error| error.to_string())
        };
        if let Err(error) = told.await {
            tracing::debug!(error, "could not write the note about work in progress to Redis");
        }
        sleep(POST_EVERY).await;
    }
}
