//! What became of many vouchers that were paused or resumed.

use futures_util::future::join_all;
use serde::Serialize;
use tidegate_compare::Job;
use tidegate_orders::{VoucherId, gate::GateError};

use super::CHUNK;
use crate::change::{End, Ending};

/// What became of many vouchers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VoucherChanges {
    /// Those that were changed.
    pub vouchers: Vec<VoucherId>,
    /// Those that Redis refused to change.
    pub failed: Vec<FailedVoucher>,
}

/// A voucher that could not be changed.
#[derive(Clone, Debug, Serialize)]
pub struct FailedVoucher {
    /// Its id.
    pub voucher: VoucherId,
    /// What Redis said.
    pub error: String,
}

impl VoucherChanges {
    /// Changes vouchers, a chunk of them at a time, until the job is stopped. `change` answers false where somebody else
    /// has changed the voucher meanwhile.
    ///
    /// # Errors
    /// When Redis does not answer any more. What was changed by then is recorded.
    pub(super) async fn apply(
        &mut self,
        vouchers: &[VoucherId],
        job: &Job,
        change: impl AsyncFn(VoucherId) -> Result<bool, GateError>,
    ) -> Result<End, GateError> {
        job.progress.expect(vouchers.len() as u64, "vouchers");
        for chunk in vouchers.chunks(CHUNK) {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let replies = join_all(chunk.iter().map(|voucher| change(*voucher))).await;
            let mut outage = None;
            for (voucher, reply) in chunk.iter().zip(replies) {
                match reply {
                    Ok(true) => self.vouchers.push(*voucher),
                    Ok(false) => {}
                    Err(error @ GateError::Unreachable(_)) => outage = Some(error),
                    Err(error) => {
                        self.failed.push(FailedVoucher { voucher: *voucher, error: error.to_string() });
                    }
                }
            }
            if let Some(error) = outage {
                return Err(error);
            }
            job.progress.add(chunk.len() as u64);
        }
        Ok(End::Whole)
    }

    /// Whether Redis refused any.
    #[must_use]
    pub fn ending(&self) -> Ending {
        if self.failed.is_empty() { Ending::Done } else { Ending::Refused }
    }
}
