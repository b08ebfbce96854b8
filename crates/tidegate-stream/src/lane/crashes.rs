//! Entries that crashed processes: each is handled alone, and buried if processes still crash.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{
    Lane, LaneError,
    burials::Burials,
    set_aside::{Due, KILLED_WORKER},
    state::LaneState,
    step::InProgress,
};
use crate::{
    entry::{Delivery, Fetched},
    handler::{DeadLetterReason, Handler},
    lane_status::Activity,
    observer::Origin,
    stream::StreamError,
};

/// The number of crashes from which on an entry is handled alone: in two crashes, another entry in progress may have
/// been the cause.
pub(super) const CRASHES_IN_COMPANY: u32 = 2;

/// The number of crashes from which on an entry is buried: in the last three it was alone.
const CRASHES: u32 = CRASHES_IN_COMPANY + 3;

impl<H: Handler> Lane<H> {
    /// Buries entries that crashed too many processes, and isolates those that crashed fewer.
    pub(super) async fn isolate_or_bury(
        &self,
        state: &mut LaneState,
        fetched: Fetched,
    ) -> Result<Delivery, LaneError> {
        for (id, crashes) in fetched.withheld {
            if crashes < CRASHES {
                tracing::warn!(
                    entry = %id, crashes,
                    "an entry was in progress each time that a worker process died: workers now handle this entry alone"
                );
                state.set_aside.put_alone(id, Instant::now());
                continue;
            }
            let error = format!(
                "{crashes} processes died with the entry in progress; in the last {} crashes, it was the only entry",
                CRASHES - CRASHES_IN_COMPANY
            );
            let mut burials = Burials::default();
            let why = DeadLetterReason { reason: KILLED_WORKER, error };
            self.handler.before_burial(id, &why).await?;
            match self.bury_unread(id, &why, &mut burials).await {
                Ok(_) => self.stream.forget_crashes(&[id]).await?,
                Err(StreamError::Redis(error)) if error.is_refusal() => {
                    self.log_unburied(&error);
                    state.set_aside.put_alone(id, Instant::now());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(fetched.delivery)
    }

    /// Handles entries that crashed processes, each alone: with nothing else in progress in the whole process.
    pub(super) async fn process_alone(
        &self,
        state: &mut LaneState,
        due: &Due,
        stop: &CancellationToken,
    ) -> Result<(), LaneError> {
        state.shared = None;
        self.lane_status.enter(Activity::Yielding);
        let Some(_alone) = stop.run_until_cancelled(self.turns.exclusive.exclusive()).await else {
            return Ok(());
        };
        // Another lane was alone before this one, and its entries could not be done.
        if state.set_aside.is_exclusive_forbidden(Instant::now()) {
            state.set_aside.end_try(&due.ids, Duration::ZERO, Instant::now());
            return Ok(());
        }
        let (mut tried, mut in_vain) = (0, Duration::ZERO);
        for id in &due.ids {
            if stop.is_cancelled() || self.pause_switch.is_paused() {
                break;
            }
            let begun = Instant::now();
            self.lane_status.enter(Activity::Reading);
            let fetched = self.fetch(state, &[*id], CRASHES).await?;
            let delivery = self.isolate_or_bury(state, fetched).await?;
            let in_progress =
                InProgress { delivery: &delivery, origin: Origin::Pending, came: Instant::now() };
            if !self.step(in_progress, None).await?.set_aside.is_empty() {
                state.set_aside.put_alone(*id, Instant::now());
            }
            tried += 1;
            // The entry came back. Only such a try needs a rest afterwards, and the wait for other lanes does not
            // count.
            if !state.set_aside.is_tried(*id) {
                in_vain += begun.elapsed();
            }
        }
        state.set_aside.end_try(&due.ids[tried..], in_vain, Instant::now());
        Ok(())
    }
}
