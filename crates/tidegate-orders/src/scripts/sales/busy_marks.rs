//! Marks sales as busy, by `lua/mark_busy.lua`, so that no request takes a place in a queue that no worker serves.

use std::time::Duration;

use fred::types::Value;

use crate::order::VoucherId;
use crate::scripts::{Sales, ScriptError};

/// The maximum number of vouchers in a call, so that the call is short.
const MOST: usize = 200;

/// The busy mark of a sale. While it is set, scripts refuse new orders, because workers are too far behind. Each time
/// span in the marker begins now, by the clock of Redis, and is shorter than a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyMark {
    /// Requests are refused with [`AdmitReply::Busy`](crate::scripts::AdmitReply::Busy) for this time. The mark expires
    /// by itself.
    BusyFor(Duration),
    /// Requests are served for this time, and refused afterwards. A worker that serves the sale renews the mark
    /// before it ends.
    ServedFor(Duration),
    /// No request is refused as busy.
    None,
}

/// The outcome of a call that marks sales as busy: how many sales changed, and which vouchers cannot be marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedSales {
    /// The number of sales that got or lost a busy mark, which lets scripts refuse new orders.
    pub changed: u64,
    /// The vouchers whose key in Redis is not a hash, so that the key cannot contain a busy mark.
    pub left_out: Vec<VoucherId>,
}

impl Sales {
    /// Marks the sales of the given vouchers as busy, or removes the marks. All vouchers must belong to this store's
    /// partition. Pauses of the sales do not change. A voucher without a stock gets no mark, and a voucher whose key is
    /// not a hash is left out.
    ///
    /// # Errors
    /// See [`ScriptError`]. Vouchers of earlier calls may already have their marks.
    pub async fn mark_busy(
        &self,
        vouchers: &[VoucherId],
        busy_mark: BusyMark,
    ) -> Result<MarkedSales, ScriptError> {
        let (mark, span) = match busy_mark {
            BusyMark::BusyFor(span) => ("until", span.as_millis().to_string()),
            BusyMark::ServedFor(span) => ("from", span.as_millis().to_string()),
            BusyMark::None => ("", String::new()),
        };
        let mut marks = MarkedSales::default();
        for vouchers in vouchers.chunks(MOST) {
            let keys = vouchers.iter().flat_map(|voucher| {
                [
                    self.access.keys.stock(*voucher),
                    self.access.keys.limited(*voucher),
                    self.access.keys.voucher(*voucher),
                ]
            });
            let args = vec![mark.into(), span.as_str().into()];
            let reply = self.mark_busy.call(&self.access.pool, keys.collect(), args).await?;
            let Some((changed, left_out)) = parse(&reply, vouchers) else {
                return Err(ScriptError::Unexpected {
                    place: "mark_busy.lua".to_owned(),
                    got: format!("{reply:?}"),
                });
            };
            marks.changed += changed;
            marks.left_out.extend(left_out);
        }
        Ok(marks)
    }
}

/// Reads the number of sales that were changed, and the vouchers that were left out.
fn parse(reply: &Value, vouchers: &[VoucherId]) -> Option<(u64, Vec<VoucherId>)> {
    let Value::Array(numbers) = reply else { return None };
    let (changed, places) = numbers.split_first()?;
    let at_place = |place: &Value| vouchers.get(usize::try_from(place.as_i64()?.checked_sub(1)?).ok()?);
    let left_out: Option<Vec<VoucherId>> = places.iter().map(|place| at_place(place).copied()).collect();
    Some((u64::try_from(changed.as_i64()?).ok()?, left_out?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_voucher_has_is_no_reply() {
        let vouchers = [7, 9].map(|id| VoucherId::try_from(id).unwrap());
        let reply = |numbers: &[i64]| Value::Array(numbers.iter().map(|number| (*number).into()).collect());
        assert_eq!(parse(&reply(&[1, 2]), &vouchers), Some((1, vec![vouchers[1]])));
        for wrong in [reply(&[]), reply(&[-1]), reply(&[1, 0]), reply(&[1, 3]), Value::Integer(1)] {
            assert_eq!(parse(&wrong, &vouchers), None, "{wrong:?}");
        }
    }
}
