//! What judges the other tests sees each thing that is wrong: a judge that never says no proves nothing.

use sqlx::AssertSqlSafe;

use crate::site::{
    Site,
    invariants::{Ends, fates},
    rush::{Wanted, Way},
};

async fn sql(site: &Site, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&site.pool).await.expect("MySQL answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_in_a_store_is_seen() {
    let site = Site::open().await;
    site.load(7, 100).await;
    let worker = site.worker("w").start();
    for order in 1..=10 {
        site.admit(order, order, 7, 2).await;
    }
    site.settled().await;
    site.invariants().await;
    assert!(worker.stop().await.success());
    let note = site.journal(7).await["3"].clone();
    let wrong: [(&str, &str, &str); 6] = [
        ("INCR seckill:stock:7", "DECR seckill:stock:7", "left in Redis"),
        ("SREM seckill:order:7 3", "SADD seckill:order:7 3", "may buy again: [3]"),
        ("SADD seckill:order:7 99", "SREM seckill:order:7 99", "may not buy: [99]"),
        ("HDEL seckill:journal:7 3", &format!("HSET seckill:journal:7 3 {note}"), "left in Redis"),
        (
            r#"HSET seckill:journal:7 50 {"action":"admit","change":0,"by":"50"}"#,
            "HDEL seckill:journal:7 50",
            "order 50 is admitted",
        ),
        (
            r#"HSET seckill:journal:7 3 {"action":"release","change":-2}"#,
            &format!("HSET seckill:journal:7 3 {note}"),
            "order 3 is released, and alive",
        ),
    ];
    for (breaks, mends, expected) in wrong {
        site.call(breaks).await;
        let found = site.mismatches().await;
        assert!(found.iter().any(|what| what.contains(expected)), "{breaks}: {found:?}");
        site.call(mends).await;
        assert_eq!(site.mismatches().await, Vec::<String>::new(), "{mends}");
    }
    sql(&site, "UPDATE tb_seckill_voucher SET stock = stock + 1").await;
    let found = site.mismatches().await;
    assert!(found.iter().any(|what| what.contains("left in MySQL")), "{found:?}");
    // Both stocks agree, and an order is gone.
    sql(&site, "DELETE FROM tb_voucher_order WHERE id = 3; UPDATE tb_seckill_voucher SET stock = 82").await;
    let found = site.mismatches().await;
    assert!(found.iter().any(|what| what.contains("order 3 is admitted")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_which_its_caller_was_told_may_be_missing_only_if_a_failover_may_have_lost_it() {
    let site = Site::open().await;
    site.load(7, 100).await;
    let (book, wanted) = (&site.book, Wanted { user: 1, voucher: 7, quantity: 1, way: Way::Gate });
    let missing = async || fates(&book.read(), &Ends::read(&site.pool).await);
    let unanswered = book.ask(1, wanted);
    assert_eq!(missing().await, [""; 0], "its caller got no answer");
    book.begin_risk();
    book.told(&unanswered);
    let asked_at_risk = book.ask(2, wanted);
    book.told(&asked_at_risk);
    assert_eq!(missing().await, [""; 0], "they were answered while a failover may lose them");
    let asked_at_risk = book.ask(3, wanted);
    book.end_risk();
    book.told(&asked_at_risk);
    let refused = book.ask(4, wanted);
    book.refused(&refused);
    assert_eq!(missing().await, [""; 0]);
    let safe = book.ask(5, wanted);
    book.told(&safe);
    let found = missing().await;
    assert!(found.len() == 1 && found[0].starts_with("order 5: "), "{found:?}");
    // What was told of a failover's orders is not taken back.
    sql(
        &site,
        "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
         VALUES (2, 1, 7, 1, 'out_of_stock', '1-1')",
    )
    .await;
    let found = missing().await;
    assert!(found.len() == 2 && found[0].starts_with("order 2: "), "{found:?}");
    sql(&site, "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (5, 1, 7), (6, 6, 7)").await;
    let found = missing().await;
    assert!(found.iter().any(|what| what == "order 6 was never admitted"), "{found:?}");
    assert!(!found.iter().any(|what| what.starts_with("order 5")), "{found:?}");
}
