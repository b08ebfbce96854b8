//! Regular resets of the idle time of a lane's entries, so that no other consumer claims them.

use std::time::Duration;

use crate::{
    entry::EntryId,
    lane_status::{Activity, LaneStatus},
    stream::Stream,
};

/// Keeps others from claiming the entries that a consumer has in progress or set aside, for as long as its lane works.
/// While the lane waits for stores or is paused, others may claim them.
pub(super) async fn keepalive(stream: &Stream, consumer: &str, every: Duration, lane_status: &LaneStatus) {
    loop {
        tokio::time::sleep(every).await;
        if matches!(lane_status.state().activity, Activity::WaitingForStores | Activity::Paused) {
            continue;
        }
        let mut after = EntryId::MIN;
        loop {
            match stream.keepalive(consumer, after).await {
                Ok(Some(last)) => {
                    tracing::debug!(consumer, %last, "idle times were reset, so no other consumer claims the entries");
                    after = last;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, consumer, "cannot reset idle times: other consumers may claim the entries");
                    break;
                }
            }
        }
    }
}
