//! Tests of limits, from the command that admits to the row in MySQL and back.

use fred::interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface, StreamsInterface};

use crate::{
    fixture::{Fixture, until},
    order_event::operator,
    terminal::Terminal,
};

#[tokio::test(flavor = "multi_thread")]
async fn two_orders_of_a_user_are_written_in_their_slots_and_what_one_used_comes_back_with_it() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 2 --yes")
        .expect(0);
    let worker = fixture.worker("w").start();
    let admit =
        |phone: &str| program.run(&format!("admit --voucher 7 --user 1 --subject phone={phone} --json"));
    let first = admit("a").expect(0).json()["order"].as_str().expect("an id").to_owned();
    admit("a").expect(0);
    let refused = admit("a").expect(1);
    assert_eq!(refused.json()["outcome"], "over_limit", "{refused:#?}");
    let told = program.run("admit --voucher 7 --user 1 --subject phone=a").expect(1);
    assert!(told.stdout.contains("refused, over the limit phones, 0 orders left, until 2"), "{told:#?}");
    let asked = program.run("admit --voucher 7 --user 1").expect(3);
    assert!(asked.stdout.contains("add --subject phone=..."), "{asked:#?}");
    program.run("admit --voucher 7 --user 1 --subject Phone=a").expect(2);
    admit("b").expect(0);
    assert_eq!(admit("c").expect(1).json()["outcome"], "over_limit", "of the user");

    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    let slots = sqlx::query_scalar("SELECT CAST(slot AS SIGNED) FROM tb_voucher_order ORDER BY slot");
    let slots: Vec<i64> = slots.fetch_all(&fixture.pool).await.expect("MySQL answers");
    assert_eq!(slots, [1, 2, 3]);

    program.run(&format!("order event cancelled {first} --yes")).expect(0);
    until("the slot is free", || async {
        let slots: Option<String> =
            fixture.client.hget("seckill:uses:voucher:7", "u:1").await.expect("Redis answers");
        slots.as_deref() == Some("6")
    })
    .await;
    let uses: Option<String> =
        fixture.client.hget("seckill:uses:voucher:7", "1:1").await.expect("Redis answers");
    assert_eq!(uses.as_deref(), Some("0:2:2"));
    assert!(
        fixture.client.sismember::<bool, _, _>("seckill:order:7", 1).await.expect("Redis answers"),
        "two are left"
    );
    admit("a").expect(0);
    until("it is written in the slot that was freed", || async {
        let orders = fixture.live_orders().await;
        orders.len() == 3
    })
    .await;
    fixture.settled().await;
    fixture.judge().await;
    let status = program.run("status --json").expect(0).json();
    assert_eq!(status["vouchers"][0]["redis"], 97, "{status:#}");
    // Units are added and taken under the name that the stock has now.
    program.run("voucher add --voucher 7 --units 5 --yes").expect(0);
    program.run("voucher take --voucher 7 --units 3 --yes").expect(0);
    let again = program.run("voucher load --voucher 7 --stock 50").expect(1);
    assert!(!again.all().contains("LIMITED"), "it is on sale: {again:#?}");
    let stocks: Vec<Option<i64>> =
        fixture.client.mget(vec!["seckill:stock:7", "seckill:limited:7"]).await.expect("Redis answers");
    assert_eq!(stocks, [None, Some(99)]);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_with_limits_is_not_moved_to_another_partition() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 100").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 2 --yes")
        .expect(0);
    let refused = program.run("partitions change --to 3,1 --yes").expect(1);
    assert!(
        refused.stdout.contains("voucher 7 has limits, and sales with limits cannot be moved"),
        "{refused:#?}"
    );
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_before_the_sale_and_changed_in_it_and_taken_away() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let phones = "limit set --voucher 7 --name phones --subject phone --window day --utc-offset +08:00 --orders 1 --yes";
    let dry = program.run(&format!("{phones} --dry-run")).expect(0);
    let after =
        "after this change, limits of voucher 7:\n  phones: at most 1 order a day (UTC+08:00) by phone";
    assert!(dry.stdout.contains(after), "{dry:#?}");
    assert!(
        program.run("limit list --voucher 7").stdout.contains("no limits of its own"),
        "nothing was changed"
    );
    let set = program.run(phones).expect(0);
    assert!(set.stdout.contains("  phones: at most 1 order a day (UTC+08:00) by phone"), "{set:#?}");
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let stocks: Vec<Option<i64>> =
        fixture.client.mget(vec!["seckill:stock:7", "seckill:limited:7"]).await.expect("Redis answers");
    assert_eq!(stocks, [None, Some(10)], "nobody could buy past the limit in between");
    let since = "SELECT limits_since FROM tb_seckill_voucher WHERE voucher_id = 7";
    let since = async || {
        sqlx::query_scalar::<_, Option<i64>>(since).fetch_one(&fixture.pool).await.expect("MySQL answers")
    };
    assert!(since().await.is_some());
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
    program.run("admit --voucher 7 --user 2 --subject phone=a").expect(1);

    // The same limit again changes nothing. A limit with other numbers keeps its counters; with another subject, it
    // counts from zero.
    assert!(program.run(phones).expect(0).stdout.contains("nothing to change"));
    program.run(&phones.replace("--orders 1", "--orders 2")).expect(0);
    program.run("admit --voucher 7 --user 2 --subject phone=a").expect(0);
    program.run("admit --voucher 7 --user 3 --subject phone=a").expect(1);
    program.run(&phones.replace("--subject phone", "--subject ip")).expect(0);
    program.run("admit --voucher 7 --user 3 --subject ip=a").expect(0);
    let listed = program.run("limit list --voucher 7 --json").expect(0).json();
    assert_eq!(listed["limits"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["limits"][0]["number"], 2, "{listed}");
    assert_eq!(listed["is_shown"], true, "{listed}");

    let slots = program
        .run("limit set --voucher 7 --name mine --subject user --window sale --orders 5 --yes")
        .expect(0);
    assert!(slots.stdout.contains("at most 31 live orders"), "{slots:#?}");
    for name in 0..6 {
        program
            .run(&format!("limit set --voucher 7 --name n{name} --window sale --orders 100 --yes"))
            .expect(0);
    }
    let refused = program.run("limit set --voucher 7 --name n6 --window sale --orders 100 --yes").expect(1);
    assert!(refused.stdout.contains("may have 8 limits together, but would have 9"), "{refused:#?}");

    // Redis loses the limits: a command reports that, and each of these commands restores them.
    fixture.client.del::<(), _>("seckill:limits:voucher:7").await.expect("Redis answers");
    let listed = program.run("limit list --voucher 7").expect(1);
    assert!(listed.stdout.contains("Redis has OTHER limits"), "{listed:#?}");
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 5 --yes").expect(0);
    program.run("limit list --voucher 7").expect(0);

    for name in ["phones", "mine", "n0", "n1", "n2", "n3", "n4"] {
        program.run(&format!("limit remove --voucher 7 --name {name} --yes")).expect(0);
    }
    assert!(since().await.is_some(), "one is left");
    program.run("limit remove --voucher 7 --name n5 --yes").expect(0);
    let refused = program.run("limit remove --voucher 7 --name n5 --yes").expect(1);
    assert!(refused.stdout.contains("there is no limit of this name"), "{refused:#?}");
    let stocks: Vec<Option<i64>> =
        fixture.client.mget(vec!["seckill:stock:7", "seckill:limited:7"]).await.expect("Redis answers");
    assert_eq!((stocks, since().await), (vec![Some(7), None], None));
    program.run("admit --voucher 7 --user 9").expect(0);
    // Removed limits stay in the table, and their numbers are not used again.
    let rows =
        sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tidegate_limit WHERE removed_at IS NOT NULL");
    assert_eq!(rows.fetch_one(&fixture.pool).await.expect("MySQL answers"), 9);
    program.run("limit set --voucher 7 --name again --window sale --orders 100 --yes").expect(0);
    assert_eq!(program.run("limit list --voucher 7 --json").expect(0).json()["limits"][0]["number"], 10);
    let log = program.run("log").expect(0);
    assert!(log.stdout.contains("limit set") && log.stdout.contains("limit remove"), "{log:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_limits_that_contradict_each_other_are_refused_with_what_to_say() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    for (flags, told) in [
        ("--voucher 7 --campaign 5 --name a --window sale --orders 1", "cannot be used with"),
        ("--name a --window sale --orders 1", "--voucher"),
        ("--voucher 7 --name A --window sale --orders 1", "is not a name"),
        ("--voucher 7 --name a --window sale", "give --orders, --units, or both"),
        ("--voucher 7 --name a --window order --orders 1", "needs --units"),
        ("--voucher 7 --name a --orders 1", "--window"),
        ("--voucher 7 --name a --window sale --orders 0", "a number from 1"),
        ("--voucher 7 --name a --window sale --orders 1 --utc-offset 1:00", "+08:00"),
        (
            "--voucher 7 --name a --window 10m --orders 1 --utc-offset 01:00",
            "--utc-offset can be used only with",
        ),
        ("--voucher 7 --name a --rate 5/1s --orders 1", "cannot be used with"),
        ("--voucher 7 --name a --rate 5", "5/1s"),
    ] {
        let refused = program.run(&format!("limit set {flags} --yes")).expect(2);
        assert!(refused.all().contains(told), "{flags}: {refused:#?}");
    }
    let refused = program.run("limit set --campaign 5 --name a --window sale --orders 1 --yes").expect(1);
    assert!(refused.all().contains("the campaign has no vouchers"), "{refused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_past_the_limits_is_buried_and_what_came_before_them_is_written() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("admit --voucher 7 --user 1").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    let fields = vec![("userId", "2"), ("voucherId", "7"), ("id", "4711")];
    fixture
        .client
        .xadd::<(), _, _, _, _>("stream.orders", false, None::<()>, "*", fields)
        .await
        .expect("Redis answers");
    program.run("admit --voucher 7 --user 3 --subject phone=a").expect(0);
    let worker = fixture.worker("w").start();
    until("two are written", || async { fixture.live_orders().await.len() == 2 }).await;
    until("the other is dead", || async { program.run("dead list").stdout.contains("past_limits") }).await;
    let uses = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tidegate_limit_use WHERE voucher_id = 7");
    assert_eq!(uses.fetch_one(&fixture.pool).await.expect("MySQL answers"), 1);
    let dry = program.run("dead requeue --reason past_limits --dry-run").expect(0);
    assert!(dry.stdout.contains("past_limits"), "it says that they would die again: {dry:#?}");
    assert!(worker.stop().await.success());
}

/// Adds an order by a plain XADD, without the script that checks limits.
async fn add_past_the_limits(fixture: &Fixture, order: &str, user: &str) {
    let fields = vec![("userId", user), ("voucherId", "7"), ("id", order)];
    let added = fixture.client.xadd::<(), _, _, _, _>("stream.orders", false, None::<()>, "*", fields);
    added.await.expect("Redis answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_from_before_the_limits_comes_back_from_the_dead_and_one_that_went_past_them_does_not() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    fixture.redis_says(&["XGROUP", "CREATE", "stream.orders", "g1", "0", "MKSTREAM"]).await;
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let bury = async || {
        fixture.hand_over("gone-0", 10).await;
        let pending = program.run("pending list --json").expect(0).json();
        let entry = pending["entries"][0]["entry"].as_str().expect("an entry").to_owned();
        program.run(&format!("pending bury {entry} --why test --yes")).expect(0);
    };
    let early = program.run("admit --voucher 7 --user 1 --json").expect(0).json()["order"].clone();
    bury().await;
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    let limited = program.run("admit --voucher 7 --user 3 --subject phone=a --json").expect(0).json();
    bury().await;
    add_past_the_limits(&fixture, "4711", "2").await;
    let worker = fixture.worker("w").start();
    let past = || {
        let list = program.run("dead list --json").expect(0).stdout;
        list.matches("past_limits").count()
    };
    until("one is past the limits", || async { past() > 0 }).await;

    let dry = program.run("dead requeue --all --dry-run").expect(0);
    assert_eq!(dry.stdout.matches("past_limits").count(), 1, "only one would die again: {dry:#?}");
    program.run("dead requeue --all --yes --force").expect(0);
    until("two are written", || async { fixture.live_orders().await.len() == 2 }).await;
    until("the third is dead again", || async {
        let letters = fixture.dead().await;
        letters.len() == 1 && letters[0].get("dead:requeued").is_some_and(|times| times == "1")
    })
    .await;
    let letter = &fixture.dead().await[0];
    assert_eq!((letter["id"].as_str(), letter["dead:reason"].as_str()), ("4711", "past_limits"));
    let uses =
        "SELECT CAST(order_id AS CHAR), CAST(uses AS CHAR) FROM tidegate_limit_use ORDER BY LENGTH(uses)";
    let uses: Vec<(String, String)> =
        sqlx::query_as(uses).fetch_all(&fixture.pool).await.expect("MySQL answers");
    assert_eq!((&early, uses[0].1.as_str()), (&uses[0].0.clone().into(), ""), "{uses:?}");
    assert_eq!(limited["order"], uses[1].0, "{uses:?}");
    assert!(worker.stop().await.success());
    program.run("dead cancel --all --yes").expect(0);
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_from_before_the_limits_that_mysql_lost_is_written_again_without_its_entry() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    program.run("admit --voucher 7 --user 1").expect(0);
    until("it is written", || async { fixture.live_orders().await.len() == 1 }).await;
    fixture.settled().await;
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    fixture.redis_says(&["XTRIM", "stream.orders", "MAXLEN", "0"]).await;
    let lose =
        "DELETE FROM tb_voucher_order; UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 7";
    sqlx::raw_sql(lose).execute(&fixture.pool).await.expect("MySQL does it");
    let repaired = program.run("reconcile --repair --yes").expect(0);
    assert!(repaired.stdout.contains("1 entry appended again"), "{repaired:#?}");
    // Either the repair or the worker writes the order, whichever reads the new entry first.
    until("it is written again", || async { fixture.live_orders().await.len() == 1 }).await;
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_emptied_and_a_rebuild_restores_limits_counters_and_slots() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 2 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let worker = fixture.worker("w").start();
    let first =
        program.run("admit --voucher 7 --user 1 --quantity 2 --subject phone=a --json").expect(0).json();
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
    program.run("admit --voucher 7 --user 2 --subject phone=b").expect(0);
    let cancelled = program.run("admit --voucher 7 --user 3 --subject phone=b --json").expect(0).json();
    until("all are written", || async { fixture.live_orders().await.len() == 4 }).await;
    program
        .run(&format!("order event cancelled {} --yes", cancelled["order"].as_str().expect("an id")))
        .expect(0);
    until("one is cancelled", || async { fixture.live_orders().await.len() == 3 }).await;
    let held = async || {
        let uses: std::collections::BTreeMap<String, String> =
            fixture.client.hgetall("seckill:uses:voucher:7").await.expect("Redis answers");
        uses
    };
    let (before, uses_of_released) = (held().await, "2:b");
    assert!(before.contains_key(uses_of_released), "{before:?}");
    assert!(worker.stop().await.success());

    fixture.client.flushall::<()>(false).await.expect("Redis answers");
    program.run("rebuild --voucher 7 --yes").expect(0);
    assert_eq!(held().await, before);
    let stocks: Vec<Option<i64>> =
        fixture.client.mget(vec!["seckill:stock:7", "seckill:limited:7"]).await.expect("Redis answers");
    assert_eq!(stocks, [None, Some(6)]);
    program.run("limit list --voucher 7").expect(0);
    fixture.judge().await;
    let refused = program.run("admit --voucher 7 --user 4 --subject phone=a --json").expect(1).json();
    assert_eq!(refused["outcome"], "over_limit", "{refused}");
    // When the order is cancelled, its restored uses are released, once.
    let worker = fixture.worker("w").start();
    program
        .run(&format!("order event cancelled {} --yes", first["order"].as_str().expect("an id")))
        .expect(0);
    until("it is released", || async { held().await.get("1:1").is_some_and(|mine| mine == "0:1:1") }).await;
    assert_eq!(held().await["u:1"], "2");
    program.run("admit --voucher 7 --user 4 --subject phone=a").expect(0);
    until("it is written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    fixture.judge().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_with_limits_is_delisted_and_its_dead_orders_are_released() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let order = program.run("admit --voucher 7 --user 1 --subject phone=a --json").expect(0).json();
    let pending = program.run("pending list --json");
    assert_eq!(pending.code, 0, "{pending:#?}");
    // The voucher has no row in MySQL, so the order becomes a dead letter.
    sqlx::query("UPDATE tb_seckill_voucher SET voucher_id = 8")
        .execute(&fixture.pool)
        .await
        .expect("MySQL answers");
    let worker = fixture.worker("w").start();
    until("it is dead", || async { program.run("dead list").stdout.contains("unknown_voucher") }).await;
    program.run("admit --voucher 7 --user 2 --subject phone=a").expect(1);
    sqlx::query("UPDATE tb_seckill_voucher SET voucher_id = 7")
        .execute(&fixture.pool)
        .await
        .expect("MySQL answers");
    program.run("dead cancel --voucher 7 --yes").expect(0);
    let shown = program.run(&format!("order show {} --json", order["order"].as_str().expect("an id")));
    assert!(shown.stdout.contains("cancelled"), "{shown:#?}");
    program.run("admit --voucher 7 --user 2 --subject phone=a").expect(0);
    until("it is written", || async { fixture.live_orders().await.len() == 1 }).await;
    fixture.settled().await;
    fixture.judge().await;

    program.run("voucher delist --voucher 7 --yes").expect(0);
    let over = program.run("admit --voucher 7 --user 3 --subject phone=c").expect(1);
    assert!(over.stdout.contains("over"), "{over:#?}");
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 2 --yes")
        .expect(1);
    program.run("voucher delist --voucher 7 --remove-keys --yes").expect(0);
    let keys =
        ["stock:7", "limited:7", "order:7", "voucher:7", "journal:7", "limits:voucher:7", "uses:voucher:7"];
    let keys: Vec<String> = keys.iter().map(|key| format!("seckill:{key}")).collect();
    assert_eq!(fixture.client.exists::<u64, _>(keys).await.expect("Redis answers"), 0);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_brings_back_what_orders_used_and_gives_it_back_with_those_that_ended() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 3 --yes").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let worker = fixture.worker("w").start();
    let mut orders = Vec::new();
    for phone in ["a", "b", "c"] {
        let order = program
            .run(&format!("admit --voucher 7 --user 1 --subject phone={phone} --json"))
            .expect(0)
            .json();
        orders.push(order["order"].as_str().expect("an id").to_owned());
    }
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    assert!(worker.stop().await.success());
    let note = async |order: &str| {
        let note: Option<String> =
            fixture.client.hget("seckill:journal:7", order).await.expect("Redis answers");
        note.unwrap_or_default()
    };
    let held = async |field: &str| {
        let held: Option<String> =
            fixture.client.hget("seckill:uses:voucher:7", field).await.expect("Redis answers");
        held.unwrap_or_default()
    };
    // Redis lost the note of the first order, MySQL lost the second, and a service cancelled the third directly in the
    // tables.
    let of_note = |note: &str| {
        note.split_once("\"slot\":").map(|(_, limited)| limited.trim_end_matches('}').to_owned())
    };
    let before = of_note(&note(&orders[0]).await).expect("it has a slot");
    assert_eq!(before.split(',').next(), Some("1"));
    fixture.client.hdel::<(), _, _>("seckill:journal:7", orders[0].as_str()).await.expect("Redis answers");
    for (statement, order) in [
        ("DELETE FROM tb_voucher_order WHERE id = ?", &orders[1]),
        ("DELETE FROM tidegate_limit_use WHERE order_id = ?", &orders[1]),
        (
            "UPDATE tb_voucher_order SET status = 4, slot = NULL, update_time = NOW() - INTERVAL 1 DAY WHERE id = ?",
            &orders[2],
        ),
    ] {
        sqlx::query(statement).bind(order).execute(&fixture.pool).await.expect("MySQL answers");
    }
    sqlx::query("UPDATE tb_seckill_voucher SET stock = stock + 2")
        .execute(&fixture.pool)
        .await
        .expect("MySQL answers");
    assert_eq!((held("1:1").await.as_str(), held("u:1").await.as_str()), ("0:3:3", "7"));

    let repaired = program.run("reconcile --repair --yes");
    assert_eq!(repaired.code, 0, "{repaired:#?}");
    assert!(note(&orders[0]).await.contains(&before), "{}", note(&orders[0]).await);
    assert!(note(&orders[2]).await.contains("release"), "{}", note(&orders[2]).await);
    assert_eq!((held("1:1").await.as_str(), held("u:1").await.as_str()), ("0:2:2", "3"));
    assert_eq!(fixture.live_orders().await.len(), 2);
    let uses = "SELECT CAST(uses AS CHAR) FROM tidegate_limit_use WHERE order_id = ?";
    let uses: String =
        sqlx::query_scalar(uses).bind(&orders[1]).fetch_one(&fixture.pool).await.expect("MySQL has it again");
    assert!(uses.ends_with(",b"), "{uses}");
    fixture.judge().await;
    // The phone of the order that ended may buy again; the others may not.
    program.run("admit --voucher 7 --user 2 --subject phone=c").expect(0);
    program.run("admit --voucher 7 --user 2 --subject phone=b").expect(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_of_windows_that_are_over_are_swept_and_the_others_stay() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    for limit in
        ["days --subject phone --window day", "mine --subject user --window sale", "old --window 10m"]
    {
        program.run(&format!("limit set --voucher 7 --name {limit} --orders 5 --yes")).expect(0);
    }
    program.run("limit remove --voucher 7 --name mine --yes").expect(0);
    program.run("limit set --voucher 7 --name mine --subject user --window sale --orders 5 --yes").expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
    let kept: std::collections::BTreeMap<String, String> =
        fixture.client.hgetall("seckill:uses:voucher:7").await.expect("Redis answers");
    // Counters of a day long ago, of the limit that was removed, and of a day in the future.
    let written = vec![("1:b", "19000:1:1"), ("2:1", "0:1:1"), ("1:c", "9999999:1:1")];
    fixture.client.hset::<(), _, _>("seckill:uses:voucher:7", written).await.expect("Redis answers");
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1).start();
    until("what is over is gone", || async {
        let uses: std::collections::BTreeMap<String, String> =
            fixture.client.hgetall("seckill:uses:voucher:7").await.expect("Redis answers");
        uses.len() == kept.len() + 1 && kept.iter().all(|(field, value)| uses.get(field) == Some(value))
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_says_what_the_gate_would_say_and_changes_nothing() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let check = |voucher: i64, rest: &str| {
        program.run(&format!("voucher check --voucher {voucher} --user 1 --json {rest}"))
    };
    let outcome =
        |run: crate::program::Run| (run.code, run.json()["outcome"].as_str().unwrap_or_default().to_owned());
    let says = |code: i32, word: &str| (code, word.to_owned());
    assert_eq!(outcome(check(7, "--quantity 1")), says(1, "no_stock"));
    program.run("voucher load --voucher 7 --stock 2").expect(0);
    program.run("voucher load --voucher 8 --stock 5").expect(0);
    assert_eq!(outcome(check(7, "--quantity 2")), says(0, "admitted"));
    assert_eq!(outcome(check(7, "--quantity 3")), says(1, "sold_out"));
    program.run("admit --voucher 7 --user 1").expect(0);
    assert_eq!(outcome(check(7, "--quantity 1")), says(1, "user_has_order"));
    program.run("pause --voucher 7 --yes").expect(0);
    assert_eq!(outcome(check(7, "--quantity 1")), says(1, "paused"));

    program
        .run("limit set --voucher 8 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("limit set --voucher 8 --name fast --subject phone --rate 1/1h --yes").expect(0);
    let asked = check(8, "--quantity 1").expect(2);
    assert!(asked.all().contains("phone"), "{asked:#?}");
    let state = async || {
        let uses: std::collections::BTreeMap<String, String> =
            fixture.client.hgetall("seckill:uses:voucher:8").await.expect("Redis answers");
        let stock: i64 = fixture.client.get("seckill:limited:8").await.expect("Redis answers");
        let entries: u64 = fixture.client.xlen("stream.orders").await.expect("Redis answers");
        (uses, stock, entries)
    };
    let before = state().await;
    for _ in 0..3 {
        assert_eq!(outcome(check(8, "--subject phone=a")), says(0, "admitted"));
    }
    assert_eq!(state().await, before, "nothing was changed");
    program.run("admit --voucher 8 --user 2 --subject phone=a").expect(0);
    let refused = check(8, "--subject phone=a").expect(1).json();
    assert_eq!(
        (&refused["outcome"], &refused["limit"]),
        (&"over_limit".into(), &"phones".into()),
        "{refused}"
    );
    assert!(refused["opens_ms"].is_i64(), "{refused}");
    program.run("limit remove --voucher 8 --name phones --yes").expect(0);
    let refused = check(8, "--subject phone=a").expect(1).json();
    assert_eq!((&refused["outcome"], &refused["limit"]), (&"too_fast".into(), &"fast".into()), "{refused}");
    assert!(refused["retry_ms"].as_u64().is_some_and(|retry_ms| retry_ms > 3_000_000), "{refused}");
    let text = program.run("voucher check --voucher 8 --user 1 --subject phone=a").expect(1);
    assert!(text.stdout.contains("user 1 would be refused, over the rate limit fast"), "{text:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_a_sale_that_is_on_is_asked_about_and_says_who_is_refused_from_now_on() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let set = |flags: &str| format!("limit set --voucher 7 --name {flags}");
    // Before the sale, a new limit refuses no caller that was not refused before.
    program.run(&set("early --subject user --window sale --orders 9")).expect(0);
    program.run("limit remove --voucher 7 --name early --yes").expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);

    let phones = set("phones --subject phone --window day --orders 1");
    let refused = program.run(&phones).expect(2);
    assert!(refused.stderr.contains("Set the limit phones of voucher 7, which is on sale?"), "{refused:#?}");
    program.run("admit --voucher 7 --user 1").expect(0);
    let told = "refused from now on: callers of admit.lua get reply 12: they must call admit_limited.lua; callers who send \
                no `phone`";
    let mut terminal = Terminal::start(&program.command(&phones.split(' ').collect::<Vec<_>>()));
    let shown = terminal.shows("Set the limit phones of voucher 7, which is on sale? [y/N]");
    assert!(shown.contains(told), "{shown}");
    terminal.types("y");
    assert_eq!(terminal.ends().0, 0);
    program.run("admit --voucher 7 --user 2").expect(3);
    // Callers that are refused already are not named again. With --yes, the command prints the warning nevertheless.
    let hours = program.run(&set("hours --subject phone --window 1h --orders 9 --dry-run")).expect(0);
    assert!(!hours.stdout.contains("refused from now on"), "{hours:#?}");
    let ips = program.run(&set("ips --subject ip --window sale --orders 9 --yes")).expect(0);
    assert!(
        ips.stderr.contains("warning: callers that are refused from now on: callers who send no `ip`"),
        "{ips:#?}"
    );

    // A rate is shown as it was typed.
    for (typed, listed) in [("10/1s", "10/1s"), ("3/1s", "3/1s"), ("100/1m", "100/1m"), ("1/10s", "6/1m")] {
        let set = program.run(&set(&format!("fast --rate {typed} --yes"))).expect(0);
        assert!(
            set.stdout
                .contains(&format!("fast: at most {typed} in all, 1 at once after a time without orders")),
            "{set:#?}"
        );
        let list = program.run("limit list --voucher 7").expect(0);
        assert!(list.stdout.contains(&format!("fast: at most {listed} in all")), "{list:#?}");
    }
    let dry = program.run("limit remove --voucher 7 --name phones --dry-run").expect(0);
    assert!(!dry.stdout.contains("phones:") && dry.stdout.contains("  ips: at most 9 orders"), "{dry:#?}");
    let dry = program.run("limit remove --voucher 7 --name phones --dry-run --json").expect(0).json();
    let names: Vec<&str> =
        dry["limits"].as_array().expect("limits").iter().filter_map(|limit| limit["name"].as_str()).collect();
    assert_eq!(names, ["ips", "fast"], "{dry:#}");
    let list = program.run("limit list --voucher 7").expect(0);
    assert!(list.stdout.contains("phones:"), "nothing was changed: {list:#?}");
}
