//! An order out of the fields of an entry. The only place that knows the names of the fields.

use tidegate_stream::Entry;

use crate::{
    order::{BadNumber, Order, OrderId, Quantity, Slot, UserId, VoucherId},
    traceparent::Traceparent,
};

const USER_ID: &str = "userId";
const VOUCHER_ID: &str = "voucherId";
const ID: &str = "id";
const QUANTITY: &str = "quantity";
const SLOT: &str = "slot";
const TRACEPARENT: &str = "traceparent";

/// Longest piece of a bad value that an error shows, in characters.
const SHOWN_CHARS: usize = 64;

/// Why an entry is no order. It will not become one by trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is not there.
    #[error("the field {field} is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field stands twice: which of the two is meant, nobody can know.
    #[error("the field {field} stands more than once")]
    Duplicate {
        /// Name of the field.
        field: &'static str,
    },
    /// A value that its field cannot have.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadValue {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with the value.
        fault: BadNumber,
        /// The beginning of the value, at most 64 characters, what cannot be printed escaped.
        shown: String,
    },
}

impl WireError {
    /// One word for labels and dead letters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_field",
            Self::Duplicate { .. } => "duplicate_field",
            Self::BadValue { .. } => "bad_value",
        }
    }
}

/// Reads the order out of an entry. Field order does not matter, unknown fields are ignored.
///
/// # Errors
/// When a required field is missing, a known field stands twice, or a value is not what its field allows.
pub fn decode(entry: &Entry) -> Result<Order, WireError> {
    let mut known = Known::default();
    for (name, value) in &entry.fields {
        known.take(name, value)?;
    }
    Ok(Order {
        user: required(USER_ID, known.user, UserId::parse)?,
        voucher: required(VOUCHER_ID, known.voucher, VoucherId::parse)?,
        id: required(ID, known.id, OrderId::parse)?,
        quantity: optional(QUANTITY, known.quantity, Quantity::ONE, Quantity::parse)?,
        slot: optional(SLOT, known.slot, Slot::FIRST, Slot::parse)?,
    })
}

/// Whether an entry names this voucher and this user, where one is asked for. Also of an entry that is no order: it is
/// seen by whoever looks for its voucher.
#[must_use]
pub fn names(entry: &Entry, voucher: Option<VoucherId>, user: Option<UserId>) -> bool {
    let holds = |name: &str, id: Option<String>| {
        id.is_none_or(|id| entry.fields.iter().any(|(field, value)| field == name && *value == id))
    };
    holds(VOUCHER_ID, voucher.map(|id| id.to_string())) && holds(USER_ID, user.map(|id| id.to_string()))
}

/// What stands for the order id of an entry, which may be no order otherwise.
#[must_use]
pub fn id_text(entry: &Entry) -> Option<&[u8]> {
    entry.fields.iter().find(|(name, _)| name == ID.as_bytes()).map(|(_, value)| value.as_ref())
}

/// What can be read of an entry, be it an order or not. For people who look for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// Its order id.
    pub id: Option<OrderId>,
    /// Its user.
    pub user: Option<UserId>,
    /// Its voucher.
    pub voucher: Option<VoucherId>,
}

/// Reads what can be read; of a field that stands twice, the first.
#[must_use]
pub fn glimpse(entry: &Entry) -> Glimpse {
    let value = |field: &str| entry.fields.iter().find(|(name, _)| name == field).map(|(_, value)| value);
    Glimpse {
        id: value(ID).and_then(|value| OrderId::parse(value).ok()),
        user: value(USER_ID).and_then(|value| UserId::parse(value).ok()),
        voucher: value(VOUCHER_ID).and_then(|value| VoucherId::parse(value).ok()),
    }
}

/// The trace that the producer was in. None as well where the field says nothing that can be read, or stands twice:
/// that is no reason to refuse an order. Whether the rest of the entry is an order does not matter.
#[must_use]
pub fn traceparent(entry: &Entry) -> Option<Traceparent> {
    let mut found = entry.fields.iter().filter(|(name, _)| name == TRACEPARENT);
    let (_, value) = found.next()?;
    if found.next().is_some() { None } else { Traceparent::parse(value) }
}

/// The values of the known fields; borrowed, so that decoding allocates nothing per field.
#[derive(Default)]
struct Known<'a> {
    user: Option<&'a [u8]>,
    voucher: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    quantity: Option<&'a [u8]>,
    slot: Option<&'a [u8]>,
}

impl<'a> Known<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), WireError> {
        let (field, place) = match name {
            name if name == USER_ID.as_bytes() => (USER_ID, &mut self.user),
            name if name == VOUCHER_ID.as_bytes() => (VOUCHER_ID, &mut self.voucher),
            name if name == ID.as_bytes() => (ID, &mut self.id),
            name if name == QUANTITY.as_bytes() => (QUANTITY, &mut self.quantity),
            name if name == SLOT.as_bytes() => (SLOT, &mut self.slot),
            _ => return Ok(()),
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(WireError::Duplicate { field }),
        }
    }
}

type Parse<T> = fn(&[u8]) -> Result<T, BadNumber>;

fn required<T>(field: &'static str, value: Option<&[u8]>, parse: Parse<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { field }).and_then(|value| parsed(field, value, parse))
}

fn optional<T>(field: &'static str, value: Option<&[u8]>, or: T, parse: Parse<T>) -> Result<T, WireError> {
    value.map_or(Ok(or), |value| parsed(field, value, parse))
}

fn parsed<T>(field: &'static str, value: &[u8], parse: Parse<T>) -> Result<T, WireError> {
    parse(value).map_err(|fault| WireError::BadValue { field, fault, shown: shown(value) })
}

/// The beginning of a value, for people: whatever producers write, one line of a log can take it.
fn shown(value: &[u8]) -> String {
    // A character has at most four bytes, so this much holds all that is shown, however long the value.
    let beginning = &value[..value.len().min(SHOWN_CHARS * 4)];
    String::from_utf8_lossy(beginning).escape_debug().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use tidegate_stream::EntryId;

    use super::*;

    fn entry<V: AsRef<[u8]>>(fields: &[(&str, V)]) -> Entry {
        let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
        let fields = fields.iter().map(|(name, value)| (bytes(name.as_bytes()), bytes(value.as_ref())));
        Entry { id: EntryId::MIN, fields: fields.collect() }
    }

    /// A whole order in which `field` has this value.
    fn with(field: &str, value: &[u8]) -> Entry {
        let mut fields = vec![(USER_ID, &b"1"[..]), (VOUCHER_ID, b"2"), (ID, b"3")];
        fields.retain(|(name, _)| *name != field);
        fields.push((field, value));
        entry(&fields)
    }

    #[test]
    fn the_tutorials_entry_is_an_order_of_one_unit_in_the_first_slot() {
        let order = decode(&entry(&[("userId", "5"), ("voucherId", "7"), ("id", "9")])).unwrap();
        assert_eq!((order.user.get(), order.voucher.get(), order.id.get()), (5, 7, 9));
        assert_eq!((order.quantity, order.slot), (Quantity::ONE, Slot::FIRST));
    }

    #[test]
    fn ids_beyond_2_to_the_53_survive_exactly() {
        let order = decode(&with(ID, b"9223372036854775807")).unwrap();
        assert_eq!(order.id.get(), i64::MAX);
        let order = decode(&with(USER_ID, b"9007199254740993")).unwrap();
        assert_eq!(order.user.get(), 9_007_199_254_740_993);
    }

    #[test]
    fn every_bad_value_of_every_number_is_an_error_that_names_the_field() {
        let megabyte = vec![b'1'; 1 << 20];
        let bad: [&[u8]; 15] = [
            b"",
            b"x",
            b"+1",
            b"-1",
            b"1.5",
            b"1e3",
            b" 1",
            b"1 ",
            b"007",
            b"0",
            b"0x10",
            b"9223372036854775808",
            b"\xff\xfe",
            "\u{ff11}".as_bytes(),
            &megabyte,
        ];
        for field in [USER_ID, VOUCHER_ID, ID, QUANTITY, SLOT] {
            for value in bad {
                let error = decode(&with(field, value)).unwrap_err();
                let WireError::BadValue { field: named, shown, .. } = &error else { panic!("{error}") };
                assert_eq!((*named, error.reason()), (field, "bad_value"));
                assert!(shown.chars().count() <= 64 && error.to_string().len() < 400, "{error}");
            }
        }
    }

    #[test]
    fn quantity_and_slot_have_their_own_limits() {
        assert!(decode(&with(QUANTITY, b"10000")).is_ok() && decode(&with(QUANTITY, b"10001")).is_err());
        assert!(decode(&with(SLOT, b"2147483647")).is_ok() && decode(&with(SLOT, b"2147483648")).is_err());
    }

    #[test]
    fn a_missing_field_is_an_error_that_names_it() {
        for field in [USER_ID, VOUCHER_ID, ID] {
            let mut incomplete = with(field, b"1");
            incomplete.fields.pop();
            let error = decode(&incomplete).unwrap_err();
            assert_eq!((error.reason(), error), ("missing_field", WireError::Missing { field }));
        }
    }

    #[test]
    fn a_known_field_that_stands_twice_is_an_error_even_with_the_same_value() {
        for field in [USER_ID, VOUCHER_ID, ID, QUANTITY, SLOT] {
            let mut twice = with(field, b"1");
            twice.fields.push(twice.fields[twice.fields.len() - 1].clone());
            let error = decode(&twice).unwrap_err();
            assert_eq!((error.reason(), error), ("duplicate_field", WireError::Duplicate { field }));
        }
    }

    #[test]
    fn unknown_fields_are_ignored_even_twice_and_even_if_they_are_no_text() {
        let mut strange = with(QUANTITY, b"2");
        for _ in 0..2 {
            strange.fields.push((Bytes::from_static(b"\xff"), Bytes::from_static(b"\xfe")));
            strange.fields.push((Bytes::from_static(b"USERID"), Bytes::from_static(b"x")));
            strange.fields.push((Bytes::from_static(b"traceparent"), Bytes::from_static(b"x")));
        }
        assert_eq!(decode(&strange).unwrap().quantity.get(), 2);
    }

    #[test]
    fn an_entry_is_found_by_voucher_and_user_even_if_it_is_no_order() {
        let broken = entry(&[("userId", &b"5"[..]), ("voucherId", b"7"), ("id", b"\xff")]);
        let is_named = |voucher: Option<i64>, user: Option<i64>| {
            let (voucher, user) =
                (voucher.map(|id| id.try_into().unwrap()), user.map(|id| id.try_into().unwrap()));
            names(&broken, voucher, user)
        };
        assert!(is_named(None, None) && is_named(Some(7), None) && is_named(Some(7), Some(5)));
        assert!(!is_named(Some(8), None) && !is_named(Some(7), Some(7)) && !is_named(None, Some(55)));
    }

    #[test]
    fn what_is_shown_of_a_value_fits_on_one_line() {
        assert_eq!(shown(b"a\n\xff"), "a\\n\u{fffd}");
        assert_eq!(shown("\u{1f600}".repeat(1000).as_bytes()), "\u{1f600}".repeat(64));
    }

    #[test]
    fn a_traceparent_is_read_unless_it_is_none_or_stands_twice() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let order = |more: &[(&str, &str)]| {
            entry(&[&[("userId", "1"), ("voucherId", "2"), ("id", "3")], more].concat())
        };
        assert!(traceparent(&order(&[(TRACEPARENT, trace)])).is_some_and(Traceparent::is_sampled));
        assert_eq!(traceparent(&order(&[])), None);
        assert_eq!(traceparent(&order(&[(TRACEPARENT, "x")])), None);
        assert_eq!(traceparent(&order(&[(TRACEPARENT, trace), (TRACEPARENT, trace)])), None);
    }

    /// As a producer writes them; quantity and slot are left out where they are 1.
    fn fields_of(order: &Order) -> Vec<(Bytes, Bytes)> {
        let mut fields = vec![
            (USER_ID, order.user.to_string()),
            (VOUCHER_ID, order.voucher.to_string()),
            (ID, order.id.to_string()),
        ];
        fields.extend((order.quantity != Quantity::ONE).then(|| (QUANTITY, order.quantity.to_string())));
        fields.extend((order.slot != Slot::FIRST).then(|| (SLOT, order.slot.to_string())));
        fields.into_iter().map(|(name, value)| (Bytes::from_static(name.as_bytes()), value.into())).collect()
    }

    proptest! {
        #[test]
        fn what_a_producer_writes_is_read_in_any_order_of_fields(
            ids in prop::array::uniform3(1..=i64::MAX),
            quantity in 1..=Quantity::MAX,
            slot in 1..=Slot::MAX,
            turn in 0..6_usize,
        ) {
            let order = Order {
                id: ids[0].try_into()?,
                user: ids[1].try_into()?,
                voucher: ids[2].try_into()?,
                quantity: quantity.try_into()?,
                slot: slot.try_into()?,
            };
            let mut fields = fields_of(&order);
            let turn = turn % fields.len();
            fields.rotate_left(turn);
            prop_assert_eq!(decode(&Entry { id: EntryId::MIN, fields })?, order);
        }

        #[test]
        fn whatever_stands_in_an_entry_decode_does_not_panic(
            fields in prop::collection::vec(
                ("userId|voucherId|id|quantity|slot|traceparent|x", prop::collection::vec(any::<u8>(), 0..70)),
                0..8,
            ),
        ) {
            let fields = fields.into_iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
            let _outcome = decode(&Entry { id: EntryId::MIN, fields: fields.collect() });
        }
    }
}
