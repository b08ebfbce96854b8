//! An order out of the fields of an entry. The only place that knows the names of the fields.

use serde::Deserialize;
use tidegate_stream::Entry;

use crate::{
    order::{BadNumber, Order, OrderId, Quantity, Slot, UserId, VoucherId},
    traceparent::Traceparent,
};

/// The names that `lua/admit.lua` writes.
const USER_ID: &str = "userId";
const VOUCHER_ID: &str = "voucherId";
const ID: &str = "id";
const QUANTITY: &str = "quantity";
const SLOT: &str = "slot";
const TRACEPARENT: &str = "traceparent";

/// What makes an entry an event, which is something else than an order, whatever its other fields are called.
pub const EVENT: &str = "event";

/// Longest piece of a bad value that an error shows, in characters.
const SHOWN_CHARS: usize = 64;

/// Under which names producers write the fields of an order. An entry that lacks a field under its name here has it under
/// the name that `lua/admit.lua` writes, if at all: the gate's orders are read, however others name theirs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FieldNames {
    /// The user's id.
    pub user: String,
    /// The voucher's id.
    pub voucher: String,
    /// The order's id.
    pub id: String,
    /// Units; optional.
    pub quantity: String,
    /// Which of the user's orders it is; optional.
    pub slot: String,
    /// The trace that the producer was in; optional.
    pub traceparent: String,
}

impl Default for FieldNames {
    /// The names that `lua/admit.lua` and the tutorial's script write.
    fn default() -> Self {
        Self {
            user: USER_ID.into(),
            voucher: VOUCHER_ID.into(),
            id: ID.into(),
            quantity: QUANTITY.into(),
            slot: SLOT.into(),
            traceparent: TRACEPARENT.into(),
        }
    }
}

/// A name of [`FieldNames`] that would make entries ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmbiguousName {
    /// The setting that says so, such as `fields.user`.
    pub setting: &'static str,
    /// Why no other field may be called so.
    pub why: String,
}

/// Why an entry is no order. It will not become one by trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is not there.
    #[error("the field {field} is missing{hint}")]
    Missing {
        /// Name of the field.
        field: String,
        /// What to set where the entry looks like an order with other names; otherwise empty.
        hint: String,
    },
    /// A field stands twice: which of the two is meant, nobody can know.
    #[error("the field {field} stands more than once")]
    Duplicate {
        /// Name of the field.
        field: String,
    },
    /// A value that its field cannot have.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadValue {
        /// Name of the field.
        field: String,
        /// What is wrong with the value.
        fault: BadNumber,
        /// The beginning of the value, at most 64 characters, what cannot be printed escaped.
        shown: String,
    },
    /// It has a field `event`.
    #[error("it has a field {EVENT}, so it is no order but an event, which this version does not handle")]
    Event,
}

impl WireError {
    /// One word for labels and dead letters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_field",
            Self::Duplicate { .. } => "duplicate_field",
            Self::BadValue { .. } => "bad_value",
            Self::Event => "unsupported_event",
        }
    }

    /// Whether the entry looks like an order whose fields have other names than those that are configured.
    #[must_use]
    pub fn has_other_names(&self) -> bool {
        matches!(self, Self::Missing { hint, .. } if !hint.is_empty())
    }
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

/// A field of an order: its setting, in entries, and in the entries of the gate.
#[derive(Clone, Copy)]
struct Field<'a> {
    setting: &'static str,
    name: &'a str,
    standard: &'static str,
}

impl FieldNames {
    /// Reads the order out of an entry. Field order does not matter, unknown fields are ignored.
    ///
    /// # Errors
    /// When it is an event, a required field is missing, a known field stands twice, or a value is not what its field
    /// allows.
    pub fn decode(&self, entry: &Entry) -> Result<Order, WireError> {
        if entry.fields.iter().any(|(name, _)| name == EVENT) {
            return Err(WireError::Event);
        }
        Ok(Order {
            user: self.required(entry, self.user(), UserId::parse)?,
            voucher: self.required(entry, self.voucher(), VoucherId::parse)?,
            id: self.required(entry, self.id(), OrderId::parse)?,
            quantity: optional(entry, self.quantity(), Quantity::ONE, Quantity::parse)?,
            slot: optional(entry, self.slot(), Slot::FIRST, Slot::parse)?,
        })
    }

    /// Whether an entry names this voucher and this user, where one is asked for. Also of an entry that is no order: it
    /// is seen by whoever looks for its voucher.
    #[must_use]
    pub fn are_named(&self, entry: &Entry, voucher: Option<VoucherId>, user: Option<UserId>) -> bool {
        let holds = |field: Field<'_>, id: Option<String>| {
            id.is_none_or(|id| entry.fields.iter().any(|(name, value)| field.is(name) && *value == id))
        };
        holds(self.voucher(), voucher.map(|id| id.to_string()))
            && holds(self.user(), user.map(|id| id.to_string()))
    }

    /// What stands for the order id of an entry, which may be no order otherwise.
    #[must_use]
    pub fn id_text<'e>(&self, entry: &'e Entry) -> Option<&'e [u8]> {
        first(entry, self.id())
    }

    /// Reads what can be read; of a field that stands twice, the first.
    #[must_use]
    pub fn glimpse(&self, entry: &Entry) -> Glimpse {
        Glimpse {
            id: first(entry, self.id()).and_then(|value| OrderId::parse(value).ok()),
            user: first(entry, self.user()).and_then(|value| UserId::parse(value).ok()),
            voucher: first(entry, self.voucher()).and_then(|value| VoucherId::parse(value).ok()),
        }
    }

    /// The trace that the producer was in. None as well where the field says nothing that can be read, or stands twice:
    /// that is no reason to refuse an order. Whether the rest of the entry is an order does not matter.
    #[must_use]
    pub fn traceparent(&self, entry: &Entry) -> Option<Traceparent> {
        only(entry, self.traceparent_field()).ok()?.and_then(Traceparent::parse)
    }

    /// Names with which an entry could be read in two ways: two fields of one name, an event's, or one under which the
    /// gate's own entries hold another field.
    #[must_use]
    pub fn ambiguous(&self) -> Vec<AmbiguousName> {
        let fields = self.all();
        let why = |field: &Field<'_>| {
            if field.name == EVENT {
                return Some("makes an entry an event, which is no order".to_owned());
            }
            let other = fields
                .iter()
                .find(|other| other.setting != field.setting && other.is(field.name.as_bytes()))?;
            Some(match other.name == field.name {
                true => format!("is the name of {}, too", other.setting),
                false => format!("is what the gate's own entries call the field of {}", other.setting),
            })
        };
        fields
            .iter()
            .filter_map(|field| Some(AmbiguousName { setting: field.setting, why: why(field)? }))
            .collect()
    }

    fn user(&self) -> Field<'_> {
        Field { setting: "fields.user", name: &self.user, standard: USER_ID }
    }

    fn voucher(&self) -> Field<'_> {
        Field { setting: "fields.voucher", name: &self.voucher, standard: VOUCHER_ID }
    }

    fn id(&self) -> Field<'_> {
        Field { setting: "fields.id", name: &self.id, standard: ID }
    }

    fn quantity(&self) -> Field<'_> {
        Field { setting: "fields.quantity", name: &self.quantity, standard: QUANTITY }
    }

    fn slot(&self) -> Field<'_> {
        Field { setting: "fields.slot", name: &self.slot, standard: SLOT }
    }

    fn traceparent_field(&self) -> Field<'_> {
        Field { setting: "fields.traceparent", name: &self.traceparent, standard: TRACEPARENT }
    }

    fn all(&self) -> [Field<'_>; 6] {
        [self.user(), self.voucher(), self.id(), self.quantity(), self.slot(), self.traceparent_field()]
    }

    fn required<T>(&self, entry: &Entry, field: Field<'_>, parse: Parse<T>) -> Result<T, WireError> {
        match only(entry, field)? {
            Some(value) => parsed(field, value, parse),
            None => Err(WireError::Missing { field: field.name.to_owned(), hint: self.hint(entry) }),
        }
    }

    /// What to set, where the fields that are missing stand there under other names that are in use for them.
    fn hint(&self, entry: &Entry) -> String {
        let looks = [(self.user(), LIKE_USER), (self.voucher(), LIKE_VOUCHER), (self.id(), LIKE_ID)];
        let missing = looks.into_iter().filter(|(field, _)| first(entry, *field).is_none());
        let settings = missing.filter_map(|(field, like)| {
            let (name, _) = entry.fields.iter().find(|(name, value)| {
                let is_known = self.all().iter().any(|field| field.is(name));
                !is_known && like.contains(&plain(name).as_str()) && OrderId::parse(value).is_ok()
            })?;
            Some(format!("{} = \"{}\"", field.setting, shown(name)))
        });
        let settings: Vec<String> = settings.collect();
        match settings.is_empty() {
            true => String::new(),
            false => format!("; it may be an order under other names: set {}", settings.join(", ")),
        }
    }
}

/// Names in use for the same things, without upper case, `_` and `-`.
const LIKE_USER: &[&str] = &["userid", "uid", "user", "memberid", "customerid", "buyerid"];
const LIKE_VOUCHER: &[&str] = &["voucherid", "vid", "voucher", "couponid", "seckillvoucherid", "goodsid"];
const LIKE_ID: &[&str] = &["id", "orderid", "oid", "order", "voucherorderid", "orderno"];
const LONGEST_LIKE: usize = 32;

fn plain(name: &[u8]) -> String {
    let letters = name.iter().take(LONGEST_LIKE).filter(|byte| !matches!(byte, b'_' | b'-'));
    letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

impl Field<'_> {
    /// Whether the field may be called so.
    fn is(self, name: &[u8]) -> bool {
        name == self.name.as_bytes() || name == self.standard.as_bytes()
    }
}

/// The value of a field, the first where it stands twice.
fn first<'e>(entry: &'e Entry, field: Field<'_>) -> Option<&'e [u8]> {
    let called =
        |called: &str| entry.fields.iter().find(|(name, _)| name == called).map(|(_, value)| value.as_ref());
    called(field.name).or_else(|| called(field.standard))
}

/// The value of a field, which must not stand twice.
fn only<'e>(entry: &'e Entry, field: Field<'_>) -> Result<Option<&'e [u8]>, WireError> {
    let standard = (field.name != field.standard).then_some(field.standard);
    for called in std::iter::once(field.name).chain(standard) {
        let mut values =
            entry.fields.iter().filter(|(name, _)| name == called).map(|(_, value)| value.as_ref());
        if let Some(value) = values.next() {
            let is_twice = values.next().is_some();
            return if is_twice {
                Err(WireError::Duplicate { field: called.to_owned() })
            } else {
                Ok(Some(value))
            };
        }
    }
    Ok(None)
}

type Parse<T> = fn(&[u8]) -> Result<T, BadNumber>;

fn optional<T>(entry: &Entry, field: Field<'_>, or: T, parse: Parse<T>) -> Result<T, WireError> {
    only(entry, field)?.map_or(Ok(or), |value| parsed(field, value, parse))
}

fn parsed<T>(field: Field<'_>, value: &[u8], parse: Parse<T>) -> Result<T, WireError> {
    parse(value).map_err(|fault| WireError::BadValue {
        field: field.name.to_owned(),
        fault,
        shown: shown(value),
    })
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

    fn decode(entry: &Entry) -> Result<Order, WireError> {
        FieldNames::default().decode(entry)
    }

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
                assert_eq!((named.as_str(), error.reason()), (field, "bad_value"));
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
            let missing = WireError::Missing { field: field.into(), hint: String::new() };
            assert_eq!((error.reason(), error), ("missing_field", missing));
        }
    }

    #[test]
    fn a_known_field_that_stands_twice_is_an_error_even_with_the_same_value() {
        for field in [USER_ID, VOUCHER_ID, ID, QUANTITY, SLOT] {
            let mut twice = with(field, b"1");
            twice.fields.push(twice.fields[twice.fields.len() - 1].clone());
            let error = decode(&twice).unwrap_err();
            let duplicate = WireError::Duplicate { field: field.into() };
            assert_eq!((error.reason(), error), ("duplicate_field", duplicate));
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
            FieldNames::default().are_named(&broken, voucher, user)
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
        let traceparent = |entry: &Entry| FieldNames::default().traceparent(entry);
        assert!(traceparent(&order(&[(TRACEPARENT, trace)])).is_some_and(Traceparent::is_sampled));
        assert_eq!(traceparent(&order(&[])), None);
        assert_eq!(traceparent(&order(&[(TRACEPARENT, "x")])), None);
        assert_eq!(traceparent(&order(&[(TRACEPARENT, trace), (TRACEPARENT, trace)])), None);
    }

    /// As many public producers name them, and one field that has another meaning there.
    fn snake_case() -> FieldNames {
        FieldNames {
            user: "user_id".into(),
            voucher: "voucher_id".into(),
            id: "order_id".into(),
            quantity: "count".into(),
            ..FieldNames::default()
        }
    }

    #[test]
    fn an_order_is_read_under_the_names_that_are_configured() {
        let fields = [("user_id", "5"), ("voucher_id", "7"), ("order_id", "9"), ("count", "2"), ("id", "x")];
        let order = snake_case().decode(&entry(&fields)).unwrap();
        assert_eq!(
            (order.user.get(), order.voucher.get(), order.id.get(), order.quantity.get()),
            (5, 7, 9, 2)
        );
        assert_eq!(snake_case().id_text(&entry(&fields)), Some(&b"9"[..]));
        assert!(snake_case().are_named(&entry(&fields), 7.try_into().ok(), 5.try_into().ok()));
        let missing = snake_case().decode(&entry(&[("user_id", "5"), ("voucher_id", "7")])).unwrap_err();
        assert_eq!(missing.to_string(), "the field order_id is missing");
    }

    #[test]
    fn what_the_gate_itself_writes_is_read_whatever_names_are_configured() {
        let order = snake_case().decode(&entry(&[
            ("userId", "5"),
            ("voucherId", "7"),
            ("id", "9"),
            ("quantity", "3"),
        ]));
        let order = order.unwrap();
        assert_eq!(
            (order.user.get(), order.voucher.get(), order.id.get(), order.quantity.get()),
            (5, 7, 9, 3)
        );
    }

    #[test]
    fn an_entry_with_a_field_event_is_no_order_whatever_names_are_configured() {
        let order =
            [("user_id", "5"), ("voucher_id", "7"), ("order_id", "9"), ("userId", "5"), ("voucherId", "7")];
        for names in [
            snake_case(),
            FieldNames::default(),
            FieldNames { id: "orderId".into(), ..FieldNames::default() },
        ] {
            let event = entry(&[&order[..], &[("id", "9"), ("orderId", "9"), ("event", "paid")]].concat());
            let error = names.decode(&event).unwrap_err();
            assert_eq!((error.reason(), &error), ("unsupported_event", &WireError::Event));
        }
    }

    #[test]
    fn an_order_under_other_names_is_told_with_what_to_set() {
        for (fields, told) in [
            (
                vec![("user_id", "5"), ("voucher_id", "7"), ("order_id", "9")],
                "set fields.user = \"user_id\", fields.voucher = \"voucher_id\", fields.id = \"order_id\"",
            ),
            (vec![("userId", "5"), ("voucherId", "7"), ("orderId", "9")], "set fields.id = \"orderId\""),
            (
                vec![("USERID", "5"), ("voucherId", "7"), ("Id", "9")],
                "set fields.user = \"USERID\", fields.id = \"Id\"",
            ),
        ] {
            let error = decode(&entry(&fields)).unwrap_err();
            assert!(error.has_other_names() && error.to_string().ends_with(told), "{error}");
        }
        for other in [vec![("userId", "5"), ("voucherId", "7"), ("orderId", "x")], vec![("init", "0")]] {
            assert!(!decode(&entry(&other)).unwrap_err().has_other_names());
        }
    }

    #[test]
    fn names_with_which_an_entry_could_be_read_in_two_ways_are_found() {
        assert_eq!(FieldNames::default().ambiguous(), []);
        assert_eq!(snake_case().ambiguous(), []);
        let all = FieldNames {
            user: "id".into(),
            voucher: "v".into(),
            quantity: "v".into(),
            slot: "event".into(),
            ..FieldNames::default()
        };
        let found: Vec<_> = all.ambiguous().into_iter().map(|name| name.setting).collect();
        assert_eq!(found, ["fields.user", "fields.voucher", "fields.id", "fields.quantity", "fields.slot"]);
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
