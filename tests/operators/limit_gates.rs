//! Test of two gates over HTTP and a caller of the script that sell one voucher at the same time: together they pass no
//! limit.

use std::collections::BTreeMap;

use fred::{
    interfaces::{LuaInterface, StreamsInterface},
    types::Value,
};
use futures_util::future::join_all;
use serde_json::json;

use crate::{
    fixture::{Fixture, STREAM, Worker},
    http_gate::{address_of, post},
    order_event::operator,
};

const SCRIPT: &str = include_str!("../../lua/admit_limited.lua");
const KEYS: [&str; 7] = [
    "seckill:limited:7",
    "seckill:order:7",
    "seckill:voucher:7",
    "seckill:journal:7",
    STREAM,
    "seckill:limits:voucher:7",
    "seckill:uses:voucher:7",
];
const ASKED: i64 = 600;
/// The limits: orders of all users together, orders of each user, and orders and units of each phone.
const OF_ALL: i64 = 80;
const OF_USER: i64 = 3;
const OF_PHONE: (i64, i64) = (4, 6);
const PHONES: i64 = 29;

/// The `nth` request: a user, a phone, and a number of units.
fn asking(nth: i64) -> (i64, String, i64) {
    (1 + nth % 41, format!("p{}", nth % PHONES), 1 + nth % 2)
}

/// Whether the script admits the order if a producer calls it directly.
async fn script_admits(fixture: &Fixture, order: i64) -> bool {
    let (user, phone, units) = asking(order);
    let numbers = [order, user, 7, units].map(|number| number.to_string());
    let args = [&numbers.each_ref().map(String::as_str)[..], &["", "phone", &phone]].concat();
    let reply: Value = fixture.client.eval(SCRIPT, KEYS.to_vec(), args).await.expect("Redis answers");
    reply.as_i64() == Some(0) && !reply.is_array()
}

/// The orders and units of the stream, grouped by `group`.
async fn sold(
    fixture: &Fixture,
    group: impl Fn(&BTreeMap<String, String>) -> String,
) -> BTreeMap<String, (i64, i64)> {
    let entries: Vec<(String, BTreeMap<String, String>)> =
        fixture.client.xrange(STREAM, "-", "+", None).await.expect("Redis answers");
    let mut sold: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for (_, fields) in entries {
        let (orders, units) = sold.entry(group(&fields)).or_default();
        *orders += 1;
        *units += fields.get("quantity").map_or(1, |quantity| quantity.parse().expect("a number"));
    }
    sold
}

/// The phone of an entry, from its uses of limits: `1,0,1 2,20000,p3 3,0,`. The second limit counts by phone.
fn phone(fields: &BTreeMap<String, String>) -> String {
    let used = fields["uses"].split(' ').find(|used| used.starts_with("2,")).expect("it is counted");
    used.rsplit(',').next().expect("a value").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gates_and_a_caller_of_the_script_together_pass_no_limit() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 1000").expect(0);
    for limit in [
        format!("mine --subject user --window sale --orders {OF_USER}"),
        format!("phones --subject phone --window month --orders {} --units {}", OF_PHONE.0, OF_PHONE.1),
        format!("all --window sale --orders {OF_ALL}"),
    ] {
        program.run(&format!("limit set --voucher 7 --name {limit} --yes")).expect(0);
    }
    let worker = fixture.worker("w").start();
    let gates: Vec<Worker> = ["g1", "g2"]
        .map(|name| fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate"))
        .into();
    let addresses = [address_of(&gates[0]).await, address_of(&gates[1]).await];
    let ask = async |nth: i64| {
        let Some(address) = addresses.get(usize::try_from(nth % 3).expect("a small number")) else {
            return script_admits(&fixture, nth).await;
        };
        let (user, phone, quantity) = asking(nth);
        let body = json!({
            "voucherId": "7", "userId": user, "quantity": quantity, "subjects": { "phone": phone },
        });
        let answer = post(*address, &body).await;
        assert!([202, 409].contains(&answer.status), "{:#}", answer.body);
        answer.status == 202
    };
    // One phone gets all the orders that it may have before the others come.
    let (first, others): (Vec<i64>, Vec<i64>) =
        (1..=ASKED).partition(|nth| asking(*nth).1 == "p0" && *nth <= OF_PHONE.0 * PHONES);
    for nth in &first {
        assert!(ask(*nth).await);
    }
    let asked = join_all(others.into_iter().map(ask)).await;
    let admitted = first.len() + asked.into_iter().filter(|is_admitted| *is_admitted).count();
    let all = sold(&fixture, |_| String::new()).await[""].0;
    assert_eq!(
        i64::try_from(admitted).expect("a number"),
        all,
        "whoever heard yes has an order, and nobody else"
    );
    assert_eq!(all, OF_ALL, "and not one more");
    for (user, (orders, _)) in sold(&fixture, |fields| fields["userId"].clone()).await {
        assert!(orders <= OF_USER, "user {user}: {orders}");
    }
    let of_phones = sold(&fixture, phone).await;
    assert!(
        of_phones.values().all(|(orders, units)| *orders <= OF_PHONE.0 && *units <= OF_PHONE.1),
        "{of_phones:?}"
    );
    assert_eq!(of_phones["p0"], OF_PHONE);
    fixture.settled().await;
    assert_eq!((fixture.live_orders().await.len(), fixture.refused().await.len()), (admitted, 0));
    fixture.judge().await;
    assert!(worker.stop().await.success());
    for gate in gates {
        assert!(gate.stop().await.success());
    }
}
