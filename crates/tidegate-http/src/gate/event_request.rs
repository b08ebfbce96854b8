//! The reading of events, such as payments, from the JSON of a request.

use tidegate_orders::{Event, EventKind, OrderId, UserId, VoucherId, event::EventText};

use super::members::{BadBody, Members};

const MEMBERS: [&str; 7] = ["event", "orderId", "voucherId", "userId", "ref", "payment", "reason"];
const EXAMPLE: &str = r#"{"event": "paid", "ref": "pay-8812", "voucherId": "7", "userId": "1001"}"#;
/// An event of a request with many events, which names its order.
const EXAMPLE_OF_MANY: &str =
    r#"{"event": "paid", "ref": "pay-8812", "orderId": "42", "voucherId": "7", "userId": "1001"}"#;

/// An event that is invalid, with the order that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEvent {
    /// The order of the event. None: the event names no order.
    pub order: Option<OrderId>,
    pub why: BadBody,
}

/// Parses an event from JSON. `order` is the order that the path names. Without it, the event must name its order.
pub fn read(body: &[u8], order: Option<OrderId>) -> Result<Event, BadEvent> {
    let example = if order.is_some() { EXAMPLE } else { EXAMPLE_OF_MANY };
    event(Members::read(body, example), order)
}

/// Parses the events of a JSON array. Each of them must name its order. An event may be wrong by itself.
///
/// # Errors
/// Fails if the body is no JSON array.
pub fn read_all(body: &[u8]) -> Result<Vec<Result<Event, BadEvent>>, BadBody> {
    let all = Members::read_all(body, EXAMPLE_OF_MANY)?;
    Ok(all.into_iter().map(|members| event(members, None)).collect())
}

fn event(members: Result<Members, BadBody>, order: Option<OrderId>) -> Result<Event, BadEvent> {
    let mut members = members.map_err(|why| BadEvent { order, why })?;
    members.allow_only(&MEMBERS);
    members.must_have("event");
    let kind = members.text("event", kind);
    let order = match order {
        None => members.required("orderId", OrderId::parse),
        Some(order) => {
            if members.optional("orderId", OrderId::parse).is_some_and(|named| named != order) {
                members.fault("orderId", "differs from the order in the path: remove `orderId`");
            }
            Some(order)
        }
    };
    let voucher = members.required("voucherId", VoucherId::parse);
    let user = members.required("userId", UserId::parse);
    let [reference, payment, reason] =
        ["ref", "payment", "reason"].map(|name| members.text(name, EventText::parse));
    if kind.is_some_and(EventKind::is_about_money) && !members.has("ref") {
        members.fault("ref", "is missing: an event about money needs the id of the payment or of the refund");
    }
    if kind.is_some_and(|kind| !kind.is_refund()) && members.has("payment") {
        members.fault("payment", "names the payment that a refund returns, but the event is not a refund");
    }
    let event = match (kind, order, user, voucher) {
        (Some(kind), Some(order), Some(user), Some(voucher)) => {
            Some(Event { kind, order, user, voucher, reference, payment, reason })
        }
        _ => None,
    };
    members.end(event).map_err(|why| BadEvent { order, why })
}

fn kind(word: &[u8]) -> Result<EventKind, String> {
    match EventKind::from_word(word) {
        Some(EventKind::Expired) => Err("must not be expired: only workers report this event".to_owned()),
        Some(kind) => Ok(kind),
        None => {
            let known = EventKind::ALL.into_iter().filter(|kind| *kind != EventKind::Expired);
            let known: Vec<&str> = known.map(EventKind::word).collect();
            Err(format!("must be one of {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<String> {
        match read(body.as_bytes(), OrderId::try_from(9).ok()) {
            Err(BadEvent { why: BadBody::Faults(faults), .. }) => {
                faults.into_iter().map(|fault| fault.pointer).collect()
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn an_event_about_money_has_a_reference_and_only_a_refund_names_a_payment() {
        let body =
            r#"{"event":"refunded","ref":"r-1","payment":"p-1","reason":"late","voucherId":"7","userId":5}"#;
        let event = read(body.as_bytes(), OrderId::try_from(9).ok()).unwrap();
        assert_eq!((event.kind, event.order.get(), event.user.get()), (EventKind::Refunded, 9, 5));
        assert_eq!(event.payment.unwrap().as_str(), "p-1");
        for (body, places) in [
            ("{}", &["/event", "/voucherId", "/userId"][..]),
            (r#"{"event":"paid","voucherId":"7","userId":"5"}"#, &["/ref"]),
            (r#"{"event":"cancelled","payment":"p","voucherId":"7","userId":"5"}"#, &["/payment"]),
            (r#"{"event":"expired","voucherId":"7","userId":"5"}"#, &["/event"]),
            (r#"{"event":"sold","voucherId":"7","userId":"5"}"#, &["/event"]),
            (r#"{"event":"used","orderId":"8","voucherId":"7","userId":"5"}"#, &["/orderId"]),
            (r#"{"event":"used","ref":7,"voucherId":"7","userId":"5"}"#, &["/ref"]),
            (r#"{"event":"used","ref":"","voucherId":"7","userId":"5","at":1}"#, &["/at", "/ref"]),
        ] {
            assert_eq!(faults(body), places, "{body}");
        }
        let line = r#"{"event":"used","voucherId":"7","userId":"5"}"#;
        assert!(
            matches!(read(line.as_bytes(), None), Err(BadEvent { why: BadBody::Faults(faults), order: None }) if faults[0].pointer == "/orderId")
        );
    }
}
