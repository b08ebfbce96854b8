//! The results for many vouchers that were paused or resumed.

use futures_util::future::join_all;
use serde::Serialize;
use tidegate_compare::Job;
use tidegate_orders::{VoucherId, scripts::ScriptError};

use super::CHUNK;
use crate::change::{End, Ending};

/// The results of pausing or resuming the sales of many vouchers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VoucherChanges {
    /// The vouchers whose sales were paused or resumed.
    pub vouchers: Vec<VoucherId>,
    /// The vouchers whose sales Redis refused to pause or resume.
    pub failed: Vec<FailedVoucher>,
}

/// A voucher whose sale could not be paused or resumed.
#[derive(Clone, Debug, Serialize)]
pub struct FailedVoucher {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The error that Redis returned.
    pub error: String,
}

impl VoucherChanges {
    /// Changes vouchers, one chunk at a time, until the job is stopped. `change` returns false if another operator has
    /// changed the voucher in the meantime.
    ///
    /// # Errors
    /// If Redis stops answering. The vouchers that were changed before are recorded.
    pub(super) async fn apply(
        &mut self,
        vouchers: &[VoucherId],
        job: &Job,
        change: impl AsyncFn(VoucherId) -> Result<bool, ScriptError>,
    ) -> Result<End, ScriptError> {
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
                    Err(error @ ScriptError::Unreachable(_)) => outage = Some(error),
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

    /// Returns the result of the whole operation, which says whether Redis refused to pause or resume any sale.
    #[must_use]
    pub fn ending(&self) -> Ending {
        if self.failed.is_empty() { Ending::Done } else { Ending::Refused }
    }
}
