//! Tests of stores whose users have only the rights of `config/redis-users.acl` and `config/mysql-users.sql`: real
//! servers, and everything that the program does.

use std::collections::BTreeMap;

use fred::types::Value;
use sqlx::{AssertSqlSafe, Executor, MySqlPool};
use tidegate_lab::{Clock, MysqlServer};

use crate::{
    browser::get,
    fixture::{Fixture, GROUP, STREAM, Worker, durable_redis, until},
    program::Program,
};

/// A fixture whose stores have these users.
async fn open() -> Fixture {
    let fixture = Fixture::bare_with_own_mysql().await;
    fixture.add_users().await;
    fixture
}

fn program(fixture: &Fixture, redis: &str, mysql: &str) -> Program {
    let (redis, mysql) = (fixture.redis_url_of(redis), fixture.mysql_url_of(mysql));
    Program::with_flags(&["--redis-url", &redis, "--mysql-url", &mysql])
}

fn worker(fixture: &Fixture, name: &str) -> Worker {
    let plan = fixture.worker(name).set("REDIS_URL", fixture.redis_url_of("tidegate-worker"));
    let plan = plan.set("MYSQL_URL", fixture.mysql_url_of("tidegate-worker"));
    plan.set("STREAM_RETENTION_MS", 1000).start()
}

/// A worker whose webhook has no receiver, and which deletes results soon.
fn worker_with_webhook(fixture: &Fixture, name: &str) -> Worker {
    let plan = fixture.worker(name).set("REDIS_URL", fixture.redis_url_of("tidegate-worker"));
    let plan = plan.set("MYSQL_URL", fixture.mysql_url_of("tidegate-worker")).set("RESULTS_KEEP_MS", 1);
    plan.set("WEBHOOKS", fixture.webhooks(&[("shop", "http://localhost:9/")])).start()
}

/// The commands and keys that Redis has denied, and the users.
async fn denied(fixture: &Fixture) -> Vec<String> {
    let log: Vec<BTreeMap<String, Value>> = fixture.call("ACL LOG").await.convert().expect("a log");
    let text = |entry: &BTreeMap<String, Value>, name| entry[name].as_string().unwrap_or_default();
    log.iter().map(|entry| format!("{}: {}", text(entry, "username"), text(entry, "object"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_of_the_examples_every_part_does_its_work() {
    // The clock skips the hour for which a dead consumer is kept.
    let clock = Clock::start().expect("a clock");
    clock.set_ahead_by(-3_600).expect("the clock is set");
    let redis = durable_redis().clock(&clock).start().expect("a Redis");
    let fixture = Fixture::on(redis, MysqlServer::start().expect("a MySQL")).await;
    fixture.add_users().await;
    let owner = program(&fixture, "tidegate-operator", "tidegate-owner");
    let operator = program(&fixture, "tidegate-operator", "tidegate-operator");
    let producer = program(&fixture, "tidegate-producer", "tidegate-worker");
    for line in ["migrate --dry-run", "migrate --yes", "migrate --yes"] {
        owner.run(line).expect(0);
    }
    fixture.open_sale().await;

    // The first worker handles orders, refusals and dead letters. The next one takes over, removes the dead consumer,
    // and trims.
    let first = worker(&fixture, "w1");
    fixture.rush(1_000, 300).await;
    fixture.settled().await;
    first.kill9();
    clock.set_ahead_by(0).expect("the clock is set");
    fixture.rush(2_000, 300).await;
    let second = worker(&fixture, "w2");
    fixture.add_poison().await;
    fixture.settled().await;
    second.says("removed a dead consumer that held no entries").await;
    second.says("deleted entries that are older than stream.retention_ms").await;
    // The worker is killed, and its heartbeat still exists when it starts again.
    second.kill9();
    let second = worker(&fixture, "w2");
    fixture.rush(4_000, 50).await;
    fixture.settled().await;

    producer.run("admit --voucher 1 --user 77").expect(0);
    for _ in 0..2 {
        let wait = "--set gate.wait_replicas=1 --set gate.wait_ms=10";
        let unsure = producer.run(&format!("admit --voucher 1 --user 78 --order 7878 {wait}")).expect(12);
        assert!(unsure.stderr.contains("0 of 1 replicas had the data"), "{unsure:#?}");
    }
    for (line, code) in [
        ("doctor", 0),
        ("status", 0),
        ("voucher load --voucher 3 --stock 5 --yes", 0),
        ("doctor --before-sale 3", 0),
        ("doctor --before-sale", 0),
        ("voucher show --voucher 1", 0),
        ("voucher add --voucher 3 --units 5 --yes", 0),
        ("voucher take --voucher 3 --units 5 --yes", 0),
        ("pause --voucher 1 --yes", 0),
        ("pause --yes", 0),
        ("resume --yes", 0),
        ("resume --voucher 1 --yes", 0),
        ("pause --workers --yes", 0),
        ("resume --workers --yes", 0),
        ("order event paid 1001 --yes", 0),
        ("order release-unpaid --voucher 3 --older-than 1h --yes", 0),
        ("prune stream --older-than 1s --yes", 0),
        ("replay --from -1h --to -1s --yes", 0),
        ("export --from -1h --to -1s", 0),
        ("dead list", 0),
        ("dead export", 0),
        ("dead requeue --all --yes", 0),
    ] {
        operator.run(line).expect(code);
    }
    fixture.settled().await;
    // One order is written, one is a dead letter, and one is unknown.
    for (order, status) in [("1001", 200), ("4001?voucherId=1", 200), ("999999999", 404)] {
        assert_eq!(get(&second, &format!("/orders/{order}")).await.status, status, "{order}");
    }
    assert_eq!(second.stop().await.code(), Some(0));
    let last = fixture.add_order(3_001, 3_001, 1).await;
    let _: Value = fixture.call(&format!("XREADGROUP GROUP {GROUP} gone COUNT 1 STREAMS {STREAM} >")).await;
    for (line, code) in [
        // One of the letters is no order.
        ("dead cancel --all --yes", 1),
        ("dead drop --all --yes", 0),
        ("pending list", 0),
        (&format!("pending show {last}"), 0),
        ("consumers drain gone --yes", 1),
        (&format!("pending bury {last} --why rights --yes"), 0),
        ("consumers list", 0),
        ("consumers drain gone --remove --yes", 0),
        ("order show 1001", 0),
        ("order wait 1001", 0),
        ("order wait 999999999 --for 0s", 1),
        ("order find --user 1001", 0),
        ("order find --voucher 1", 0),
        // Redis offers more of voucher 2 than MySQL has.
        ("audit", 1),
        ("audit --voucher 1", 0),
        ("log", 0),
    ] {
        operator.run(line).expect(code);
    }
    // All workers were stopped during the sale; the heartbeats of the killed ones expire a little later.
    let reader = program(&fixture, "tidegate-reader", "tidegate-reader");
    until("status says that no worker is alive", || async {
        let read = reader.run("status");
        read.code == 1 && read.stdout.contains("no worker is alive")
    })
    .await;
    // The keys of one sale are removed by a command, those of the other one by a worker.
    for line in [
        "voucher delist --voucher 3 --yes",
        "voucher delist --voucher 3 --remove-keys --yes",
        "voucher load --voucher 4 --stock 5 --yes",
        "voucher delist --voucher 4 --yes",
    ] {
        operator.run(line).expect(0);
    }
    let dead = operator.run("doctor").expect(1);
    assert!(dead.stdout.contains("no worker is alive"), "{dead:#?}");
    assert!(!dead.stdout.contains("not read"), "{dead:#?}");
    let plan = fixture.worker("w3").set("REDIS_URL", fixture.redis_url_of("tidegate-worker"));
    let plan = plan.set("MYSQL_URL", fixture.mysql_url_of("tidegate-worker"));
    let third = plan.set("RECONCILE_EVERY_S", 1).set("RECONCILE_REMOVE_DELISTED_AFTER_S", 0).start();
    third.says("removed the keys of a delisted voucher").await;
    assert_eq!(denied(&fixture).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_of_the_examples_webhooks_are_sent_counted_and_changed() {
    let fixture = open().await.migrated().await;
    let worker = worker_with_webhook(&fixture, "w");
    let operator = program(&fixture, "tidegate-operator", "tidegate-operator");
    let webhooks = fixture.webhooks(&[("shop", "http://localhost:9/")]);
    let type_with = |webhooks: &str, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        operator.run_with(&words, &[("TIDEGATE_WEBHOOKS", webhooks)])
    };
    let shown = || type_with(&webhooks, "webhooks --json").expect(0).stdout;
    until("the webhook has a group", || async { shown().contains("\"hasGroup\": true") }).await;
    let result = "orderId 1 state dead kind state step -1 entry 8-1 at 9";
    fixture.call(&format!("XADD stream.orders.results * {result}")).await;
    worker.says("the receiver of a webhook does not accept a result").await;
    until("the result is deleted and counted", || async { shown().contains("\"lost\": 1,") }).await;
    for line in [
        "webhooks",
        "webhooks --pause shop --yes",
        "webhooks --resume shop --yes",
        "webhooks --resend shop --from -1h --yes",
    ] {
        type_with(&webhooks, line).expect(0);
    }
    assert!(worker.stop().await.success());
    type_with("", "webhooks --remove shop --yes").expect(0);
    assert_eq!(denied(&fixture).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_of_the_examples_a_worker_keeps_the_calendar() {
    let fixture = open().await.migrated().await;
    let operator = program(&fixture, "tidegate-operator", "tidegate-operator");
    let run = async |sql: &'static str| fixture.pool.execute(sql).await.expect("MySQL does it");
    run("INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES \
         (7, 5, NOW() + INTERVAL 1 MINUTE, NOW() + INTERVAL 1 DAY)")
    .await;
    operator.run("limit set --voucher 7 --name mine --subject user --window sale --orders 2 --yes").expect(0);
    let plan = fixture.worker("w").set("REDIS_URL", fixture.redis_url_of("tidegate-worker"));
    let plan = plan.set("MYSQL_URL", fixture.mysql_url_of("tidegate-worker"));
    let worker = plan.set("CALENDAR_WARM_UP", "10m").set("CALENDAR_CARRY_WINDOWS", "yes").start();
    worker.says("loaded a voucher whose sale begins soon").await;
    assert_eq!(fixture.call("GET seckill:limited:7").await.as_string().as_deref(), Some("5"));
    run("UPDATE tb_seckill_voucher SET end_time = NOW() + INTERVAL 1 HOUR WHERE voucher_id = 7").await;
    worker.says("carried the changed window of a sale from MySQL to Redis").await;
    operator.run("voucher schedule --voucher 7 --no-end --yes").expect(0);
    assert!(worker.stop().await.success());
    assert_eq!(denied(&fixture).await, [""; 0]);
}

/// The documents and `tidegate order show` name these commands. `tests/documents` types the lines of the documents with
/// the same users.
#[tokio::test(flavor = "multi_thread")]
async fn who_admits_may_release_and_both_may_send_the_text_of_a_script() {
    let fixture = open().await.migrated().await;
    fixture.load(7, 100).await;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let types = |user: &str, script: &str, keys: &str, args: &str| {
        let mut command = std::process::Command::new("redis-cli");
        command.current_dir(root).args(["-u", &fixture.redis_url_of(user), "--eval", script]);
        command.args(keys.split(' ')).arg(",").args(args.split(' '));
        let output = command.output().expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    // The call ends with an empty argument, which means that there is no traceparent.
    let admit = "seckill:stock:7 seckill:order:7 seckill:voucher:7 seckill:journal:7 stream.orders";
    let release = "seckill:stock:7 seckill:order:7 seckill:journal:7";
    for (order, user) in [("1", "tidegate-producer"), ("2", "tidegate-operator")] {
        assert_eq!(types(user, "lua/admit.lua", admit, &format!("{order} {order} 7 1 ")), "0", "{user}");
        let released = format!("{order} {order} 1 1 service:cancelled");
        assert_eq!(types(user, "lua/release.lua", release, &released), "1", "{user}");
        let released = format!("1 service:cancelled {order} {order} 1");
        assert_eq!(types(user, "lua/release_many.lua", release, &released), "0", "{user}: was released");
    }
    assert_eq!(fixture.redis_stock(7).await, Some(100));
    assert_eq!(denied(&fixture).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_denies_is_named_and_holds_up_no_order_for_ever() {
    let fixture = open().await;
    tidegate_orders::schema::migrate(&fixture.pool).await.expect("the schema is made");
    fixture.open_sale().await;
    fixture.call("ACL SETUSER tidegate-worker -copy").await;
    let worker = worker(&fixture, "w");
    fixture.plain_rush(1_000, 20).await;
    worker.says("lock.lua: ").await;
    until("Redis says what it denied", || async { denied(&fixture).await == ["tidegate-worker: copy"] })
        .await;
    assert_eq!(fixture.orders().await.len(), 0);
    fixture.call("ACL SETUSER tidegate-worker +copy").await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 20);
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_sees_who_holds_a_row_and_ends_it() {
    let fixture = open().await;
    tidegate_orders::schema::migrate(&fixture.pool).await.expect("the schema is made");
    fixture.open_sale().await;
    let connect =
        async |user| MySqlPool::connect(&fixture.mysql_url_of(user)).await.expect("the user logs in");
    let (owner, operator) = (connect("tidegate-owner").await, connect("tidegate-operator").await);

    let mut holder = owner.begin().await.expect("a transaction");
    holder.execute("SELECT stock FROM tb_seckill_voucher FOR UPDATE").await.expect("the rows are locked");
    let seen = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_rows_locked > 0";
    let threads: Vec<u64> = sqlx::query_scalar(seen).fetch_all(&operator).await.expect("they are seen");
    assert_eq!(threads.len(), 1);
    operator.execute(AssertSqlSafe(format!("KILL {}", threads[0]))).await.expect("it is ended");
    holder.execute("SELECT 1").await.expect_err("its connection is gone");
}
