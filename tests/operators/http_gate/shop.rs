//! Test of the web shop of `examples/shop`, over its own pages.

use std::{fs::File, net::SocketAddr, process::Command};

use hyper::Method;
use serde_json::json;
use tidegate_lab::spawn_with_owner;

use super::{Answer, address_of, ask};
use crate::{
    fixture::{Fixture, tokens::token_entry, until, webhooks::WEBHOOK_SECRET},
    order_event::operator,
};

const TOKEN: &str = "shop-0123456789abcdef";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop/shop.py");

/// A visitor's browser, with the cookie that the shop gave it.
struct Visitor {
    shop: SocketAddr,
    cookie: String,
}

impl Visitor {
    async fn open(shop: SocketAddr) -> Self {
        let page = ask(shop, Method::GET, "/", &[], "").await;
        assert!(page.text.contains("<script src=\"shop.js\">"), "{}", page.text);
        let cookie = page.headers["set-cookie"].to_str().expect("text");
        Self { shop, cookie: cookie.split(';').next().expect("a cookie").to_owned() }
    }

    async fn get(&self, path: &str) -> Answer {
        ask(self.shop, Method::GET, path, &[("Cookie", &self.cookie)], "").await
    }

    async fn post(&self, path: &str) -> Answer {
        let headers = [("Cookie", self.cookie.as_str()), ("Idempotency-Key", "one-click")];
        ask(self.shop, Method::POST, path, &headers, "").await
    }

    /// Waits until the newest order on the visitor's page has this state.
    async fn until_state(&self, state: &str) {
        until(&format!("the page shows {state}"), || async {
            self.get("/orders").await.body["orders"][0]["state"] == state
        })
        .await;
    }
}

fn has_python() -> bool {
    let is_new_enough = "import sys; sys.exit(sys.version_info < (3, 10))";
    Command::new("python3").args(["-c", is_new_enough]).status().is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shop_sells_and_refunds_over_http_only_and_no_browser_chooses_its_user() {
    if !has_python() {
        eprintln!("left out: examples/shop/shop.py was not run, because there is no Python 3.10 or later");
        return;
    }
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1").expect(0);
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0");
    let gate = plan.set("TOKENS", token_entry("shop", "order+event", TOKEN)).start_as("gate");
    let gate_url = format!("http://{}", address_of(&gate).await);
    let log = fixture.file("shop.log", "");
    let mut shop_process = spawn_with_owner("python3", |command| {
        command.arg(PROGRAM).stdout(File::create(&log).expect("a log"));
        command.envs([("SHOP_GATE", gate_url.as_str()), ("SHOP_TOKEN", TOKEN), ("SHOP_VOUCHER", "7")]);
        command.envs([("SHOP_LISTEN", "127.0.0.1:0"), ("SHOP_WEBHOOK_SECRET", WEBHOOK_SECRET)]);
    })
    .expect("the shop starts");
    let opening = || std::fs::read_to_string(&log).expect("a log");
    until("the shop is open", || async { opening().contains('\n') }).await;
    let shop = opening().trim().rsplit('/').next().expect("an address").parse().expect("an address");

    let (first, second) = (Visitor::open(shop).await, Visitor::open(shop).await);
    let bought = first.post("/orders").await;
    assert_eq!(bought.status, 202, "{:#}", bought.body);
    let order = bought.body["orderId"].as_str().expect("an id");
    assert_eq!(first.post("/orders").await.body["orderId"], order, "a click twice is one order");
    assert_eq!(second.post("/orders").await.body["type"], "/problems/sold-out");
    assert_eq!(second.get("/voucher").await.body["state"], "sold_out");
    first.until_state("waiting").await;
    let hooks = fixture.webhooks(&[("shop", &format!("http://{shop}/hooks"))]);
    let worker = fixture.worker("w").set("WEBHOOKS", hooks).start();
    first.until_state("confirmed").await;

    let forged = Visitor { shop, cookie: first.cookie.replace('.', "0.") };
    assert_eq!(forged.post("/orders").await.status, 401, "the signature is of another user");
    for path in ["pay", "refund"].map(|action| format!("/orders/{order}/{action}")) {
        assert_eq!(second.post(&path).await.status, 404, "{path} of another user's order");
    }
    assert_eq!(second.get(&format!("/orders/{order}/events")).await.status, 404);
    assert_eq!(first.post("/hooks").await.status, 404, "a result without a signature");

    let paid = first.post(&format!("/orders/{order}/pay")).await;
    assert_eq!((paid.status, &paid.body["outcome"]), (200, &json!("applied")), "{:#}", paid.body);
    first.until_state("paid").await;
    let refunded = first.post(&format!("/orders/{order}/refund")).await;
    assert_eq!(refunded.body["outcome"], "applied", "{:#}", refunded.body);
    first.until_state("refunded").await;
    until("the unit is on sale again", || async { second.post("/orders").await.status == 202 }).await;

    let user = first.cookie["user=".len()..].split('.').next().expect("a user");
    let late = json!({ "event": "paid", "voucherId": "7", "userId": user, "ref": "by-bank" }).to_string();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Content-Type", "application/json"), ("Authorization", bearer.as_str())];
    let gate_address = address_of(&gate).await;
    ask(gate_address, Method::POST, &format!("/orders/{order}/events"), &headers, &late).await;
    until("a webhook makes the shop refund a payment that only the gate knew", || async {
        let shown = first.get("/orders").await.body["orders"][0].clone();
        let refunded =
            |event: &serde_json::Value| event["payment"] == "by-bank" && event["outcome"] == "applied";
        shown["refundsDue"] == json!([])
            && shown["events"].as_array().is_some_and(|it| it.iter().any(refunded))
    })
    .await;

    fixture.settled().await;
    fixture.judge().await;
    shop_process.kill().expect("the shop runs");
    shop_process.wait().expect("the shop ended");
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}
