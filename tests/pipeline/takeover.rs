//! Tests of taking over a running shop of the tutorial: its tables, its script, and the entries that its consumer left
//! in the group.

use std::collections::{BTreeSet, HashMap};

use fred::{
    interfaces::{SetsInterface, StreamsInterface},
    types::Value,
};
use sqlx::Row;
use tidegate_lab::{Clock, MysqlServer, RedisServer};

use crate::fixture::{Fixture, GROUP, STREAM, durable_redis, stock_key, until};

/// The tutorial's two tables, with vouchers and orders as its service leaves them.
const TUTORIAL_SHOP: &str = concat!(
    include_str!("../tutorial/tables.sql"),
    "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES
      (10, 97, '2022-01-25 10:09:17', '2035-01-26 12:09:04'), (11, 5, '2022-01-25 10:09:17', '2035-01-26 12:09:04');
    INSERT INTO tb_voucher_order (id, user_id, voucher_id, pay_type, status, update_time) VALUES
      (9001, 1, 10, 2, 2, '2022-02-03 04:05:06'), (9002, 2, 10, 1, 4, '2022-02-03 04:05:06'),
      (9003, 3, 10, 1, 1, '2022-02-03 04:05:06');"
);

/// The tutorial's `seckill.lua`.
const TUTORIAL_SCRIPT: &str = "
-- 1.参数列表
-- 1.1.优惠券id
local voucherId = ARGV[1]
-- 1.2.用户id
local userId = ARGV[2]
-- 1.3.订单id
local orderId = ARGV[3]

-- 2.数据key
-- 2.1.库存key
local stockKey = 'seckill:stock:' .. voucherId
-- 2.2.订单key
local orderKey = 'seckill:order:' .. voucherId

-- 3.脚本业务
-- 3.1.判断库存是否充足 get stockKey
if(tonumber(redis.call('get', stockKey)) <= 0) then
    -- 3.2.库存不足，返回1
    return 1
end
-- 3.2.判断用户是否下单 SISMEMBER orderKey userId
if(redis.call('sismember', orderKey, userId) == 1) then
    -- 3.3.存在，说明是重复下单，返回2
    return 2
end
-- 3.4.扣库存 incrby stockKey -1
redis.call('incrby', stockKey, -1)
-- 3.5.下单（保存用户）sadd orderKey userId
redis.call('sadd', orderKey, userId)
-- 3.6.发送消息到队列中， XADD stream.orders * k1 v1 k2 v2 ...
redis.call('xadd', 'stream.orders', '*', 'userId', userId, 'voucherId', voucherId, 'id', orderId)
return 0
";

/// Sends an order through the tutorial's script, and returns the reply.
async fn tutorial_order(fixture: &Fixture, id: i64, user: i64, voucher: i64) -> i64 {
    let (id, user, voucher) = (id.to_string(), user.to_string(), voucher.to_string());
    let answer = fixture.redis_says(&["EVAL", TUTORIAL_SCRIPT, "0", &voucher, &user, &id]).await;
    answer.as_i64().expect("a number")
}

async fn buyers(fixture: &Fixture, voucher: i64) -> BTreeSet<i64> {
    fixture.client.smembers(format!("seckill:order:{voucher}")).await.expect("Redis answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_shop_of_the_tutorial_is_taken_over_with_everything_it_left_behind() {
    // The clock skips the hour for which a dead consumer is kept.
    let clock = Clock::start().expect("a clock");
    clock.set_ahead_by(-3_600).expect("the clock is set");
    let redis = durable_redis().clock(&clock).start().expect("a Redis");
    let fixture = Fixture::on(redis, MysqlServer::shared().expect("a database")).await;
    sqlx::raw_sql(TUTORIAL_SHOP).execute(&fixture.pool).await.expect("the tutorial's tables");
    fixture.redis_says(&["SET", &stock_key(10), "97"]).await;
    fixture.redis_says(&["SET", &stock_key(11), "7"]).await;
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]).await;

    // Redis lost its buyers once, so it admits user 1, who has paid, user 2, who has cancelled, and new users.
    for user in 1..=20 {
        if user != 3 {
            assert_eq!(tutorial_order(&fixture, 1000 + user, user, 10).await, 0);
        }
    }
    assert_eq!(tutorial_order(&fixture, 2001, 1, 10).await, 2);
    // The only consumer read some entries, wrote the first new order, and never acknowledged an entry.
    let taken = ["XREADGROUP", "GROUP", GROUP, "c1", "COUNT", "8", "STREAMS", STREAM, ">"];
    assert_ne!(fixture.redis_says(&taken).await, Value::Null);
    let written = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (1004, 4, 10);
                   UPDATE tb_seckill_voucher SET stock = stock - 1 WHERE voucher_id = 10";
    sqlx::raw_sql(written).execute(&fixture.pool).await.expect("its last order");

    let asked = fixture.tidegate(&["migrate"]);
    assert_eq!(asked.status.code(), Some(2), "there are tables, and no terminal to ask on: {asked:?}");
    let migrated = fixture.tidegate(&["migrate", "--yes"]);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    clock.set_ahead_by(0).expect("the clock is set");
    let (first, second) = (fixture.worker("a").start(), fixture.worker("b").start());
    // The sale continues meanwhile. Voucher 11 has more units in Redis than in MySQL.
    for user in 21..=40 {
        assert_eq!(tutorial_order(&fixture, 1000 + user, user, 10).await, 0);
    }
    for user in 1..=7 {
        assert_eq!(tutorial_order(&fixture, 3000 + user, user, 11).await, 0);
    }
    assert_eq!(tutorial_order(&fixture, 3008, 8, 11).await, 1);
    fixture.settled().await;

    let orders = fixture.orders().await;
    let of = |voucher: i64| orders.iter().filter(move |order| order.voucher == voucher);
    // 9001 to 9003 were there before. Of 1001 to 1040, the order of user 1 was refused, and user 3 did not order.
    let mut expected: BTreeSet<i64> = (1002..=1040).filter(|id| *id != 1003).collect();
    expected.extend([9001, 9002, 9003]);
    assert_eq!(of(10).map(|order| order.id).collect::<BTreeSet<_>>(), expected);
    assert!(orders.iter().all(|order| order.quantity == 1));
    assert_eq!(fixture.mysql_stock(10).await, 97 - 38);
    // The unit of user 1 is on sale again, and user 1 still counts as a buyer.
    assert_eq!(fixture.redis_stock(10).await, Some(97 - 38));
    assert_eq!(buyers(&fixture, 10).await, (1..=40).filter(|user| *user != 3).collect());
    assert!(fixture.journal(10).await["1001"].contains("user_has_order"));
    // MySQL had units for five orders of voucher 11; the two other users may order again.
    assert_eq!(
        (of(11).count(), fixture.mysql_stock(11).await, fixture.redis_stock(11).await),
        (5, 0, Some(0))
    );
    assert_eq!(buyers(&fixture, 11).await, of(11).map(|order| order.user).collect());
    assert!(fixture.dead().await.is_empty());

    let old = "SELECT CONCAT_WS(' ', id, pay_type, status, COALESCE(slot, 'none'), update_time) \
               FROM tb_voucher_order WHERE id > 9000 ORDER BY id";
    let old = sqlx::query(old).fetch_all(&fixture.pool).await.expect("MySQL answers");
    let old: Vec<String> = old.iter().map(|row| row.get(0)).collect();
    let expected = [
        "9001 2 2 1 2022-02-03 04:05:06",
        "9002 1 4 none 2022-02-03 04:05:06",
        "9003 1 1 1 2022-02-03 04:05:06",
    ];
    assert_eq!(old, expected, "old rows are as they were");
    // The consumer of the tutorial holds no entries, and is removed.
    until("the tutorial's consumer is removed", || async {
        let infos: Vec<HashMap<String, Value>> =
            fixture.client.xinfo_consumers(STREAM, GROUP).await.expect("Redis answers");
        infos.iter().all(|info| info["name"].as_str().as_deref() != Some("c1"))
    })
    .await;
    assert!(first.stop().await.success() && second.stop().await.success());

    // The tutorial's own insert still works, so that its consumer may run on for a while beside ours.
    let by_tutorial = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (9999, 99, 10)";
    sqlx::query(by_tutorial).execute(&fixture.pool).await.expect("no column of ours is in its way");
}

const NAMES: [&str; 6] =
    ["--set", "fields.user=user_id", "--set", "fields.voucher=voucher_id", "--set", "fields.id=order_id"];

async fn add_in_snake_case(fixture: &Fixture, id: i64, more: &[(&str, &str)]) {
    let (user, id) = ((1_000 + id).to_string(), id.to_string());
    fixture.add(&[&[("user_id", &*user), ("voucher_id", "1"), ("order_id", &*id)], more].concat()).await;
    fixture.redis_says(&["DECR", &stock_key(1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_under_other_names_are_written_once_the_names_are_configured() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    add_in_snake_case(&fixture, 1, &[]).await;
    let doctor = String::from_utf8(fixture.tidegate(&["doctor"]).stdout).expect("text");
    let what_to_set = "fields.user = \"user_id\", fields.voucher = \"voucher_id\", fields.id = \"order_id\"";
    assert!(
        doctor.contains("of the newest 1 entry of the stream, 1 has field names that differ"),
        "{doctor}"
    );
    assert!(doctor.contains(what_to_set), "{doctor}");
    let worker = fixture.worker("w").start();
    worker.says("entry buried").await;
    assert!(worker.log().replace("\\\"", "\"").contains(what_to_set), "{}", worker.log());
    assert!(worker.stop().await.success());

    // With the names, the buried entry is requeued. Other orders follow, also with the gate's own names, and an event,
    // which is no order.
    let tidegate = |args: &[&str]| {
        let output = fixture.tidegate(&[&NAMES[..], args].concat());
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    tidegate(&["dead", "requeue", "--reason", "missing_field", "--yes"]);
    add_in_snake_case(&fixture, 2, &[("count", "3")]).await;
    fixture.admit(3, 1_003, 1, 2).await;
    let plan = fixture.worker("w").set("FIELDS_USER", "user_id").set("FIELDS_VOUCHER", "voucher_id");
    let worker = plan.set("FIELDS_ID", "order_id").start();
    fixture.settled().await;
    let written: Vec<_> =
        fixture.orders().await.iter().map(|order| (order.id, order.user, order.quantity)).collect();
    assert_eq!(written, [(1, 1_001, 1), (2, 1_002, 1), (3, 1_003, 2)]);
    // The judge reads no other names, and the producer has taken two units by itself.
    fixture.judge_except(&["6 left in Redis, and 8 by its journal", "is neither order nor event"]).await;
    add_in_snake_case(&fixture, 4, &[("event", "paid")]).await;
    fixture.redis_says(&["INCR", &stock_key(1)]).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let letter = &fixture.dead().await[0];
    let why = "the field orderId is missing";
    assert_eq!(
        (letter["dead:reason"].as_str(), letter["dead:error"].as_str()),
        ("missing_field", why),
        "an event has its own names"
    );
    assert_eq!(fixture.orders().await.len(), 3);

    // The commands that read use the same names as the worker.
    add_in_snake_case(&fixture, 5, &[]).await;
    assert!(tidegate(&["order", "show", "2"]).contains("user 1002"), "{}", tidegate(&["order", "show", "2"]));
    let found = tidegate(&["order", "find", "--user", "1005", "--json"]);
    assert!(found.contains("undelivered") && found.contains("\"5\""), "{found}");
    assert_eq!(tidegate(&["export", "--from", "-1h", "--to", "-0s", "--user", "1002"]).lines().count(), 1);
    let replayed = tidegate(&["replay", "--from", "-1h", "--to", "-0s", "--user", "1002", "--yes"]);
    assert!(replayed.contains("already there"), "{replayed}");
}

/// Rows as the commonest dump of the tutorial leaves them: unset times are zeros.
const ZEROS: &str = "SET SESSION sql_mode = '';
    ALTER TABLE tb_seckill_voucher ALTER COLUMN begin_time SET DEFAULT '0000-00-00 00:00:00',
        ALTER COLUMN end_time SET DEFAULT '0000-00-00 00:00:00';
    ALTER TABLE tb_voucher_order MODIFY COLUMN pay_time TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00';
    INSERT INTO tb_seckill_voucher (voucher_id, stock) VALUES (12, 5);
    SET SESSION sql_mode = DEFAULT;";

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_with_zeros_for_moments_is_taken_over_on_a_server_that_takes_none() {
    let redis = RedisServer::options().args(["--appendfsync", "always"]).start().expect("a Redis");
    let mysql = MysqlServer::options().args(["--sql-mode=TRADITIONAL"]).start().expect("a MySQL");
    let fixture = Fixture::on(redis, mysql).await;
    sqlx::raw_sql(TUTORIAL_SHOP).execute(&fixture.pool).await.expect("the tutorial's tables");
    sqlx::raw_sql(ZEROS).execute(&fixture.pool).await.expect("its zeros");
    let migrated = fixture.tidegate(&["migrate", "--yes"]);
    assert!(migrated.status.success(), "{migrated:?}");
    let loaded = fixture.tidegate(&["voucher", "load", "--voucher", "13", "--stock", "5"]);
    assert!(loaded.status.success(), "{loaded:?}");
    let worker = fixture.worker("w").start();
    fixture.add_order(1001, 1, 12).await;
    fixture.add_order(1002, 2, 13).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    assert!(fixture.dead().await.is_empty(), "{:?}", fixture.dead().await);
    assert_eq!((fixture.mysql_stock(12).await, fixture.mysql_stock(13).await), (4, 4));
}
