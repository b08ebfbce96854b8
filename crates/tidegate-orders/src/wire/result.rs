//! Writes a result to the fields of an entry in the results stream. Each of these fields has one fixed name, unlike
//! those of orders.

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

/// Calls `take` with the name and the value of each field of a result's entry. Fields whose value is unknown are left
/// out.
pub fn result_fields(result: &OrderResult, mut take: impl FnMut(&'static str, &str)) {
    let mut digits = itoa::Buffer::new();
    take(ORDER_ID, digits.format(result.order.get()));
    if let Some(user) = result.user {
        take(USER_ID, digits.format(user.get()));
    }
    if let Some(voucher) = result.voucher {
        take(VOUCHER_ID, digits.format(voucher.get()));
    }
    if let Some(quantity) = result.quantity {
        take(QUANTITY, digits.format(quantity.get()));
    }
    take(STATE, result.state.word());
    take(KIND, result.kind().word());
    if let Some(reference) = &result.reference {
        take(REFERENCE, reference.as_str());
    }
    if let Some(reason) = &result.reason {
        take(REASON, reason);
    }
    take(STEP, digits.format(result.step));
    take(ENTRY, &result.entry.to_string());
    take(AT, digits.format(result.at_ms));
    if let Some(traceparent) = result.traceparent {
        take(TRACEPARENT, &traceparent.to_string());
    }
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
            let mut fields = Vec::new();
            result_fields(result, |name, value| fields.push(format!("{name} {value}")));
            fields.join(", ")
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
