//! The brake: sales are marked as busy, by `lua/brake.lua`, so that nobody takes a place in a queue that is not served.

use std::time::Duration;

use super::{Gate, GateError, understood};
use crate::order::VoucherId;

/// Vouchers a call, so that it is a short one.
const MOST: usize = 200;

/// What whoever asks for an order hears of the fleet. Each span counts from now on, by the clock of Redis, and is shorter
/// than a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// Refused with [`AdmitReply::Busy`](super::AdmitReply::Busy) for so long. It ends by itself.
    BusyFor(Duration),
    /// Served for so long, and refused from then on: whoever serves says so again before.
    ServedFor(Duration),
    /// Nobody is refused for that.
    Off,
}

impl Gate {
    /// Tells the sales of these vouchers, of this gate's partition. A pause stays as it is; a voucher without a stock gets no mark.
    /// Answers with how many got a mark, or lost one.
    ///
    /// # Errors
    /// See [`GateError`]. Those before may have their marks.
    pub async fn brake(&self, vouchers: &[VoucherId], brake: Brake) -> Result<u64, GateError> {
        let (mark, span) = match brake {
            Brake::BusyFor(span) => ("until", span.as_millis().to_string()),
            Brake::ServedFor(span) => ("from", span.as_millis().to_string()),
            Brake::Off => ("", String::new()),
        };
        let mut changed = 0;
        for vouchers in vouchers.chunks(MOST) {
            let keys = vouchers.iter().flat_map(|voucher| {
                [self.keys.stock(*voucher), self.keys.limited(*voucher), self.keys.voucher(*voucher)]
            });
            let args = vec![mark.into(), span.as_str().into()];
            let reply = self.brake.call(&self.pool, keys.collect(), args).await?;
            changed += understood("brake.lua", &reply, |count| u64::try_from(count).ok())?;
        }
        Ok(changed)
    }
}
