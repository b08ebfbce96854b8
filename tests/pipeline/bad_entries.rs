//! Tests of bad entries: an entry that is no order is buried unchanged, and its neighbours are written.

use std::collections::BTreeMap;

use fred::{
    interfaces::{ClientLike, StreamsInterface},
    types::{CustomCommand, Value},
};

use crate::fixture::{DEAD, Fixture, STREAM, until};

/// Field names and values, byte for byte, in order.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const REQUIRED: [&str; 3] = ["userId", "voucherId", "id"];

fn fields(pairs: &[(&str, &[u8])]) -> Fields {
    pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect()
}

/// A complete order in which `field` has this value.
fn with(field: &str, value: &[u8]) -> Fields {
    let mut whole = fields(&[("userId", b"999999"), ("voucherId", b"1"), ("id", b"888888")]);
    whole.retain(|(name, _)| name != field.as_bytes());
    whole.push((field.as_bytes().to_vec(), value.to_vec()));
    whole
}

/// Adds an entry of any bytes; returns its id.
async fn add(fixture: &Fixture, fields: &Fields) -> String {
    let mut args: Vec<Value> = vec![STREAM.into(), "*".into()];
    for (name, value) in fields {
        args.extend([Value::from(name.as_slice()), Value::from(value.as_slice())]);
    }
    let command = CustomCommand::new_static("XADD", None, false);
    fixture.client.custom::<String, _>(command, args).await.expect("the entry is added")
}

/// Dead letters with their bytes, oldest first.
async fn letters(fixture: &Fixture) -> Vec<Fields> {
    let letters: Vec<(String, Value)> =
        fixture.client.xrange(DEAD, "-", "+", None).await.expect("Redis answers");
    let bytes = |value: &Value| value.as_bytes().expect("a string").to_vec();
    let pairs = |fields: Value| {
        let fields = fields.into_array();
        fields.chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect()
    };
    letters.into_iter().map(|(_, fields)| pairs(fields)).collect()
}

/// The fields that the worker has added to a letter.
fn about(letter: &Fields) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a text");
    let said = letter.iter().filter(|(name, _)| name.starts_with(b"dead:"));
    said.map(|(name, value)| (text(name), text(value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_entry_is_buried_once_as_it_came_and_its_neighbours_are_written() {
    let half_a_megabyte = vec![b'1'; 1 << 19];
    let values: [&[u8]; 19] = [
        b"",
        b"x",
        b"+1",
        b"-1",
        b"1.5",
        b"1e3",
        b" 1",
        b"1 ",
        b"1\n",
        b"007",
        b"0",
        b"0x10",
        b"9223372036854775808",
        b"18446744073709551617",
        b"99999999999999999999999999",
        b"\xff\xfe",
        b"1\x00",
        "\u{ff11}\u{ff12}".as_bytes(),
        &half_a_megabyte,
    ];
    let mut bad: Vec<(Fields, &str, &str)> = Vec::new();
    for field in REQUIRED {
        bad.extend(values.iter().map(|value| (with(field, value), "bad_value", field)));
        let mut missing = with(field, b"1");
        missing.pop();
        bad.push((missing, "missing_field", field));
        for again in [&b"1"[..], b"2", b""] {
            let mut twice = with(field, b"1");
            twice.push((field.as_bytes().to_vec(), again.to_vec()));
            bad.push((twice, "duplicate_field", field));
        }
    }
    for value in [&b"0"[..], b"", b"-1", b"01", b"10001", b"99999999999999999999"] {
        bad.push((with("quantity", value), "bad_value", "quantity"));
    }
    for value in [&b"0"[..], b"", b"-1", b"2147483648", b"one"] {
        bad.push((with("slot", value), "bad_value", "slot"));
    }
    let mut two_quantities = with("quantity", b"1");
    two_quantities.push((b"quantity".to_vec(), b"1".to_vec()));
    bad.push((two_quantities, "duplicate_field", "quantity"));
    bad.push((fields(&[("", b"")]), "missing_field", "userId"));
    bad.push((fields(&[("USERID", b"1"), ("voucherid", b"1"), ("Id", b"1")]), "missing_field", "userId"));
    bad.push((fields(&[("userId ", b"1"), ("voucherId", b"1"), ("id", b"1")]), "missing_field", "userId"));
    bad.push((with("voucherId", b"77"), "unknown_voucher", "voucher 77"));
    bad.push((fields(&[("userId", b"5"), ("voucherId", b"1"), ("id", b"1")]), "id_taken", "order id 1"));

    let fixture = Fixture::open().await;
    fixture.load(1, 1000).await;
    fixture.add_order(1, 100_000, 1).await;
    let mut ids = Vec::new();
    for (at, (fields, ..)) in bad.iter().enumerate() {
        ids.push(add(&fixture, fields).await);
        let good = i64::try_from(at).unwrap() + 2;
        fixture.add_order(good, good, 1).await;
    }
    let worker = fixture.worker("w").set("WORKER_LANES", 1).start();
    fixture.settled().await;

    let buried = ids.clone();
    let letters = letters(&fixture).await;
    assert_eq!(letters.len(), bad.len());
    for letter in &letters {
        let said = about(letter);
        let at = ids.iter().position(|id| *id == said["dead:entry"]).expect("an entry of ours, once");
        ids[at].clear();
        let (original, reason, word) = &bad[at];
        let case = format!("case {at}: {said:?}");
        assert!(letter.starts_with(original), "{case}: not as it came");
        assert_eq!(letter.len(), original.len() + 6, "{case}");
        assert_eq!(said["dead:reason"], *reason, "{case}");
        assert!(said["dead:error"].contains(word) && said["dead:error"].len() < 400, "{case}");
        assert_eq!(
            (said["dead:deliveries"].as_str(), said["dead:consumer"].as_str()),
            ("1", "w-0"),
            "{case}"
        );
        assert!(said["dead:at_ms"].parse::<u64>().is_ok_and(|ms| ms > 1_700_000_000_000), "{case}");
    }
    let orders = fixture.orders().await;
    assert_eq!(orders.len(), bad.len() + 1);
    assert!(orders.iter().all(|order| order.id == order.user || order.id == 1));
    assert_eq!(fixture.mysql_stock(1).await, 1000 - i64::try_from(bad.len()).unwrap() - 1);
    assert!(!worker.log().contains("outage"), "{}", worker.log());
    assert!(worker.log().lines().all(|line| line.len() < 2000), "a bad value floods the log");
    operators_get_rid_of_them(&fixture, &buried, &bad).await;
    assert!(worker.stop().await.success());
}

/// Operators export the letters unchanged. The letters that they put back die again, and in the end they delete all of
/// them.
async fn operators_get_rid_of_them(fixture: &Fixture, ids: &[String], bad: &[(Fields, &str, &str)]) {
    let export = fixture.tidegate(&["dead", "export"]);
    let mut lines = 0;
    for line in export.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let entry = tidegate_stream::EntryLine::parse(line).expect("an entry");
        let at = ids.iter().position(|id| *id == entry.id.to_string()).expect("an entry of ours");
        let fields: Fields =
            entry.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        assert!(fields == bad[at].0, "case {at} is not exported as it came");
        lines += 1;
    }
    assert_eq!(lines, bad.len());

    let does = |command: &str, code: i32| {
        let output = fixture.tidegate(&["dead", command, "--all", "--yes"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    };
    does("requeue", 0);
    until("they died again", || async { letters(fixture).await.len() == bad.len() }).await;
    fixture.settled().await;
    fixture.judge().await;
    // One letter is an order of an unknown voucher: it can be cancelled, and not dropped.
    does("drop", 1);
    assert_eq!(letters(fixture).await.len(), 1);
    does("cancel", 0);
    fixture.judge().await;
    assert!(letters(fixture).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_ignored_and_the_order_of_fields_does_not_matter() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let orders = [
        fields(&[("id", b"101"), ("voucherId", b"1"), ("userId", b"1")]),
        fields(&[("voucherId", b"1"), ("note", b"x"), ("id", b"102"), ("note", b"y"), ("userId", b"2")]),
        fields(&[("", b""), ("USERID", b"7"), ("userId", b"3"), ("id", b"103"), ("voucherId", b"1")]),
        fields(&[("quantity", b"10"), ("slot", b"2"), ("userId", b"1"), ("id", b"104"), ("voucherId", b"1")]),
        fields(&[("traceparent", b"\xff"), ("userId", b"4"), ("id", b"105"), ("voucherId", b"1")]),
    ];
    for order in &orders {
        add(&fixture, order).await;
    }
    let mut many = fields(&[("userId", b"5"), ("voucherId", b"1"), ("id", b"106")]);
    many.extend((0..5000).map(|at| (vec![0xff, 0xfe, b'0' + (at % 10) as u8], vec![0xff; 10])));
    add(&fixture, &many).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    let rows: Vec<(i64, i64, i64)> =
        fixture.orders().await.into_iter().map(|order| (order.id, order.user, order.quantity)).collect();
    assert_eq!(rows, [(101, 1, 1), (102, 2, 1), (103, 3, 1), (104, 1, 10), (105, 4, 1), (106, 5, 1)]);
    assert_eq!(fixture.mysql_stock(1).await, 85);
    assert!(fixture.dead().await.is_empty());
    assert!(worker.stop().await.success());
}

/// More values than a Lua call takes, so the letter holds them as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_entry_of_many_thousand_fields_is_buried_too() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    for pairs in [1999, 2000, 2001, 10_000] {
        add(&fixture, &(0..pairs).map(|at| (format!("f{at}").into(), b"v".to_vec())).collect()).await;
        fixture.add_order(pairs, pairs, 1).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    let letters = letters(&fixture).await;
    let sizes: Vec<usize> = letters.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1999 + 6, 2000 + 6, 1 + 6, 1 + 6]);
    let (name, json) = &letters[3][0];
    let values: Vec<String> = serde_json::from_slice(json).expect("JSON");
    assert_eq!((name.as_slice(), values.len()), (&b"dead:fields"[..], 20_000));
    assert_eq!(values[19_998..], ["f9999", "v"]);
    assert_eq!(fixture.orders().await.len(), 4);
    assert!(worker.stop().await.success());
}

/// Each field costs a worker memory, also an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_very_many_empty_fields_is_too_large_and_its_neighbours_are_written() {
    const FIELDS: usize = 20_000;
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.add_order(101, 1, 1).await;
    let mut many = fields(&[("userId", b"2"), ("voucherId", b"1"), ("id", b"102")]);
    many.resize(FIELDS, (Vec::new(), Vec::new()));
    add(&fixture, &many).await;
    fixture.add_order(103, 3, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    let rows: Vec<i64> = fixture.orders().await.into_iter().map(|order| order.id).collect();
    assert_eq!(rows, [101, 103]);
    let letters = letters(&fixture).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(about(&letters[0])["dead:reason"], "too_large");
    assert!(about(&letters[0])["dead:error"].contains("64 bytes for each field"));
    let values: Vec<String> = serde_json::from_slice(&letters[0][0].1).expect("JSON");
    assert_eq!(
        (values.len(), &values[..6]),
        (2 * FIELDS, &["userId", "2", "voucherId", "1", "id", "102"].map(str::to_owned)[..])
    );
    assert!(worker.stop().await.success());
}

/// If Redis refuses to release the unit of an order, that is no outage, because it concerns no other order.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_released_holds_up_nobody() {
    let fixture = Fixture::open().await;
    fixture.load(1, 0).await;
    fixture.load(2, 100).await;
    // The journal has order 101 of user 1, and the entry names user 2.
    let journal = r#"{"action":"admit","from":1,"to":0,"change":-1,"by":"1","timestamp":1}"#;
    fixture.redis_says(&["HSET", "seckill:journal:1", "101", journal]).await;
    fixture.add_order(101, 2, 1).await;
    // Voucher 3 has no units in MySQL, and its stock in Redis is no number.
    fixture.load(3, 0).await;
    fixture.redis_says(&["SET", "seckill:stock:3", "many"]).await;
    fixture.add_order(103, 3, 3).await;
    fixture.add_order(104, 4, 2).await;
    let worker = fixture.worker("w").set("WORKER_LANES", 1).start();
    until("the neighbour is written", || async { fixture.orders().await.len() == 1 }).await;
    fixture.add_order(105, 5, 2).await;
    until("later orders are written", || async { fixture.orders().await.len() == 2 }).await;
    until("only the one that can be repaired waits", || async { fixture.open_entries().await == Some(1) })
        .await;
    let dead = fixture.dead().await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0]["id"].as_str(), dead[0]["dead:reason"].as_str()), ("101", "id_taken"));
    assert!(!worker.log().contains("outage"), "{}", worker.log());

    // After the repair, the order is released and settled.
    fixture.redis_says(&["SET", "seckill:stock:3", "0"]).await;
    fixture.settled().await;
    assert!(fixture.journal(3).await["103"].contains(r#""action":"release""#));
    assert_eq!(fixture.journal(1).await["101"], journal, "what is another's stays as it is");
    assert!(worker.stop().await.success());
}
