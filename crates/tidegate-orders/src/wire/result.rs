//! A result as the fields of an entry of the results stream. These have one name each, whatever those of orders are called.

use std::borrow::Cow;

use super::{
    QUANTITY, TRACEPARENT, USER_ID, VOUCHER_ID,
    event::{ORDER_ID, REASON, REFERENCE},
};
use crate::results::OrderResult;

const STATE: &str = "state";
const KIND: &str = "kind";
const STEP: &str = "step";
const ENTRY: &str = "entry";
const AT: &str = "at";

/// The fields of a result, as they stand in an entry; what is not known is left out.
#[must_use]
pub fn result_fields(result: &OrderResult) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut fields: Vec<(&'static str, Cow<'_, str>)> = Vec::with_capacity(12);
    fields.push((ORDER_ID, result.order.to_string().into()));
    fields.extend(result.user.map(|user| (USER_ID, user.to_string().into())));
    fields.extend(result.voucher.map(|voucher| (VOUCHER_ID, voucher.to_string().into())));
    fields.extend(result.quantity.map(|quantity| (QUANTITY, quantity.to_string().into())));
    fields.push((STATE, result.state.word().into()));
    fields.push((KIND, result.kind().word().into()));
    fields.extend(result.reference.as_ref().map(|reference| (REFERENCE, reference.as_str().into())));
    fields.extend(result.reason.as_deref().map(|reason| (REASON, reason.into())));
    fields.push((STEP, result.step.to_string().into()));
    fields.push((ENTRY, result.entry.to_string().into()));
    fields.push((AT, result.at_ms.to_string().into()));
    fields.extend(result.traceparent.map(|traceparent| (TRACEPARENT, traceparent.to_string().into())));
    fields
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::{results::ResultState, traceparent::Traceparent};

    #[test]
    fn a_result_is_written_with_the_fields_of_the_contract_and_without_those_that_it_lacks() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let result = OrderResult {
            order: i64::MAX.try_into().unwrap(),
            user: 5.try_into().ok(),
            voucher: 7.try_into().ok(),
            quantity: 3.try_into().ok(),
            state: ResultState::RefundDue,
            reference: "pay-1".parse().ok(),
            reason: Some("late".into()),
            step: 4,
            entry: EntryId { ms: 8, seq: 1 },
            at_ms: 1_718_000_000_000,
            traceparent: Traceparent::parse(traceparent.as_bytes()),
        };
        let text = |result: &OrderResult| {
            let fields = result_fields(result);
            fields.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        };
        let all = format!(
            "orderId {}, userId 5, voucherId 7, quantity 3, state refund_due, kind fact, ref pay-1, reason late, step 4, \
             entry 8-1, at 1718000000000, traceparent {traceparent}",
            i64::MAX
        );
        assert_eq!(text(&result), all);
        let bare = OrderResult {
            user: None,
            voucher: None,
            quantity: None,
            reference: None,
            reason: None,
            traceparent: None,
            step: -1,
            state: ResultState::Dead,
            ..result
        };
        let expected =
            format!("orderId {}, state dead, kind state, step -1, entry 8-1, at 1718000000000", i64::MAX);
        assert_eq!(text(&bare), expected);
        let kind = |state, reason: Option<&'static str>| {
            OrderResult { state, reason: reason.map(Into::into), ..bare.clone() }.kind().word()
        };
        for state in ResultState::ALL {
            let is_fact = matches!(state, ResultState::RefundDue | ResultState::Rejected);
            assert_eq!(kind(state, Some("word")), if is_fact { "fact" } else { "state" }, "{state}");
            assert_eq!(kind(state, Some("not_moved")), "fact", "{state}");
        }
    }
}
