//! Tests of a gate whose users of Redis and MySQL have only the rights of `config/redis-users.acl` and
//! `config/mysql-users.sql`.

use std::collections::BTreeMap;

use fred::types::Value;
use hyper::Method;
use serde_json::json;

use super::{address_of, ask, post};
use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_needs_no_other_rights_than_those_of_the_examples() {
    let fixture = Fixture::bare_with_own_mysql().await.migrated().await;
    fixture.add_users().await;
    let program = operator(&fixture);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("regions.csv");
    std::fs::write(&file, "north,101,2\nsouth,102,1\n").expect("a file");
    program.run(&format!("campaign load --campaign 5 --regions {}", file.display())).expect(0);
    program
        .run("limit set --campaign 5 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 2").expect(0);
    fixture.call("HSET login:token:t id 4").await;
    let plan = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0");
    let plan = plan.set("GATE_TUTORIAL_LOGIN", "login:token:<token>");
    let plan = plan.set("REDIS_URL", fixture.redis_url_of("tidegate-gate"));
    let gate = plan.set("MYSQL_URL", fixture.mysql_url_of("tidegate-reader")).start_as("gate");
    let address = address_of(&gate).await;

    let keyed = [("Content-Type", "application/json"), ("Idempotency-Key", "k")];
    let north = json!({ "campaignId": 5, "region": "north", "userId": 1, "subjects": { "phone": "a" } });
    for _ in 0..2 {
        let answer = ask(address, Method::POST, "/orders", &keyed, &north.to_string()).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
    }
    let full = json!({ "campaignId": 5, "region": "south", "userId": 2, "subjects": { "phone": "a" } });
    assert_eq!(ask(address, Method::POST, "/orders", &keyed, &full.to_string()).await.status, 409);
    let admitted = post(address, &json!({ "voucherId": 7, "userId": 3 })).await;
    assert_eq!(admitted.status, 202, "{}", admitted.text);
    let path = "/voucher-order/seckill/7";
    let bought = ask(address, Method::POST, path, &[("authorization", "t")], "").await;
    assert_eq!(bought.body["success"], true, "{}", bought.text);
    assert_eq!(post(address, &json!({ "voucherId": 7, "userId": 5 })).await.status, 409);

    let place = admitted.headers["location"].to_str().expect("text").to_owned();
    let bare = place.split('?').next().expect("a path");
    for path in [bare, &place] {
        let waiting = ask(address, Method::GET, path, &[], "").await;
        assert_eq!((waiting.status, &waiting.body["state"]), (200, &json!("waiting")), "{}", waiting.text);
    }
    assert_eq!(ask(address, Method::GET, "/orders/4711", &[], "").await.status, 404);
    for (path, status) in [
        ("/orders?voucherId=7&userId=3", 200),
        ("/vouchers/7", 200),
        ("/vouchers/101", 200),
        ("/campaigns/5", 200),
        ("/campaigns/6", 404),
    ] {
        let page = ask(address, Method::GET, path, &[], "").await;
        assert_eq!(page.status, status, "{path}: {}", page.text);
    }
    let json_type = [("Content-Type", "application/json")];
    let check = json!({ "voucherId": 7, "userId": 6 }).to_string();
    assert_eq!(ask(address, Method::POST, "/orders/check", &json_type, &check).await.status, 409);
    let paid = json!({ "event": "paid", "ref": "p", "voucherId": 7, "userId": 3 }).to_string();
    let events = format!("{bare}/events");
    assert_eq!(ask(address, Method::POST, &events, &json_type, &paid).await.status, 202);
    let worker = fixture.worker("w").start();
    until("it is written and paid", || async {
        ask(address, Method::GET, &place, &[], "").await.body["state"] == "paid"
    })
    .await;
    let results = ask(address, Method::GET, "/results", &[], "").await;
    assert_eq!((results.status, results.body["away"].is_null()), (200, true), "{}", results.text);
    until("the reader of results waits", || async {
        let metrics = ask(address, Method::GET, "/metrics", &[], "").await.text;
        let waits = metrics.lines().find_map(|line| line.strip_prefix(WAITS)).expect("the reads of results");
        waits.parse::<u64>().expect("a number") > 0
    })
    .await;
    let log: Vec<BTreeMap<String, Value>> = fixture.call("ACL LOG").await.convert().expect("a log");
    assert!(log.is_empty(), "{log:#?}");
    assert!(!gate.log().contains(NOTE_REFUSED), "{}", gate.log());
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());
}

const WAITS: &str = "tidegate_gate_result_reads_total{kind=\"wait\"} ";
const NOTE_REFUSED: &str = "a change of the list of partitions does not wait for this gate";

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_may_not_write_its_note_says_so_once_and_admits_all_the_same() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 2").expect(0);
    // ACL files of earlier versions do not have the pattern of these notes.
    let keys =
        "~seckill:* ~stream.orders* ~icr:order:* ~tidegate:partitions ~tidegate:pause ~tidegate:worker:*";
    fixture.call(&format!("ACL SETUSER old on >CHANGE-ME +@all resetkeys {keys}")).await;
    let plan = fixture
        .worker("gate")
        .set("GATE_LISTEN", "127.0.0.1:0")
        .set("REDIS_URL", fixture.redis_url_of("old"));
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    gate.says(NOTE_REFUSED).await;
    let refused = || async {
        let log: Vec<BTreeMap<String, Value>> = fixture.call("ACL LOG").await.convert().expect("a log");
        log.iter().filter_map(|entry| entry["count"].as_u64()).sum::<u64>()
    };
    until("it has tried again", || async { refused().await >= 3 }).await;
    assert_eq!(post(address, &json!({ "voucherId": 7, "userId": 3 })).await.status, 202);
    let log = gate.log();
    let said: Vec<&str> = log.lines().filter(|line| line.contains(NOTE_REFUSED)).collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("WARN") && said[0].contains("~tidegate:partitions:gate:*"), "{said:#?}");
    // Nor had ACL files of earlier versions the right to read results.
    fixture.call("ACL SETUSER old -xinfo").await;
    assert_eq!(ask(address, Method::GET, "/results", &[], "").await.status, 503);
    gate.says("the gate cannot read results, because Redis refuses it").await;
    assert!(gate.stop().await.success());
}
