//! Writes a result to the fields of an entry in the results stream, and reads it again. Each of these fields has one
//! fixed name, unlike those of orders.

use std::str::FromStr;

use serde::{Serialize, Serializer, ser::SerializeMap};
use tidegate_stream::Entry;

use super::{
    QUANTITY, TRACEPARENT, USER_ID, VOUCHER_ID,
    event::{ORDER_ID, REASON, REFERENCE},
};
use crate::{
    event::EventText,
    order::{OrderId, Quantity, UserId, VoucherId},
    results::{OrderResult, PublishedResult, ResultKind, ResultState},
    traceparent::Traceparent,
};

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

/// The reason why an entry of the results stream is not a result that this version can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field {field} of the result is missing or has a value that this version does not know")]
pub struct BadResult {
    /// The name of the field.
    pub field: &'static str,
}

impl PublishedResult {
    /// Reads a result from an entry of the results stream. A result of an earlier version has no field `kind`: its
    /// state and reason determine the kind.
    ///
    /// # Errors
    /// Fails if a required field is missing, or a field has an unknown value.
    pub fn read(entry: &Entry) -> Result<Self, BadResult> {
        let state = required(entry, STATE, ResultState::from_word)?;
        let reason = optional(entry, REASON, |text| Some(text.to_owned().into()))?;
        let result = OrderResult {
            order: required(entry, ORDER_ID, parsed::<OrderId>)?,
            user: optional(entry, USER_ID, parsed::<UserId>)?,
            voucher: optional(entry, VOUCHER_ID, parsed::<VoucherId>)?,
            quantity: optional(entry, QUANTITY, parsed::<Quantity>)?,
            state,
            reference: optional(entry, REFERENCE, parsed::<EventText>)?,
            reason,
            step: required(entry, STEP, parsed)?,
            entry: required(entry, ENTRY, parsed)?,
            at_ms: required(entry, AT, parsed)?,
            traceparent: optional(entry, TRACEPARENT, |text| Traceparent::parse(text.as_bytes()))?,
        };
        let kind = optional(entry, KIND, ResultKind::from_word)?.unwrap_or_else(|| result.kind());
        Ok(Self { kind, result })
    }
}

/// The JSON form of a result has the names of the entry's fields. Ids are texts, because they are above 2^53.
impl Serialize for PublishedResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { kind, result } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(ORDER_ID, &result.order.to_string())?;
        let ids = [
            (USER_ID, result.user.map(|id| id.to_string())),
            (VOUCHER_ID, result.voucher.map(|id| id.to_string())),
        ];
        for (name, id) in ids.iter().filter_map(|(name, id)| Some((name, id.as_ref()?))) {
            map.serialize_entry(name, id)?;
        }
        if let Some(quantity) = result.quantity {
            map.serialize_entry(QUANTITY, &quantity.get())?;
        }
        map.serialize_entry(STATE, result.state.word())?;
        map.serialize_entry(KIND, kind.word())?;
        let texts = [
            (REFERENCE, result.reference.as_ref().map(EventText::as_str)),
            (REASON, result.reason.as_deref()),
        ];
        for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            map.serialize_entry(name, text)?;
        }
        map.serialize_entry(STEP, &result.step)?;
        map.serialize_entry(ENTRY, &result.entry)?;
        map.serialize_entry(AT, &result.at_ms)?;
        if let Some(traceparent) = result.traceparent {
            map.serialize_entry(TRACEPARENT, &traceparent.to_string())?;
        }
        map.end()
    }
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn optional<T>(
    entry: &Entry,
    field: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadResult> {
    let Some((_, value)) = entry.fields.iter().find(|(name, _)| name == field) else { return Ok(None) };
    str::from_utf8(value).ok().and_then(read).map(Some).ok_or(BadResult { field })
}

fn required<T>(
    entry: &Entry,
    field: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, BadResult> {
    optional(entry, field, read)?.ok_or(BadResult { field })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;
    use tidegate_stream::EntryId;

    use super::*;
    use crate::{results::ResultState, traceparent::Traceparent};

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        Entry {
            id: EntryId::MIN,
            fields: fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        }
    }

    #[test]
    fn a_result_is_read_as_it_was_written_and_one_of_an_earlier_version_gets_its_kind() {
        let result = OrderResult {
            order: i64::MAX.try_into().unwrap(),
            user: 5.try_into().ok(),
            voucher: 7.try_into().ok(),
            quantity: 3.try_into().ok(),
            state: ResultState::RefundDue,
            reference: "pay-1".parse().ok(),
            reason: Some("late".into()),
            step: -1,
            entry: EntryId { ms: 8, seq: 1 },
            at_ms: 1_718_000_000_000,
            traceparent: Traceparent::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        };
        let mut fields = Vec::new();
        result_fields(&result, |name, value| fields.push((name, value.to_owned())));
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let read = PublishedResult::read(&entry(&fields)).unwrap();
        assert_eq!(read, PublishedResult { kind: ResultKind::Fact, result: result.clone() });
        let shown = json!({
            "orderId": "9223372036854775807", "userId": "5", "voucherId": "7", "quantity": 3,
            "state": "refund_due", "kind": "fact", "ref": "pay-1", "reason": "late", "step": -1, "entry": "8-1",
            "at": 1_718_000_000_000_u64,
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        });
        assert_eq!(serde_json::to_value(&read).unwrap(), shown);

        let old = [("orderId", "1"), ("state", "refunded"), ("step", "2"), ("entry", "8-1"), ("at", "9")];
        let kind =
            |more: &[(&str, &str)]| PublishedResult::read(&entry(&[&old, more].concat())).map(|it| it.kind);
        assert_eq!(kind(&[]), Ok(ResultKind::State));
        assert_eq!(kind(&[("reason", "not_moved")]), Ok(ResultKind::Fact));
        assert_eq!(kind(&[("kind", "fact")]), Ok(ResultKind::Fact), "the writer knows best");
        assert_eq!(kind(&[("kind", "rumour")]), Err(BadResult { field: "kind" }));
        assert_eq!(kind(&[("userId", "x")]), Err(BadResult { field: "userId" }));
        for left_out in 0..old.len() {
            let fields: Vec<_> =
                old.iter().enumerate().filter(|(at, _)| *at != left_out).map(|it| *it.1).collect();
            assert_eq!(PublishedResult::read(&entry(&fields)), Err(BadResult { field: old[left_out].0 }));
        }
        let bare = PublishedResult::read(&entry(&old)).unwrap();
        let shown = json!({
            "orderId": "1", "state": "refunded", "kind": "state", "step": 2, "entry": "8-1", "at": 9,
        });
        assert_eq!(serde_json::to_value(&bare).unwrap(), shown);
    }

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
