//! Reads an event from the fields of an entry, and writes it to them. Each of these fields has one fixed name, unlike
//! those of orders.

use std::borrow::Cow;

use tidegate_stream::Entry;

use super::{EVENT, Field, Parse, TRACEPARENT, USER_ID, VOUCHER_ID, WireError, first, only, parsed, shown};
use crate::{
    event::{Event, EventKind, EventText, NewEvent},
    order::{OrderId, UserId, VoucherId},
};

pub(super) const ORDER_ID: &str = "orderId";
pub(super) const REFERENCE: &str = "ref";
const PAYMENT: &str = "payment";
pub(super) const REASON: &str = "reason";

const fn field(name: &'static str) -> Field<'static> {
    Field { setting: name, name, standard: name }
}

/// Reads the event of an entry. `None` if the entry has no field `event`.
pub(super) fn decode(entry: &Entry) -> Result<Option<Event>, WireError> {
    let Some(word) = only(entry, field(EVENT))? else { return Ok(None) };
    let Some(kind) = EventKind::from_word(word) else {
        return Err(WireError::UnknownEvent { shown: shown(word) });
    };
    Ok(Some(Event {
        kind,
        order: required(entry, ORDER_ID, OrderId::parse)?,
        user: required(entry, USER_ID, UserId::parse)?,
        voucher: required(entry, VOUCHER_ID, VoucherId::parse)?,
        reference: text(entry, REFERENCE)?,
        payment: text(entry, PAYMENT)?,
        reason: text(entry, REASON)?,
    }))
}

/// The id of the order that an event is about, even if the rest of the entry is invalid. `None` if the entry is not an
/// event, or does not name its order.
#[must_use]
pub fn order_of_event(entry: &Entry) -> Option<OrderId> {
    first(entry, field(EVENT))?;
    OrderId::parse(first(entry, field(ORDER_ID))?).ok()
}

/// The id that the sender gave to an event, even if the rest of the entry is invalid. `None` if the id is missing or
/// invalid.
#[must_use]
pub fn reference_of_event(entry: &Entry) -> Option<EventText> {
    text(entry, REFERENCE).ok().flatten()
}

/// The fields of the entry for an event, such as a payment.
#[must_use]
pub fn event_fields(event: &Event) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut fields: Vec<(&'static str, Cow<'_, str>)> = vec![
        (EVENT, event.kind.word().into()),
        (ORDER_ID, event.order.to_string().into()),
        (USER_ID, event.user.to_string().into()),
        (VOUCHER_ID, event.voucher.to_string().into()),
    ];
    let texts = [(REFERENCE, &event.reference), (PAYMENT, &event.payment), (REASON, &event.reason)];
    fields.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?.as_str().into()))));
    fields
}

/// The fields of the entry for an event, with the trace context of its sender.
pub(crate) fn new_event_fields(new: &NewEvent) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut fields = event_fields(&new.event);
    fields.extend(new.traceparent.as_ref().map(|context| (TRACEPARENT, context.as_str().into())));
    fields
}

fn required<T>(entry: &Entry, name: &'static str, parse: Parse<T>) -> Result<T, WireError> {
    match only(entry, field(name))? {
        Some(value) => parsed(field(name), value, parse),
        None => Err(WireError::Missing { field: name.to_owned(), hint: String::new() }),
    }
}

fn text(entry: &Entry, name: &'static str) -> Result<Option<EventText>, WireError> {
    let Some(value) = only(entry, field(name))? else { return Ok(None) };
    let fault = |fault| WireError::BadText { field: name, fault, shown: shown(value) };
    EventText::parse(value).map(Some).map_err(fault)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_stream::EntryId;

    use super::*;
    use crate::wire::{FieldNames, Message};

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let fields = fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        Entry { id: EntryId::MIN, fields }
    }

    const PAID: [(&str, &str); 4] =
        [("event", "paid"), ("orderId", "9"), ("userId", "5"), ("voucherId", "7")];

    fn decoded(more: &[(&str, &str)]) -> Result<Message, WireError> {
        FieldNames::default().decode_message(&entry(&[&PAID, more].concat()))
    }

    #[test]
    fn an_event_is_read_and_written_with_the_same_fields() {
        let more =
            [("reason", "late"), ("payment", "p-1"), ("ref", "r-1"), ("traceparent", "x"), ("id", "1")];
        let Ok(Message::Event(event)) = decoded(&more) else { panic!("no event") };
        assert_eq!(
            (event.kind, event.order.get(), event.user.get(), event.voucher.get()),
            (EventKind::Paid, 9, 5, 7)
        );
        let texts =
            [&event.reference, &event.payment, &event.reason].map(|text| text.as_ref().unwrap().as_str());
        assert_eq!(texts, ["r-1", "p-1", "late"]);
        let fields = event_fields(&event);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let again = FieldNames::default().decode_message(&entry(&fields)).unwrap();
        assert_eq!(again, Message::Event(event));
        assert_eq!(order_of_event(&entry(&PAID)).map(OrderId::get), Some(9));
    }

    #[test]
    fn whatever_has_a_field_event_is_no_order_however_fields_are_called() {
        let names = FieldNames { id: "orderId".into(), ..FieldNames::default() };
        assert!(matches!(names.decode_message(&entry(&PAID)), Ok(Message::Event(_))));
        assert_eq!(names.decode(&entry(&PAID)), Err(WireError::Event));
    }

    #[test]
    fn what_is_wrong_with_an_event_is_named() {
        for (field, _) in &PAID[1..] {
            let fields: Vec<_> = PAID.into_iter().filter(|(name, _)| name != field).collect();
            let error = FieldNames::default().decode_message(&entry(&fields)).unwrap_err();
            assert_eq!(
                (error.reason(), error.to_string()),
                ("missing_field", format!("the field {field} is missing"))
            );
            let twice: Vec<_> = [&PAID[..], &[(field, "1")]].concat();
            let error = FieldNames::default().decode_message(&entry(&twice)).unwrap_err();
            assert_eq!(error.reason(), "duplicate_field");
        }
        let unknown = [("event", "shipped"), ("orderId", "9")];
        let error = FieldNames::default().decode_message(&entry(&unknown)).unwrap_err();
        assert_eq!(error.reason(), "unsupported_event");
        assert!(error.to_string().contains("\"shipped\""), "{error}");
        let long = "x".repeat(65);
        for bad in ["", "a\nb", &long] {
            for field in ["ref", "payment", "reason"] {
                let error = decoded(&[(field, bad)]).unwrap_err();
                assert!(error.reason() == "bad_value" && error.to_string().contains(field), "{error}");
            }
        }
    }
}
