//! Tests of events after orders were placed: they are entries of the same stream, and are recorded once, in its
//! sequence.

use fred::interfaces::{LuaInterface, SetsInterface};
use fred::types::Value;
use sqlx::{AssertSqlSafe, Row};
use tidegate_lab::{Endpoint, Hold};

use crate::{
    faults::proxies::{ACK, CHECKED_COMMIT, Proxies, quick, sha1_of},
    fixture::{DEADLINE, Fixture, GROUP, STREAM, Worker, until, until_within},
};

/// Adds an event of an order of voucher 1. Its user has the id of the order.
pub async fn add_event(fixture: &Fixture, event: &str, order: i64, more: &[(&str, &str)]) -> String {
    add_event_of(fixture, event, (order, order, 1), more).await
}

async fn add_event_of(
    fixture: &Fixture,
    event: &str,
    (order, user, voucher): (i64, i64, i64),
    more: &[(&str, &str)],
) -> String {
    let (order, user, voucher) = (order.to_string(), user.to_string(), voucher.to_string());
    let fields = [("event", event), ("orderId", &order), ("userId", &user), ("voucherId", &voucher)];
    fixture.add(&[&fields, more].concat()).await
}

/// The events of an order in their sequence: kind, outcome, released units.
pub async fn recorded(fixture: &Fixture, order: i64) -> Vec<String> {
    let sql = "SELECT CONCAT_WS(' ', event, outcome, released) FROM tidegate_event WHERE order_id = ? ORDER BY step";
    sqlx::query_scalar(sql).bind(order).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

/// Status and slot of an order's row, such as `2 held` or `4 free`.
pub async fn state(fixture: &Fixture, order: i64) -> Option<String> {
    let sql = "SELECT CONCAT(status, IF(slot IS NULL, ' free', ' held')) FROM tb_voucher_order WHERE id = ?";
    sqlx::query_scalar(sql).bind(order).fetch_optional(&fixture.pool).await.expect("MySQL answers")
}

async fn states<const N: usize>(fixture: &Fixture, orders: [i64; N]) -> Vec<String> {
    let mut states = Vec::new();
    for order in orders {
        states.push(state(fixture, order).await.unwrap_or_else(|| "none".to_owned()));
    }
    states
}

async fn stocks(fixture: &Fixture, voucher: i64) -> (i64, Option<i64>) {
    (fixture.mysql_stock(voucher).await, fixture.redis_stock(voucher).await)
}

async fn is_buyer(fixture: &Fixture, user: i64) -> bool {
    fixture.client.sismember("seckill:order:1", user.to_string()).await.expect("Redis answers")
}

pub async fn sql(fixture: &Fixture, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&fixture.pool).await.expect("MySQL answers");
}

/// Checks that both sides are right, and that no entry was buried.
async fn all_is_well(fixture: &Fixture) {
    assert_eq!(fixture.dead().await, [], "nothing is buried");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_move_orders_along_and_what_ends_one_frees_its_units_and_its_user_once() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    let worker = fixture.worker("w").start();
    for order in 1..=5 {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.admit(6, 6, 1, 3).await;
    fixture.settled().await;
    assert_eq!(stocks(&fixture, 1).await, (12, Some(12)));
    // Each event comes twice, as from a sender that retries.
    for _ in 0..2 {
        for (order, event) in [
            (1, "paid"),
            (1, "used"),
            (2, "cancelled"),
            (3, "paid"),
            (3, "refunding"),
            (3, "refunded"),
            (4, "paid"),
            (4, "refunding"),
            (4, "refund_failed"),
            (6, "cancelled"),
        ] {
            add_event(&fixture, event, order, &[("ref", &format!("{event}-{order}"))]).await;
        }
    }
    fixture.settled().await;
    let expected = ["3 held", "4 free", "6 free", "2 held", "1 held", "4 free"];
    assert_eq!(states(&fixture, [1, 2, 3, 4, 5, 6]).await, expected);
    // The cancelled orders return 1 and 3 units, and the refunded order returns 1.
    assert_eq!(stocks(&fixture, 1).await, (17, Some(17)));
    assert_eq!(recorded(&fixture, 6).await, ["cancelled applied 3", "cancelled unchanged 0"]);
    for (user, expected) in [(1, true), (2, false), (3, false), (4, true), (5, true), (6, false)] {
        assert_eq!(is_buyer(&fixture, user).await, expected, "user {user}");
    }
    // The user orders again. A late event of the old order does not change the new one.
    fixture.admit(102, 2, 1, 1).await;
    add_event(&fixture, "cancelled", 2, &[]).await;
    fixture.settled().await;
    assert_eq!(states(&fixture, [2, 102]).await, ["4 free", "1 held"]);
    assert_eq!(stocks(&fixture, 1).await, (16, Some(16)));
    assert!(is_buyer(&fixture, 2).await);
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_has_a_home_whatever_became_of_its_order() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    // Redis offers a unit that MySQL does not have: the last order is refused.
    fixture.load(3, 1).await;
    fixture.restock_redis(3, 1).await;
    for order in [1, 2, 3, 4] {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.admit(31, 31, 3, 1).await;
    fixture.admit(32, 32, 3, 1).await;
    let unknown_voucher = fixture.add(&[("userId", "9"), ("voucherId", "999"), ("id", "9")]).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(fixture.dead().await[0]["dead:entry"], unknown_voucher);
    sql(&fixture, "UPDATE tb_voucher_order SET status = 2 WHERE id = 4").await;
    add_event(&fixture, "cancelled", 2, &[]).await;
    for (event, reference) in [("paid", "a"), ("refunded", "r")] {
        add_event(&fixture, event, 3, &[("ref", reference)]).await;
    }
    for (order, user, voucher) in
        [(1, 1, 1), (2, 2, 1), (3, 3, 1), (32, 32, 3), (9, 9, 999), (77, 77, 1), (4, 4, 1)]
    {
        add_event_of(&fixture, "paid", (order, user, voucher), &[("ref", "p")]).await;
        add_event_of(&fixture, "paid", (order, user, voucher), &[("ref", "p")]).await;
    }
    add_event(&fixture, "paid", 1, &[("ref", "second")]).await;
    add_event_of(&fixture, "paid", (1, 2, 1), &[("ref", "somebody else's")]).await;
    fixture.settled().await;
    assert_eq!(
        recorded(&fixture, 1).await,
        ["paid applied 0", "paid unchanged 0", "paid refund_due 0", "paid refund_due 0"]
    );
    assert_eq!(recorded(&fixture, 2).await, ["cancelled applied 1", "paid refund_due 0", "paid unchanged 0"]);
    let third = ["paid applied 0", "refunded applied 1", "paid refund_due 0", "paid unchanged 0"];
    assert_eq!(recorded(&fixture, 3).await, third);
    for order in [32, 9, 77] {
        assert_eq!(
            recorded(&fixture, order).await,
            ["paid refund_due 0", "paid unchanged 0"],
            "order {order}"
        );
    }
    assert_eq!(
        recorded(&fixture, 4).await,
        ["paid applied 0", "paid unchanged 0"],
        "a service had set it to paid"
    );
    assert_eq!(states(&fixture, [1, 2, 3, 4, 32]).await, ["2 held", "5 free", "6 free", "2 held", "none"]);
    // The late payment is refunded. The units of the order were released when it was cancelled.
    let before = stocks(&fixture, 1).await;
    add_event(&fixture, "refunded", 2, &[("payment", "p")]).await;
    add_event(&fixture, "refunded", 1, &[]).await;
    add_event(&fixture, "refunded", 1, &[("payment", "second")]).await;
    fixture.settled().await;
    assert_eq!(states(&fixture, [1, 2]).await, ["2 held", "6 free"]);
    assert_eq!(recorded(&fixture, 1).await[4..], ["refunded payment_needed 0", "refunded applied 0"]);
    assert_eq!(stocks(&fixture, 1).await, before);
    assert!(worker.log().contains("a payment has to be refunded"), "it is for people");
    assert!(worker.stop().await.success());
}

/// Removes and returns all entries of the stream, so that a test can append others before them.
async fn take_entries(fixture: &Fixture) -> Vec<Vec<(String, String)>> {
    let taken =
        "local taken = redis.call('XRANGE', KEYS[1], '-', '+') redis.call('DEL', KEYS[1]) return taken";
    let taken: Vec<(String, Vec<(String, String)>)> =
        fixture.client.eval(taken, vec![STREAM], Vec::<String>::new()).await.expect("the entries");
    taken.into_iter().map(|(_, fields)| fields).collect()
}

async fn put_back(fixture: &Fixture, taken: &[Vec<(String, String)>]) {
    for fields in taken {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fixture.add(&fields).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_word_in_the_batch_of_a_cancellation_does_not_take_the_order_from_its_user() {
    let wrong_words = [(1, "paid", 9, 1), (2, "paid", 2, 8), (3, "used", 9, 1), (4, "cancelled", 9, 1)];
    for batches in ["one", "separate"] {
        let fixture = Fixture::open().await;
        fixture.load(1, 20).await;
        for order in 1..=4 {
            fixture.admit(order, order, 1, 2).await;
        }
        let taken = take_entries(&fixture).await;
        let mut worker = (batches == "separate").then(|| fixture.worker("w").start());
        for (order, wrong, user, voucher) in wrong_words {
            add_event_of(&fixture, wrong, (order, user, voucher), &[("ref", "x")]).await;
            if worker.is_some() {
                fixture.settled().await;
            }
            add_event(&fixture, "cancelled", order, &[]).await;
        }
        let worker = worker.take().unwrap_or_else(|| fixture.worker("w").start());
        fixture.settled().await;
        assert_eq!(states(&fixture, [1, 2, 3, 4]).await, ["4 free"; 4], "{batches}");
        for (order, what_came) in [
            (1, ["paid refund_due 0", "cancelled applied 0"]),
            (2, ["paid refund_due 0", "cancelled applied 0"]),
            (3, ["used no_order 0", "cancelled applied 0"]),
            (4, ["cancelled wrong_owner 0", "cancelled applied 0"]),
        ] {
            assert_eq!(recorded(&fixture, order).await, what_came, "{batches}: order {order}");
        }
        let owners = "SELECT CONCAT_WS(' ', id, user_id, voucher_id) FROM tb_voucher_order ORDER BY id";
        let owners: Vec<String> =
            sqlx::query_scalar(owners).fetch_all(&fixture.pool).await.expect("MySQL answers");
        assert_eq!(owners, ["1 1 1", "2 2 1", "3 3 1", "4 4 1"], "{batches}");
        put_back(&fixture, &taken).await;
        fixture.settled().await;
        assert_eq!(
            stocks(&fixture, 1).await,
            (20, Some(20)),
            "{batches}: the units of all orders are free again"
        );
        for user in 1..=4 {
            assert!(!is_buyer(&fixture, user).await, "{batches}: user {user} may buy again");
        }
        all_is_well(&fixture).await;
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_cancelled_before_it_comes_is_never_written_and_gives_its_own_units_back() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    for (order, quantity) in [(1, 3), (2, 2)] {
        fixture.admit(order, order, 1, quantity).await;
    }
    let taken = take_entries(&fixture).await;
    add_event(&fixture, "cancelled", 1, &[]).await;
    // The event of another user does not count.
    add_event_of(&fixture, "cancelled", (2, 9, 1), &[]).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(states(&fixture, [1, 2]).await, ["4 free", "none"]);
    assert_eq!(recorded(&fixture, 2).await, ["cancelled wrong_owner 0"]);
    assert_eq!(stocks(&fixture, 1).await, (20, Some(15)), "nothing went back yet");
    put_back(&fixture, &taken).await;
    put_back(&fixture, &taken).await;
    fixture.settled().await;
    assert_eq!(states(&fixture, [1, 2]).await, ["4 free", "1 held"]);
    assert_eq!(stocks(&fixture, 1).await, (18, Some(18)));
    assert_eq!((is_buyer(&fixture, 1).await, is_buyer(&fixture, 2).await), (false, true));
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_has_done_itself_is_not_overruled_and_not_released_again() {
    let fixture = Fixture::open().await;
    fixture.load(1, 20).await;
    for order in [1, 2] {
        fixture.admit(order, order, 1, 1).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    // The tutorial's services change both stores like this.
    sql(&fixture, "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 1; UPDATE tb_seckill_voucher SET stock = stock + 1")
        .await;
    fixture.call("INCR seckill:stock:1").await;
    fixture.call("SREM seckill:order:1 1").await;
    sql(&fixture, "UPDATE tb_voucher_order SET status = 3 WHERE id = 2").await;
    let before = stocks(&fixture, 1).await;
    for event in ["cancelled", "expired"] {
        add_event(&fixture, event, 1, &[]).await;
        add_event(&fixture, event, 2, &[]).await;
    }
    // The entry of the order also comes once more.
    fixture.add(&[("userId", "1"), ("voucherId", "1"), ("id", "1")]).await;
    fixture.settled().await;
    assert_eq!(recorded(&fixture, 1).await, ["cancelled unchanged 0", "expired unchanged 0"]);
    assert_eq!(recorded(&fixture, 2).await, ["cancelled used 0", "expired used 0"]);
    assert_eq!(stocks(&fixture, 1).await, before);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_another_program_wrote_as_ended_releases_once_what_a_complete_journal_holds() {
    let fixture = Fixture::open().await;
    let loaded = fixture.tidegate(&["voucher", "load", "--voucher", "1", "--stock", "20"]);
    assert!(loaded.status.success(), "{loaded:?}");
    fixture.load(3, 20).await;
    for (order, voucher, quantity) in [(1, 1, 2), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1), (30, 3, 1)] {
        fixture.admit(order, order, voucher, quantity).await;
    }
    // These rows were written as ended an hour before: cancelled, refunded, and cancelled for a voucher without a
    // complete journal. An order whose row was written after its admission may have been live meanwhile, and released
    // manually.
    sql(
        &fixture,
        "INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity, slot, status, create_time) VALUES \
         (1, 1, 1, 2, NULL, 4, NOW() - INTERVAL 1 HOUR), (2, 2, 1, 1, NULL, 6, NOW() - INTERVAL 1 HOUR), \
         (30, 30, 3, 1, NULL, 4, NOW() - INTERVAL 1 HOUR), (5, 5, 1, 1, NULL, 4, NOW())",
    )
    .await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(states(&fixture, [1, 2, 3, 4, 30]).await, ["4 free", "6 free", "1 held", "1 held", "4 free"]);
    assert_eq!((stocks(&fixture, 1).await, stocks(&fixture, 3).await), ((18, Some(17)), (20, Some(19))));
    for (user, expected) in [(1, false), (2, false), (3, true), (4, true)] {
        assert_eq!(is_buyer(&fixture, user).await, expected, "user {user}");
    }
    // A service cancels order 3 in both stores, and order 4 in MySQL only. No entry shows whether the units of such a
    // row were released in Redis.
    sql(
        &fixture,
        "UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id IN (3, 4); \
         UPDATE tb_seckill_voucher SET stock = stock + 2 WHERE voucher_id = 1",
    )
    .await;
    fixture.call("INCR seckill:stock:1").await;
    fixture.call("SREM seckill:order:1 3").await;
    for order in ["1", "2", "3", "4"] {
        let quantity = if order == "1" { "2" } else { "1" };
        fixture.add(&[("userId", order), ("voucherId", "1"), ("id", order), ("quantity", quantity)]).await;
    }
    fixture.settled().await;
    let replayed = fixture.tidegate(&["replay", "--from", "2020-01-01", "--to", "0s", "--yes"]);
    assert!(replayed.status.success(), "{replayed:?}");
    assert_eq!((stocks(&fixture, 1).await, stocks(&fixture, 3).await), ((20, Some(18)), (20, Some(19))));
    // The comparison of both stores decides that: it takes the changes of a service into account.
    let repaired = fixture.tidegate(&["reconcile", "--voucher", "1", "--repair", "--yes"]);
    assert!(repaired.status.success(), "{repaired:?}");
    assert_eq!(stocks(&fixture, 1).await, (20, Some(20)));
    assert_eq!(fixture.dead().await, []);
    assert!(worker.stop().await.success());
}

/// Appends the orders `first ..= last` of a voucher at once, then all their events. In turn, an order is paid and used;
/// paid, refunding and refunded; or paid and cancelled, which comes too late.
pub async fn append_orders_with_events<M: Endpoint>(
    fixture: &Fixture<M>,
    voucher: i64,
    (first, last): (i64, i64),
) {
    let lua = "local voucher, first, last = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
        local paths = { { 'paid', 'used' }, { 'paid', 'refunding', 'refunded' }, { 'paid', 'cancelled' } }
        local function add(...) redis.call('XADD', KEYS[1], '*', 'voucherId', voucher, ...) end
        for id = first, last do
            add('userId', id, 'id', id)
            for _, event in ipairs(paths[id % 3 + 1]) do add('event', event, 'orderId', id, 'userId', id) end
            redis.call('SADD', KEYS[2], id)
            redis.call('DECR', KEYS[3])
        end";
    let keys =
        vec![STREAM.to_owned(), format!("seckill:order:{voucher}"), format!("seckill:stock:{voucher}")];
    let args = [voucher, first, last].map(|number| number.to_string()).to_vec();
    let _done: Value = fixture.client.eval(lua, keys, args).await.expect("all is appended");
    // The script keeps no journal, so the units that it took are noted nowhere else.
    fixture.caller_log.write(|pages| *pages.loaded.entry(voucher).or_default() -= last - first + 1);
}

/// The number of a voucher's orders in each status.
pub async fn by_status<M: Endpoint>(fixture: &Fixture<M>, voucher: i64) -> Vec<(i64, i64)> {
    let sql = "SELECT CAST(status AS SIGNED), COUNT(*) FROM tb_voucher_order WHERE voucher_id = ? \
               GROUP BY status ORDER BY status";
    let rows = sqlx::query(sql).bind(voucher).fetch_all(&fixture.pool).await.expect("MySQL answers");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The number of events by kind and outcome, such as `paid applied`.
pub async fn by_outcome<M: Endpoint>(fixture: &Fixture<M>) -> Vec<(String, i64)> {
    let sql =
        "SELECT CONCAT(event, ' ', outcome), COUNT(*) FROM tidegate_event GROUP BY event, outcome ORDER BY 1";
    sqlx::query_as(sql).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_with_their_events_in_one_go_end_where_the_stream_leads_beside_kills_and_a_held_row() {
    const ORDERS: i64 = 9_999;
    const HELD: i64 = 600;
    let fixture = Fixture::open().await;
    fixture.load(1, 20_000).await;
    fixture.load(2, 20_000).await;
    append_orders_with_events(&fixture, 2, (100_001, 100_000 + HELD / 2)).await;
    append_orders_with_events(&fixture, 1, (1, ORDERS)).await;
    append_orders_with_events(&fixture, 2, (100_001 + HELD / 2, 100_000 + HELD)).await;
    let mut rival = fixture.pool.begin().await.expect("a transaction");
    let hold = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 2 FOR UPDATE";
    sqlx::query(hold).execute(&mut *rival).await.expect("held");
    let worker = |name: &str| fixture.worker(name).set("WORKER_LANES", 4).set("WORKER_BATCH", 300).start();
    let (first, second, third) = (worker("a"), worker("b"), worker("c"));
    until("some are on their way", || async { by_status(&fixture, 1).await.len() > 2 }).await;
    first.kill9();
    let heir = worker("a");
    until_within(3 * DEADLINE, "all but those of the held voucher are done", || async {
        by_status(&fixture, 1).await == [(2, ORDERS / 3), (3, ORDERS / 3), (6, ORDERS / 3)]
    })
    .await;
    assert_eq!(by_status(&fixture, 2).await, []);
    rival.rollback().await.expect("free");
    fixture.settled().await;
    assert_eq!(by_status(&fixture, 2).await, [(2, HELD / 3), (3, HELD / 3), (6, HELD / 3)]);
    assert_eq!(stocks(&fixture, 1).await, (20_000 - ORDERS / 3 * 2, Some(20_000 - ORDERS / 3 * 2)));
    assert_eq!(stocks(&fixture, 2).await, (20_000 - HELD / 3 * 2, Some(20_000 - HELD / 3 * 2)));
    let third_of_all = (ORDERS + HELD) / 3;
    let expected = [
        ("cancelled paid", third_of_all),
        ("paid applied", 3 * third_of_all),
        ("refunded applied", third_of_all),
        ("refunding applied", third_of_all),
        ("used applied", third_of_all),
    ];
    assert_eq!(by_outcome(&fixture).await, expected.map(|(word, count)| (word.to_owned(), count)));
    all_is_well(&fixture).await;
    for worker in [heir, second, third] {
        assert!(worker.stop().await.success());
    }
}

/// Kills a worker at the step that `arm` waits for, while it has events in progress that end orders. Then starts it
/// again.
async fn survive(arm: impl Fn(&Proxies) -> Hold) {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    for order in 1..=30 {
        fixture.admit(order, order, 1, 2).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    for order in 1..=30 {
        let event = if order % 2 == 0 { "cancelled" } else { "paid" };
        add_event(&fixture, event, order, &[("ref", "r")]).await;
    }
    let proxies = Proxies::start(&fixture).await;
    let hold = arm(&proxies);
    let worker = proxies.before(quick(&fixture, "w"), &fixture).start();
    hold.reached().await.expect("the worker comes to this step");
    worker.kill9();
    hold.cut();
    let heir = quick(&fixture, "w").start();
    fixture.settled().await;
    assert_eq!(by_status(&fixture, 1).await, [(2, 15), (4, 15)]);
    assert_eq!(stocks(&fixture, 1).await, (70, Some(70)));
    let sql = "SELECT COUNT(*) FROM tidegate_event";
    assert_eq!(sqlx::query_scalar::<_, i64>(sql).fetch_one(&fixture.pool).await.expect("MySQL answers"), 30);
    all_is_well(&fixture).await;
    assert!(heir.stop().await.success());
}

const WRITE_EVENTS: &[u8] = b"INSERT INTO tidegate_event (";

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_events_are_recorded() {
    survive(|proxies| proxies.mysql.hold_when(WRITE_EVENTS)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_events_are_recorded() {
    survive(|proxies| proxies.mysql.hold_reply_when(WRITE_EVENTS)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_events_gave_units_back() {
    let release = sha1_of(include_str!("../../lua/release_many.lua"));
    survive(|proxies| proxies.redis.hold_reply_when(&release)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_events_are_acknowledged() {
    survive(|proxies| proxies.redis.hold_when(ACK)).await;
}

/// Order 1 with this many units of voucher 1, in progress in a worker that is held at its COMMIT. The lock of its user
/// has ended, so only the pending list shows that it is in progress.
async fn order_in_other_hands(fixture: &Fixture, quantity: i64) -> (Proxies, Hold, Worker) {
    fixture.load(1, 100).await;
    fixture.admit(1, 1, 1, quantity).await;
    let proxies = Proxies::start(fixture).await;
    let hold = proxies.mysql.hold_when(CHECKED_COMMIT);
    let slow = proxies.before(quick(fixture, "slow"), fixture).start();
    hold.reached().await.expect("the order is in progress");
    fixture.call("DEL lock:order:1").await;
    (proxies, hold, slow)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_waits_for_its_order_in_the_hands_of_another_lane() {
    let fixture = Fixture::open().await;
    let (_proxies, hold, slow) = order_in_other_hands(&fixture, 1).await;
    add_event(&fixture, "paid", 1, &[("ref", "p")]).await;
    fixture.admit(2, 2, 1, 1).await;
    add_event(&fixture, "paid", 2, &[("ref", "p")]).await;
    let other = fixture.worker("other").start();
    until("the other order is paid", || async { state(&fixture, 2).await.as_deref() == Some("2 held") })
        .await;
    assert_eq!(recorded(&fixture, 1).await, Vec::<String>::new(), "nobody knows of the order yet");
    until("all but the order and its event are acknowledged", || async { fixture.pending().await == 2 })
        .await;
    hold.release();
    until("it is paid", || async { state(&fixture, 1).await.as_deref() == Some("2 held") }).await;
    fixture.settled().await;
    assert_eq!(recorded(&fixture, 1).await, ["paid applied 0"]);
    all_is_well(&fixture).await;
    assert!(slow.stop().await.success() && other.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_whole_day_with_its_events_moves_nothing() {
    let fixture = Fixture::open().await;
    fixture.load(1, 1_000).await;
    append_orders_with_events(&fixture, 1, (1, 300)).await;
    add_event(&fixture, "cancelled", 301, &[]).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    let everything = async || {
        let sql = "SELECT CONCAT_WS(' ', id, quantity, slot, status, update_time) FROM tb_voucher_order \
                   UNION ALL SELECT CONCAT_WS(' ', order_id, step, event, outcome, at) FROM tidegate_event ORDER BY 1";
        let rows: Vec<String> =
            sqlx::query_scalar(sql).fetch_all(&fixture.pool).await.expect("MySQL answers");
        (rows, stocks(&fixture, 1).await)
    };
    let before = everything().await;
    let dry = fixture.tidegate(&["replay", "--from", "2020-01-01", "--to", "0s", "--dry-run", "--json"]);
    let dry = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.contains("\"events_before\":701") || dry.contains("\"events_before\": 701"), "{dry}");
    let replayed = fixture.tidegate(&["replay", "--from", "2020-01-01", "--to", "0s", "--yes"]);
    assert!(replayed.status.success(), "{replayed:?}");
    assert_eq!(everything().await, before);
    // The group starts again at the beginning, and all entries are delivered again.
    fixture.call(&format!("XGROUP SETID {STREAM} {GROUP} 0")).await;
    fixture.settled().await;
    assert_eq!(everything().await, before);
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_cancelled_in_the_hands_of_another_lane_is_written_and_then_cancelled() {
    let fixture = Fixture::open().await;
    let (_proxies, hold, slow) = order_in_other_hands(&fixture, 3).await;
    add_event(&fixture, "cancelled", 1, &[]).await;
    let other = fixture.worker("other").start();
    until("it is set aside", || async {
        let log = other.log();
        log.contains("left=1")
    })
    .await;
    assert_eq!(states(&fixture, [1]).await, ["none"]);
    hold.release();
    until("it is cancelled", || async { state(&fixture, 1).await.as_deref() == Some("4 free") }).await;
    fixture.settled().await;
    assert_eq!(recorded(&fixture, 1).await, ["cancelled applied 3"]);
    assert_eq!(stocks(&fixture, 1).await, (100, Some(100)));
    all_is_well(&fixture).await;
    assert!(slow.stop().await.success() && other.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_buys_again_only_after_the_old_order_was_released_and_keeps_the_new_one() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.admit(1, 1, 1, 1).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let entry = add_event(&fixture, "cancelled", 1, &[]).await;
    let proxies = Proxies::start(&fixture).await;
    let release = sha1_of(include_str!("../../lua/release.lua"));
    let hold = proxies.redis.hold_when(&release);
    let worker = proxies.before(quick(&fixture, "w"), &fixture).start();
    hold.reached().await.expect("it is cancelled in MySQL");
    let refused = fixture.tidegate(&["admit", "--voucher", "1", "--user", "1"]);
    assert_eq!(refused.status.code(), Some(1), "the user still counts as a buyer: {refused:?}");
    hold.release();
    fixture.settled().await;
    fixture.admit(2, 1, 1, 1).await;
    fixture.settled().await;
    assert_eq!(states(&fixture, [1, 2]).await, ["4 free", "1 held"]);
    // The entry of the event is handled once more, as by a slow worker.
    fixture.call(&format!("XGROUP SETID {STREAM} {GROUP} {}", before(&entry))).await;
    fixture.settled().await;
    assert!(is_buyer(&fixture, 1).await);
    assert_eq!(stocks(&fixture, 1).await, (99, Some(99)));
    all_is_well(&fixture).await;
    assert!(worker.stop().await.success());
}

/// The entry id directly before this one.
fn before(entry: &str) -> String {
    let (ms, _) = entry.split_once('-').expect("an entry id");
    format!("{}-{}", ms.parse::<u64>().expect("milliseconds") - 1, u64::MAX)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_cancelled_after_it_was_buried_is_released_with_its_letter_and_not_put_back() {
    let fixture = Fixture::open().await;
    // Redis sells a voucher that MySQL does not know.
    fixture.load(1, 10).await;
    sql(&fixture, "DELETE FROM tb_seckill_voucher").await;
    fixture.admit(1, 1, 1, 2).await;
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert_eq!(fixture.dead().await[0]["dead:reason"], "unknown_voucher");
    add_event(&fixture, "cancelled", 1, &[]).await;
    add_event(&fixture, "paid", 1, &[("ref", "p")]).await;
    fixture.settled().await;
    assert_eq!(recorded(&fixture, 1).await, ["cancelled applied 0", "paid refund_due 0"]);
    assert_eq!(fixture.redis_stock(1).await, Some(8), "its units are the dead letter's");
    let requeued = fixture.tidegate(&["dead", "requeue", "--all", "--yes"]);
    assert_eq!(requeued.status.code(), Some(1), "it would not be written: {requeued:?}");
    let cancelled = fixture.tidegate(&["dead", "cancel", "--all", "--yes"]);
    assert!(cancelled.status.success(), "{cancelled:?}");
    assert_eq!((fixture.dead().await.len(), fixture.redis_stock(1).await), (0, Some(10)));
    assert!(!is_buyer(&fixture, 1).await);
    assert_eq!(states(&fixture, [1]).await, ["5 free"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_comes_twice_in_a_batch_or_by_two_streams_is_recorded_with_one_effect() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    for order in [1, 2] {
        fixture.admit(order, order, 1, 1).await;
        add_event(&fixture, "cancelled", order, &[("ref", "c")]).await;
        add_event(&fixture, "cancelled", order, &[("ref", "c")]).await;
    }
    let (order, reference) =
        ([("event", "cancelled"), ("userId", "1"), ("voucherId", "1")], [("orderId", "1"), ("ref", "c")]);
    let fields: Vec<&str> =
        order.iter().chain(&reference).flat_map(|(name, value)| [*name, *value]).collect();
    let _entry: Value = fixture.redis_says(&[&["XADD", "B:stream.orders", "*"], &fields[..]].concat()).await;
    let (first, second) =
        (fixture.worker("w").start(), fixture.worker("w").log_as("second").set("REDIS_PREFIX", "B:").start());
    fixture.settled().await;
    second.says("done=1").await;
    let outcomes = recorded(&fixture, 1).await;
    let applied = outcomes.iter().filter(|outcome| outcome.starts_with("cancelled applied")).count();
    assert_eq!((outcomes.len(), applied), (3, 1), "{outcomes:?}");
    assert_eq!(recorded(&fixture, 2).await, ["cancelled applied 1", "cancelled unchanged 0"]);
    assert_eq!(fixture.mysql_stock(1).await, 10);
    assert!(first.stop().await.success() && second.stop().await.success());
}
