//! Tests of the tutorial's defects (its consumer loses orders in twelve ways): each is absent.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fred::{
    interfaces::{KeysInterface, SetsInterface, StreamsInterface},
    types::Value,
};
use jiff::Timestamp;
use sqlx::AssertSqlSafe;
use tidegate_lab::Proxy;
use tidegate_orders::{
    KeyTemplates, OrderIdAllocator, Quantity, RedisStore,
    scripts::{Admission, AdmitReply, SaleWindow},
};
use tokio::time::sleep;

use crate::fixture::{DEAD, Fixture, GROUP, STREAM, redis_pool, stock_key, until};

/// The end of a transaction. The leading `;` excludes `READ COMMITTED`.
const COMMIT: &[u8] = b";COMMIT";
/// The first order id that a double cannot hold.
const BEYOND_DOUBLES: i64 = (1 << 53) + 1;

fn admission(order: i64, user: i64, voucher: i64) -> Admission {
    Admission {
        order: order.try_into().expect("an order id"),
        user: user.try_into().expect("a user id"),
        voucher: voucher.try_into().expect("a voucher id"),
        quantity: Quantity::ONE,
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

async fn admit(store: &RedisStore, order: i64, user: i64, voucher: i64) -> AdmitReply {
    store.admissions().admit(&admission(order, user, voucher)).await.expect("the store answers")
}

async fn buyers(fixture: &Fixture, voucher: i64) -> BTreeSet<i64> {
    fixture.client.smembers(format!("seckill:order:{voucher}")).await.expect("Redis answers")
}

/// The number of commands that Redis has executed.
async fn commands(fixture: &Fixture) -> u64 {
    let stats = fixture.redis_says(&["INFO", "stats"]).await.as_string().expect("a text");
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.expect("a count").parse().expect("a number")
}

/// The commands per second, measured for about two seconds.
async fn commands_per_second(fixture: &Fixture) -> f64 {
    let (before, begun) = (commands(fixture).await, Instant::now());
    sleep(Duration::from_secs(2)).await;
    (commands(fixture).await - before) as f64 / begun.elapsed().as_secs_f64()
}

/// The number of pending entries.
async fn pending(fixture: &Fixture) -> u64 {
    let summary = fixture.redis_says(&["XPENDING", STREAM, GROUP]).await;
    summary.into_array().first().and_then(Value::as_u64).expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_acknowledged_on_the_stream_it_came_from() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    for user in 1..=10 {
        fixture.add_order(100 + user, user, 1).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 10);
    assert!(worker.stop().await.success());
    assert_eq!(pending(&fixture).await, 0);

    // No entry is handled a second time, neither from the pending list nor as a new one.
    let mut again = fixture.worker("w").start();
    fixture.add_order(200, 11, 1).await;
    fixture.settled().await;
    again.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(again.ended().await.success());
    let log = again.log();
    assert!(log.contains("created=1 ") && log.contains("already_there=0 "), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_user_is_locked_by_another_waits_and_holds_up_nobody() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let lock = "lock:order:7";
    fixture.redis_says(&["SET", lock, "another", "PX", "3600000"]).await;
    for user in 1..=20 {
        fixture.add_order(100 + user, user, 1).await;
    }
    let _worker = fixture.worker("w").start();
    until("all but the locked user's order are settled", || async {
        fixture.open_entries().await == Some(1)
    })
    .await;
    // Later orders are not delayed either.
    for user in 21..=40 {
        fixture.add_order(100 + user, user, 1).await;
    }
    until("later orders are written", || async { fixture.orders().await.len() == 39 }).await;
    assert!(fixture.orders().await.iter().all(|order| order.user != 7), "written under another's lock");
    until("only the locked one waits", || async { fixture.open_entries().await == Some(1) }).await;
    assert_eq!(pending(&fixture).await, 1, "not got is not done");
    assert_eq!(fixture.client.get::<String, _>(lock).await.unwrap(), "another");

    fixture.redis_says(&["PEXPIRE", lock, "300"]).await;
    fixture.settled().await;
    assert!(fixture.orders().await.iter().any(|order| (order.id, order.user) == (107, 7)));
    assert_eq!(fixture.mysql_stock(1).await, 60);
    assert!(fixture.dead().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_mysql_refuses_gives_its_unit_back_once_before_it_is_acknowledged() {
    let fixture = Fixture::open().await;
    fixture.load(1, 2).await;
    fixture.redis_says(&["SET", &stock_key(1), "10"]).await;
    let row = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (900, 9, 1)";
    sqlx::query(row).execute(&fixture.pool).await.expect("an order that Redis knows nothing of");
    let store = fixture.store().await;
    for user in [1, 2, 3, 4, 9] {
        assert_eq!(admit(&store, 100 + user, user, 1).await, AdmitReply::Admitted);
    }

    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let ack = proxy.hold_when("XACK");
    let worker =
        fixture.worker("w").set("REDIS_URL", proxy.url_for(&fixture.redis)).set("WORKER_LANES", 1).start();
    ack.reached().await.expect("the batch is about to be acknowledged");
    // User 9 has an order, so its unit is on sale again. The stock in MySQL was empty for users 3 and 4: MySQL decides,
    // so no unit is added in Redis, and both may order again.
    assert_eq!((fixture.redis_stock(1).await, fixture.mysql_stock(1).await), (Some(6), 0));
    assert_eq!(buyers(&fixture, 1).await, BTreeSet::from([1, 2, 9]));
    let journal = fixture.journal(1).await;
    for id in ["103", "104", "109"] {
        assert!(journal[id].contains(r#""action":"release""#), "{}", journal[id]);
    }
    assert_eq!(pending(&fixture).await, 5, "released first, acknowledged afterwards");
    ack.release();
    fixture.settled().await;
    assert_eq!(fixture.orders().await.iter().map(|order| order.id).collect::<Vec<_>>(), [101, 102, 900]);

    // User 3 orders again, without success and without harm.
    assert_eq!(admit(&store, 203, 3, 1).await, AdmitReply::Admitted);
    fixture.settled().await;
    assert_eq!(
        (fixture.redis_stock(1).await, buyers(&fixture, 1).await),
        (Some(5), BTreeSet::from([1, 2, 9]))
    );
    // The refused entries come again, after user 4 was admitted once more: nothing is released a second time.
    fixture.redis_says(&["SADD", "seckill:order:1", "4"]).await;
    for user in [3, 4, 9] {
        fixture.add_order(100 + user, user, 1).await;
    }
    fixture.settled().await;
    assert_eq!(
        (fixture.redis_stock(1).await, buyers(&fixture, 1).await),
        (Some(5), BTreeSet::from([1, 2, 4, 9]))
    );
    assert!(fixture.dead().await.is_empty());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_stays_locked_until_the_commit_and_anothers_lock_is_left_alone() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let worker = fixture.worker("w").set("MYSQL_URL", proxy.url_for(&fixture.mysql));
    let _worker = worker.set("WORKER_LOCK_LEASE_MS", 600).set("WORKER_LANES", 1).start();

    let commit = proxy.hold_when(COMMIT);
    fixture.add_order(101, 1, 1).await;
    commit.reached().await.expect("a commit is on its way");
    let holder: String = fixture.client.get("lock:order:1").await.expect("locked");
    assert!(holder.starts_with("tidegate-"), "{holder}");
    // However long the commit takes: the lease is renewed.
    let left = || async { fixture.client.pttl::<i64, _>("lock:order:1").await.expect("Redis answers") };
    let before = Cell::new(left().await);
    until("the lease is longer than it was", || async { left().await > before.replace(left().await) }).await;
    assert_eq!(fixture.client.get::<String, _>("lock:order:1").await.unwrap(), holder);
    assert!(fixture.orders().await.is_empty());
    commit.release();
    fixture.settled().await;
    until("it is unlocked", || async {
        fixture.client.get::<Option<String>, _>("lock:order:1").await.unwrap().is_none()
    })
    .await;

    // Another process takes the lock before the unlock.
    let commit = proxy.hold_when(COMMIT);
    fixture.add_order(102, 2, 1).await;
    commit.reached().await.expect("a commit is on its way");
    fixture.redis_says(&["SET", "lock:order:2", "another"]).await;
    commit.release();
    // When another batch is settled, the unlock of this one is over.
    fixture.settled().await;
    fixture.add_order(103, 3, 1).await;
    fixture.settled().await;
    assert_eq!(fixture.client.get::<String, _>("lock:order:2").await.unwrap(), "another");
    assert_eq!(fixture.orders().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_entry_is_buried_or_waits_without_a_hot_loop_and_new_orders_go_on() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let worker = fixture.worker("w").set("WORKER_BLOCK_MS", 1000).set("WORKER_CLAIM_EVERY_MS", 1000);
    let _worker = worker.start();
    fixture.add_order(101, 1, 1).await;
    let poison = fixture.add(&[("userId", "abc"), ("voucherId", "1"), ("id", "102")]).await;
    fixture.add_order(103, 3, 1).await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.iter().map(|order| order.id).collect::<Vec<_>>(), [101, 103]);
    let dead = fixture.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0]["dead:entry"], dead[0]["dead:deliveries"].as_str()), (&poison, "1"));

    // The entry cannot even be buried, so it is set aside, tried less and less often, and handled alone.
    fixture.redis_says(&["SET", DEAD, "no stream"]).await;
    fixture.add(&[("userId", "abc"), ("voucherId", "1"), ("id", "104")]).await;
    fixture.add_order(105, 5, 1).await;
    until("the order behind it is written", || async { fixture.orders().await.len() == 3 }).await;
    until("only the poison is left", || async { fixture.open_entries().await == Some(1) }).await;
    let rate = commands_per_second(&fixture).await;
    // The rate includes commands within scripts.
    assert!(rate < 100.0, "{rate} commands a second for nothing");
    fixture.redis_says(&["DEL", DEAD]).await;
    fixture.settled().await;
    assert_eq!(fixture.dead().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_back_begins_with_what_it_had_in_progress_and_no_two_have_one_name() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let proxy = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    // No entry is claimed in this test, because claiming would rescue the entries, too.
    let plan = |name: &str| fixture.worker(name).set("WORKER_CLAIM_IDLE_MS", 600_000).set("WORKER_LANES", 2);
    let commit = proxy.hold_when(COMMIT);
    for user in 1..=10 {
        fixture.add_order(100 + user, user, 1).await;
    }
    let first = plan("w").set("MYSQL_URL", proxy.url_for(&fixture.mysql)).start();
    commit.reached().await.expect("a batch is in progress");
    first.kill9();
    assert!(fixture.orders().await.is_empty());
    assert!(pending(&fixture).await > 0);

    let again = plan("w").start();
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 10);

    let mut twin = plan("w").start();
    assert_eq!(twin.ended().await.code(), Some(5), "{}", twin.log());
    assert!(twin.log().contains("another live worker is named \"w\""), "{}", twin.log());
    let other = plan("v").start();
    other.says("worker started").await;
    let consumers = || async {
        let infos: Vec<std::collections::HashMap<String, Value>> =
            fixture.client.xinfo_consumers(STREAM, GROUP).await.expect("Redis answers");
        infos.iter().filter_map(|info| info["name"].as_string()).collect::<BTreeSet<_>>()
    };
    let expected: BTreeSet<String> = ["v-0", "v-1", "w-0", "w-1"].map(str::to_owned).into();
    until("every lane of each is a consumer of its own", || async { consumers().await == expected }).await;
    assert!(again.stop().await.success() && other.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_itself_refuses_a_second_order_even_when_no_lock_keeps_workers_apart() {
    let fixture = Fixture::open().await;
    fixture.load(1, 1000).await;
    let mut entries: Vec<(i64, i64)> =
        (1..=3).flat_map(|nth| (1..=100).map(move |user| (nth * 1000 + user, user))).collect();
    // Some orders of one user are far apart, and others close together.
    entries[150..].sort_by_key(|(id, user)| (*user, *id));
    // The three workers lock under three different names, so their locks do not exclude each other.
    let workers: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let plan = fixture.worker(name).set("KEYS_LOCK", format!("{name}:<user>"));
            plan.set("WORKER_BATCH", 7).set("WORKER_LANES", 2).start()
        })
        .into();
    for (id, user) in &entries {
        fixture.add_order(*id, *user, 1).await;
    }
    fixture.settled().await;
    let orders = fixture.orders().await;
    assert_eq!(orders.len(), 100);
    assert_eq!(orders.iter().map(|order| order.user).collect::<BTreeSet<_>>().len(), 100);
    assert_eq!(fixture.mysql_stock(1).await, 900);
    // 200 units of users who had an order were released, each once.
    assert_eq!(fixture.redis_stock(1).await, Some(1200));
    drop(workers);

    let by_hand = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (1, 1, 1)";
    let error = sqlx::query(by_hand).execute(&fixture.pool).await.expect_err("the unique key stands");
    assert!(error.as_database_error().is_some_and(|error| error.is_unique_violation()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stock_is_an_answer_and_every_key_comes_from_the_configuration() {
    let fixture = Fixture::open().await;
    let templates = KeyTemplates {
        stock: "hm_dianping:{s}:stock:<voucher>".into(),
        buyers: "hm_dianping:{s}:buyers:<voucher>".into(),
        voucher: "hm_dianping:{s}:voucher:<voucher>".into(),
        journal: "hm_dianping:{s}:journal:<voucher>".into(),
        lock: "hm_dianping:{s}:lock:<user>".into(),
        order_id: "hm_dianping:{s}:icr:<day>".into(),
        ..KeyTemplates::default()
    };
    let (stream, dead) = ("hm_dianping:{s}:orders", "hm_dianping:{s}:dead");
    let store = fixture.store_with(templates.clone(), stream).await;
    assert_eq!(admit(&store, 100, 1, 1).await, AdmitReply::NoStock);
    assert_eq!(fixture.redis_says(&["DBSIZE"]).await, Value::Integer(0), "a refusal leaves no trace");

    fixture.load(1, 2).await;
    fixture.redis_says(&["DEL", &stock_key(1)]).await;
    store.sales().load(1.try_into().unwrap(), 3, SaleWindow::default()).await.expect("loaded");
    for user in 1..=3 {
        assert_eq!(admit(&store, 100 + user, user, 1).await, AdmitReply::Admitted);
    }
    assert_eq!(admit(&store, 104, 4, 1).await, AdmitReply::SoldOut);
    fixture.redis_says(&["XADD", stream, "*", "userId", "nobody"]).await;
    let templates_by_name = [
        ("KEYS_STOCK", &templates.stock),
        ("KEYS_BUYERS", &templates.buyers),
        ("KEYS_VOUCHER", &templates.voucher),
        ("KEYS_JOURNAL", &templates.journal),
        ("KEYS_LOCK", &templates.lock),
        ("KEYS_ORDER_ID", &templates.order_id),
    ];
    let plan = fixture
        .worker("w")
        .set("STREAM_NAME", stream)
        .set("STREAM_DEAD", dead)
        .set("STREAM_RESULTS", "hm_dianping:{s}:results");
    let _worker =
        templates_by_name.iter().fold(plan, |plan, (name, template)| plan.set(name, template)).start();
    let ids = OrderIdAllocator::new(store, 10.try_into().expect("a size"));
    ids.next().await.expect("an order id");
    // One order is written and one is buried. The third finds no unit in MySQL and is released.
    until("all are settled", || async {
        if fixture.redis_says(&["XLEN", dead]).await != Value::Integer(1) {
            return false;
        }
        let summary = fixture.redis_says(&["XPENDING", stream, GROUP]).await.into_array();
        fixture.orders().await.len() == 2 && summary.first() == Some(&Value::Integer(0))
    })
    .await;
    let stock = "hm_dianping:{s}:stock:1";
    assert_eq!(fixture.client.get::<i64, _>(stock).await.unwrap(), 0);
    let keys: Vec<String> = fixture.redis_says(&["KEYS", "*"]).await.convert().expect("names");
    assert!(keys.len() >= 6, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("hm_dianping:{s}:")), "{keys:?}");
}

/// The last part of the ninth defect.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_is_trimmed_but_never_of_what_is_unread_or_pending() {
    let fixture = Fixture::open().await;
    fixture.load(1, 1000).await;
    for at in 1..=1000 {
        fixture.add_order(at, at, 1).await;
    }
    // The last order is set aside, because another service has locked its user.
    fixture.redis_says(&["SET", "lock:order:1000", "another's token"]).await;
    let plan = fixture.worker("w").set("STREAM_RETENTION_MS", 1).set("WORKER_CLAIM_EVERY_MS", 10);
    let worker = plan.start();
    let length = || async { fixture.client.xlen::<usize, _>(STREAM).await.expect("Redis answers") };
    until("the stream is trimmed", || async { length().await <= 100 }).await;
    worker.says("deleted entries that are older than stream.retention_ms").await;
    assert_eq!(pending(&fixture).await, 1, "what waits is still there");
    fixture.redis_says(&["DEL", "lock:order:1000"]).await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 1000);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_makes_stream_and_group_itself_and_backs_off_while_they_cannot_be_read() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let plan = || fixture.worker("w").set("WORKER_BLOCK_MS", 1000).set("WORKER_CLAIM_EVERY_MS", 1000);
    let worker = plan().start();
    until("there are a stream and a group", || async { fixture.open_entries().await == Some(0) }).await;
    fixture.add_order(101, 1, 1).await;
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 1);

    // A key of another type is in the place of the stream: the worker waits and logs no more.
    fixture.redis_says(&["SET", STREAM, "no stream"]).await;
    worker.says("outage began").await;
    let rate = commands_per_second(&fixture).await;
    assert!(rate < 40.0, "{rate} commands a second for nothing");
    fixture.redis_says(&["DEL", STREAM]).await;
    fixture.add_order(102, 2, 1).await;
    until("the new stream is read", || async { fixture.orders().await.len() == 2 }).await;
    assert!(
        worker.log().lines().filter(|line| line.contains("outage began")).count() < 5,
        "{}",
        worker.log()
    );
    assert!(worker.stop().await.success());

    // Entries that are older than the group are not skipped.
    fixture.redis_says(&["XGROUP", "DESTROY", STREAM, GROUP]).await;
    fixture.add_order(103, 3, 1).await;
    let _worker = plan().start();
    fixture.settled().await;
    assert_eq!(fixture.orders().await.iter().map(|order| order.id).collect::<Vec<_>>(), [101, 102, 103]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_a_lost_reply_says_admitted_and_takes_nothing_twice() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    let store = fixture.store().await;
    assert_eq!(admit(&store, 101, 1, 1).await, AdmitReply::Admitted);
    assert_eq!(admit(&store, 101, 1, 1).await, AdmitReply::AdmittedBefore);
    assert_eq!(admit(&store, 102, 1, 1).await, AdmitReply::UserHasOrder, "another order of the same user");

    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let pool = redis_pool(&proxy.url_for(&fixture.redis)).await;
    let far_gate = RedisStore::with_default_names(pool, KeyTemplates::default());
    let reply = proxy.drop_next_reply("EVALSHA");
    let answer = match far_gate.admissions().admit(&admission(103, 3, 1)).await {
        Ok(answer) => answer,
        Err(_) => admit(&far_gate, 103, 3, 1).await,
    };
    reply.reached().await.expect("the first reply was lost");
    assert_eq!(answer, AdmitReply::AdmittedBefore);
    assert_eq!(fixture.redis_stock(1).await, Some(8));
    assert_eq!(fixture.redis_says(&["XLEN", STREAM]).await, Value::Integer(2));

    // The answer stays the same when the units are sold, the sale is over, and the order is written.
    let _worker = fixture.worker("w").start();
    fixture.settled().await;
    fixture.redis_says(&["SET", &stock_key(1), "0"]).await;
    assert_eq!(admit(&store, 103, 3, 1).await, AdmitReply::AdmittedBefore);
    assert_eq!(admit(&store, 104, 4, 1).await, AdmitReply::SoldOut);
    assert_eq!(fixture.orders().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sale_window_is_the_scripts_own_check_by_the_clock_of_redis() {
    let fixture = Fixture::open().await;
    let store = fixture.store().await;
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let at = |ms: i64| Some(Timestamp::from_millisecond(now_ms + ms).expect("a moment"));
    let windows = [
        (1, SaleWindow { begin: at(3_600_000), end: None }, AdmitReply::NotBegun),
        (2, SaleWindow { begin: None, end: at(-1) }, AdmitReply::Over),
        (3, SaleWindow { begin: at(-3_600_000), end: at(3_600_000) }, AdmitReply::Admitted),
        (4, SaleWindow::default(), AdmitReply::Admitted),
        (5, SaleWindow { begin: at(1_500), end: None }, AdmitReply::NotBegun),
    ];
    for (voucher, window, expected) in windows {
        store.sales().load(voucher.try_into().unwrap(), 10, window).await.expect("loaded");
        assert_eq!(admit(&store, 100 + voucher, 1, voucher).await, expected, "voucher {voucher}");
    }
    assert_eq!(fixture.redis_stock(1).await, Some(10));
    assert_eq!(fixture.redis_says(&["XLEN", STREAM]).await, Value::Integer(2));
    // The sale begins by itself, and not before its time: the ids of entries are of the same clock.
    until("the sale has begun", || async { admit(&store, 105, 1, 5).await == AdmitReply::Admitted }).await;
    let entries: Vec<(String, Vec<(String, String)>)> =
        fixture.client.xrevrange(STREAM, "+", "-", Some(1)).await.expect("Redis answers");
    let admitted_ms: i64 =
        entries[0].0.split_once('-').expect("an entry id").0.parse().expect("milliseconds");
    assert!(admitted_ms >= now_ms + 1_500, "{} ms too soon", now_ms + 1_500 - admitted_ms);
    // The sale ends, too.
    fixture.redis_says(&["HSET", "seckill:voucher:5", "end_ms", &now_ms.to_string()]).await;
    assert_eq!(admit(&store, 205, 2, 5).await, AdmitReply::Over);
    assert_eq!(fixture.redis_stock(5).await, Some(9));
}

/// The numbers of a JSON document that a double cannot hold.
fn broken_numbers(json: &serde_json::Value) -> Vec<String> {
    match json {
        serde_json::Value::Number(number) if number.as_i64().is_none_or(|n| n.abs() >= 1 << 53) => {
            if number.is_f64() { Vec::new() } else { vec![number.to_string()] }
        }
        serde_json::Value::Array(items) => items.iter().flat_map(broken_numbers).collect(),
        serde_json::Value::Object(fields) => fields.values().flat_map(broken_numbers).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_beyond_2_to_the_53_stay_exact_everywhere_and_are_never_negative() {
    let fixture = Fixture::open().await;
    let ids = [BEYOND_DOUBLES, BEYOND_DOUBLES + 2, i64::MAX - 1, i64::MAX];
    let store = fixture.store().await;
    for voucher in ids {
        fixture.load(voucher, 10).await;
        for id in ids {
            // The order id of one is the user id of another; all of them differ by less than a double can tell.
            let order = id - (voucher % 1000) * 10 - 5_000_000;
            assert_eq!(admit(&store, order, id, voucher).await, AdmitReply::Admitted);
        }
        // Two of MySQL's units are taken by another program, so that there are refusals and dead letters, too.
        let sql = format!("UPDATE tb_seckill_voucher SET stock = 3 WHERE voucher_id = {voucher}");
        sqlx::query(AssertSqlSafe(sql)).execute(&fixture.pool).await.expect("MySQL answers");
    }
    let worker = fixture.worker("w").set("WORKER_LANES", 1).start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let orders = fixture.orders().await;
    assert_eq!(orders.len(), 12);
    for order in &orders {
        assert_eq!(order.id, order.user - (order.voucher % 1000) * 10 - 5_000_000, "{order:?}");
        assert!(ids.contains(&order.user) && ids.contains(&order.voucher), "{order:?}");
    }
    for voucher in ids {
        // The last order of each voucher was refused, because MySQL had three units.
        let refused = i64::MAX - (voucher % 1000) * 10 - 5_000_000;
        let journal = fixture.journal(voucher).await;
        assert!(journal[&refused.to_string()].contains(r#""action":"release""#), "{journal:?}");
        assert!(
            journal.values().all(|entry| broken_numbers(&serde_json::from_str(entry).unwrap()).is_empty())
        );
        let members: BTreeSet<String> =
            fixture.client.smembers(format!("seckill:order:{voucher}")).await.expect("Redis answers");
        assert_eq!(members, ids[..3].iter().map(i64::to_string).collect());
    }

    let voucher = BEYOND_DOUBLES.to_string();
    for args in [
        &["status", "--json"][..],
        &["voucher", "show", "--voucher", &voucher, "--json"],
        &["audit", "--json"],
    ] {
        let output = fixture.tidegate(args);
        let stdout = String::from_utf8(output.stdout).expect("a text");
        let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert!(stdout.contains(&format!("\"{voucher}\"")), "{args:?}: {stdout}");
        assert_eq!(broken_numbers(&json), [""; 0], "{args:?}");
    }

    let allocator = OrderIdAllocator::new(fixture.store().await, 7.try_into().unwrap());
    let mut last = 0;
    for _ in 0..100 {
        let id = allocator.next().await.expect("an order id").get();
        assert!(id > last, "{id} after {last}");
        last = id;
    }
}
