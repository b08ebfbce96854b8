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
    let order =
        |more: &[(&str, &str)]| entry(&[&[("userId", "1"), ("voucherId", "2"), ("id", "3")], more].concat());
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
    assert_eq!((order.user.get(), order.voucher.get(), order.id.get(), order.quantity.get()), (5, 7, 9, 2));
    assert_eq!(snake_case().id_text(&entry(&fields)), Some(&b"9"[..]));
    assert!(snake_case().are_named(&entry(&fields), 7.try_into().ok(), 5.try_into().ok()));
    let missing = snake_case().decode(&entry(&[("user_id", "5"), ("voucher_id", "7")])).unwrap_err();
    assert_eq!(missing.to_string(), "the field order_id is missing");
}

#[test]
fn what_the_scripts_write_is_read_whatever_names_are_configured() {
    let order =
        snake_case().decode(&entry(&[("userId", "5"), ("voucherId", "7"), ("id", "9"), ("quantity", "3")]));
    let order = order.unwrap();
    assert_eq!((order.user.get(), order.voucher.get(), order.id.get(), order.quantity.get()), (5, 7, 9, 3));
}

#[test]
fn an_entry_with_a_field_event_is_no_order_whatever_names_are_configured() {
    let order =
        [("user_id", "5"), ("voucher_id", "7"), ("order_id", "9"), ("userId", "5"), ("voucherId", "7")];
    for names in
        [snake_case(), FieldNames::default(), FieldNames { id: "orderId".into(), ..FieldNames::default() }]
    {
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
    fields.extend(order.uses.as_ref().map(|uses| (USES, uses.to_string())));
    fields.into_iter().map(|(name, value)| (Bytes::from_static(name.as_bytes()), value.into())).collect()
}

proptest! {
    #[test]
    fn what_a_producer_writes_is_read_in_any_order_of_fields(
        ids in prop::array::uniform3(1..=i64::MAX),
        quantity in 1..=Quantity::MAX,
        slot in 1..=Slot::MAX,
        has_uses: bool,
        turn in 0..6_usize,
    ) {
        let order = Order {
            id: ids[0].try_into()?,
            user: ids[1].try_into()?,
            voucher: ids[2].try_into()?,
            quantity: quantity.try_into()?,
            slot: slot.try_into()?,
            uses: has_uses.then(|| Uses::parse(b"1,0,a c2.3,4,b").unwrap()),
        };
        let mut fields = fields_of(&order);
        let turn = turn % fields.len();
        fields.rotate_left(turn);
        prop_assert_eq!(decode(&Entry { id: EntryId::MIN, fields })?, order);
    }

    #[test]
    fn whatever_stands_in_an_entry_decode_does_not_panic(
        fields in prop::collection::vec(
            ("userId|voucherId|id|quantity|slot|uses|traceparent|x", prop::collection::vec(any::<u8>(), 0..70)),
            0..8,
        ),
    ) {
        let fields = fields.into_iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
        let _outcome = decode(&Entry { id: EntryId::MIN, fields: fields.collect() });
    }
}
