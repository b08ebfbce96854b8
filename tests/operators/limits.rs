//! Limits, from the command that admits to the row in MySQL and back.

use fred::interfaces::{HashesInterface, KeysInterface, LuaInterface, SetsInterface};

use crate::{
    order_event::operator,
    site::{Site, until},
};

/// Gives a voucher limits, as a command will.
async fn limit(site: &Site, voucher: i64, rules: &str) {
    let keys = [
        format!("seckill:stock:{voucher}"),
        format!("seckill:limited:{voucher}"),
        format!("seckill:journal:{voucher}"),
        format!("seckill:limits:voucher:{voucher}"),
        format!("seckill:voucher:{voucher}"),
    ];
    let script = include_str!("../../lua/limit.lua");
    let set = site.client.eval::<(), _, _, _>(script, keys.to_vec(), vec![rules, "operator:test"]).await;
    set.expect("it has limits");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_orders_of_a_user_are_written_in_their_slots_and_what_one_used_comes_back_with_it() {
    let site = Site::open().await;
    let program = operator(&site);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    limit(&site, 7, "1 -;1 mine user sale 0 3 -;2 phones phone day 0 2 -").await;
    let worker = site.worker("w").start();
    let admit =
        |phone: &str| program.run(&format!("admit --voucher 7 --user 1 --subject phone={phone} --json"));
    let first = admit("a").expect(0).json()["order"].as_str().expect("an id").to_owned();
    admit("a").expect(0);
    let refused = admit("a").expect(1);
    assert_eq!(refused.json()["outcome"], "over_limit", "{refused:#?}");
    let told = program.run("admit --voucher 7 --user 1 --subject phone=a").expect(1);
    assert!(told.stdout.contains("refused, over the limit phones, 0 orders left, until 2"), "{told:#?}");
    let asked = program.run("admit --voucher 7 --user 1").expect(3);
    assert!(asked.stdout.contains("say --subject phone=..."), "{asked:#?}");
    program.run("admit --voucher 7 --user 1 --subject Phone=a").expect(2);
    admit("b").expect(0);
    assert_eq!(admit("c").expect(1).json()["outcome"], "over_limit", "of the user");

    until("all are written", || async { site.live_orders().await.len() == 3 }).await;
    let slots = sqlx::query_scalar("SELECT CAST(slot AS SIGNED) FROM tb_voucher_order ORDER BY slot");
    let slots: Vec<i64> = slots.fetch_all(&site.pool).await.expect("MySQL answers");
    assert_eq!(slots, [1, 2, 3]);

    program.run(&format!("order cancel {first} --yes")).expect(0);
    until("the slot is free", || async {
        let slots: Option<String> =
            site.client.hget("seckill:uses:voucher:7", "u:1").await.expect("Redis answers");
        slots.as_deref() == Some("6")
    })
    .await;
    let uses: Option<String> =
        site.client.hget("seckill:uses:voucher:7", "1:1").await.expect("Redis answers");
    assert_eq!(uses.as_deref(), Some("0:2:2"));
    assert!(
        site.client.sismember::<bool, _, _>("seckill:order:7", 1).await.expect("Redis answers"),
        "two are left"
    );
    admit("a").expect(0);
    until("it is written in the slot that was freed", || async {
        let orders = site.live_orders().await;
        orders.len() == 3
    })
    .await;
    let audit = program.run("audit").expect(0);
    assert!(audit.stdout.contains("It holds: 4 admitted orders"), "{audit:#?}");
    let compared = program.run("reconcile");
    assert_eq!(compared.code, 0, "{compared:#?}");
    let status = program.run("status --json").expect(0).json();
    assert_eq!(status["vouchers"][0]["redis"], 97, "{status:#}");
    // Units come and go under the name that the stock has.
    program.run("voucher add --voucher 7 --units 5 --yes").expect(0);
    program.run("voucher take --voucher 7 --units 3 --yes").expect(0);
    let again = program.run("voucher load --voucher 7 --stock 50").expect(1);
    assert!(!again.all().contains("LIMITED"), "it is on sale: {again:#?}");
    let stocks: Vec<Option<i64>> =
        site.client.mget(vec!["seckill:stock:7", "seckill:limited:7"]).await.expect("Redis answers");
    assert_eq!(stocks, [None, Some(99)]);
    program.run("audit").expect(0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_with_limits_is_not_moved_to_another_partition() {
    let site = Site::open().await;
    let program = operator(&site);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    limit(&site, 7, "0 -;1 phones phone day 0 2 -").await;
    let refused = program.run("partitions change --to 3,1 --yes").expect(1);
    assert!(
        refused.stdout.contains("voucher 7 has limits, and sales with limits cannot be moved"),
        "{refused:#?}"
    );
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
}
