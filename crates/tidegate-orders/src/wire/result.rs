//! Writes a result to the fields of an entry in the results stream, and reads it again. Each of these fields has one
//! fixed name, unlike those of orders.

use std::str::FromStr;

use serde::Serializer;
use serde_json::{Value, json};
use tidegate_stream::{Entry, EntryId};

use super::{
    QUANTITY, TRACEPARENT, USER_ID, VOUCHER_ID,
    event::{ORDER_ID, REASON, REFERENCE},
};
use crate::{
    order::OrderId,
    results::{OrderResult, PublishedResult, ResultFilter, ResultKind},
};

const STATE: &str = "state";
const KIND: &str = "kind";
const STEP: &str = "step";
const ENTRY: &str = "entry";
const AT: &str = "at";
/// The largest size of a state or a kind, in bytes. It is part of a webhook's header.
const MOST_WORD_BYTES: usize = 64;

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

/// The reason why an entry of the results stream is not a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field {field} of the result is missing or invalid")]
pub struct BadResult {
    /// The name of the field.
    pub field: &'static str,
}

impl PublishedResult {
    /// Reads a result from an entry of the results stream. `None`: `filter` leaves the result out. A result of an
    /// earlier version has no field `kind`: its state and reason determine the kind. The JSON leaves out fields that this
    /// version does not know: it could only write them as texts, but a later version may write numbers.
    ///
    /// # Errors
    /// Fails if a required field is missing, a field is not UTF-8, or the id of the order, the id of the entry or a
    /// number is not valid. `userId` and `voucherId` may be any text.
    pub fn read(entry: &Entry, filter: &ResultFilter) -> Result<Option<Self>, BadResult> {
        let text = |field| optional(entry, field, parsed::<String>);
        let order = required(entry, ORDER_ID, parsed::<OrderId>)?;
        let (user, voucher) = (text(USER_ID)?, text(VOUCHER_ID)?);
        let quantity = optional(entry, QUANTITY, parsed::<u64>)?;
        let state = required(entry, STATE, word)?;
        let (reference, reason) = (text(REFERENCE)?, text(REASON)?);
        let kind = optional(entry, KIND, word)?
            .unwrap_or_else(|| ResultKind::of(&state, reason.as_deref()).word().to_owned());
        let step = required(entry, STEP, parsed::<i64>)?;
        let caused_by: EntryId = required(entry, ENTRY, parsed)?;
        let (at_ms, traceparent) = (required(entry, AT, parsed::<u64>)?, text(TRACEPARENT)?);
        if !filter.includes(&state, &kind) {
            return Ok(None);
        }
        let members = [
            (ORDER_ID, Some(json!(order.to_string()))),
            (USER_ID, user.map(Value::from)),
            (VOUCHER_ID, voucher.map(Value::from)),
            (QUANTITY, quantity.map(Value::from)),
            (STATE, Some(json!(state))),
            (KIND, Some(json!(kind))),
            (REFERENCE, reference.as_deref().map(Value::from)),
            (REASON, reason.map(Value::from)),
            (STEP, Some(json!(step))),
            (ENTRY, Some(json!(caused_by))),
            (AT, Some(json!(at_ms))),
            (TRACEPARENT, traceparent.map(Value::from)),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let json = json_of(members).into_boxed_str();
        Ok(Some(Self { order, state, kind, reference, step, entry: caused_by, json }))
    }
}

/// Writes a JSON object with the members in this sequence. An object of the library would sort them.
fn json_of<'m>(members: impl Iterator<Item = (&'m str, Value)>) -> String {
    let mut json = Vec::with_capacity(256);
    let written = serde_json::Serializer::new(&mut json).collect_map(members);
    written.expect("texts and numbers are JSON");
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// A state or a kind, also one of a later version.
fn word(text: &str) -> Option<String> {
    (1..=MOST_WORD_BYTES).contains(&text.len()).then(|| text.to_owned())
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

    use super::*;
    use crate::{
        results::{Published, ResultState},
        traceparent::Traceparent,
    };

    /// Reads a result that no filter leaves out.
    fn read(entry: &Entry) -> Result<PublishedResult, BadResult> {
        Ok(PublishedResult::read(entry, &ResultFilter::default())?.expect("all results are wanted"))
    }

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
        let found = read(&entry(&fields)).unwrap();
        assert_eq!((found.order, &*found.state, &*found.kind), (result.order, "refund_due", "fact"));
        assert_eq!((found.reference.as_deref(), found.step, found.entry), (Some("pay-1"), -1, result.entry));
        let json = |read: &PublishedResult| serde_json::from_str::<Value>(&read.json).unwrap();
        let shown = json!({
            "orderId": "9223372036854775807", "userId": "5", "voucherId": "7", "quantity": 3,
            "state": "refund_due", "kind": "fact", "ref": "pay-1", "reason": "late", "step": -1, "entry": "8-1",
            "at": 1_718_000_000_000_u64,
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        });
        assert_eq!(json(&found), shown);

        let old = [("orderId", "1"), ("state", "refunded"), ("step", "2"), ("entry", "8-1"), ("at", "9")];
        let kind = |more: &[(&str, &str)]| read(&entry(&[&old, more].concat())).map(|it| it.kind);
        assert_eq!(kind(&[]).as_deref(), Ok("state"));
        assert_eq!(kind(&[("reason", "not_moved")]).as_deref(), Ok("fact"));
        assert_eq!(kind(&[("kind", "fact")]).as_deref(), Ok("fact"), "the writer knows best");
        assert_eq!(kind(&[("quantity", "x")]), Err(BadResult { field: "quantity" }));
        for left_out in 0..old.len() {
            let fields: Vec<_> =
                old.iter().enumerate().filter(|(at, _)| *at != left_out).map(|it| *it.1).collect();
            assert_eq!(read(&entry(&fields)), Err(BadResult { field: old[left_out].0 }));
        }
        let bare = read(&entry(&old)).unwrap();
        let shown = json!({
            "orderId": "1", "state": "refunded", "kind": "state", "step": 2, "entry": "8-1", "at": 9,
        });
        assert_eq!(json(&bare), shown);
    }

    #[test]
    fn a_result_of_a_later_version_is_read_as_it_stands() {
        let later = [("orderId", "1"), ("state", "shipped \"x\""), ("kind", "rumour"), ("parcel", "3")];
        let more = [("quantity", "20000"), ("step", "2"), ("entry", "8-1"), ("at", "9"), ("ref", "a\nb")];
        let later = entry(&[&later[..], &more].concat());
        let found = read(&later).unwrap();
        let shown = r#"{"orderId":"1","quantity":20000,"state":"shipped \"x\"","kind":"rumour","ref":"a\nb","step":2,"entry":"8-1","at":9}"#;
        assert_eq!(&*found.json, shown);
        assert_eq!((&*found.state, &*found.kind), ("shipped \"x\"", "rumour"));
        // A filter cannot name such a result.
        let facts = ResultFilter::parse(["fact"], Published::All).unwrap();
        assert_eq!(PublishedResult::read(&later, &facts), Ok(None));
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
