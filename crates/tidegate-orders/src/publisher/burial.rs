//! Results of buried entries. An entry may be buried unread, because it is too large or because it crashed processes. A
//! few fields are enough for its result.

use std::borrow::Cow;

use tidegate_stream::Entry;

use crate::{
    order::Order,
    results::{BURIED, OrderResult, ResultState},
    wire::{EntryIds, FieldNames, is_event, order_of_event, reference_of_event},
};

/// The result of an entry that is buried: moved to the dead letters for the given reason. The state is `dead` for an
/// order and `rejected` for an event. `None` if the entry does not name its order.
#[must_use]
pub fn of_buried(
    names: &FieldNames,
    entry: &Entry,
    reason: impl Into<Cow<'static, str>>,
    at_ms: u64,
) -> Option<OrderResult> {
    let EntryIds { id, user, voucher } = names.peek(entry);
    let (order, state, reference) = match is_event(entry) {
        true => (order_of_event(entry)?, ResultState::Rejected, reference_of_event(entry)),
        false => (id?, ResultState::Dead, None),
    };
    let quantity = names.decode(entry).ok().map(|Order { quantity, .. }| quantity);
    Some(OrderResult {
        order,
        user,
        voucher,
        quantity,
        state,
        reference,
        reason: Some(reason.into()),
        step: BURIED,
        entry: entry.id,
        at_ms,
        traceparent: names.traceparent(entry),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_stream::EntryId;

    use super::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let fields = fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        Entry { id: EntryId::MIN, fields }
    }

    #[test]
    fn of_a_buried_entry_is_told_what_can_be_read_if_its_order_can_be() {
        let told = |fields: &[(&str, &str)]| {
            let result = of_buried(&FieldNames::default(), &entry(fields), "bad_value", 1)?;
            assert_eq!((result.step, result.reason.as_deref()), (-1, Some("bad_value")));
            let reference = result.reference.as_ref().map_or("", |reference| reference.as_str()).to_owned();
            let (user, units) = (result.user.map(|id| id.get()), result.quantity.map(|units| units.get()));
            Some((result.state.word(), result.order.get(), user, units, reference))
        };
        let none = String::new;
        let order = [("id", "9"), ("userId", "5"), ("voucherId", "7"), ("quantity", "2")];
        assert_eq!(told(&order), Some(("dead", 9, Some(5), Some(2), none())));
        let bad = [("id", "9"), ("userId", "five"), ("voucherId", "7")];
        assert_eq!(told(&bad), Some(("dead", 9, None, None, none())));
        let event = [("event", "shipped"), ("orderId", "9"), ("userId", "5"), ("ref", "r")];
        assert_eq!(told(&event), Some(("rejected", 9, Some(5), None, "r".to_owned())));
        assert_eq!(told(&[("userId", "5"), ("voucherId", "7")]), None);
        assert_eq!(told(&[("event", "paid"), ("id", "9")]), None, "the id of an order is no event's");
    }
}
