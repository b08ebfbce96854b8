//! Tests of what buyers may know before they buy: vouchers, campaigns, checks, and the list of a user's orders.

use std::{fs, net::SocketAddr};

use futures_util::future::join_all;
use hyper::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Answer, address_of, ask, post};
use crate::{
    fixture::{Fixture, tokens::token_entry, until},
    order_event::operator,
};

async fn get(gate: SocketAddr, path: &str) -> Answer {
    ask(gate, Method::GET, path, &[], "").await
}

async fn check(gate: SocketAddr, body: &Value) -> Answer {
    ask(gate, Method::POST, "/orders/check", &[("Content-Type", "application/json")], &body.to_string()).await
}

fn kind(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["type"].as_str().unwrap_or_default().trim_start_matches("/problems/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_voucher_is_what_an_order_and_a_check_are_told() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    for (voucher, window) in
        [(1, ""), (2, "--begin 2037-01-01T00:00:00Z"), (3, ""), (4, ""), (5, ""), (6, ""), (7, "")]
    {
        program.run(format!("voucher load --voucher {voucher} --stock 1 {window}").trim_end()).expect(0);
    }
    fixture.call("HSET seckill:voucher:3 begin_ms 1577836800000 end_ms 1609459200000").await;
    program.run("pause --voucher 4 --yes").expect(0);
    fixture.redis_says(&["HSET", "seckill:voucher:5", "brake", "until 99999999999999"]).await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 0);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    post(address, &json!({ "voucherId": 6, "userId": 1 })).await;
    for (voucher, state, problem) in [
        (1, "on_sale", (200, "")),
        (2, "not_begun", (409, "not-begun")),
        (3, "over", (409, "over")),
        (4, "paused", (503, "paused")),
        (5, "busy", (503, "busy")),
        (6, "sold_out", (409, "sold-out")),
    ] {
        let page = get(address, &format!("/vouchers/{voucher}")).await;
        assert_eq!((page.status, &page.body["state"]), (200, &json!(state)), "{:#}", page.body);
        let order = json!({ "voucherId": voucher, "userId": 9 });
        let checked = check(address, &order).await;
        assert_eq!(kind(&checked), problem, "{state}: {:#}", checked.body);
        assert_eq!(page.body["unitsLeft"], i32::from(voucher != 6), "a check takes no unit");
        let ordered = post(address, &order).await;
        assert!(
            voucher == 1 && ordered.status == 202 || kind(&ordered) == problem,
            "{state}: {:#}",
            ordered.body
        );
    }
    let delisted = get(address, "/vouchers/7").await;
    assert_eq!((delisted.status, &delisted.body["state"]), (200, &json!("delisted")), "{:#}", delisted.body);
    let window = get(address, "/vouchers/3").await.body;
    assert_eq!(
        (&window["begin"], &window["end"]),
        (&json!("2020-01-01T00:00:00Z"), &json!("2021-01-01T00:00:00Z"))
    );
    assert_eq!(kind(&get(address, "/vouchers/99").await), (404, "no-such-sale"));
    assert_eq!(kind(&get(address, "/vouchers/x").await), (400, "bad-question"));
    let more = check(address, &json!({ "voucherId": 2, "userId": 9, "quantity": 3 })).await;
    assert_eq!((kind(&more), &more.body["unitsLeft"]), ((409, "too-few-left"), &json!(1)), "{:#}", more.body);
    let named = check(address, &json!({ "voucherId": 2, "userId": 9, "orderId": "4711" })).await;
    assert_eq!(kind(&named), (422, "bad-input"));
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_answers_even_if_callers_have_taken_the_highest_order_ids() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    for (user, id) in [(1, i64::MAX), (2, i64::MAX - 1)] {
        let order = json!({ "voucherId": 7, "userId": user, "orderId": id.to_string() });
        assert_eq!(post(address, &order).await.status, 202);
    }
    for (user, told) in [(1, (409, "second-order")), (9, (200, ""))] {
        let checked = check(address, &json!({ "voucherId": 7, "userId": user, "quantity": 2 })).await;
        assert_eq!(kind(&checked), told, "{:#}", checked.body);
    }
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_ask_redis_is_asked_once_and_the_wait_is_estimated() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 100").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 10_000);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let before = fixture.calls_of("hmget").await;
    let pages = join_all((0..50).map(|_| get(address, "/vouchers/7"))).await;
    assert!(pages.iter().all(|page| page.body["unitsLeft"] == 100), "{:#}", pages[0].body);
    assert_eq!(fixture.calls_of("hmget").await - before, 1, "fifty callers, one read");
    let worker = fixture.worker("w").start();
    until("the wait is known", || async { get(address, "/vouchers/7").await.body["waitS"].is_number() })
        .await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_shows_its_regions_and_the_limits_that_a_buyer_can_meet() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("regions.csv");
    fs::write(&file, "north,101,2\nsouth,102,5\n").expect("a file");
    program.run(&format!("campaign load --campaign 5 --regions {}", file.display())).expect(0);
    program
        .run("limit set --campaign 5 --name phones --subject phone --window day --orders 2 --units 3 --yes")
        .expect(0);
    program.run("limit set --voucher 101 --name fast --rate 10/1s --burst 5 --yes").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 0);
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let campaign = get(address, "/campaigns/5").await.body;
    assert_eq!((&campaign["state"], &campaign["unitsLeft"]), (&json!("on_sale"), &json!(7)), "{campaign:#}");
    assert_eq!(
        campaign["limits"],
        json!([
            { "name": "phones", "subject": "phone", "window": "day", "orders": 2, "units": 3, "rate": null }
        ])
    );
    assert_eq!(campaign["regions"][1]["voucherId"], "102", "{campaign:#}");
    program.run("pause --voucher 102 --yes").expect(0);
    let campaign = get(address, "/campaigns/5").await.body;
    assert_eq!((&campaign["state"], &campaign["regions"][1]["state"]), (&json!("on_sale"), &json!("paused")));
    let voucher = get(address, "/vouchers/101").await.body;
    let limits: Vec<&Value> =
        voucher["limits"].as_array().expect("limits").iter().map(|it| &it["name"]).collect();
    assert_eq!(
        (limits, &voucher["campaignId"]),
        (vec![&json!("fast"), &json!("phones")], &json!("5")),
        "{voucher:#}"
    );
    assert_eq!(voucher["limits"][0]["rate"], "10/1s");
    assert_eq!(kind(&get(address, "/campaigns/6").await), (404, "no-such-sale"));
    let without = check(address, &json!({ "campaignId": 5, "region": "north", "userId": 1 })).await;
    assert_eq!((kind(&without), &without.body["subject"]), ((422, "missing-subject"), &json!("phone")));
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_whose_second_order_is_refused_finds_the_first_one_waiting_and_written() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let order = json!({ "voucherId": 7, "userId": 1 });
    let first = post(address, &order).await.body["orderId"].clone();
    post(address, &json!({ "voucherId": 7, "userId": 2 })).await;
    let second = post(address, &order).await;
    assert_eq!(kind(&second), (409, "second-order"));
    let list = second.body["orders"].as_str().expect("a path").to_owned();
    let listed = async || {
        let page = get(address, &list).await.body;
        assert_eq!(
            (page["orders"].as_array().map(Vec::len), &page["isComplete"]),
            (Some(1), &json!(true)),
            "{page:#}"
        );
        (page["orders"][0]["orderId"].clone(), page["orders"][0]["state"].clone())
    };
    assert_eq!(listed().await, (first.clone(), json!("waiting")));
    let worker = fixture.worker("w").start();
    until("it is written", || async { listed().await == (first.clone(), json!("confirmed")) }).await;
    let nobody = get(address, "/orders?voucherId=7&userId=3").await.body;
    assert_eq!(nobody["orders"], json!([]));
    for wrong in ["", "?voucherId=7", "?userId=1", "?voucherId=7&userId=1&userId=2", "?voucherId=x&userId=1"]
    {
        assert_eq!(kind(&get(address, &format!("/orders{wrong}")).await), (400, "bad-question"), "{wrong}");
    }
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seller_publishes_a_voucher_that_is_shown_at_once_and_sells_at_its_begin() {
    let fixture = Fixture::open().await;
    let tokens = [token_entry("seller", "sell", "seller"), token_entry("shop", "order", "shop")].join(",");
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_SOLD_OUT_MS", 0);
    let gate = plan.set("TOKENS", tokens).start_as("gate");
    let address = address_of(&gate).await;
    let ask = async |token: &str, method: Method, path: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("Content-Type", "application/json"), ("Authorization", bearer.as_str())];
        ask(address, method, path, &headers, &body.to_string()).await
    };
    let begin =
        Timestamp::from_second((Timestamp::now() + SignedDuration::from_secs(8)).as_second()).unwrap();
    let voucher = json!({ "voucherId": "7", "stock": 3, "begin": begin.to_string(), "payWithinS": 900 });
    let refused = ask("shop", Method::POST, "/vouchers", &voucher).await;
    assert_eq!((kind(&refused), &refused.body["scopes"]), ((403, "no-scope"), &json!(["sell"])));
    assert_eq!(kind(&ask("shop", Method::GET, "/vouchers/7", &json!({})).await), (404, "no-such-sale"));
    let published = ask("seller", Method::POST, "/vouchers", &voucher).await;
    assert_eq!(
        (published.status, published.headers["location"].to_str().unwrap()),
        (201, "/vouchers/7"),
        "{:#}",
        published.body
    );
    let shown = ask("shop", Method::GET, "/vouchers/7", &json!({})).await;
    for page in [&published, &shown] {
        assert_eq!(page.body["state"], "not_begun", "{:#}", page.body);
        assert_eq!((&page.body["unitsLeft"], &page.body["begin"]), (&json!(3), &json!(begin.to_string())));
    }
    assert_eq!(ask("seller", Method::POST, "/vouchers", &voucher).await.status, 200, "the same again");
    let other = json!({ "voucherId": "7", "stock": 4, "begin": begin.to_string() });
    assert_eq!(kind(&ask("seller", Method::POST, "/vouchers", &other).await), (409, "voucher-exists"));
    let large = json!({ "voucherId": "8", "stock": 9_999_999_999_999_i64, "begin": "2030-01-01T00:00:00Z" });
    assert_eq!(kind(&ask("seller", Method::POST, "/vouchers", &large).await), (422, "bad-input"));
    let negative = json!({ "voucherId": "8", "stock": -1, "begin": "2030-01-01T00:00:00Z" });
    let detail = &ask("seller", Method::POST, "/vouchers", &negative).await.body["errors"][0]["detail"];
    assert!(detail.as_str().is_some_and(|detail| detail.contains("a whole number from 1 to ")), "{detail}");
    let past = json!({ "voucherId": "8", "stock": 1, "begin": "2020-01-01T00:00:00Z" });
    assert_eq!(ask("seller", Method::POST, "/vouchers", &past).await.body["errors"][0]["pointer"], "/begin");

    let _worker = fixture.worker("w").set("CALENDAR_WARM_UP", "10m").start();
    let order = json!({ "voucherId": "7", "userId": "1" });
    let ordered = || async { ask("shop", Method::POST, "/orders", &order).await.status == 202 };
    until("the voucher sells", ordered).await;
    assert!(Timestamp::now() >= begin);
    fixture.settled().await;
    assert_eq!(fixture.live_orders().await.len(), 1);
}
