//! Reading ahead: while a lane settles a batch, it reads the next one. So both calls wait together for Redis to write
//! its file.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    Lane, LaneError,
    schedule::Source,
    state::{LaneState, ReadAhead},
};
use crate::{entry::Delivery, handler::Handler};

/// The share of a full batch's bytes that a batch may have for the next one to be read ahead (1 in this many): the lane
/// has both in memory.
const SHARE: usize = 8;

/// A read that runs while a batch is settled. It returns None if the next turn is for something else, or if no entry
/// came.
pub(super) type Ahead<'a> = Pin<Box<dyn Future<Output = Option<Result<ReadAhead, LaneError>>> + Send + 'a>>;

impl<H: Handler> Lane<H> {
    /// Returns the entries that were read in advance for this batch, or None if the lane reads nothing ahead. After a
    /// batch that was not full there is mostly nothing to read.
    pub(super) fn ahead<'a>(
        &'a self,
        state: &'a mut LaneState,
        delivery: &Delivery,
        stop: &'a CancellationToken,
    ) -> Option<Ahead<'a>> {
        let is_light = || delivery.bytes() <= self.settings.batch_bytes / SHARE;
        if !state.has_more || !is_light() {
            return None;
        }
        Some(Box::pin(async { self.read_ahead(state, stop).await.transpose() }))
    }

    /// Reads what the next turn would read, if these are new entries and nothing prevents that turn.
    async fn read_ahead(
        &self,
        state: &mut LaneState,
        stop: &CancellationToken,
    ) -> Result<Option<ReadAhead>, LaneError> {
        let is_kept_from_reading = stop.is_cancelled()
            || self.pause_switch.is_paused()
            || self.breaker.is_open()
            || self.turns.exclusive.is_exclusive_wanted();
        let begun = Instant::now();
        let source = match is_kept_from_reading {
            true => None,
            false => state.next_if_new(begun, self.is_set_aside_full()),
        };
        let Some(source @ Source::New { count, .. }) = source else { return Ok(None) };
        let delivery = tokio::select! {
            biased;
            delivery = self.read_new(state, count, Duration::ZERO) => delivery?,
            // As in any read: the lane ends, and Redis does not answer.
            () = Self::patience_ends(stop) => {
                state.start_over();
                return Ok(None);
            }
        };
        let came = Instant::now();
        Ok((!delivery.is_empty()).then_some(ReadAhead { source, delivery, begun, came }))
    }
}
