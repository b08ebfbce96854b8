//! Keeping others from claiming what a lane has.

use std::time::Duration;

use crate::{
    entry::EntryId,
    lane_status::{Activity, LaneStatus},
    stream::Stream,
};

/// Keeps all that a consumer has in progress or has set aside from being claimed, for as long as its lane does its work: while
/// that waits for stores, or is paused, others may do it.
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
                    tracing::debug!(consumer, %last, "entries in progress or set aside: kept from being claimed");
                    after = last;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, consumer, "could not keep entries from being claimed");
                    break;
                }
            }
        }
    }
}
