//! What `tidegate audit` answers after a real worker has run; what it finds is tested beside `audit.rs`.

mod site;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use site::Site;
use tidegate_orders::{
    Quantity,
    gate::{Release, UserAfter},
};

const BIG: i64 = 9_007_199_254_740_993;
/// How long a pipeline is audited while it moves.
const MOVING: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn it_holds_after_a_worker_and_fails_with_the_order_that_is_taken_away() {
    let site = Site::open().await;
    site.load(10, 100).await;
    for order in 0..20 {
        site.add_order(BIG + order, 1000 + order, 10).await;
    }
    site.add(&[("userId", "1"), ("voucherId", "10")]).await;
    let before = site.tidegate(&["audit"]);
    assert_eq!(before.status.code(), Some(0), "all in flight: {before:?}");

    let worker = site.worker("w").start();
    until_dead(&site, 1).await;
    site.settled().await;
    worker.signal(Signal::SIGTERM);
    let held = site.tidegate(&["audit"]);
    let text = String::from_utf8_lossy(&held.stdout).into_owned();
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(text.contains("It holds: 20 admitted orders"), "{text}");
    assert!(text.contains("Unreadable entries: 1 (1 dead"), "{text}");

    let typo = site.tidegate(&["audit", "--voucher", "9999"]);
    assert_eq!(
        typo.status.code(),
        Some(1),
        "nobody is told that all is well with what is not there: {typo:?}"
    );
    assert!(String::from_utf8_lossy(&typo.stderr).contains("voucher 9999 is unknown"), "{typo:?}");

    let lost = (BIG + 7).to_string();
    sqlx::query("DELETE FROM tb_voucher_order WHERE id = ?")
        .bind(BIG + 7)
        .execute(&site.pool)
        .await
        .expect("a row");
    let failed = site.tidegate(&["audit", "--json"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let json: Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    let voucher = &json["vouchers"][0];
    assert_eq!((&json["holds"], &voucher["voucher"]), (&Value::Bool(false), &Value::from("10")));
    assert_eq!(voucher["lost"]["first"], Value::from(vec![lost]), "{json}");
    // Another voucher is not concerned.
    site.load(11, 5).await;
    assert_eq!(site.tidegate(&["audit", "--voucher", "11"]).status.code(), Some(0));
    // Nobody knows what Redis has forgotten, but that it has is said.
    site.redis_says(&["FLUSHALL"]).await;
    let text = String::from_utf8_lossy(&site.tidegate(&["audit"]).stdout).into_owned();
    assert!(text.contains("MySQL holds 19 orders that Redis does not know"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_of_a_moving_pipeline_raises_no_false_alarm() {
    let site = Site::open().await;
    site.open_sale().await;
    // Small batches: many moments at which an order is between two places.
    let worker = |name: &str| site.worker(name).set("WORKER_BATCH", 20).start();
    let workers = [worker("a"), worker("b")];
    let began = Instant::now();
    let (mut rushes, mut audits) = (1, 0);
    while began.elapsed() < MOVING || audits < 3 {
        let rush = async {
            site.rush(rushes * 200, 200).await;
            site.add_poison().await;
        };
        let ((), failures) = tokio::join!(rush, site.audit_failures());
        assert_eq!(failures, Vec::<String>::new(), "audit {audits}, beside the rush");
        assert_eq!(site.audit_failures().await, Vec::<String>::new(), "audit {audits}, behind it");
        (rushes, audits) = (rushes + 1, audits + 1);
    }
    site.settled().await;
    assert!(!site.refused().await.is_empty(), "refusals were going on");
    site.invariants().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_vouchers_that_only_redis_knows_are_followed() {
    let site = Site::open().await;
    site.open_sale().await;
    site.load(7, 100).await;
    let gate = site.gate().await;
    for order in 1..=5 {
        site.admit(order, order, 7, 1).await;
    }
    let worker = site.worker("w").start();
    site.settled().await;
    // As if from an older backup: MySQL knows nothing of the sale, and the stream was trimmed.
    for sql in ["DELETE FROM tb_voucher_order", "DELETE FROM tb_seckill_voucher WHERE voucher_id = 7"] {
        sqlx::query(sql).execute(&site.pool).await.expect("a statement");
    }
    assert!(worker.stop().await.success());
    site.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    // Many other keys, one of them no text.
    let others = "for at = 1, 5000 do redis.call('SET', 'other:' .. at, '') end \
                  redis.call('SET', 'seckill:journal:\\255', '') return 1";
    site.redis_says(&["EVAL", others, "0"]).await;
    for flags in [&["audit"][..], &["audit", "--voucher", "7"]] {
        let audit = site.tidegate(flags);
        let text = String::from_utf8_lossy(&audit.stdout).into_owned();
        assert_eq!(audit.status.code(), Some(1), "{audit:?}");
        assert!(text.contains("voucher 7: 5 admitted orders are lost: 1, 2, 3, 4, 5"), "{text}");
    }

    // What was given back needs no row.
    for order in 1..=5 {
        let release = Release {
            order: order.try_into().expect("an id"),
            user: order.try_into().expect("an id"),
            voucher: 7.try_into().expect("an id"),
            units: Some(Quantity::ONE),
            user_after: UserAfter::Freed,
            by: "operator:test".into(),
        };
        gate.release(&release).await.expect("the gate answers");
    }
    let held = site.tidegate(&["audit"]);
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(String::from_utf8_lossy(&held.stdout).contains("It holds: 5 admitted orders"), "{held:?}");
    assert_eq!(site.tidegate(&["audit", "--voucher", "7"]).status.code(), Some(0));

    // A journal that is none is named.
    site.redis_says(&["SET", "seckill:journal:8", "x"]).await;
    let failed = site.tidegate(&["audit"]);
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("seckill:journal:8: WRONGTYPE"), "{failed:?}");
    assert_eq!(site.tidegate(&["audit", "--voucher", "7"]).status.code(), Some(0), "others can be audited");
}

async fn until_dead(site: &Site, letters: usize) {
    site::until("it is buried", || async { site.dead().await.len() == letters }).await;
}
