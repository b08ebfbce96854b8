//! Runbook: sales and fleets with wrong stocks, pauses, old entries or two deployments.

use std::process::Output;

use crate::{
    browser::until_all,
    fixture::{Fixture, STREAM, Worker, until},
    runbook::recipes::Operator,
};

/// A fixture that sells 1000 units of voucher 7, an operator, and a worker.
pub async fn at_work(voucher: i64) -> (Worker, Operator, Fixture) {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(voucher, 1_000).await;
    let worker = fixture.worker("w").start();
    worker.says("worker started").await;
    (worker, Operator::at(&fixture), fixture)
}

fn buys(fixture: &Fixture, voucher: &str, user: &str) -> Output {
    fixture.tidegate(&["admit", "--voucher", voucher, "--user", user])
}

#[track_caller]
fn is_paused(output: &Output) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("paused"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_added_to_a_sale_that_is_on_and_taken_from_it() {
    let (worker, operator, fixture) = at_work(119).await;
    for id in 1_000..1_090 {
        fixture.admit(id, id, 119, 1).await;
    }
    operator
        .types("The stock is wrong", "tidegate voucher show --voucher 119\ntidegate voucher add", &[])
        .succeeds()
        .shows(&["500 units added in both stores", "from 1000 to 1500"]);
    operator
        .types("The stock is wrong", "tidegate voucher take", &[])
        .succeeds()
        .shows(&["300 units taken in both stores"]);
    fixture.caller_log.write(|pages| _ = pages.loaded.insert(119, 1_200));
    fixture.settled().await;
    assert_eq!((fixture.mysql_stock(119).await, fixture.redis_stock(119).await), (1_110, Some(1_110)));
    operator
        .types("The stock is wrong", "tidegate voucher show --voucher 119\ntidegate voucher add", &[])
        .shows(&["1110", "is 1200 and not 1000"]);
    fixture.admit(2_000, 2_000, 119, 1).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_is_busy_is_looked_at_and_its_mark_removed() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(122, 1_000).await;
    let operator = Operator::at(&fixture);
    fixture.redis_says(&["HSET", "seckill:voucher:122", "brake", "from 1"]).await;
    operator.types("Busy does not end", "tidegate voucher check", &[]).shows(&["busy", "undelivered"]);
    operator.types("Busy does not end", "redis HDEL seckill:voucher:122 brake", &[]).succeeds().shows(&["1"]);
    assert_eq!(buys(&fixture, "122", "1221").status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_set_right_and_taken_away_and_whoever_took_too_much_is_found() {
    let (worker, operator, fixture) = at_work(121).await;
    let set =
        ["limit", "set", "--voucher", "121", "--name", "phones", "--subject", "phone", "--window", "day"];
    assert!(fixture.tidegate(&[&set[..], &["--orders", "2", "--yes"]].concat()).status.success());
    // Another limit, which each of these orders has a use of, and an order that ended.
    let set =
        ["limit", "set", "--voucher", "121", "--name", "users", "--subject", "user", "--window", "sale"];
    assert!(fixture.tidegate(&[&set[..], &["--orders", "5", "--yes"]].concat()).status.success());
    let phone = "phone=8d969eef6ecad3c2";
    for (order, user) in [("120999", "3"), ("121000", "1"), ("121001", "2")] {
        let buys = ["admit", "--voucher", "121", "--user", user, "--order", order, "--subject", phone];
        assert!(fixture.tidegate(&buys).status.success());
        fixture.settled().await;
        if order == "120999" {
            assert!(fixture.tidegate(&["order", "event", "cancelled", order, "--yes"]).status.success());
            fixture.settled().await;
        }
    }
    operator
        .types("A limit is wrong", "tidegate limit list --voucher 121\ntidegate voucher check", &[])
        .shows(&["phones", "refused, over the limit phones"]);
    operator
        .types("A limit is wrong", "tidegate limit set --voucher 121 --name", &[])
        .succeeds()
        .shows(&["3"]);
    operator.types("A limit is wrong", "tidegate pause --voucher 121 --yes\ntidegate limit", &[]).succeeds();

    operator
        .types("A limit is wrong", "tidegate pause --voucher 121 --yes\nmysql -e", &[])
        .succeeds()
        .shows(&["8d969eef6ecad3c2 | 2 |", "phones"]);
    operator.types("A limit is wrong", "tidegate limit set --voucher 121 --orders 1", &[]).succeeds();
    operator.types("A limit is wrong", "tidegate resume --voucher 121", &[]).succeeds();
    fixture.settled().await;
    assert_eq!(fixture.live_orders().await.len(), 1);
    operator.types("A limit is wrong", "tidegate limit remove", &[]).succeeds();
    assert_eq!(buys(&fixture, "121", "1211").status.code(), Some(0));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_entries_are_deleted_once_no_group_needs_them() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(111, 1_000).await;
    let (worker, operator) = (fixture.worker("w").start(), Operator::at(&fixture));
    worker.says("worker started").await;
    let begin = jiff::Timestamp::now().as_millisecond() - 13 * 3_600_000;
    for at in 0..220 {
        let (entry, id) = (format!("{}-0", begin + at), (1_000 + at).to_string());
        fixture.redis_says(&["XADD", STREAM, &entry, "userId", &id, "voucherId", "111", "id", &id]).await;
    }
    fixture.call(&format!("XGROUP CREATE {STREAM} old 0")).await;
    until("all are written", || async { fixture.orders().await.len() == 220 }).await;
    fixture.admit(2_000, 2_000, 111, 1).await;
    fixture.settled().await;
    operator
        .types("Redis is out of memory", "tidegate prune stream --dry-run --older-than 12h", &[])
        .shows(&["old"]);
    operator
        .types("Redis is out of memory", "redis XGROUP DESTROY stream.orders old", &[])
        .succeeds()
        .shows(&["1"]);
    operator
        .types("Redis is out of memory", "tidegate audit\ntidegate prune stream --older-than 12h", &[])
        .succeeds()
        .shows(&["It holds", "200 entries deleted"]);
    let left = fixture.call(&format!("XLEN {STREAM}")).await.as_i64();
    assert_eq!(left, Some(21), "whole blocks of a hundred go");
    assert_eq!(fixture.mismatches().await, Vec::<String>::new());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_deployment_ends_where_its_names_are_taken_and_is_removed_where_its_group_differs() {
    let (worker, operator, fixture) = at_work(125).await;
    let mut same = fixture.worker("w").log_as("same").start();
    assert_eq!(same.ended().await.code(), Some(5));
    same.says("another live worker is named").await;

    let other = fixture.worker("x").set("STREAM_GROUP", "g2").start();
    other.says("worker started").await;
    for id in 1_000..1_020 {
        fixture.admit(id, id, 125, 1).await;
    }
    fixture.settled().await;
    until("the other one has read all", || async {
        let groups = fixture.call(&format!("XPENDING {STREAM} g2")).await.into_array();
        groups[0].as_i64() == Some(0) && fixture.orders().await.len() == 20
    })
    .await;
    operator
        .types("A worker does not start", "redis XINFO GROUPS stream.orders", &[])
        .succeeds()
        .shows(&["g1", "g2"]);
    assert!(other.stop().await.success());
    operator
        .types("A worker does not start", "redis XGROUP DESTROY stream.orders g2", &[])
        .succeeds()
        .shows(&["1"]);
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sales_and_workers_are_paused_and_go_on() {
    let (worker, operator, fixture) = at_work(126).await;
    operator.types("Pause and resume", "tidegate pause --yes", &[]).succeeds();
    is_paused(&buys(&fixture, "126", "5000"));
    operator.types("Pause and resume", "tidegate resume\n", &[]).succeeds();

    operator.types("Pause and resume", "tidegate pause --workers --for 30m", &[]).succeeds();
    worker.says("paused: no entries are read").await;
    until_all(&worker, "paused").await;
    fixture.admit(999, 999, 126, 1).await;
    operator
        .types("Pause and resume", "tidegate status", &[])
        .succeeds()
        .shows(&["undelivered 1", "pending 0"]);
    operator.types("Pause and resume", "tidegate resume --workers", &[]).succeeds();
    fixture.settled().await;

    operator.types("Pause and resume", "redis SET tidegate:pause 1", &[]).succeeds().shows(&["OK"]);
    until("they are paused again", || async {
        worker.log().matches("paused: no entries are read").count() == 2
    })
    .await;
    operator.types("Pause and resume", "redis DEL tidegate:pause", &[]).succeeds().shows(&["1"]);
    fixture.admit(1_000, 1_000, 126, 1).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}
